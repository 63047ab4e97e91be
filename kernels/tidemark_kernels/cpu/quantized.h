/* Rows of K and V in 8 bits: elements times one float32 scale a row (a token of a head).
 *
 * scale = largest magnitude / largest number of the dtype, so nothing overflows; elements are rounded to nearest even.
 * A row without a number above 2^-100 becomes zeros with scale 0. A row with an infinity or a NaN gets the scale NaN: what
 * is broken stays visible, and no code of a dtype has to mean NaN.
 */
#ifndef TIDEMARK_QUANTIZED_H
#define TIDEMARK_QUANTIZED_H

#include "cache.h"

typedef uint8_t v8b __attribute__((vector_size(8)));
typedef int8_t v8c __attribute__((vector_size(8)));

#define E4M3_AS_HALF 0x1p8f /* a code's bits, read as a half with the same exponent field, are so much too small */

INLINE float largest_of(int dtype) { return dtype == DTYPE_I8 ? 127.0f : dtype == DTYPE_E4M3 ? 448.0f : 57344.0f; }

/* ------------------------------------------------------------------ reading ---- */

/* Eight elements without their scale; those of E4M3 divided by E4M3_AS_HALF. */
INLINE v8 v8code(const int dtype, const uint8_t *p) {
    v8b bytes;
    memcpy(&bytes, p, sizeof bytes);
#if defined(__AVX2__)
    if (dtype == DTYPE_I8)
        return (v8)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
#else
    if (dtype == DTYPE_I8) return __builtin_convertvector(__builtin_convertvector((v8c)bytes, v8i), v8);
#endif
    v8h h = __builtin_convertvector(bytes, v8h);
    h = dtype == DTYPE_E5M2 ? h << 8 : ((h & 0x80) << 8) | ((h & 0x7f) << 7);
    return v8read(DTYPE_F16, &h, 0);
}

/* `count`, a multiple of 8, elements of any dtype but float32. */
INLINE void widen(int dtype, const uint8_t *from, float *to, int64_t count) {
    switch (dtype) {
    case DTYPE_F16: for (int64_t i = 0; i < count; i += 8) v8store(to + i, v8read(DTYPE_F16, from, i)); break;
    case DTYPE_BF16: for (int64_t i = 0; i < count; i += 8) v8store(to + i, v8read(DTYPE_BF16, from, i)); break;
    case DTYPE_I8: for (int64_t i = 0; i < count; i += 8) v8store(to + i, v8code(DTYPE_I8, from + i)); break;
    case DTYPE_E4M3: for (int64_t i = 0; i < count; i += 8) v8store(to + i, v8code(DTYPE_E4M3, from + i)); break;
    default: for (int64_t i = 0; i < count; i += 8) v8store(to + i, v8code(DTYPE_E5M2, from + i)); break;
    }
}

/* Scales of rows [from, from + count), for elements as `v8code` gives them. */
INLINE void read_scales(int dtype, const uint8_t *scales, int64_t from, int64_t count, float *to) {
    memcpy(to, scales + from * 4, (size_t)count * 4);
    if (dtype == DTYPE_E4M3)
        for (int64_t i = 0; i < count; ++i) to[i] *= E4M3_AS_HALF;
}

/* ------------------------------------------------------------------ writing ---- */

/* Nearest whole numbers, ties to even, of magnitudes below 2^22. */
INLINE v8i v8whole(v8 x) { return (v8i)(x + v8splat(12582912.0f)) - 0x4B400000; }

/* Magnitudes (not negative) to an 8-bit float of `mantissa` bits and exponent bias `bias`. */
INLINE v8i v8minifloat(v8 x, const int mantissa, const int bias) {
    const int shift = 23 - mantissa;
    const v8u bits = (v8u)x;
    const v8u rounded = bits + (uint32_t)((1 << (shift - 1)) - 1) + ((bits >> shift) & 1u);
    const v8i normal = (v8i)(rounded >> shift) - ((127 - bias) << mantissa);
    const v8i small = v8whole(x * v8splat(float_of((uint32_t)(127 + bias - 1 + mantissa) << 23)));
    const v8i is_small = x < v8splat(float_of((uint32_t)(128 - bias) << 23));
    return (is_small & small) | (~is_small & normal);
}

INLINE void quantize_as(const int dtype, const float *row, int64_t count, float inverse, uint8_t *to) {
    for (int64_t i = 0; i < count; i += 8) {
        const v8 x = v8load(row + i) * v8splat(inverse);
        v8i codes;
        if (dtype == DTYPE_I8) {
            codes = v8whole(x);
        } else {
            const v8i sign = (v8i)((v8u)x >> 24) & 0x80;
            const v8 magnitude = (v8)((v8i)x & 0x7fffffff);
            codes = sign | (dtype == DTYPE_E4M3 ? v8minifloat(magnitude, 3, 7) : v8minifloat(magnitude, 2, 15));
        }
        const v8b bytes = __builtin_convertvector(codes, v8b);
        memcpy(to + i, &bytes, sizeof bytes);
    }
}

INLINE void quantize(int dtype, const float *row, int64_t count, uint8_t *to, uint8_t *scale_at) {
    v8 top = v8splat(0.0f), odd = v8splat(0.0f);
    for (int64_t i = 0; i < count; i += 8) {
        const v8 x = v8load(row + i);
        top = v8max((v8)((v8i)x & 0x7fffffff), top);
        odd = odd + x * v8splat(0.0f); /* NaN once there was an infinity or a NaN */
    }
    const float largest = v8top(top), sums = v8sum(odd);
    float scale = largest / largest_of(dtype), inverse = largest_of(dtype) / largest;
    if (largest < 0x1p-100f) scale = inverse = 0.0f;
    if (sums != sums) { scale = NAN; inverse = 0.0f; }
    memcpy(scale_at, &scale, 4);
    if (inverse == 0.0f) memset(to, 0, (size_t)count);
    else if (dtype == DTYPE_I8) quantize_as(DTYPE_I8, row, count, inverse, to);
    else if (dtype == DTYPE_E4M3) quantize_as(DTYPE_E4M3, row, count, inverse, to);
    else quantize_as(DTYPE_E5M2, row, count, inverse, to);
}

#endif
