// Factoring a leaf of LEAF columns (geqr2) with its T (larft): a leaf's rows are dealt out to warps, which keep them.
//
// The macros WARPS (at least 2), SLOTS (an even number of groups of 16 rows a warp) and CLUSTER (blocks that share a
// matrix, through distributed shared memory) are given when this is compiled. Groups go round: group g, counted from
// the leaf's first row, to block g % CLUSTER, there to warp g / CLUSTER % WARPS.
//
// Row j of step j leaves the registers for `top`, and zeros take its place: what is above the diagonal needs no mask
// then. A column takes one barrier of the block; a cluster's sums arrive at an mbarrier of each block.
#include "hopper.cuh"
#include "leaf.cuh"
#include "reflect.cuh"
#define THREADS (32 * WARPS)
static_assert(SLOTS % 2 == 0 && WARPS >= 2, "whole pairs of slots, and two warps at least");

// With PROFILE, the GPU's clock in ns when a block begins, when its first warp has stored its factors (geqr2), and when
// the matrix's T is stored (larft), 3 a block.
#ifdef PROFILE
#define STAMPS , long long *stamps
#define STAMP(when) \
    if (threadIdx.x == 0) asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(stamps[blockIdx.x * 3ll + (when)])::"memory")
#else
#define STAMPS
#define STAMP(when)
#endif

typedef float Strips[4][SLOTS][4]; // columns 8 q + eighth; rows 2 pair, + 1, + 8, + 9 of a group

struct Place { // of a thread
    int lane, warp, rank, height; // of the leaf, in rows
    int eighth, pair; // lane / 4, lane % 4
    __device__ __forceinline__ int group(int slot) const { return (slot * WARPS + warp) * CLUSTER + rank; }
    __device__ __forceinline__ int row(int slot, int e) const {
        return group(slot) * 16 + 2 * pair + e % 2 + 8 * (e / 2);
    }
    __device__ __forceinline__ bool holds(int slot) const { return group(slot) * 16 < height; }
};

// Row j = 8 q + u of the leaf to `row`, from the warp that has it.
__device__ __forceinline__ void take_row(Strips &c, float *row, int q, int u, const Place &at) {
    if (at.pair == u / 2) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float &even = c[i][0][q % 2 * 2], &odd = c[i][0][q % 2 * 2 + 1];
            row[4 * at.eighth + i] = u & 1 ? odd : even;
            even = u & 1 ? even : 0.0f, odd = u & 1 ? 0.0f : odd;
        }
    }
    __syncwarp();
}

// x, which is column j = 8 q + u below row j, and the warp's part of x^T A.
__device__ __forceinline__ float products(const Strips &c, float (&x)[SLOTS][4], int q, int u, const Place &at) {
    float p[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int both = 0; both < SLOTS; both += 2) {
        if (!at.holds(both)) continue;
#pragma unroll
        for (int i = 0; i < 8; i++)
            x[both + i / 4][i % 4] = __shfl_sync(~0u, c[q][both + i / 4][i % 4], 4 * u + at.pair);
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int o = 0; o < 4; o++) p[o] = fmaf(c[o][both + i / 4][i % 4], x[both + i / 4][i % 4], p[o]);
    }
    return sum_to_lanes(p, at.pair);
}

// Columns from j on less x times `scaled` of their lanes. x itself becomes v: 0 + scale x.
__device__ __forceinline__ void update(Strips &c, const float (&x)[SLOTS][4], float scaled, int q, int u,
                                       const Place &at) {
    float by[4];
#pragma unroll
    for (int i = q; i < 4; i++) by[i] = __shfl_sync(~0u, scaled, 4 * at.eighth + i);
#pragma unroll
    for (int both = 0; both < SLOTS; both += 2) {
        if (!at.holds(both)) continue;
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int o = q; o < 4; o++) {
                float &one = c[o][both + i / 4][i % 4];
                one = fmaf(-x[both + i / 4][i % 4], by[o], o == q && at.eighth == u ? 0.0f : one);
            }
    }
}

// T from V^T V above the diagonal of gram's transpose, with tau on it; a lane has a row.
__device__ __forceinline__ void make_t(float (&t)[LEAF], const float4 (&gram)[LEAF][LEAF / 4], int lane) {
#pragma unroll
    for (int j = 0; j < LEAF; j++) {
        float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < j; i += 4) {
            const float4 along = gram[j][i / 4];
            sums[0] = fmaf(t[i], along.x, sums[0]);
            if (i + 1 < j) sums[1] = fmaf(t[i + 1], along.y, sums[1]);
            if (i + 2 < j) sums[2] = fmaf(t[i + 2], along.z, sums[2]);
            if (i + 3 < j) sums[3] = fmaf(t[i + 3], along.w, sums[3]);
        }
        const float tau = ((const float *)gram[j])[j];
        t[j] = lane < j ? -tau * ((sums[0] + sums[1]) + (sums[2] + sums[3])) : lane == j ? tau : 0.0f;
    }
}

extern "C" __global__ void TOGETHER __launch_bounds__(THREADS) qrprof_geqr2_larft_rows(
    float *work, float *tau, float *t, int m, int ld, int k, int leaf, int t_row, int t_batch STAMPS) {
    STAMP(0);
    __shared__ float rows[2][LEAF], parts[2][WARPS][LEAF], top[LEAF][LEAF + 1];
    __shared__ float4 gram[LEAF][LEAF / 4];
#if CLUSTER > 1
    __shared__ float blocks[2][CLUSTER][LEAF], pivots[2][LEAF];
    __shared__ Barrier here_now[2];
#endif
    Place at;
    at.warp = __shfl_sync(~0u, threadIdx.x / 32, 0); // uniform, which the compiler cannot know else
    at.lane = threadIdx.x % 32, at.eighth = at.lane / 4, at.pair = at.lane % 4;
    at.rank = blockIdx.x % CLUSTER, at.height = m - leaf;
    const long long matrix = blockIdx.x / CLUSTER;
    float *column_of = work + (matrix * m + leaf) * ld + leaf;
    Strips c;
#pragma unroll
    for (int slot = 0; slot < SLOTS; slot++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = at.row(slot, e);
#pragma unroll
            for (int q = 0; q < 4; q++)
                c[q][slot][e] = row < at.height ? column_of[(long long)row * ld + 8 * q + at.eighth] : 0.0f;
        }
#if CLUSTER > 1
    if (threadIdx.x == 0) barrier_init(&here_now[0]), barrier_init(&here_now[1]), fence_init();
    cluster_barrier();
#endif
    const bool busy = at.holds(0);
    if (!busy) parts[0][at.warp][at.lane] = parts[1][at.warp][at.lane] = 0.0f;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const bool owner = q / 2 % CLUSTER == at.rank, mine = owner && q / 2 / CLUSTER % WARPS == at.warp;
#pragma unroll 1
        for (int u = 0; u < 8; u++) {
            const int j = 8 * q + u, turn = u & 1;
            float x[SLOTS][4];
            if (mine) take_row(c, rows[turn], q, u, at);
            if (busy) parts[turn][at.warp][at.lane] = products(c, x, q, u, at);
            __syncthreads();
            if (CLUSTER == 1 && !busy && at.warp > 0) continue;
            float s = 0.0f, row = rows[turn][at.lane]; // x^T A and row j of A, in the lane's column
#pragma unroll
            for (int w = 0; w < WARPS; w++) s += parts[turn][w][at.lane];
#if CLUSTER > 1
            if (threadIdx.x == 0) barrier_expect(&here_now[turn], (CLUSTER + 1) * LEAF * sizeof(float));
            for (int to = at.warp; to < CLUSTER; to += WARPS) {
                send(&blocks[turn][at.rank][at.lane], to, s, &here_now[turn]);
                if (owner) send(&pivots[turn][at.lane], to, row, &here_now[turn]);
            }
            barrier_wait(&here_now[turn], j / 2 & 1); // also who has nothing to do: nobody ends before all has come
            if (!busy && at.warp > 0) continue;
            s = 0.0f;
#pragma unroll
            for (int b = 0; b < CLUSTER; b++) s += blocks[turn][b][at.lane];
            row = pivots[turn][at.lane];
#endif
            const float sigma = __shfl_sync(~0u, s, 4 * u + q), alpha = __shfl_sync(~0u, row, 4 * u + q);
            const Reflector by = reflector_of(alpha, sigma);
            const float along = fmaf(s, by.scale, row); // v^T A
            const int column = 8 * at.pair + at.eighth;
            const float step = column > j ? by.tau * along : 0.0f;
            if (at.warp == 0) {
                ((float *)gram[j])[column] = column == j ? by.tau : along;
                top[j][column] = column == j ? by.beta : row - step;
            }
            if (busy) update(c, x, column == j ? -by.scale : step * by.scale, q, u, at);
        }
    }
    __syncthreads();
#pragma unroll
    for (int slot = 0; slot < SLOTS; slot++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = at.row(slot, e);
#pragma unroll
            for (int q = 0; q < 4; q++)
                if (at.group(slot) > 1 && row < at.height)
                    column_of[(long long)row * ld + 8 * q + at.eighth] = c[q][slot][e];
        }
    STAMP(1);
    if (at.rank != 0) return;
    if (at.warp == 1)
        for (int j = 0; j < min(LEAF, at.height); j++) column_of[(long long)j * ld + at.lane] = top[j][at.lane];
    if (at.warp > 0) return;
    if (leaf + at.lane < k) tau[matrix * k + leaf + at.lane] = ((const float *)gram[at.lane])[at.lane];
    float triangle[LEAF];
    make_t(triangle, gram, at.lane);
    t += matrix * t_batch + (long long)at.lane * t_row;
#pragma unroll
    for (int j = 0; j < LEAF; j += 4)
        *(float4 *)(t + j) = make_float4(triangle[j], triangle[j + 1], triangle[j + 2], triangle[j + 3]);
    STAMP(2);
}
