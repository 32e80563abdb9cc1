// A panel from A into registers, its columns scaled by powers of two, and back to H.
#define LOW 2 // the largest entry of a scaled column is 2^2 .. 2^3, as float16 needs it

// The panel from A. CONTIGUOUS: neighbours in a row are neighbours in memory.
template <bool CONTIGUOUS>
__device__ __forceinline__ void read(Panel &c, const Place &at, const float *a_of, int a_row, int a_column, int panel) {
    const int column = panel * PANEL + at.lane / 4, top = at.top_row(), apart = CONTIGUOUS ? 1 : a_column;
#pragma unroll
    for (int slot = 0; slot < SLOTS; slot++)
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int odd = 0; odd < 2; odd++) {
                const int row = top + DOWN * slot + 8 * h + odd;
                const float *from = a_of + (long long)row * a_row + (long long)column * apart;
#pragma unroll
                for (int i = 0; i < 8; i++, from += 8ll * apart) // one after the other: places to be kept would spill
                    c[i / 2][slot][h][i % 2 * 2 + odd] = row < at.m && column + 8 * i < at.n ? *from : 0.0f;
            }
}

// A panel on its way to L2 while another is factored, where it is whole and its rows are multiples of 16 bytes.
__device__ __forceinline__ void prefetch(const Place &at, const float *a_of, int a_row, int column) {
#pragma unroll 1
    for (int local = at.thread; local < ROWS; local += THREADS) {
        const int row = at.row_of(local);
        if (row < at.m) bulk_prefetch(a_of + (long long)row * a_row + column, PANEL * sizeof(float));
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
    if (a_column == 1)
        read<true>(c, at, a_of, a_row, a_column, panel);
    else
        read<false>(c, at, a_of, a_row, a_column, panel);
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

// The first LEAF columns of c to those from `column` on of a result: the groups before `end`, SCALED back by
// `exponents`, or as they are those from `end` on. It is unrolled: with addresses that differ by constants it is short.
template <bool SCALED>
__device__ __forceinline__ void store(const Panel &c, const Place &at, const Result &result, int column,
                                      const int *exponents, int end) {
    float by[2][2][2];
    float *to[2][2];
    bool has[2][2];
    const int top = at.top_row();
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int within = 16 * i + 8 * e + at.lane / 4;
            has[i][e] = column + within < result.columns;
            to[i][e] = result.to + (long long)(column + within) * result.rows + top;
            if (SCALED) powers_of(-exponents[within], by[i][e]);
        }
    const bool even = result.rows % 2 == 0;
#pragma unroll
    for (int slot = 0; slot < SLOTS; slot++) {
        if (SCALED ? at.group(slot) >= end : at.group(slot) < end) continue;
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int e = 0; e < 2; e++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int down = DOWN * slot + 8 * h;
                    const float(&four)[4] = c[i][slot][h];
                    float2 two = make_float2(four[2 * e], four[2 * e + 1]);
                    if (SCALED) two.x = two.x * by[i][e][0] * by[i][e][1], two.y = two.y * by[i][e][0] * by[i][e][1];
                    if (even) {
                        if (has[i][e] && top + down < result.rows) *(float2 *)(to[i][e] + down) = two;
                    } else {
                        if (has[i][e] && top + down < result.rows) to[i][e][down] = two.x;
                        if (has[i][e] && top + down + 1 < result.rows) to[i][e][down + 1] = two.y;
                    }
                }
    }
}

// A panel's second leaf takes the place of its first.
__device__ __forceinline__ void move_second(Panel &c) {
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int slot = 0; slot < SLOTS; slot++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int e = 0; e < 4; e++) c[i][slot][h][e] = c[2 + i][slot][h][e];
}
