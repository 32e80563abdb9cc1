// One Householder reflector (larfg) and scales by powers of two, as reflect.py has them for the Triton kernels.
#define NOTHING 0x1p-90f // a smaller sum of squares of a scaled column counts as zero

// The GPU's approximations and a step of Newton's: as good as a division and a root, in half the time.
__device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return fmaf(y, fmaf(-x, y, 1.0f), y);
}

__device__ __forceinline__ float root(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    const float near = x * y;
    return fmaf(fmaf(-near, near, x), 0.5f * y, near);
}

struct Reflector {
    float beta, scale, tau; // v is 1, then `scale` times what is below the diagonal
};

// Of a column with alpha on the diagonal and the sum of squares sigma below.
__device__ __forceinline__ Reflector reflector_of(float alpha, float sigma) {
    const bool reflected = !(sigma < NOTHING); // true for NaN
    const float norm = root(fmaf(alpha, alpha, sigma));
    const float beta = reflected ? (alpha >= 0.0f ? -norm : norm) : alpha;
    const float scale = reflected ? reciprocal(alpha - beta) : 0.0f;
    const float tau = reflected ? (beta - alpha) * reciprocal(beta) : 0.0f; // its rounding is alpha's, once more
    return {beta, scale, tau};
}

// 2^exponent as a product of two, which may be too large or too small for one.
__device__ __forceinline__ void powers_of(int exponent, float (&powers)[2]) {
    const int half = exponent >> 1;
    powers[0] = __int_as_float((half + 127) << 23), powers[1] = __int_as_float((exponent - half + 127) << 23);
}

__device__ __forceinline__ float times_power(float x, int exponent) {
    float powers[2];
    powers_of(exponent, powers);
    return x * powers[0] * powers[1];
}

// The power of two that takes a column's largest entry to 2^power .. 2^(power + 1); 0 for zero, infinity and NaN.
__device__ __forceinline__ int exponent_of(float largest, int power) {
    const bool tiny = largest < 0x1p-64f;
    const int exponent = (__float_as_int(tiny ? largest * 0x1p64f : largest) >> 23) - 127 - (tiny ? 64 : 0);
    return largest > 0.0f && largest < __int_as_float(0x7f800000) ? power - exponent : 0;
}
