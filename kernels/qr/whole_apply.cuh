// Columns of a panel take the reflectors of a leaf (larfb), in halves. With TRANSPOSE they are multiplied by the block
// reflector's transpose, as A is by Q^T: C^T becomes C^T - (C^T V T) V^T; else by itself, as Q is made, with T^T.

// C^T V of two tiles of 16 columns, from `tile` on, over the warp's rows.
__device__ __forceinline__ void make_sums(float (&w)[2][4][4], const Panel &c, int tile, const Place &at,
                                          const Reflectors &of, int first) {
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int q = 0; q < 4; q++) w[i][q][0] = w[i][q][1] = w[i][q][2] = w[i][q][3] = 0.0f;
#pragma unroll
    for (int slot = 0; slot < SLOTS; slot++) {
        if (!at.active(slot, first)) continue;
        unsigned high[2][4], low[2][4];
        by_rows(high, low, of.v + at.group(slot) * 16, at.lane);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            unsigned c_high[4], c_low[4];
            split_tiles(c[tile + i][slot][0], c[tile + i][slot][1], c_high, c_low);
#pragma unroll
            for (int q = 0; q < 4; q++) mma(w[i][q], c_low, high[q / 2][q % 2 * 2], high[q / 2][q % 2 * 2 + 1]);
#pragma unroll
            for (int q = 0; q < 4; q++) mma(w[i][q], c_high, low[q / 2][q % 2 * 2], low[q / 2][q % 2 * 2 + 1]);
#pragma unroll
            for (int q = 0; q < 4; q++) mma(w[i][q], c_high, high[q / 2][q % 2 * 2], high[q / 2][q % 2 * 2 + 1]);
        }
    }
}

// A pair of warps adds its sums up: the second stores them, the first adds its own to what is there.
__device__ __forceinline__ void add_in_pairs(const float (&w)[2][4][4], int both, Shared &shared, const Place &at) {
    const bool second = at.warp >= PAIRS;
    if (!second) wait_at<THREADS>(1 + both / 2);
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int q = 0; q < 4; q++) {
            float4 &there = shared.parts[at.warp % PAIRS][both + i][q][at.lane];
            float4 sum = make_float4(w[i][q][0], w[i][q][1], w[i][q][2], w[i][q][3]);
            if (!second) sum.x += there.x, sum.y += there.y, sum.z += there.z, sum.w += there.w;
            there = sum;
        }
    if (second) arrive_at<THREADS>(1 + both / 2);
}

// C^T V of the warp's tile over all rows of the matrix. A block waits for the sums of the others, and so is one
// exchange ahead of them at most: two places are enough.
__device__ __forceinline__ void add_all(float (&sum)[4][4], Shared &shared, const Place &at) {
#if CLUSTER > 1
    const int turn = at.exchanges & 1;
#endif
#pragma unroll
    for (int q = 0; q < 4; q++) {
        float4 s = shared.parts[0][at.warp][q][at.lane];
#pragma unroll
        for (int part = 1; part < PAIRS; part++) {
            const float4 more = shared.parts[part][at.warp][q][at.lane];
            s.x += more.x, s.y += more.y, s.z += more.z, s.w += more.w;
        }
#if CLUSTER > 1
#pragma unroll
        for (int to = 0; to < CLUSTER; to++)
            send(&shared.sums[turn][at.rank][at.warp][q][at.lane], to, s, &shared.sums_here[turn]);
#endif
        sum[q][0] = s.x, sum[q][1] = s.y, sum[q][2] = s.z, sum[q][3] = s.w;
    }
#if CLUSTER > 1
    barrier_wait_here(&shared.sums_here[turn], at.exchanges >> 1 & 1);
#pragma unroll
    for (int q = 0; q < 4; q++) {
        sum[q][0] = sum[q][1] = sum[q][2] = sum[q][3] = 0.0f;
#pragma unroll
        for (int from = 0; from < CLUSTER; from++) {
            const float4 more = shared.sums[turn][from][at.warp][q][at.lane];
            sum[q][0] += more.x, sum[q][1] += more.y, sum[q][2] += more.z, sum[q][3] += more.w;
        }
    }
#endif
}

// T is upper triangular: products with its zeros are left out.
__device__ __forceinline__ void add_times_t(float (&done)[4][4], const float (&sum)[4][4], const Row *t, int lane) {
#pragma unroll
    for (int kk = 0; kk < 2; kk++) {
        unsigned high[2][4], low[2][4], s_high[4], s_low[4];
        by_rows(high, low, t + 16 * kk, lane);
        split_tiles(sum[2 * kk], sum[2 * kk + 1], s_high, s_low);
#pragma unroll
        for (int q = 2 * kk; q < 4; q++) {
            mma(done[q], s_low, high[q / 2][q % 2 * 2], high[q / 2][q % 2 * 2 + 1]);
            mma(done[q], s_high, low[q / 2][q % 2 * 2], low[q / 2][q % 2 * 2 + 1]);
            mma(done[q], s_high, high[q / 2][q % 2 * 2], high[q / 2][q % 2 * 2 + 1]);
        }
    }
}

__device__ __forceinline__ void add_times_t_transposed(float (&done)[4][4], const float (&sum)[4][4], const Row *t,
                                                       int lane) {
    unsigned s_high[2][4], s_low[2][4];
#pragma unroll
    for (int kk = 0; kk < 2; kk++) split_tiles(sum[2 * kk], sum[2 * kk + 1], s_high[kk], s_low[kk]);
#pragma unroll
    for (int q = 0; q < 4; q++) {
        unsigned high[4], low[4];
        by_columns(high, low, t + 8 * q, lane);
#pragma unroll
        for (int kk = q / 2; kk < 2; kk++) {
            mma(done[q], s_low[kk], high[2 * kk], high[2 * kk + 1]);
            mma(done[q], s_high[kk], low[2 * kk], low[2 * kk + 1]);
            mma(done[q], s_high[kk], high[2 * kk], high[2 * kk + 1]);
        }
    }
}

// (C^T V) T, or (C^T V) T^T, of the warp's tile to shared.w.
template <bool TRANSPOSE>
__device__ __forceinline__ void times_t(const float (&sum)[4][4], Shared &shared, const Place &at, const Row *t) {
    float done[4][4];
#pragma unroll
    for (int q = 0; q < 4; q++) done[q][0] = done[q][1] = done[q][2] = done[q][3] = 0.0f;
    if (TRANSPOSE)
        add_times_t(done, sum, t, at.lane);
    else
        add_times_t_transposed(done, sum, t, at.lane);
#pragma unroll
    for (int kk = 0; kk < 2; kk++) {
        unsigned high[4], low[4];
        split_tiles(done[2 * kk], done[2 * kk + 1], high, low);
        shared.w[at.warp][kk][0][at.lane] = make_uint4(high[0], high[1], high[2], high[3]);
        shared.w[at.warp][kk][1][at.lane] = make_uint4(low[0], low[1], low[2], low[3]);
    }
}

// Two tiles of columns less that times V^T. `both` is the first one's place in shared.w, `tile` in the panel.
__device__ __forceinline__ void subtract(Panel &c, int tile, int both, const Shared &shared, const Place &at,
                                         const Reflectors &of, int first) {
    unsigned high[2][2][4], low[2][2][4];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int kk = 0; kk < 2; kk++) {
            const uint4 x = shared.w[both + i][kk][0][at.lane], y = shared.w[both + i][kk][1][at.lane];
            high[i][kk][0] = x.x, high[i][kk][1] = x.y, high[i][kk][2] = x.z, high[i][kk][3] = x.w;
            low[i][kk][0] = y.x, low[i][kk][1] = y.y, low[i][kk][2] = y.z, low[i][kk][3] = y.w;
        }
#pragma unroll
    for (int slot = 0; slot < SLOTS; slot++) {
        if (!at.active(slot, first)) continue;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            unsigned v_high[4], v_low[4];
            by_columns(v_high, v_low, of.v + at.group(slot) * 16 + 8 * h, at.lane);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
                for (int kk = 0; kk < 2; kk++) mma(d, low[i][kk], v_high[2 * kk], v_high[2 * kk + 1]);
#pragma unroll
                for (int kk = 0; kk < 2; kk++) mma(d, high[i][kk], v_low[2 * kk], v_low[2 * kk + 1]);
#pragma unroll
                for (int kk = 0; kk < 2; kk++) mma(d, high[i][kk], v_high[2 * kk], v_high[2 * kk + 1]);
#pragma unroll
                for (int e = 0; e < 4; e++) c[tile + i][slot][h][e] -= d[e];
            }
        }
    }
}

// Columns 16 FIRST .. + 16 COUNT of the panel take the reflectors of a leaf. All threads; the reflectors of `next`, if
// any, are on their way to the other place from where all are done with what was there. Two tiles of columns at a time:
// that many sums and operands fit beside the panel.
template <int FIRST, int COUNT, bool TRANSPOSE>
__device__ __forceinline__ void apply(Panel &c, Shared &shared, Place &at, const Reflectors &of, int leaf,
                                      const char *scratch, int next) {
    if (FORM) asm volatile("" : "+r"(at.lane)); // seems another now: no register keeps what was made of it before
    const int first = at.first_group(leaf);
#pragma unroll
    for (int both = 0; both < COUNT; both += 2) {
        float w[2][4][4];
        make_sums(w, c, FIRST + both, at, of, first);
        add_in_pairs(w, both, shared, at);
    }
    __syncthreads();
    if (next >= 0 && at.thread == 0) load(shared, at, scratch, next, next);
#if CLUSTER > 1
    if (at.thread == 0) barrier_expect(&shared.sums_here[at.exchanges & 1], CLUSTER * COUNT * 4 * 32 * sizeof(float4));
#endif
    if (at.warp < COUNT) {
        float sum[4][4];
        add_all(sum, shared, at);
        times_t<TRANSPOSE>(sum, shared, at, of.t);
    }
    at.exchanges++;
    __syncthreads();
#pragma unroll
    for (int both = 0; both < COUNT; both += 2) subtract(c, FIRST + both, both, shared, at, of, first);
}
