// Products on the tensor cores of float32 numbers in two float16 halves, high and low (see products.py).

// --- instructions

__device__ __forceinline__ unsigned pack(float x, float y) {
    unsigned both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
    return both;
}

__device__ __forceinline__ void unpack(unsigned both, float &x, float &y) {
    asm("{\n\t.reg .f16 a, b;\n\tmov.b32 {a, b}, %2;\n\tcvt.f32.f16 %0, a;\n\tcvt.f32.f16 %1, b;\n\t}"
        : "=f"(x), "=f"(y)
        : "r"(both));
}

template <bool TRANS> __device__ __forceinline__ void ldmatrix(unsigned (&r)[4], const void *at) {
    if (TRANS)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address_of(at))
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address_of(at))
                     : "memory");
}

__device__ __forceinline__ void stmatrix(void *at, const unsigned (&r)[4]) { // transposed
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address_of(at)),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// --- rows of halves

// A row of 32 columns in halves: 128 bytes, 8 pieces of 16: four of the high parts, then four of the low, and where a
// piece lies goes by the row, so that eight rows' pieces are in eight places.
struct Row {
    uint4 piece[8];
};

__device__ __forceinline__ void split(float x, float y, unsigned &high, unsigned &low) {
    float u, v;
    high = pack(x, y);
    unpack(high, u, v);
    low = pack(x - u, y - v);
}

// Eight numbers by four threads each as A operands: d[0 .. 3] of the upper and lower eight rows of the tile.
__device__ __forceinline__ void split_tiles(const float (&one)[4], const float (&two)[4], unsigned (&high)[4],
                                            unsigned (&low)[4]) {
    split(one[0], one[1], high[0], low[0]);
    split(one[2], one[3], high[1], low[1]);
    split(two[0], two[1], high[2], low[2]);
    split(two[2], two[3], high[3], low[3]);
}

// 16 rows of halves as B operands of k = row, n = column: r[pair][0, 1] for columns 16 pair .. + 8, [2, 3] the next 8.
__device__ __forceinline__ void by_rows(unsigned (&high)[2][4], unsigned (&low)[2][4], const Row *rows, int lane) {
    const Row *row = rows + lane % 16;
#pragma unroll
    for (int pair = 0; pair < 2; pair++) {
        const int piece = 2 * pair + lane / 16;
        ldmatrix<true>(high[pair], &row->piece[piece ^ (lane & 7)]);
        ldmatrix<true>(low[pair], &row->piece[(piece + 4) ^ (lane & 7)]);
    }
}

// 8 rows of halves as B operands of k = column, n = row: r[0, 1] for columns 0 .. 15, [2, 3] for the others.
__device__ __forceinline__ void by_columns(unsigned (&high)[4], unsigned (&low)[4], const Row *rows, int lane) {
    const Row *row = rows + lane % 8;
    ldmatrix<false>(high, &row->piece[(lane / 8) ^ (lane & 7)]);
    ldmatrix<false>(low, &row->piece[(lane / 8 + 4) ^ (lane & 7)]);
}

__device__ __forceinline__ void store_row(Row *row, const float (&x)[32], int number) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint4 high, low;
        split(x[8 * i], x[8 * i + 1], high.x, low.x), split(x[8 * i + 2], x[8 * i + 3], high.y, low.y);
        split(x[8 * i + 4], x[8 * i + 5], high.z, low.z), split(x[8 * i + 6], x[8 * i + 7], high.w, low.w);
        row->piece[i ^ (number & 7)] = high, row->piece[(i + 4) ^ (number & 7)] = low;
    }
}
