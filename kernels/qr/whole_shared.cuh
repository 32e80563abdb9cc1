// What a block of whole.cu has in registers and in shared memory, and how rows are dealt out.
#define PANEL 64
#define THREADS (32 * WARPS)
#define PAIRS (WARPS / 2)
#define ROWS (16 * SLOTS * WARPS)
#define DOWN (16 * WARPS * CLUSTER) // rows from one slot of a warp to the next
static_assert(WARPS % 2 == 0 && WARPS >= 4 && SLOTS % 2 == 0, "pairs of warps and of slots, a warp a tile of columns");
static_assert(CLUSTER <= WARPS, "a warp sends a step's sums to a block");

struct Reflectors { // of a leaf, in halves
    Row t[LEAF];
    Row v[ROWS];
};

struct Steps { // of a leaf being factored
    float rows[2][LEAF], parts[2][WARPS][LEAF];
    float blocks[2][CLUSTER][LEAF], pivots[2][LEAF];
    float4 gram[LEAF][LEAF / 4];
    float top[LEAF][LEAF + 4]; // the leaf's first rows: R, and V below
};

struct Shared {
    Reflectors reflectors[2];
    union {
        float4 parts[PAIRS][4][4][32]; // V^T C of pairs of warps
        struct {
            float largest[CLUSTER][PANEL], of_warps[WARPS][PANEL];
        } scaling;
    };
#if CLUSTER > 1
    float4 sums[2][CLUSTER][4][4][32]; // and of blocks; in turn, so that nobody waits until they were read
    Barrier sums_here[2], step_here[2];
#endif
    uint4 w[4][2][2][32]; // (T^T V^T C)^T in halves, in the order of A operands
    Steps steps;
    int exponents[PANEL];
    Barrier loaded[2];
};
#ifdef SHARED
static_assert(sizeof(Shared) <= SHARED, "what is asked for");
#endif

struct Place { // of a thread, and what it works on
    int thread, lane, warp, rank, groups; // groups of rows that this block has
    int m, n, k;
    unsigned loads, exchanges; // how often which barrier was waited for
    // The first group of this block at or after the rows of a leaf.
    __device__ __forceinline__ int first_group(int leaf) const { return (2 * leaf - rank + CLUSTER - 1) / CLUSTER; }
    __device__ __forceinline__ int group(int slot) const { return slot * WARPS + warp; }
    __device__ __forceinline__ int row_of(int local) const { return (local / 16 * CLUSTER + rank) * 16 + local % 16; }
    __device__ __forceinline__ int top_row() const { return row_of(warp * 16) + lane % 4 * 2; } // the thread's first
    __device__ __forceinline__ bool active(int slot, int first) const {
        return group(slot) >= first && group(slot) < groups;
    }
    __device__ __forceinline__ bool either(int slot, int first) const {
        return group(slot + 1) >= first && group(slot) < groups;
    }
};

typedef float Panel[4][SLOTS][2][4]; // columns 16 i + .., group, its upper or lower 8 rows

struct Result { // column-major
    float *to;
    int rows, columns;
};

// The reflectors of a leaf, from the rows of leaf `first` on, to the place that goes by its number. One thread.
__device__ __forceinline__ void load(Shared &shared, Place &at, const char *scratch, int leaf, int first) {
    const int begin = at.first_group(first) * 16;
    const unsigned bytes = max(at.groups * 16 - begin, 0) * sizeof(Row);
    Reflectors &to = shared.reflectors[leaf & 1];
    const Reflectors *from = (const Reflectors *)scratch + (long long)leaf * CLUSTER + at.rank;
    barrier_expect(&shared.loaded[leaf & 1], sizeof to.t + bytes);
    bulk_load(to.t, from->t, sizeof to.t, &shared.loaded[leaf & 1]);
    if (bytes) bulk_load(to.v + begin, from->v + begin, bytes, &shared.loaded[leaf & 1]);
}

__device__ __forceinline__ void wait_for(Shared &shared, Place &at, int leaf) {
    barrier_wait_here(&shared.loaded[leaf & 1], at.loads >> (leaf & 1) & 1);
    at.loads ^= 1u << (leaf & 1);
}
