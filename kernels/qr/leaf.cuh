// What factoring a leaf of LEAF columns takes where a warp holds them as strips: a thread has columns 8 q + lane / 4,
// q = 0 .. 3, of rows 2 (lane % 4) .. + 1 of every eight. A sum over a warp's rows takes three shuffles then, and the
// pivot column one a row.
#define LEAF 32

// Sums over the four lanes of a column: lane 4 e + i ends with that of column 8 i + e.
__device__ __forceinline__ float sum_to_lanes(const float (&p)[4], int pair) {
    const bool upper = pair & 2, odd = pair & 1;
    const float one = (upper ? p[2] : p[0]) + __shfl_xor_sync(~0u, upper ? p[0] : p[2], 2);
    const float two = (upper ? p[3] : p[1]) + __shfl_xor_sync(~0u, upper ? p[1] : p[3], 2);
    return (odd ? two : one) + __shfl_xor_sync(~0u, odd ? one : two, 1);
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
