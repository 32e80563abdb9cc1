// geqrf of a matrix of up to SIDE x SIDE by one warp: a lane has a column in registers, and nothing waits at a barrier.
//
// Row j is always a[0] of step j: each step writes row i + 1, updated, to place i, so that the loop needs no index that
// is not known when it is compiled. What leaves is finished: R, and the reflectors' entries in row j.
#include "reflect.cuh"
#define SIDE 32
#define SCALE 48 // the largest entry of a scaled column is 2^48 .. 2^49

// Steps first .. end, with at most LEFT rows below the first one's pivot.
template <int LEFT>
__device__ __forceinline__ void steps(float (&a)[SIDE], float (&tile)[SIDE][SIDE + 1], float &tau, int first, int end,
                                      int exponent, int lane) {
#pragma unroll 1
    for (int j = first; j < end; j++) {
        const float alpha = __shfl_sync(~0u, a[0], j);
        float x[LEFT], sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < LEFT; i++) x[i] = __shfl_sync(~0u, a[i + 1], j);
#pragma unroll
        for (int i = 0; i < LEFT; i++) sums[i % 4] = fmaf(x[i], a[i + 1], sums[i % 4]);
        const float s = (sums[0] + sums[1]) + (sums[2] + sums[3]); // x^T A
        const Reflector by = reflector_of(alpha, __shfl_sync(~0u, s, j));
        const float step = lane > j ? by.tau * fmaf(s, by.scale, a[0]) : 0.0f;
        const float factor = lane == j ? -by.scale : step * by.scale;
        if (lane == j) tau = by.tau;
        const float row = lane == j ? by.beta : a[0] - step;
        tile[j][lane] = lane < j ? row : times_power(row, -exponent);
#pragma unroll
        for (int i = 0; i < LEFT; i++) a[i] = fmaf(-x[i], factor, lane == j ? 0.0f : a[i + 1]); // x becomes v
#pragma unroll
        for (int i = LEFT; i < SIDE; i++) a[i] = 0.0f;
    }
}

extern "C" __global__ void __launch_bounds__(SIDE) qrprof_geqr2_tiny(
    const float *a_of, float *h, float *tau_of, int m, int n, int a_batch, int a_row, int a_column) {
    __shared__ float tile[SIDE][SIDE + 1];
    const int lane = threadIdx.x;
    const long long matrix = blockIdx.x;
    a_of += matrix * a_batch + (long long)lane * a_column;
    float a[SIDE], largest = 0.0f, tau = 0.0f;
#pragma unroll
    for (int i = 0; i < SIDE; i++) a[i] = i < m && lane < n ? a_of[(long long)i * a_row] : 0.0f;
#pragma unroll
    for (int i = 0; i < SIDE; i++) largest = fmaxf(largest, fabsf(a[i]));
    const int exponent = exponent_of(largest, SCALE);
#pragma unroll
    for (int i = 0; i < SIDE; i++) a[i] = times_power(a[i], exponent);
    steps<SIDE - 1>(a, tile, tau, 0, min(m, SIDE / 2), exponent, lane);
    steps<SIDE / 2 - 1>(a, tile, tau, SIDE / 2, m, exponent, lane);
    __syncwarp();
    h += matrix * m * n;
    for (int i = 0; i < n; i++)
        if (lane < m) h[i * m + lane] = tile[lane][i];
    const int k = min(m, n);
    if (lane < k) tau_of[matrix * k + lane] = tau;
}
