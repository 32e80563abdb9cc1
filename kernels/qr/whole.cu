// geqrf, or with FORM qr, of whole matrices in one launch: a cluster of CLUSTER blocks has a matrix at a time, and its
// rows stay on chip.
//
// Left-looking, in panels of PANEL columns: a panel is read from A, scaled, takes all reflectors before it, is factored
// in leaves of LEAF columns and written to H, or R. With FORM, panels of the identity then take the reflectors and are
// written to Q. Nothing else is read or written but V's halves (scratch).
//
// Rows go round in groups of 16: group g to block g % CLUSTER, there to warp g / CLUSTER % WARPS, so that all have as
// much left to do. A panel is held as the transposed accumulators of mma.m16n8k16 (columns are its m): in that order
// they are A operands of C^T V and accumulators of C^T - (W T)^T V^T alike, and C passes through no memory in between.
//
// The macros WARPS, SLOTS (groups a warp), CLUSTER, SHARED (bytes a block) and FORM (0 or 1) are given when this is
// compiled.
#include "hopper.cuh"
#include "reflect.cuh"
#include "leaf.cuh"
#include "tensor.cuh"
#include "whole_shared.cuh"
#include "whole_panel.cuh"
#include "whole_apply.cuh"
#include "whole_leaf.cuh"
#include "whole_form.cuh"

// The thread's place, and the barriers of its block. All threads.
__device__ __forceinline__ Place begin(Shared &shared, int m, int n) {
    Place at;
    at.thread = threadIdx.x, at.lane = at.thread % 32;
    at.warp = __shfl_sync(~0u, at.thread / 32, 0); // uniform, which the compiler cannot know else
    at.rank = CLUSTER > 1 ? cluster_rank() : 0;
    at.m = m, at.n = n, at.k = min(m, n);
    at.groups = ((m + 15) / 16 - at.rank + CLUSTER - 1) / CLUSTER;
    at.loads = at.exchanges = 0;
    if (at.thread == 0) {
        barrier_init(&shared.loaded[0]), barrier_init(&shared.loaded[1]);
#if CLUSTER > 1
        barrier_init(&shared.step_here[0]), barrier_init(&shared.step_here[1]);
        barrier_init(&shared.sums_here[0]), barrier_init(&shared.sums_here[1]);
#endif
        fence_async();
    }
    __syncthreads();
#if CLUSTER > 1
    cluster_barrier();
#endif
    return at;
}

// The panel after this one, of the next matrix where it was the last, to L2.
__device__ __forceinline__ void look_ahead(const Place &at, const float *a, int batch, int a_batch, int a_row,
                                           int a_column, int matrix, int panel) {
    const bool last = (panel + 1) * PANEL >= at.n;
    const int of = last ? matrix + gridDim.x / CLUSTER : matrix, column = last ? 0 : (panel + 1) * PANEL;
    const bool aligned = a_column == 1 && (a_row | a_batch) % 4 == 0 && (unsigned long long)a % 16 == 0;
    if (aligned && column + PANEL <= at.n && of < batch) prefetch(at, a + (long long)of * a_batch, a_row, column);
}

#if FORM // the name says so in a trace
#define qrprof_geqr2_larft_larfb_whole qrprof_geqr2_larft_larfb_orgqr_whole
#endif

// H (upper) and tau (others) of all matrices; with FORM R and Q.
extern "C" __global__ void TOGETHER __launch_bounds__(THREADS, 1) qrprof_geqr2_larft_larfb_whole(
    const float *a, float *upper, float *others, char *scratch, int batch, int m, int n, int a_batch, int a_row,
    int a_column) {
    extern __shared__ __align__(128) char memory[];
    Shared &shared = *(Shared *)memory;
    Place at = begin(shared, m, n);
    const int leaves = (at.k + LEAF - 1) / LEAF, rows = FORM ? at.k : m;
    scratch += (long long)(blockIdx.x / CLUSTER) * leaves * CLUSTER * sizeof(Reflectors);
#pragma unroll 1
    for (int matrix = blockIdx.x / CLUSTER; matrix < batch; matrix += gridDim.x / CLUSTER) {
        const Result result = {upper + (long long)matrix * rows * n, rows, n};
        float *tau_of = others + (long long)matrix * at.k;
#pragma unroll 1
        for (int panel = 0; panel * PANEL < n; panel++) {
            const int before = min(2 * panel, leaves);
            if (!FORM || (panel + 1) * PANEL < n) look_ahead(at, a, batch, a_batch, a_row, a_column, matrix, panel);
            Panel c;
            if (at.thread == 0 && before > 0) bulk_wait(), load(shared, at, scratch, 0, 0);
            begin_panel(c, shared, at, a + (long long)matrix * a_batch, a_row, a_column, panel);
#pragma unroll 1
            for (int leaf = 0; leaf < before; leaf++) {
                wait_for(shared, at, leaf);
                const int next = leaf + 1 < before ? leaf + 1 : -1;
                apply<0, 4, true>(c, shared, at, shared.reflectors[leaf & 1], leaf, scratch, next);
            }
#pragma unroll 1
            for (int leaf = 2 * panel; LEAF * leaf < n; leaf++) { // two at most
                const bool left = leaf < leaves;
                store<true>(c, at, result, LEAF * leaf, shared.exponents + leaf % 2 * LEAF,
                            left ? at.first_group(leaf) : at.groups);
                if (left) factor(c, shared, at, result, tau_of, leaf, scratch);
                if (leaf % 2 || LEAF * (leaf + 1) >= n) break;
                if (left) apply<2, 2, true>(c, shared, at, shared.reflectors[0], leaf, scratch, -1);
                move_second(c);
            }
            fence_async();
            __syncthreads();
        }
#if FORM
        const Result q = {others + (long long)matrix * m * at.k, m, at.k};
        if (at.thread == 0) bulk_wait(), load(shared, at, scratch, leaves - 1, leaves - 1);
#pragma unroll 1
        for (int panel = (at.k - 1) / PANEL; panel >= 0; panel--) {
            if (panel == 0) look_ahead(at, a, batch, a_batch, a_row, a_column, matrix, (n - 1) / PANEL);
            Panel c;
            form(c, shared, at, q, panel, leaves, scratch);
        }
#endif
    }
    if (at.thread == 0) bulk_wait();
#if CLUSTER > 1
    cluster_barrier();
#endif
}
