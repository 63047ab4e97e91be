/* Rows of K and V in 8 and in 4 bits. A row is a token of a head.
 *
 * 8 bits: elements times one float32 scale a row. scale = largest magnitude / largest number of the dtype, so nothing
 * overflows; elements are rounded to nearest even. A row without a number above 2^-100 becomes zeros with scale 0. A row
 * with an infinity or a NaN gets the scale NaN: what is broken stays visible, and no code of a dtype has to mean NaN.
 *
 * 8 bits with a fixed scale: one for all rows of a head, from a calibration, not in the page. What is larger is clipped.
 * A row with an infinity or a NaN begins with a code that no number becomes, and is read as if its scale were NaN.
 *
 * 4 bits: codes 0 to 15, two a byte, the first in the low half. Each GROUP of a row has a scale and a smallest number,
 * both bfloat16, side by side: number = code x scale + smallest. With one scale a row and no smallest number the loss was
 * six times as large (docs/decisions/0010). A group with an infinity or a NaN gets the scale NaN.
 */
#ifndef TIDEMARK_QUANTIZED_H
#define TIDEMARK_QUANTIZED_H

#include "cache.h"

typedef uint8_t v8b __attribute__((vector_size(8)));
typedef int8_t v8c __attribute__((vector_size(8)));

#define E4M3_AS_HALF 0x1p8f /* a code's bits, read as a half with the same exponent field, are so much too small */

#define GROUP 32 /* elements of a 4-bit row that share a scale and a smallest number */

INLINE int64_t groups_of(int64_t count) { return (count + GROUP - 1) / GROUP; }

/* The first code of a row that holds an infinity or a NaN, where the scale is fixed. */
INLINE uint8_t broken_of(int dtype) { return dtype == DTYPE_I8 ? 0x80 : 0xff; }

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

/* `count`, a multiple of 8, elements of any dtype but float32 and 4 bits. */
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

/* The same where all rows have the scale `fixed`; `rows` are the elements of `count` rows of `d`. */
INLINE void fixed_scales(int dtype, float fixed, const uint8_t *rows, int64_t d, int64_t count, float *to) {
    const float scale = dtype == DTYPE_E4M3 ? fixed * E4M3_AS_HALF : fixed;
    for (int64_t i = 0; i < count; ++i) to[i] = rows[i * d] == broken_of(dtype) ? NAN : scale;
}

/* `rows` rows of `d` 4-bit elements, with their groups' scales and smallest numbers applied. */
INLINE void widen4(const uint8_t *from, const uint8_t *scales, float *to, int64_t rows, int64_t d) {
    const v8u shifts = {0, 4, 8, 12, 16, 20, 24, 28};
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t g = 0; g < d; g += GROUP, scales += 4) {
            uint16_t pair[2];
            memcpy(pair, scales, sizeof pair);
            const v8 scale = v8splat(bf16_to_float(pair[0])), least = v8splat(bf16_to_float(pair[1]));
            for (int64_t end = min64(d, g + GROUP), i = g; i < end; i += 8, from += 4, to += 8) {
                const v8u word = (v8u){0} + ((uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
                                             (uint32_t)from[3] << 24);
                const v8 code = __builtin_convertvector((v8i)((word >> shifts) & 15u), v8);
                v8store(to, v8fma(code, scale, least));
            }
        }
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

/* One scale for all rows: what is beyond the dtype's largest number is clipped. */
INLINE void quantize_fixed(int dtype, float fixed, const float *row, int64_t count, uint8_t *to) {
    const v8 inverse = v8splat(1.0f / fixed), top = v8splat(largest_of(dtype));
    float clipped[MAX_HEAD];
    v8 odd = v8splat(0.0f);
    for (int64_t i = 0; i < count; i += 8) {
        const v8 x = v8load(row + i) * inverse;
        odd = odd + v8load(row + i) * v8splat(0.0f);
        v8store(clipped + i, v8select(x > top, top, v8select(x < -top, -top, x)));
    }
    const float sums = v8sum(odd);
    if (sums != sums) { memset(to, 0, (size_t)count); to[0] = broken_of(dtype); }
    else if (dtype == DTYPE_I8) quantize_as(DTYPE_I8, clipped, count, 1.0f, to);
    else if (dtype == DTYPE_E4M3) quantize_as(DTYPE_E4M3, clipped, count, 1.0f, to);
    else quantize_as(DTYPE_E5M2, clipped, count, 1.0f, to);
}

/* A group of `count` elements, a multiple of 8: codes at `to`, scale and smallest number at `scale_at`. */
INLINE void quantize_group4(const float *group, int64_t count, uint8_t *to, uint8_t *scale_at) {
    v8 top = v8load(group), low = top, odd = v8splat(0.0f);
    for (int64_t i = 0; i < count; i += 8) {
        const v8 x = v8load(group + i);
        top = v8max(x, top);
        low = v8select(x < low, x, low);
        odd = odd + x * v8splat(0.0f);
    }
    const float sums = v8sum(odd);
    uint16_t pair[2] = {float_to_bf16(NAN), float_to_bf16(-v8top(-low))};
    const float least = bf16_to_float(pair[1]), range = v8top(top) - least;
    float inverse = 0.0f;
    if (sums == sums && range < INFINITY) {
        const int flat = !(range >= 0x1p-100f);
        pair[0] = flat ? 0 : float_to_bf16(range / 15.0f);
        inverse = flat ? 0.0f : 1.0f / bf16_to_float(pair[0]);
    } else {
        pair[1] = 0;
    }
    memcpy(scale_at, pair, sizeof pair);
    if (inverse == 0.0f) { memset(to, 0, (size_t)count / 2); return; }
    for (int64_t i = 0; i < count; i += 8, to += 4) {
        v8 x = (v8load(group + i) - v8splat(least)) * v8splat(inverse);
        x = v8select(x > v8splat(0.0f), x, v8splat(0.0f));
        const v8i codes = v8whole(v8select(x < v8splat(15.0f), x, v8splat(15.0f)));
        UNROLL for (int j = 0; j < 4; ++j) to[j] = (uint8_t)(codes[2 * j] | codes[2 * j + 1] << 4);
    }
}

INLINE void quantize4(const float *row, int64_t count, uint8_t *to, uint8_t *scales_at) {
    for (int64_t g = 0; g < count; g += GROUP)
        quantize_group4(row + g, min64(GROUP, count - g), to + g / 2, scales_at + g / GROUP * 4);
}

#endif
