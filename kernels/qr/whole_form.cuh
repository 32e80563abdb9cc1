// The first k columns of Q formed (orgqr): columns of the identity take the reflectors, the last ones first.
#define UNIT 6 // columns have norm 2^6: what float16 loses of their entries, float32 would nearly lose too

// A panel of the identity. All threads.
__device__ __forceinline__ void begin_identity(Panel &c, Shared &shared, const Place &at, int panel) {
    const int below = at.top_row() - panel * PANEL - at.lane / 4; // rows from the diagonal to the thread's first place
    if (at.thread < LEAF) shared.exponents[at.thread] = UNIT;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int slot = 0; slot < SLOTS; slot++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const bool diagonal = below + DOWN * slot + 8 * h + e % 2 == 16 * i + e / 2 * 8;
                    c[i][slot][h][e] = diagonal ? 1 << UNIT : 0.0f;
                }
}

// A panel of Q. Leaves after its own would not change it: they have no rows where it has entries. The reflectors of its
// last leaf are on their way already, and in the end those of the panel before it are.
__device__ __forceinline__ void form(Panel &c, Shared &shared, Place &at, const Result &q, int panel, int leaves,
                                     const char *scratch) {
    begin_identity(c, shared, at, panel);
#pragma unroll 1
    for (int leaf = min(2 * panel + 2, leaves) - 1; leaf >= 0; leaf--) {
        wait_for(shared, at, leaf);
        const int next = leaf > 0 ? leaf - 1 : 2 * panel - 1;
        apply<0, 4, false>(c, shared, at, shared.reflectors[leaf & 1], leaf, scratch, next);
    }
#pragma unroll 1
    for (int column = panel * PANEL; column < (panel + 1) * PANEL; column += LEAF) {
        store<true>(c, at, q, column, shared.exponents, at.groups);
        move_second(c);
    }
}
