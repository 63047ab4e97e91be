/* Vectors for all kernels: one source for AVX2, AVX-512, NEON and plain C.
 *
 * `vf` is as wide as the machine (the matrix kernels use it); `v8` is always eight floats (attention and the
 * elementwise kernels use it, so that their order of summation is the same on every machine).
 * The build switches contraction off (-ffp-contract=off): a product and a sum are fused only where `vfma`/`v8fma`
 * says so. That is what makes one row's result equal bit for bit, whichever kernel computed it.
 */
#ifndef TIDEMARK_SIMD_H
#define TIDEMARK_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

/* dtype codes; `tidemark_kernels.segments.DTYPE_CODES` is the same table. Those from DTYPE_I8 on are quantized. */
enum { DTYPE_F32 = 0, DTYPE_F16 = 1, DTYPE_BF16 = 2, DTYPE_I8 = 3, DTYPE_E4M3 = 4, DTYPE_E5M2 = 5, DTYPE_I4 = 6 };

/* ---------------------------------------------------------------- scalars ---- */

INLINE uint32_t bits_of(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
INLINE float float_of(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }

INLINE float half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 0x3ffu;
    if (exponent == 31) return float_of(sign | 0x7f800000u | (mantissa << 13));
    if (exponent) return float_of(sign | ((exponent + 112u) << 23) | (mantissa << 13));
    return float_of(sign | bits_of((float)mantissa * 0x1p-24f));
}

INLINE uint16_t float_to_half(float f) { /* round to nearest even, as the hardware does */
    uint32_t x = bits_of(f), sign = (x >> 16) & 0x8000u;
    x &= 0x7fffffffu;
    if (x >= 0x47800000u) return (uint16_t)(sign | (x > 0x7f800000u ? 0x7e00u : 0x7c00u));
    if (x < 0x38800000u) return (uint16_t)(sign | (bits_of(float_of(x) + 0.5f) - 0x3f000000u));
    x += 0xc8000fffu + ((x >> 13) & 1u);
    return (uint16_t)(sign | (x >> 13));
}

INLINE float bf16_to_float(uint16_t h) { return float_of((uint32_t)h << 16); }

INLINE uint16_t float_to_bf16(float f) {
    uint32_t x = bits_of(f);
    if ((x & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((x >> 16) | 0x40u);
    return (uint16_t)((x + 0x7fffu + ((x >> 16) & 1u)) >> 16);
}

INLINE int64_t dtype_bytes(int dtype) { return dtype == DTYPE_F32 ? 4 : dtype < DTYPE_I8 ? 2 : 1; } /* not of 4 bits */
INLINE int64_t row_bytes(int dtype, int64_t count) { return dtype == DTYPE_I4 ? count / 2 : count * dtype_bytes(dtype); }
INLINE int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* ------------------------------------------------- vectors of the machine's width ---- */

#if defined(__AVX512F__)
#define VL 16
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define VL 8
#else
#define VL 4
#endif

typedef float vf __attribute__((vector_size(VL * 4)));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef uint32_t vu __attribute__((vector_size(VL * 4)));

INLINE vf vload(const void *p) { vf v; memcpy(&v, p, sizeof v); return v; }
INLINE vu vloadu(const void *p) { vu v; memcpy(&v, p, sizeof v); return v; }
INLINE void vstore(void *p, vf v) { memcpy(p, &v, sizeof v); }

INLINE vf vsplat(float f) {
#if VL == 16
    return (vf)_mm512_set1_ps(f);
#elif VL == 8
    return (vf)_mm256_set1_ps(f);
#else
    return (vf){f, f, f, f};
#endif
}

INLINE vf vfma(vf a, vf b, vf c) {
#if VL == 16
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif VL == 8
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

INLINE vf vload_half(const uint16_t *p) {
#if VL == 16
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif VL == 8
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#elif defined(__aarch64__)
    return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
#else
    return (vf){half_to_float(p[0]), half_to_float(p[1]), half_to_float(p[2]), half_to_float(p[3])};
#endif
}

/* ------------------------------------------------------------ eight floats ---- */

typedef float v8 __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));
typedef uint32_t v8u __attribute__((vector_size(32)));
typedef uint16_t v8h __attribute__((vector_size(16)));

INLINE v8 v8load(const float *p) { v8 v; memcpy(&v, p, sizeof v); return v; }
INLINE void v8store(float *p, v8 v) { memcpy(p, &v, sizeof v); }
INLINE v8 v8select(v8i mask, v8 yes, v8 no) { return (v8)((mask & (v8i)yes) | (~mask & (v8i)no)); }
INLINE v8 v8max(v8 a, v8 b) { return v8select(a > b, a, b); }

INLINE v8 v8splat(float f) {
#if defined(__AVX__)
    return (v8)_mm256_set1_ps(f);
#else
    return (v8){f, f, f, f, f, f, f, f};
#endif
}

INLINE v8 v8fma(v8 a, v8 b, v8 c) {
#if defined(__FMA__)
    return (v8)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

/* Sum of the eight lanes, always in the order of the tree ((0+4)+(2+6)) + ((1+5)+(3+7)). */
INLINE float v8sum(v8 v) {
    float a = (v[0] + v[4]) + (v[2] + v[6]), b = (v[1] + v[5]) + (v[3] + v[7]);
    return a + b;
}

INLINE float v8top(v8 v) {
    float m = v[0];
    for (int i = 1; i < 8; ++i) m = v[i] > m ? v[i] : m;
    return m;
}

/* Eight elements of a dtype as floats. `dtype` is a constant at every call, so the branches vanish. */
INLINE v8 v8read(int dtype, const void *base, int64_t index) {
    if (dtype == DTYPE_F32) return v8load((const float *)base + index);
    const uint16_t *p = (const uint16_t *)base + index;
    v8h h;
    memcpy(&h, p, sizeof h);
    if (dtype == DTYPE_BF16) return (v8)(__builtin_convertvector(h, v8u) << 16);
#if defined(__F16C__)
    return (v8)_mm256_cvtph_ps((__m128i)h);
#else
    v8 v;
    for (int i = 0; i < 8; ++i) v[i] = half_to_float(p[i]);
    return v;
#endif
}

INLINE void v8write(int dtype, void *base, int64_t index, v8 v) {
    if (dtype == DTYPE_F32) { v8store((float *)base + index, v); return; }
    uint16_t *p = (uint16_t *)base + index;
    if (dtype == DTYPE_BF16) {
        v8u x = (v8u)v;
        v8u rounded = (x + 0x7fffu + ((x >> 16) & 1u)) >> 16, quiet = (x >> 16) | 0x40u;
        v8u nan = (v8u)(v != v);
        v8h h = __builtin_convertvector((nan & quiet) | (~nan & rounded), v8h);
        memcpy(p, &h, sizeof h);
        return;
    }
#if defined(__F16C__)
    __m128i h = _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT);
    memcpy(p, &h, sizeof h);
#else
    for (int i = 0; i < 8; ++i) p[i] = float_to_half(v[i]);
#endif
}

/* The last `count` < 8 elements of a row; the lanes beyond are 0 and are not written. */
INLINE v8 v8read_some(int dtype, const void *base, int64_t index, int count) {
    char room[32] = {0};
    memcpy(room, (const char *)base + index * dtype_bytes(dtype), (size_t)(count * dtype_bytes(dtype)));
    return v8read(dtype, room, 0);
}

INLINE void v8write_some(int dtype, void *base, int64_t index, v8 v, int count) {
    char room[32];
    v8write(dtype, room, 0, v);
    memcpy((char *)base + index * dtype_bytes(dtype), room, (size_t)(count * dtype_bytes(dtype)));
}

/* e^x to about one unit in the last place: Cephes' expf (range reduction by ln 2, polynomial of degree 5).
 * Clamped to where the result is a normal float; NaN stays NaN. */
INLINE v8 v8exp(v8 x) {
    v8 y = v8select(x > v8splat(-87.3f), x, v8splat(-87.3f));
    y = v8select(y < v8splat(88.0f), y, v8splat(88.0f));
    v8 shifted = v8fma(y, v8splat(1.44269504f), v8splat(12582912.0f)); /* 1.5 * 2^23: rounds to a whole number */
    v8 n = shifted - v8splat(12582912.0f);
    v8 r = v8fma(n, v8splat(-0.693359375f), y);
    r = v8fma(n, v8splat(2.12194440e-4f), r);
    v8 p = v8splat(1.9875691500e-4f);
    p = v8fma(p, r, v8splat(1.3981999507e-3f));
    p = v8fma(p, r, v8splat(8.3334519073e-3f));
    p = v8fma(p, r, v8splat(4.1665795894e-2f));
    p = v8fma(p, r, v8splat(1.6666665459e-1f));
    p = v8fma(p, r, v8splat(5.0000001201e-1f));
    p = v8fma(p, r * r, r) + v8splat(1.0f);
    v8 result = (v8)((v8i)p + (((v8i)shifted - 0x4B400000) << 23));
    return v8select(x != x, x, result);
}

/* tanh: Cephes' polynomial below 0.625, through e^2x above. */
INLINE v8 v8tanh(v8 x) {
    v8 magnitude = (v8)((v8i)x & 0x7fffffff), z = x * x;
    v8 p = v8splat(-5.70498872745e-3f);
    p = v8fma(p, z, v8splat(2.06390887954e-2f));
    p = v8fma(p, z, v8splat(-5.37397155531e-2f));
    p = v8fma(p, z, v8splat(1.33314422036e-1f));
    p = v8fma(p, z, v8splat(-3.33332819422e-1f));
    v8 small = v8fma(p * z, x, x);
    v8 large = v8splat(1.0f) - v8splat(2.0f) / (v8exp(magnitude + magnitude) + v8splat(1.0f));
    large = (v8)((v8i)large | ((v8i)x & (int32_t)0x80000000));
    return v8select(magnitude < v8splat(0.625f), small, large);
}

#endif
