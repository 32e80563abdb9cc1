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
