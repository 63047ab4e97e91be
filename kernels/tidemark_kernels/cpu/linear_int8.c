/* Matrix products with 8-bit activations: weights as `panels.h` lays them out, sums of products in whole numbers.
 *
 * Every row of x is cut into parts of STEP inputs; a part is q * scale with q = -127..127 and scale = max|x| / 127.
 * With the weights kept exactly as they are stored, w = wq * ws + wm per output and group,
 *
 *   out[n] = sum over parts of scale * (ws[n] * sum(wq * q) + wm[n] * sum(q))
 *
 * The inner sum is exact; the outer one is a chain of fused multiply-adds over ascending parts in all kernels below, so
 * a row's result depends neither on the other rows, nor on their number, nor on the threads, nor on the machine.
 *
 * One vector is 8 outputs times 4 k's of one byte. With 4 bits its products of two neighbours are at most 2 * 15 * 127:
 * the eight of a part of 32 add up in 16 bits. With 8 bits they are at most 2 * 128 * 127 and fit once: they are widened
 * each time. The order of a row's bytes is that in which a word's nibbles come out: first the even k's, then the odd.
 *
 * Two ways, as in linear.c: `direct` for few rows unpacks in registers, `tile` unpacks KB k's of a panel once for all.
 */
#include <omp.h>

#include "panels.h"

#define VECTORS (NR / 8)                /* vectors of 8 outputs a panel */
#define STRIP (VECTORS >= 2 ? 2 : 1)    /* of which so many are summed at once */
#define MR 4                            /* rows a tile */
#define KB 768                          /* k's unpacked at a time: with their scales half of a first-level cache */
#define DIRECT_ROWS 2
#define TINY 0x1p-100f                  /* a part without a larger number counts as zeros */

/* x in 8 bits: codes [rows][inputs], and per row and part its scale and the sum of its codes. */
typedef struct { int8_t *codes; float *parts; int64_t inputs, step; } rows_t;

INLINE int64_t step_of(const tm_weight *w) { return w->group % 32 == 0 ? 32 : 16; }

/* --------------------------------------------------------------- activations ---- */

/* Largest magnitude of `step` numbers, as bits: those sort as the numbers do, and NaN above infinity. */
INLINE uint32_t largest_bits(const float *x, int64_t step) {
    v8i top = {0};
    for (int64_t i = 0; i < step; i += 8) {
        const v8i magnitude = (v8i)v8load(x + i) & 0x7fffffff, more = magnitude > top;
        top = (more & magnitude) | (~more & top);
    }
    int32_t each[8], highest = 0;
    memcpy(each, &top, sizeof each);
    UNROLL for (int i = 0; i < 8; ++i) highest = each[i] > highest ? each[i] : highest;
    return (uint32_t)highest;
}

/* Sixteen codes to bytes; for 4-bit weights the even ones of each eight come first. */
INLINE void store_codes(const int bits, v8i low, v8i high, int8_t *codes) {
#if defined(__AVX2__)
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32((__m256i)low, (__m256i)high), 0xd8);
    __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    if (bits == 4) bytes = _mm_shuffle_epi8(bytes, order);
    memcpy(codes, &bytes, 16);
#else
    for (int i = 0; i < 8; ++i) {
        const int to = bits == 4 ? i / 2 + i % 2 * 4 : i;
        codes[to] = (int8_t)low[i];
        codes[8 + to] = (int8_t)high[i];
    }
#endif
}

INLINE void quantize(const int bits, const int step, const float *x, int8_t *codes, float *parts, int64_t inputs) {
    for (int64_t k = 0; k < inputs; k += step, parts += 2) {
        const uint32_t highest = largest_bits(x + k, step);
        const float largest = float_of(highest);
        const int finite = highest < 0x7f800000u;
        if (!finite || largest < TINY) { /* an infinity or a NaN makes the row NaN */
            memset(codes + k, 0, (size_t)step);
            parts[0] = finite ? 0.0f : NAN;
            parts[1] = 0.0f;
            continue;
        }
        const v8 inverse = v8splat(127.0f / largest), magic = v8splat(12582912.0f); /* 1.5 * 2^23: half to even */
        v8i sum = {0};
        UNROLL for (int i = 0; i < step; i += 16) {
            const v8i low = (v8i)(v8load(x + k + i) * inverse + magic) - 0x4B400000;
            const v8i high = (v8i)(v8load(x + k + i + 8) * inverse + magic) - 0x4B400000;
            sum += low + high;
            store_codes(bits, low, high, codes + k + i);
        }
        parts[0] = largest / 127.0f;
        parts[1] = (float)(((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7])));
    }
}

static void quantize_row(const rows_t *x, int bits, const float *from, int64_t row) {
    int8_t *codes = x->codes + row * x->inputs;
    float *parts = x->parts + row * (2 * x->inputs / x->step);
    from += row * x->inputs;
    if (bits == 4 && x->step == 32) quantize(4, 32, from, codes, parts, x->inputs);
    else if (bits == 4) quantize(4, 16, from, codes, parts, x->inputs);
    else if (x->step == 32) quantize(8, 32, from, codes, parts, x->inputs);
    else quantize(8, 16, from, codes, parts, x->inputs);
}

/* ------------------------------------------------------------- whole numbers ---- */

INLINE v8u splat4(const int8_t *four) {
    uint32_t word;
    memcpy(&word, four, 4);
#if defined(__AVX2__)
    return (v8u)_mm256_set1_epi32((int)word);
#else
    return (v8u){word, word, word, word, word, word, word, word};
#endif
}

/* sum += the products of four bytes in each of eight lanes. Weights of 4 bits are 0..15, of 8 bits signed. */
INLINE v8u dot4(const int bits, v8u sum, v8u w, v8u x) {
#if defined(__AVX2__)
    const __m256i a = (__m256i)w, b = (__m256i)x;
    if (bits == 4) {
        const __m256i pairs = _mm256_maddubs_epi16(a, b);
        /* In assembly so that gcc adds in place; with the intrinsic it copied every sum and ran out of registers. */
        __asm__("vpaddw %1, %0, %0" : "+x"(sum) : "x"(pairs));
        return sum;
    }
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(a), _mm256_sign_epi8(b, a));
    return (v8u)_mm256_add_epi32((__m256i)sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#else
    (void)bits; /* 0..15 are the same number signed or not */
    UNROLL for (int j = 0; j < 4; ++j)
        sum += (v8u)(((v8i)(w << (24 - 8 * j)) >> 24) * ((v8i)(x << (24 - 8 * j)) >> 24));
    return sum;
#endif
}

INLINE v8 total(const int bits, v8u sum) {
#if defined(__AVX2__)
    if (bits == 4) sum = (v8u)_mm256_madd_epi16((__m256i)sum, _mm256_set1_epi16(1));
#endif
    return __builtin_convertvector((v8i)sum, v8);
}

/* One part of one row onto the outer sum. */
INLINE v8 add_part(v8 acc, v8 sum, v8 scale, v8 min, const float *part) {
    return v8fma(v8splat(part[0]), v8fma(min, v8splat(part[1]), sum * scale), acc);
}

INLINE v8 read_affine(const tm_weight *w, const uint8_t *block, int64_t index) {
    return w->half_scales ? v8read(DTYPE_F16, block, index) : v8read(DTYPE_F32, block, index);
}

INLINE v8 read_min(const tm_weight *w, const uint8_t *block, int64_t index) {
    if (!w->offset) return v8splat(0.0f);
    const v8 offset = read_affine(w, block, NR + index);
    return w->offset == OFFSET_ZERO ? -(offset * read_affine(w, block, index)) : offset;
}

INLINE v8u load8u(const uint8_t *p) { v8u v; memcpy(&v, p, sizeof v); return v; }

INLINE void put(float *out, v8 v, int64_t room) {
    if (room >= 8) v8store(out, v);
    else for (int64_t i = 0; i < room; ++i) out[i] = v[i];
}

/* ------------------------------------------------------------------ few rows ---- */

/* The outputs of STRIP vectors of a panel, from lane `lane` on. */
INLINE void direct(const int rows, const int bits, const int step, const tm_weight *w, const rows_t *x, float *out,
                   int64_t panel, int64_t lane) {
    const int per_word = bits == 4 ? 8 : 4;
    const int64_t groups = w->num_inputs / w->group, header = header_bytes(w), part_stride = 2 * x->inputs / step;
    v8 acc[DIRECT_ROWS][STRIP];
    UNROLL for (int r = 0; r < rows; ++r) UNROLL for (int v = 0; v < STRIP; ++v) acc[r][v] = v8splat(0.0f);
    const int8_t *codes = x->codes;
    const float *parts = x->parts;
    for (int64_t g = 0; g < groups; ++g) {
        const uint8_t *block = block_at(w, panel, g), *words = block + header + lane * 4;
        v8 scale[STRIP], min[STRIP];
        UNROLL for (int v = 0; v < STRIP; ++v) {
            scale[v] = read_affine(w, block, lane + v * 8);
            min[v] = read_min(w, block, lane + v * 8);
        }
        for (int64_t at = 0; at < w->group; at += step, parts += 2) {
            v8u sum[DIRECT_ROWS][STRIP];
            UNROLL for (int r = 0; r < rows; ++r) UNROLL for (int v = 0; v < STRIP; ++v) sum[r][v] = (v8u){0};
            UNROLL for (int k = 0; k < step; k += per_word, words += NR * 4, codes += per_word) {
                UNROLL for (int v = 0; v < STRIP; ++v) {
                    v8u word = load8u(words + v * 32), low = bits == 4 ? word & 0x0f0f0f0fu : word;
                    UNROLL for (int r = 0; r < rows; ++r)
                        sum[r][v] = dot4(bits, sum[r][v], low, splat4(codes + r * x->inputs));
                    if (bits == 8) continue;
                    v8u high = (word >> 4) & 0x0f0f0f0fu;
                    UNROLL for (int r = 0; r < rows; ++r)
                        sum[r][v] = dot4(bits, sum[r][v], high, splat4(codes + r * x->inputs + 4));
                }
            }
            UNROLL for (int r = 0; r < rows; ++r)
                UNROLL for (int v = 0; v < STRIP; ++v)
                    acc[r][v] = add_part(acc[r][v], total(bits, sum[r][v]), scale[v], min[v], parts + r * part_stride);
        }
    }
    UNROLL for (int r = 0; r < rows; ++r)
        UNROLL for (int v = 0; v < STRIP; ++v) {
            const int64_t n = panel * NR + lane + v * 8;
            if (n < w->num_outputs) put(out + r * w->num_outputs + n, acc[r][v], w->num_outputs - n);
        }
}

INLINE void direct_panels(const int rows, const int bits, const int step, const tm_weight *w, const rows_t *x,
                          float *out, int64_t from, int64_t to) {
    for (int64_t panel = from; panel < to; ++panel)
        for (int64_t lane = 0; lane < NR; lane += STRIP * 8) direct(rows, bits, step, w, x, out, panel, lane);
}

#define DIRECT(rows)                                                                                          \
    static void direct_##rows(const tm_weight *w, const rows_t *x, float *out, int64_t from, int64_t to) {    \
        if (w->kind == 4 && x->step == 32) direct_panels(rows, 4, 32, w, x, out, from, to);                   \
        else if (w->kind == 4) direct_panels(rows, 4, 16, w, x, out, from, to);                               \
        else if (x->step == 32) direct_panels(rows, 8, 32, w, x, out, from, to);                              \
        else direct_panels(rows, 8, 16, w, x, out, from, to);                                                 \
    }
DIRECT(1)
DIRECT(2)

/* ----------------------------------------------------------------- many rows ---- */

/* Up to KB k's of a panel. 4 bits lie unpacked in `bytes`, 8 bits are read where they are. */
typedef struct {
    uint8_t bytes[KB * NR];
    float affine[KB / 16][2][NR]; /* scales, mins */
    const uint8_t *words[KB / 16];
} __attribute__((aligned(64))) buffer_t;

static void unpack(const tm_weight *w, int64_t panel, int64_t from, int64_t to, int64_t step, buffer_t *b) {
    const int per_word = w->kind == 4 ? 8 : 4;
    for (int64_t k = from, part = 0; k < to; k += step, ++part) {
        const int64_t g = k / w->group;
        const uint8_t *block = block_at(w, panel, g);
        const uint8_t *words = block + header_bytes(w) + (k - g * w->group) / per_word * NR * 4;
        for (int v = 0; v < VECTORS; ++v) {
            v8store(b->affine[part][0] + v * 8, read_affine(w, block, v * 8));
            v8store(b->affine[part][1] + v * 8, read_min(w, block, v * 8));
        }
        b->words[part] = words;
        if (w->kind == 8) continue;
        uint8_t *bytes = b->bytes + (k - from) * NR;
        b->words[part] = bytes;
        for (int64_t i = 0; i < step; i += 8, words += NR * 4, bytes += 2 * NR * 4)
            for (int v = 0; v < VECTORS; ++v) {
                const v8u word = load8u(words + v * 32), low = word & 0x0f0f0f0fu, high = (word >> 4) & 0x0f0f0f0fu;
                memcpy(bytes + v * 32, &low, 32);
                memcpy(bytes + NR * 4 + v * 32, &high, 32);
            }
    }
}

/* `rows` rows times `parts` parts of STRIP vectors; `first`: start at zero, else go on from what is in `out`. */
INLINE void tile(const int rows, const int bits, const int step, const buffer_t *b, int64_t lane, int64_t parts,
                 const rows_t *x, int64_t row, int64_t from, float *out, int64_t out_stride, int first) {
    const int64_t part_stride = 2 * x->inputs / step;
    const int8_t *codes = x->codes + row * x->inputs + from;
    const float *part = x->parts + row * part_stride + from / step * 2;
    v8 acc[MR][STRIP];
    UNROLL for (int r = 0; r < rows; ++r)
        UNROLL for (int v = 0; v < STRIP; ++v) acc[r][v] = first ? v8splat(0.0f) : v8load(out + r * out_stride + v * 8);
    for (int64_t p = 0; p < parts; ++p, part += 2) {
        const uint8_t *words = b->words[p] + lane * 4;
        v8u sum[MR][STRIP];
        UNROLL for (int r = 0; r < rows; ++r) UNROLL for (int v = 0; v < STRIP; ++v) sum[r][v] = (v8u){0};
        UNROLL for (int k = 0; k < step; k += 4, codes += 4) {
            v8u word[STRIP];
            UNROLL for (int v = 0; v < STRIP; ++v) word[v] = load8u(words + k * NR + v * 32);
            UNROLL for (int r = 0; r < rows; ++r) {
                const v8u xk = splat4(codes + r * x->inputs);
                UNROLL for (int v = 0; v < STRIP; ++v) sum[r][v] = dot4(bits, sum[r][v], word[v], xk);
            }
        }
        UNROLL for (int v = 0; v < STRIP; ++v) {
            const v8 scale = v8load(b->affine[p][0] + lane + v * 8), min = v8load(b->affine[p][1] + lane + v * 8);
            UNROLL for (int r = 0; r < rows; ++r)
                acc[r][v] = add_part(acc[r][v], total(bits, sum[r][v]), scale, min, part + r * part_stride);
        }
    }
    UNROLL for (int r = 0; r < rows; ++r)
        UNROLL for (int v = 0; v < STRIP; ++v) v8store(out + r * out_stride + v * 8, acc[r][v]);
}

typedef void tile_fn(const buffer_t *, int64_t, int64_t, const rows_t *, int64_t, int64_t, float *, int64_t, int);
#define TILE(n, bits, step)                                                                                          \
    static void tile_##n##_##bits##_##step(const buffer_t *b, int64_t lane, int64_t parts, const rows_t *x,          \
                                           int64_t row, int64_t from, float *out, int64_t stride, int first) {       \
        tile(n, bits, step, b, lane, parts, x, row, from, out, stride, first);                                       \
    }
#define TILES(bits, step) TILE(1, bits, step) TILE(2, bits, step) TILE(3, bits, step) TILE(4, bits, step)
TILES(4, 32) TILES(4, 16) TILES(8, 32) TILES(8, 16)
#define NAMES(bits, step) {tile_1_##bits##_##step, tile_2_##bits##_##step, tile_3_##bits##_##step, tile_4_##bits##_##step}
static tile_fn *const TILES[2][2][MR] = {{NAMES(4, 16), NAMES(4, 32)}, {NAMES(8, 16), NAMES(8, 32)}};

/* Rows [from, to) of one panel, in tiles as even as they can be. */
static void panel_rows(const tm_weight *w, const rows_t *x, float *out, int64_t panel, int64_t from, int64_t to,
                       buffer_t *b) {
    const int64_t inputs = w->num_inputs, outputs = w->num_outputs, tiles = (to - from + MR - 1) / MR;
    tile_fn *const *chosen = TILES[w->kind == 8][x->step == 32];
    for (int64_t k = 0; k < inputs; k += KB) {
        const int64_t end = min64(k + KB, inputs), parts = (end - k) / x->step;
        unpack(w, panel, k, end, x->step, b);
        for (int64_t t = 0; t < tiles; ++t) {
            const int64_t r0 = from + (to - from) * t / tiles, rows = from + (to - from) * (t + 1) / tiles - r0;
            for (int64_t lane = 0; lane < NR; lane += STRIP * 8) {
                const int64_t n = panel * NR + lane, room = min64(STRIP * 8, outputs - n);
                if (room <= 0) continue;
                float *ot = out + r0 * outputs + n;
                if (room == STRIP * 8) {
                    chosen[rows - 1](b, lane, parts, x, r0, k, ot, outputs, k == 0);
                    continue;
                }
                float edge[MR * STRIP * 8]; /* the last panel is padded: its results pass through here */
                for (int64_t r = 0; r < rows && k; ++r)
                    memcpy(edge + r * STRIP * 8, ot + r * outputs, (size_t)room * 4);
                chosen[rows - 1](b, lane, parts, x, r0, k, edge, STRIP * 8, k == 0);
                for (int64_t r = 0; r < rows; ++r) memcpy(ot + r * outputs, edge + r * STRIP * 8, (size_t)room * 4);
            }
        }
    }
}

/* --------------------------------------------------------------------- doors ---- */

/* x [rows, num_inputs], out [rows, num_outputs], both float32 and contiguous. `room`: a byte for every number of x, then
 * two floats for every part. */
void tm_linear_int8(const tm_weight *w, const float *x, float *room, float *out, int64_t rows, int32_t threads) {
    const int64_t panels = (w->num_outputs + NR - 1) / NR, inputs = w->num_inputs, step = step_of(w);
    const rows_t quantized = {(int8_t *)room, room + rows * inputs / 4, inputs, step};
    if (rows <= 0) return;
    if (rows <= DIRECT_ROWS) {
        for (int64_t r = 0; r < rows; ++r) quantize_row(&quantized, w->kind, x, r);
#pragma omp parallel num_threads(threads)
        {
            const int64_t team = omp_get_num_threads(), me = omp_get_thread_num();
            const int64_t from = panels * me / team, to = panels * (me + 1) / team;
            if (rows == 1) direct_1(w, &quantized, out, from, to);
            else direct_2(w, &quantized, out, from, to);
        }
        return;
    }
    /* Many threads and few panels: cut the rows too, as long as unpacking stays a small part. */
    int64_t cuts = 1;
    while (panels * cuts < 4 * threads && rows / (cuts + 1) >= 8 * MR) ++cuts;
#pragma omp parallel num_threads(threads)
    {
        buffer_t buffer;
#pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; ++r) quantize_row(&quantized, w->kind, x, r);
#pragma omp for schedule(dynamic, 1)
        for (int64_t item = 0; item < panels * cuts; ++item) {
            const int64_t cut = item / panels;
            panel_rows(w, &quantized, out, item % panels, rows * cut / cuts, rows * (cut + 1) / cuts, &buffer);
        }
    }
}
