/* Matrix products with weights in panels: 4 or 8 bits in groups, or plain 16 bits or float32.
 *
 *   out[m, n] = sum over k of x[m, k] * w[n, k],   w = fma(q, scale, min)
 *
 * `panels.h` tells the layout. Nothing is shifted that need not be: a nibble is masked where it stands, which makes it
 * q * 16^j, and is multiplied with scale / 16^j. Powers of two are exact, so the product is the same number. E4M3 and
 * float16 are moved to where float32 has exponent and mantissa: the value times 2^-120 or 2^-112, small ones as float32's
 * own subnormals, exactly.
 *
 * Every output is one chain of fused multiply-adds over ascending k, in all kernels below. Hence a row's result depends
 * neither on the other rows, nor on their number, nor on the threads. Bytes moved at one row: the weights, once.
 *
 * Tried and left: scale and min outside the sum over a group's k's, one multiplication a weight instead of two. From the
 * second-level cache a quarter faster at one row; on a whole model, which memory bounds, 3 % faster there, and 13 to 15 %
 * slower at 16 and 32 rows, whose sums no longer stay in registers (AVX2, Zen 3).
 *
 * Two ways: `direct` (up to DIRECT_ROWS rows) unpacks in registers; `tile` (more rows) unpacks KB k's of a panel into a
 * buffer that stays in the first-level cache and multiplies MR rows at a time from there.
 */
#include <omp.h>

#include "panels.h"

#if VL == 16
#define MR 12 /* rows a tile: MR * NV accumulators must fit the registers */
#elif VL == 8 || defined(__aarch64__)
#define MR 6
#else
#define MR 4
#endif
#define KB 384
#define DIRECT_ROWS 4

int tm_panel_width(void) { return NR; }

/* Scales of one block, each times the powers of two that its place in the word needs; then the mins. */
INLINE const uint8_t *read_scales(const tm_weight *w, const uint8_t *block, const int kind, vf scale[NV][4],
                                  vf min[NV]) {
    const int64_t item = w->half_scales ? 2 : 4;
    UNROLL for (int v = 0; v < NV; ++v) {
        const uint8_t *s = block + v * VL * item, *m = s + NR * item;
        vf base = w->half_scales ? vload_half((const uint16_t *)s) : vload(s);
        min[v] = vsplat(0.0f); /* q * scale + 0 is the same number as q * scale: no kernel of its own for it */
        if (w->offset) min[v] = w->half_scales ? vload_half((const uint16_t *)m) : vload(m);
        if (w->offset == OFFSET_ZERO) min[v] = -(min[v] * base);
        if (kind != WHOLE4) {
            scale[v][0] = base * vsplat(kind == E4M3 ? 0x1p120f : 0x1p-24f);
        } else {
            scale[v][0] = base;
            scale[v][1] = base * vsplat(0x1p-4f);
            scale[v][2] = base * vsplat(0x1p-8f);
            scale[v][3] = base * vsplat(0x1p-12f);
        }
    }
    return block + header_bytes(w);
}

/* The j-th k of a word, dequantized. */
INLINE vf unpack(vu word, const int j, const int kind, const vf scale[4], vf min) {
    vf q, s;
    if (kind == FLOAT32) return (vf)word;
    if (kind == BFLOAT16) return (vf)(j ? word & 0xffff0000u : word << 16);
    if (kind == FLOAT16) /* an arithmetic shift leaves the sign where it is */
        return (vf)(((vi)(j ? word : word << 16) >> 3) & (int32_t)0x8fffe000) * vsplat(0x1p112f);
    if (kind == E4M3) {
        q = (vf)(((vi)(word << (24 - 8 * j)) >> 4) & (int32_t)0x87f00000);
        s = scale[0];
    } else if (kind == WHOLE8) { /* in the top byte it is q * 2^24, sign included */
        q = __builtin_convertvector((vi)((word << (24 - 8 * j)) & 0xff000000u), vf);
        s = scale[0];
    } else {
        q = __builtin_convertvector((vi)((j < 4 ? word : word >> 16) & (15u << (4 * (j & 3)))), vf);
        s = scale[j & 3];
    }
    return vfma(q, s, min);
}

INLINE void put(float *out, vf v, int64_t room) {
    if (room >= VL) vstore(out, v);
    else for (int64_t i = 0; i < room; ++i) out[i] = v[i];
}

/* ---------------------------------------------------------------- few rows ---- */

INLINE void direct(const int rows, const int panels, const int kind, const tm_weight *w,
                   const float *x, float *out, int64_t panel) {
    const int per_word = codes_a_word(kind);
    const int64_t inputs = w->num_inputs, outputs = w->num_outputs, groups = inputs / w->group;
    vf acc[4][4 * NV];
    UNROLL for (int r = 0; r < rows; ++r)
        UNROLL for (int i = 0; i < panels * NV; ++i) acc[r][i] = vsplat(0.0f);
    const float *xk = x;
    for (int64_t g = 0; g < groups; ++g) {
        vf scale[4][NV][4], min[4][NV];
        const uint8_t *words[4];
        UNROLL for (int p = 0; p < panels; ++p) {
            words[p] = block_at(w, panel + p, g);
            if (is_grouped(kind)) words[p] = read_scales(w, words[p], kind, scale[p], min[p]);
        }
        for (int64_t k = 0; k < w->group; k += per_word, xk += per_word) {
            vu word[4 * NV];
            UNROLL for (int i = 0; i < panels * NV; ++i) word[i] = vloadu(words[i / NV] + i % NV * VL * 4);
            /* All vectors at one k before the next k: their chains of sums hide each other's latency. Taking a vector's
             * whole word first was 1.4 times slower at 1 to 4 rows (AVX2, Zen 3). */
            UNROLL for (int j = 0; j < per_word; ++j) {
                vf weight[4 * NV];
                UNROLL for (int i = 0; i < panels * NV; ++i)
                    weight[i] = unpack(word[i], j, kind, scale[i / NV][i % NV], min[i / NV][i % NV]);
                UNROLL for (int r = 0; r < rows; ++r) {
                    vf xj = vsplat(xk[r * inputs + j]);
                    UNROLL for (int i = 0; i < panels * NV; ++i) acc[r][i] = vfma(xj, weight[i], acc[r][i]);
                }
            }
            UNROLL for (int p = 0; p < panels; ++p) words[p] += NR * 4;
        }
    }
    UNROLL for (int r = 0; r < rows; ++r)
        UNROLL for (int i = 0; i < panels * NV; ++i) {
            int64_t n = panel * NR + i * VL;
            if (n < outputs) put(out + r * outputs + n, acc[r][i], outputs - n);
        }
}

/* One thread's panels: several at once where the rows alone do not fill the registers. */
INLINE void direct_panels(const int rows, const int at_once, const int kind, const tm_weight *w,
                          const float *x, float *out, int64_t from, int64_t to) {
    int64_t panel = from;
    for (; panel + at_once <= to; panel += at_once) direct(rows, at_once, kind, w, x, out, panel);
    for (; panel < to; ++panel) direct(rows, 1, kind, w, x, out, panel);
}

#define DIRECT(rows, at_once)                                                                             \
    static void direct_##rows(const tm_weight *w, const float *x, float *out, int64_t from, int64_t to) { \
        if (w->kind == FLOAT32) direct_panels(rows, at_once, FLOAT32, w, x, out, from, to);               \
        else if (w->kind == FLOAT16) direct_panels(rows, at_once, FLOAT16, w, x, out, from, to);          \
        else if (w->kind == BFLOAT16) direct_panels(rows, at_once, BFLOAT16, w, x, out, from, to);        \
        else if (w->kind == E4M3) direct_panels(rows, at_once, E4M3, w, x, out, from, to);                \
        else if (w->kind == WHOLE8) direct_panels(rows, at_once, WHOLE8, w, x, out, from, to);            \
        else direct_panels(rows, at_once, WHOLE4, w, x, out, from, to);                                   \
    }
DIRECT(1, 2)
DIRECT(2, 1)
DIRECT(3, 1)
DIRECT(4, 1)

/* --------------------------------------------------------------- many rows ---- */

INLINE void unpack_block(const int kind, const tm_weight *w, int64_t panel, int64_t from, int64_t to, float *buffer) {
    const int per_word = codes_a_word(kind);
    for (int64_t k = from; k < to;) {
        const int64_t g = k / w->group, end = min64(to, (g + 1) * w->group);
        vf scale[NV][4], min[NV];
        const uint8_t *words = block_at(w, panel, g);
        if (is_grouped(kind)) words = read_scales(w, words, kind, scale, min);
        words += (k - g * w->group) / per_word * NR * 4;
        for (; k < end; k += per_word, words += NR * 4)
            UNROLL for (int v = 0; v < NV; ++v) {
                vu word = vloadu(words + v * VL * 4);
                UNROLL for (int j = 0; j < per_word; ++j)
                    vstore(buffer + (k - from + j) * NR + v * VL, unpack(word, j, kind, scale[v], min[v]));
            }
    }
}

static void unpack_panel(const tm_weight *w, int64_t panel, int64_t from, int64_t to, float *buffer) {
    switch (w->kind) {
    case WHOLE4: unpack_block(WHOLE4, w, panel, from, to, buffer); break;
    case WHOLE8: unpack_block(WHOLE8, w, panel, from, to, buffer); break;
    case E4M3: unpack_block(E4M3, w, panel, from, to, buffer); break;
    case BFLOAT16: unpack_block(BFLOAT16, w, panel, from, to, buffer); break;
    default: unpack_block(FLOAT16, w, panel, from, to, buffer); break;
    }
}

/* `rows` rows times `depth` k's of a panel; `first`: start at zero, else go on from what is in `out`. */
INLINE void tile(const int rows, const float *x, int64_t x_stride, const float *panel, int64_t depth, float *out,
                 int64_t out_stride, int first) {
    vf acc[MR][NV];
    UNROLL for (int r = 0; r < rows; ++r)
        UNROLL for (int v = 0; v < NV; ++v) acc[r][v] = first ? vsplat(0.0f) : vload(out + r * out_stride + v * VL);
    for (int64_t k = 0; k < depth; ++k) {
        vf wk[NV];
        UNROLL for (int v = 0; v < NV; ++v) wk[v] = vload(panel + k * NR + v * VL);
        UNROLL for (int r = 0; r < rows; ++r) {
            vf xk = vsplat(x[r * x_stride + k]);
            UNROLL for (int v = 0; v < NV; ++v) acc[r][v] = vfma(xk, wk[v], acc[r][v]);
        }
    }
    UNROLL for (int r = 0; r < rows; ++r)
        UNROLL for (int v = 0; v < NV; ++v) vstore(out + r * out_stride + v * VL, acc[r][v]);
}

typedef void tile_fn(const float *, int64_t, const float *, int64_t, float *, int64_t, int);
#define TILE(n)                                                                                          \
    static void tile_##n(const float *x, int64_t xs, const float *p, int64_t d, float *o, int64_t os, int f) { \
        tile(n, x, xs, p, d, o, os, f);                                                                  \
    }
TILE(1) TILE(2) TILE(3) TILE(4)
#if MR >= 6
TILE(5) TILE(6)
#endif
#if MR >= 12
TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12)
#endif
static tile_fn *const TILES[] = {tile_1, tile_2, tile_3, tile_4,
#if MR >= 6
    tile_5, tile_6,
#endif
#if MR >= 12
    tile_7, tile_8, tile_9, tile_10, tile_11, tile_12,
#endif
};

/* Rows [from, to) of one panel. Tiles are as even as they can be: 7 rows are 4 + 3, not 6 + 1. */
static void panel_rows(const tm_weight *w, const float *x, float *out, int64_t panel, int64_t from, int64_t to,
                       float *buffer) {
    const int64_t inputs = w->num_inputs, outputs = w->num_outputs, tiles = (to - from + MR - 1) / MR;
    const int64_t room = min64(NR, outputs - panel * NR);
    for (int64_t k = 0; k < inputs; k += KB) {
        const int64_t depth = min64(KB, inputs - k);
        const float *weights = buffer;
        if (w->kind == FLOAT32) weights = (const float *)w->data + (panel * inputs + k) * NR;
        else unpack_panel(w, panel, k, k + depth, buffer);
        for (int64_t t = 0; t < tiles; ++t) {
            const int64_t r0 = from + (to - from) * t / tiles, rows = from + (to - from) * (t + 1) / tiles - r0;
            const float *xt = x + r0 * inputs + k;
            float *ot = out + r0 * outputs + panel * NR;
            if (room == NR) {
                TILES[rows - 1](xt, inputs, weights, depth, ot, outputs, k == 0);
                continue;
            }
            float edge[MR * NR]; /* the last panel is padded: its results pass through here */
            for (int64_t r = 0; r < rows && k; ++r) memcpy(edge + r * NR, ot + r * outputs, (size_t)room * 4);
            TILES[rows - 1](xt, inputs, weights, depth, edge, NR, k == 0);
            for (int64_t r = 0; r < rows; ++r) memcpy(ot + r * outputs, edge + r * NR, (size_t)room * 4);
        }
    }
}

/* ------------------------------------------------------------------- doors ---- */

/* x [rows, num_inputs], out [rows, num_outputs], both float32 and contiguous. */
void tm_linear(const tm_weight *w, const float *x, float *out, int64_t rows, int32_t threads) {
    const int64_t panels = (w->num_outputs + NR - 1) / NR;
    if (rows <= 0) return;
    if (rows <= DIRECT_ROWS) {
#pragma omp parallel num_threads(threads)
        {
            const int64_t team = omp_get_num_threads(), me = omp_get_thread_num();
            const int64_t from = panels * me / team, to = panels * (me + 1) / team;
            if (rows == 1) direct_1(w, x, out, from, to);
            else if (rows == 2) direct_2(w, x, out, from, to);
            else if (rows == 3) direct_3(w, x, out, from, to);
            else direct_4(w, x, out, from, to);
        }
        return;
    }
    /* Many threads and few panels: cut the rows too, as long as unpacking stays a small part. */
    int64_t cuts = 1;
    while (panels * cuts < 4 * threads && rows / (cuts + 1) >= 8 * MR) ++cuts;
#pragma omp parallel num_threads(threads)
    {
        float buffer[KB * NR] __attribute__((aligned(64)));
#pragma omp for schedule(dynamic, 1)
        for (int64_t item = 0; item < panels * cuts; ++item) {
            const int64_t cut = item / panels;
            panel_rows(w, x, out, item % panels, rows * cut / cuts, rows * (cut + 1) / cuts, buffer);
        }
    }
}

/* The j-th code of a word as a number. */
INLINE float code_of(int kind, uint32_t word, int j) {
    switch (kind) {
    case WHOLE4: return (float)((word >> (4 * j)) & 15u);
    case WHOLE8: return (float)(int8_t)(word >> (8 * j));
    case E4M3: return float_of((uint32_t)((int32_t)(word << (24 - 8 * j)) >> 4) & 0x87f00000u) * 0x1p120f;
    case BFLOAT16: return bf16_to_float((uint16_t)(word >> (16 * j)));
    default: return half_to_float((uint16_t)(word >> (16 * j)));
    }
}

/* Rows `ids` [count] of any weight but float32, dequantized: out [count, num_inputs]. Returns 0, or 1 + the first bad
 * index. */
int64_t tm_rows(const tm_weight *w, const int64_t *ids, float *out, int64_t count, int32_t threads) {
    const int64_t inputs = w->num_inputs, item = w->half_scales ? 2 : 4;
    const int per_word = codes_a_word(w->kind), grouped = is_grouped(w->kind);
    for (int64_t i = 0; i < count; ++i)
        if (ids[i] < 0 || ids[i] >= w->num_outputs) return i + 1;
#pragma omp parallel for num_threads(threads) if (count * inputs > 65536)
    for (int64_t i = 0; i < count; ++i) {
        const int64_t panel = ids[i] / NR, lane = ids[i] % NR;
        for (int64_t k = 0; k < inputs; k += w->group) {
            const uint8_t *block = block_at(w, panel, k / w->group), *s = block + lane * item, *m = s + NR * item;
            float scale = 1.0f, min = 0.0f;
            if (grouped && w->half_scales) scale = half_to_float(*(const uint16_t *)s);
            else if (grouped) memcpy(&scale, s, 4);
            if (w->offset && w->half_scales) min = half_to_float(*(const uint16_t *)m);
            else if (w->offset) memcpy(&min, m, 4);
            if (w->offset == OFFSET_ZERO) min = -(min * scale);
            const uint8_t *words = block + header_bytes(w) + lane * 4;
            for (int64_t j = 0; j < w->group; ++j) {
                uint32_t word;
                memcpy(&word, words + j / per_word * NR * 4, 4);
                const float q = code_of(w->kind, word, (int)(j % per_word));
                out[i * inputs + k + j] = grouped ? fmaf(q, scale, min) : q;
            }
        }
    }
    return 0;
}
