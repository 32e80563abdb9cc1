// A panel from A into registers, its columns scaled by powers of two, and back to H.
#define LOW 2 // the largest entry of a scaled column is 2^2 .. 2^3, as float16 needs it

__device__ __forceinline__ void read(Panel &c, const Place &at, const float *a_of, int a_row, int a_column, int panel) {
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int column = panel * PANEL + 16 * i + at.lane / 4 + 8 * (e / 2);
            const float *from = a_of + (long long)column * a_column;
#pragma unroll
            for (int slot = 0; slot < SLOTS; slot++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int row = at.row_of(at.group(slot) * 16) + 8 * h + at.lane % 4 * 2 + e % 2;
                    c[i][slot][h][e] = row < at.m && column < at.n ? from[(long long)row * a_row] : 0.0f;
                }
        }
}

// The largest entries of columns in the warp's rows.
__device__ __forceinline__ void find_largest(const Panel &c, float *of_warp, int lane) {
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
            float largest = 0.0f;
#pragma unroll
            for (int slot = 0; slot < SLOTS; slot++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    largest = fmaxf(largest, fmaxf(fabsf(c[i][slot][h][e]), fabsf(c[i][slot][h][e + 1])));
            largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
            largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
            if (lane % 4 == 0) of_warp[16 * i + lane / 4 + 4 * e] = largest;
        }
}

__device__ __forceinline__ void scale(Panel &c, const int *exponents, int lane) {
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int exponent = exponents[16 * i + lane / 4 + 8 * (e / 2)];
#pragma unroll
            for (int slot = 0; slot < SLOTS; slot++)
#pragma unroll
                for (int h = 0; h < 2; h++) c[i][slot][h][e] = times_power(c[i][slot][h][e], exponent);
        }
}

// The panel from A, its columns scaled. All threads.
__device__ __forceinline__ void begin_panel(Panel &c, Shared &shared, const Place &at, const float *a_of, int a_row,
                                            int a_column, int panel) {
    read(c, at, a_of, a_row, a_column, panel);
    find_largest(c, shared.scaling.of_warps[at.warp], at.lane);
    __syncthreads();
    float largest = 0.0f;
    if (at.thread < PANEL) {
#pragma unroll
        for (int w = 0; w < WARPS; w++) largest = fmaxf(largest, shared.scaling.of_warps[w][at.thread]);
    }
#if CLUSTER > 1
    if (at.thread < PANEL)
        for (int to = 0; to < CLUSTER; to++) store_in(&shared.scaling.largest[at.rank][at.thread], to, largest);
    cluster_barrier();
    if (at.thread < PANEL)
        for (int from = 0; from < CLUSTER; from++) largest = fmaxf(largest, shared.scaling.largest[from][at.thread]);
#endif
    if (at.thread < PANEL) shared.exponents[at.thread] = exponent_of(largest, LOW);
    __syncthreads();
    scale(c, shared.exponents, at.lane);
}

// Columns 16 FIRST .. + 16 COUNT of the panel to H: R of the groups before `first`, V of those from `below` on.
template <int FIRST, int COUNT>
__device__ __forceinline__ void store(const Panel &c, const Shared &shared, const Place &at, float *h_of, int panel,
                                      int first, int below) {
#pragma unroll
    for (int slot = 0; slot < SLOTS; slot++) {
        const int group = at.group(slot);
        if (group >= first && group < below) continue;
#pragma unroll
        for (int i = FIRST; i < FIRST + COUNT; i++)
#pragma unroll
            for (int e = 0; e < 4; e += 2) {
                const int within = 16 * i + at.lane / 4 + 4 * e, column = panel * PANEL + within;
                const int exponent = group < first ? -shared.exponents[within] : 0;
                float *to = h_of + (long long)column * at.m;
                if (column < at.n)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        const int row = at.row_of(group * 16) + 8 * h + at.lane % 4 * 2;
                        const float one = times_power(c[i][slot][h][e], exponent);
                        const float two = times_power(c[i][slot][h][e + 1], exponent);
                        if (at.m % 2 == 0 && row < at.m)
                            *(float2 *)(to + row) = make_float2(one, two);
                        else {
                            if (row < at.m) to[row] = one;
                            if (row + 1 < at.m) to[row + 1] = two;
                        }
                    }
            }
    }
}
