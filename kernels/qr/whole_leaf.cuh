// A leaf of a panel factored (geqr2) with its T (larft), as rows.cu does it, and its reflectors put where others take
// them from. A thread has two neighbouring rows of its columns in each half of a group.
#define UP 0x1p46f // from the scale of a panel to that of a leaf, whose largest entries are 2^48 .. 2^49

// A leaf's columns at the scale of a leaf, and zeros above its rows, which need no mask then.
__device__ __forceinline__ void scale_leaf(Panel &c, const Place &at, int first) {
#pragma unroll
    for (int slot = 0; slot < SLOTS; slot++) {
        const float by = at.active(slot, first) ? UP : 0.0f;
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float &one = c[i][slot][h][e];
                    one = by == 0.0f ? 0.0f : one * by;
                }
    }
}

// Row j = 8 q + u of the leaf, in slot `slot_of` of this warp, to `row`; zeros take its place.
__device__ __forceinline__ void take_row(Panel &c, float *row, int q, int u, int slot_of, const Place &at) {
    const int eighth = at.lane / 4, pair = at.lane % 4;
#pragma unroll
    for (int slot = 0; slot < SLOTS; slot++)
        if (slot == slot_of && pair == u / 2) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float(&four)[4] = c[i / 2][slot][q % 2];
                float &even = four[i % 2 * 2], &odd = four[i % 2 * 2 + 1];
                row[4 * eighth + i] = u & 1 ? odd : even;
                even = u & 1 ? even : 0.0f, odd = u & 1 ? 0.0f : odd;
            }
        }
    __syncwarp();
}

// x, which is column j = 8 q + u below row j, and the warp's part of x^T A.
__device__ __forceinline__ float products(const Panel &c, float (&x)[SLOTS][2][2], int q, int u, const Place &at,
                                          int first) {
    const int pair = at.lane % 4;
    float p[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int both = 0; both < SLOTS; both += 2) {
        if (!at.either(both, first)) continue;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float(&four)[4] = c[q / 2][both + i / 4][i / 2 % 2];
            x[both + i / 4][i / 2 % 2][i % 2] = __shfl_sync(~0u, four[q % 2 * 2 + i % 2], 4 * u + pair);
        }
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int o = 0; o < 4; o++) {
                const float(&four)[4] = c[o / 2][both + i / 4][i / 2 % 2];
                p[o] = fmaf(four[o % 2 * 2 + i % 2], x[both + i / 4][i / 2 % 2][i % 2], p[o]);
            }
    }
    return sum_to_lanes(p, pair);
}

// Columns from j on less x times `scaled` of their lanes. x itself becomes v: 0 + scale x.
__device__ __forceinline__ void update(Panel &c, const float (&x)[SLOTS][2][2], float scaled, int q, int u,
                                       const Place &at, int first) {
    const int eighth = at.lane / 4;
    float by[4];
#pragma unroll
    for (int i = q; i < 4; i++) by[i] = __shfl_sync(~0u, scaled, 4 * eighth + i);
#pragma unroll
    for (int both = 0; both < SLOTS; both += 2) {
        if (!at.either(both, first)) continue;
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int o = q; o < 4; o++) {
                float &one = c[o / 2][both + i / 4][i / 2 % 2][o % 2 * 2 + i % 2];
                one = fmaf(-x[both + i / 4][i / 2 % 2][i % 2], by[o], o == q && eighth == u ? 0.0f : one);
            }
    }
}

// The steps of a leaf: its columns become V below the leaf's own rows, and shared.steps takes the rest.
__device__ __forceinline__ void reflect(Panel &c, Shared &shared, const Place &at, int leaf, int first) {
    Steps &steps = shared.steps;
    const bool busy = at.group(SLOTS - 1) >= first && at.warp < at.groups;
    if (!busy) steps.parts[0][at.warp][at.lane] = steps.parts[1][at.warp][at.lane] = 0.0f;
    if (at.thread == 0) bulk_wait(); // V of the leaf before is on its way, and its place is free
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const int pivots = 2 * leaf + q / 2; // the group of row j
        const bool here = pivots % CLUSTER == at.rank, mine = here && pivots / CLUSTER % WARPS == at.warp;
        const int slot_of = pivots / CLUSTER / WARPS;
#pragma unroll 1
        for (int u = 0; u < 8; u++) {
            const int j = 8 * q + u, turn = u & 1;
            float x[SLOTS][2][2];
            if (mine) take_row(c, steps.rows[turn], q, u, slot_of, at);
            if (busy) steps.parts[turn][at.warp][at.lane] = products(c, x, q, u, at, first);
            __syncthreads();
            if (CLUSTER == 1 && !busy && at.warp > 0) continue;
            float s = 0.0f, row = steps.rows[turn][at.lane]; // x^T A and row j of A, in the lane's column
#pragma unroll
            for (int w = 0; w < WARPS; w++) s += steps.parts[turn][w][at.lane];
#if CLUSTER > 1
            if (at.thread == 0) barrier_expect(&shared.step_here[turn], (CLUSTER + 1) * LEAF * sizeof(float));
            if (at.warp < CLUSTER) {
                send(&steps.blocks[turn][at.rank][at.lane], at.warp, s, &shared.step_here[turn]);
                if (here) send(&steps.pivots[turn][at.lane], at.warp, row, &shared.step_here[turn]);
            }
            if (!busy && at.warp > 0) continue;
            barrier_wait_here(&shared.step_here[turn], j / 2 & 1);
            s = 0.0f;
#pragma unroll
            for (int b = 0; b < CLUSTER; b++) s += steps.blocks[turn][b][at.lane];
            row = steps.pivots[turn][at.lane];
#endif
            const float sigma = __shfl_sync(~0u, s, 4 * u + q), alpha = __shfl_sync(~0u, row, 4 * u + q);
            const Reflector by = reflector_of(alpha, sigma);
            const float along = fmaf(s, by.scale, row); // v^T A
            const int column = 8 * (at.lane % 4) + at.lane / 4;
            const float step = column > j ? by.tau * along : 0.0f;
            if (at.warp == 0) {
                ((float *)steps.gram[j])[column] = column == j ? by.tau : along;
                steps.top[j][column] = column == j ? by.beta : row - step;
            }
            if (!busy) continue;
            update(c, x, column == j ? -by.scale : step * by.scale, q, u, at, first);
        }
    }
    __syncthreads();
}

// T from V^T V above the diagonal of gram's transpose, with tau on it; a lane has a row. Eight columns at a time, in
// float32 where the halves come: unrolled it is a thousand instructions, for one warp.
__device__ __forceinline__ void keep_t(Row *t_of, const float4 (&gram)[LEAF][LEAF / 4], int lane) {
    float4 *row = (float4 *)(t_of + lane);
#pragma unroll 1
    for (int begin = 0; begin < LEAF; begin += 8) {
        float sums[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}, t[8];
#pragma unroll 1
        for (int piece = 0; piece < begin / 4; piece++) {
            const float4 four = row[piece ^ (lane & 7)];
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const float4 along = gram[begin + j][piece];
                sums[j] = fmaf(four.x, along.x, sums[j]), sums[j] = fmaf(four.y, along.y, sums[j]);
                sums[j] = fmaf(four.z, along.z, sums[j]), sums[j] = fmaf(four.w, along.w, sums[j]);
            }
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const float4 one = gram[begin + j][begin / 4], two = gram[begin + j][begin / 4 + 1];
            const float along[8] = {one.x, one.y, one.z, one.w, two.x, two.y, two.z, two.w};
#pragma unroll
            for (int i = 0; i < j; i++) sums[j] = fmaf(t[i], along[i], sums[j]);
            const float tau = along[j];
            t[j] = lane < begin + j ? -tau * sums[j] : lane == begin + j ? tau : 0.0f;
        }
        row[begin / 4 ^ (lane & 7)] = make_float4(t[0], t[1], t[2], t[3]);
        row[(begin / 4 + 1) ^ (lane & 7)] = make_float4(t[4], t[5], t[6], t[7]);
    }
    float t[LEAF];
#pragma unroll
    for (int i = 0; i < LEAF; i += 4) {
        const float4 four = row[i / 4 ^ (lane & 7)];
        t[i] = four.x, t[i + 1] = four.y, t[i + 2] = four.z, t[i + 3] = four.w;
    }
    __syncwarp(); // what is read is not of the type that is written
    store_row(t_of + lane, t, lane);
}

// V of the leaf's own rows, one a lane, from `top`: ones on the diagonal and zeros above.
__device__ __forceinline__ void keep_top(Reflectors &to, const Steps &steps, const Place &at, int leaf) {
    const int pivots = 2 * leaf + at.lane / 16, local = pivots / CLUSTER * 16 + at.lane % 16;
    if (pivots % CLUSTER == at.rank && local < at.groups * 16) {
        float v[LEAF];
#pragma unroll
        for (int i = 0; i < LEAF; i += 4) {
            const float4 four = *(const float4 *)&steps.top[at.lane][i];
            v[i] = four.x, v[i + 1] = four.y, v[i + 2] = four.z, v[i + 3] = four.w;
        }
#pragma unroll
        for (int i = 0; i < LEAF; i++) v[i] = at.lane > i ? v[i] : at.lane == i ? 1.0f : 0.0f;
        store_row(to.v + local, v, local);
    }
}

// V of the rows from group `below` on, in halves.
__device__ __forceinline__ void keep_v(Reflectors &to, const Panel &c, const Place &at, int below) {
#pragma unroll
    for (int slot = 0; slot < SLOTS; slot++) {
        if (!at.active(slot, below)) continue;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            unsigned high[4], low[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float(&four)[4] = c[i / 2][slot][h];
                split(four[i % 2 * 2], four[i % 2 * 2 + 1], high[i], low[i]);
            }
            Row *row = to.v + at.group(slot) * 16 + 8 * h + at.lane % 8;
            stmatrix(&row->piece[(at.lane / 8) ^ (at.lane & 7)], high);
            stmatrix(&row->piece[(at.lane / 8 + 4) ^ (at.lane & 7)], low);
        }
    }
}

// The leaf's own rows to H, or R.
__device__ __forceinline__ void store_top(const Result &result, const Steps &steps, const int *exponents,
                                          const Place &at, int leaf) {
    for (int i = at.thread; i < LEAF * LEAF; i += THREADS) {
        const int j = i % LEAF, within = i / LEAF, row = LEAF * leaf + j, column = LEAF * leaf + within;
        const float value = steps.top[j][within], below = FORM ? 0.0f : value;
        if (row < result.rows && column < result.columns)
            result.to[(long long)column * result.rows + row] =
                j > within ? below : times_power(value, -46 - exponents[within]);
    }
}

// What R has below its diagonal, in a leaf's columns.
__device__ __forceinline__ void fill_zeros(Panel &c) {
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int slot = 0; slot < SLOTS; slot++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int e = 0; e < 4; e++) c[i][slot][h][e] = 0.0f;
}

// The first LEAF columns of c, which are leaf number `leaf`, are factored, and go to H and tau, or R, but for the rows
// above. To shared.reflectors[0] and `scratch` come V and T where other columns take them. All threads.
__device__ __forceinline__ void factor(Panel &c, Shared &shared, const Place &at, const Result &result, float *tau_of,
                                       int leaf, char *scratch) {
    const int first = at.first_group(leaf), below = at.first_group(leaf + 1);
    const int *exponents = shared.exponents + leaf % 2 * LEAF;
    const bool needed = FORM || LEAF * (leaf + 1) < at.n;
    Reflectors &to = shared.reflectors[0];
    scale_leaf(c, at, first);
    reflect(c, shared, at, leaf, first);
    if (at.warp == 0) {
        if (!FORM && at.rank == 0 && LEAF * leaf + at.lane < at.k)
            tau_of[LEAF * leaf + at.lane] = ((const float *)shared.steps.gram[at.lane])[at.lane];
        if (needed) keep_t(to.t, shared.steps.gram, at.lane);
    }
    if (needed && at.warp == 1) keep_top(to, shared.steps, at, leaf);
    if (at.rank == 0) store_top(result, shared.steps, exponents, at, leaf);
    if (needed) keep_v(to, c, at, below);
    if (FORM) fill_zeros(c);
    store<false>(c, at, result, LEAF * leaf, exponents, below);
    if (!needed) return;
    fence_async();
    __syncthreads();
    if (at.thread == 0) {
        const int begin = first * 16, left = at.groups * 16 - begin;
        Reflectors *there = (Reflectors *)scratch + (long long)leaf * CLUSTER + at.rank;
        bulk_store(there->t, to.t, sizeof to.t);
        if (left > 0) bulk_store(there->v + begin, to.v + begin, left * sizeof(Row));
    }
}
