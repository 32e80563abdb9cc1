// Factoring a leaf of LEAF columns (geqr2) with its T (larft): a thread holds whole rows in registers.
//
// The macros ROWS (of a thread), THREADS and CLUSTER (blocks that share a matrix, through distributed shared memory)
// are given when this is compiled. Thread i of block b of a cluster holds rows (b ROWS + r) THREADS + i of the leaf.
//
// The pivot column is always a[r][0]: each step writes column c + 1, updated, to place c, and the finished pivot to the
// last, so that the loop needs no index that is not known when it is compiled, and after LEAF steps all are back.
//
// In a cluster, which has few matrices and waits for its barriers, one more warp makes T meanwhile.
#define LEAF 32
#define WARPS (THREADS / 32)
#define MEANWHILE (CLUSTER > 1)
#define FLUSH 0x1p-60f // a smaller entry of a scaled column counts as zero: see reflect.py
static_assert(THREADS % 32 == 0 && THREADS >= LEAF, "whole warps, and the pivot's row is in the first block's first");

__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ void store_in(float *here, int block, float value) {
    unsigned address = (unsigned)__cvta_generic_to_shared(here), there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(value) : "memory");
}

template <int HALF> __device__ __forceinline__ void fold(float (&p)[LEAF], int lane) {
    const bool upper = lane & HALF;
#pragma unroll
    for (int i = 0; i < HALF; i++) {
        const float kept = upper ? p[i + HALF] : p[i];
        const float sent = upper ? p[i] : p[i + HALF];
        p[i] = kept + __shfl_xor_sync(~0u, sent, HALF);
    }
}

// The sum over the warp of p[c] to lane c.
__device__ __forceinline__ float sum_to_lanes(float (&p)[LEAF], int lane) {
    fold<16>(p, lane), fold<8>(p, lane), fold<4>(p, lane), fold<2>(p, lane), fold<1>(p, lane);
    return p[0];
}

// T(:, j) from its columns before: -tau_j T(:j, :j) V^T v_j, with V^T v_j and tau_j in `along`. A lane has a row.
__device__ __forceinline__ void make_column(float (&triangle)[LEAF][LEAF + 1], const float *along, int j, int lane) {
    float sum = 0.0f;
#pragma unroll 4
    for (int i = 0; i < j; i++) sum = fmaf(triangle[lane][i], along[i], sum);
    triangle[lane][j] = lane < j ? -along[j] * sum : lane == j ? along[j] : 0.0f;
}

#if CLUSTER > 1
#define TOGETHER __cluster_dims__(CLUSTER, 1, 1)
#else
#define TOGETHER
#endif

// With PROFILE, the GPU's clock in ns when a block begins, when its factors are stored (geqr2), and when the matrix's T is
// (larft), 3 a block.
#ifdef PROFILE
#define STAMPS , long long *stamps
#define STAMP(when, who) \
    if (threadIdx.x == (who)) asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(stamps[blockIdx.x * 3ll + (when)])::"memory")
#else
#define STAMPS
#define STAMP(when, who)
#endif

extern "C" __global__ void TOGETHER __launch_bounds__(THREADS + 32 * MEANWHILE) qrprof_geqr2_larft_rows(
    float *work, float *tau, float *t, int m, int ld, int k, int leaf, int t_row, int t_batch STAMPS) {
    STAMP(0, 0);
    __shared__ float4 steps[WARPS][LEAF / 4], rows[2][LEAF / 4];
    __shared__ float parts[2][WARPS][LEAF], gram[LEAF][LEAF + 1], triangle[LEAF][LEAF + 1];
#if CLUSTER > 1
    __shared__ float blocks[2][CLUSTER][LEAF], pivots[2][LEAF];
#endif
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int block = blockIdx.x % CLUSTER;
    const long long matrix = blockIdx.x / CLUSTER;
    const bool joins = MEANWHILE && warp == WARPS; // the warp that makes T
    const int first = joins ? ROWS * THREADS * CLUSTER : block * ROWS * THREADS + threadIdx.x;
    float *column = work + matrix * m * ld + leaf;
    float a[ROWS][LEAF];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int row = leaf + first + r * THREADS;
#pragma unroll
        for (int c = 0; c < LEAF; c += 4) {
            float4 four = {0, 0, 0, 0};
            if (row < m && !joins) four = *(const float4 *)(column + (long long)row * ld + c);
            a[r][c] = four.x, a[r][c + 1] = four.y, a[r][c + 2] = four.z, a[r][c + 3] = four.w;
        }
    }
#pragma unroll 1
    for (int j = 0; j < LEAF; j++) {
        const int turn = j & 1;
        float x[ROWS], p[LEAF];
        if (!joins) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                x[r] = first + r * THREADS > j ? a[r][0] : 0.0f;
                x[r] = fabsf(x[r]) < FLUSH ? 0.0f : x[r];
            }
#pragma unroll
            for (int c = 0; c < LEAF; c++) {
                p[c] = a[0][c] * x[0];
#pragma unroll
                for (int r = 1; r < ROWS; r++) p[c] = fmaf(a[r][c], x[r], p[c]);
            }
            if (first == j) {
#pragma unroll
                for (int c = 0; c < LEAF; c += 4)
                    rows[turn][c / 4] = make_float4(a[0][c], a[0][c + 1], a[0][c + 2], a[0][c + 3]);
            }
            parts[turn][warp][lane] = sum_to_lanes(p, lane);
        }
        __syncthreads();
        if (joins) {
            if (block == 0 && j > 0) make_column(triangle, gram[j - 1], j - 1, lane);
#if CLUSTER > 1
            cluster_barrier();
#endif
            continue;
        }
        // Lane l has column (l + j) % LEAF from here on: s = x^T A, and row j of A.
        float s = 0.0f, row;
#pragma unroll
        for (int w = 0; w < WARPS; w++) s += parts[turn][w][lane];
        row = ((const float *)rows[turn])[lane];
#if CLUSTER > 1
        for (int to = warp; to < CLUSTER; to += WARPS) {
            store_in(&blocks[turn][block][lane], to, s);
            if (block == 0) store_in(&pivots[turn][lane], to, row);
        }
        cluster_barrier();
        s = 0.0f;
#pragma unroll
        for (int b = 0; b < CLUSTER; b++) s += blocks[turn][b][lane];
        row = pivots[turn][lane];
#endif
        const float sigma = __shfl_sync(~0u, s, 0), alpha = __shfl_sync(~0u, row, 0);
        const bool reflected = sigma != 0.0f; // true for NaN
        const float norm = sqrtf(alpha * alpha + sigma);
        const float beta = reflected ? (alpha >= 0.0f ? -norm : norm) : alpha;
        const float scale = reflected ? __frcp_rn(alpha - beta) : 0.0f;
        const float factor = reflected ? (beta - alpha) * __frcp_rn(beta) : 0.0f; // its rounding is alpha's, once more
        const float along = fmaf(s, scale, row); // v^T A
        const int place = (lane + j) % LEAF;
        ((float *)steps[warp])[lane] = place > j ? factor * along : 0.0f;
        if (warp == 0) gram[j][place] = place == j ? factor : along;
        __syncwarp();
        float step[LEAF];
#pragma unroll
        for (int c = 0; c < LEAF; c += 4) {
            float4 four = steps[warp][c / 4];
            step[c] = four.x, step[c + 1] = four.y, step[c + 2] = four.z, step[c + 3] = four.w;
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int at = first + r * THREADS;
            const float v = at == j ? 1.0f : x[r] * scale;
            const float done = at > j ? v : at == j ? beta : a[r][0];
#pragma unroll
            for (int c = 0; c + 1 < LEAF; c++) a[r][c] = fmaf(-v, step[c + 1], a[r][c + 1]);
            a[r][LEAF - 1] = done;
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int row = leaf + first + r * THREADS;
#pragma unroll
        for (int c = 0; c < LEAF; c += 4)
            if (row < m && !joins)
                *(float4 *)(column + (long long)row * ld + c) =
                    make_float4(a[r][c], a[r][c + 1], a[r][c + 2], a[r][c + 3]);
    }
    __syncthreads();
    STAMP(1, 0);
    if (block != 0 || warp != MEANWHILE * WARPS) return;
    for (int j = MEANWHILE * (LEAF - 1); j < LEAF; j++) make_column(triangle, gram[j], j, lane);
    __syncwarp();
    if (leaf + lane < k) tau[matrix * k + leaf + lane] = gram[lane][lane];
    t += matrix * t_batch;
    for (int i = 0; i < LEAF; i++) t[i * t_row + lane] = triangle[i][lane];
    STAMP(2, MEANWHILE * THREADS);
}
