/* Root-mean-square norm, gated SiLU, rotary embedding with the write into pages. All arithmetic in float32.
 * Each reads its input once and writes its output once. */
#include <omp.h>

#include "quantized.h"

#define PARALLEL_ELEMENTS 32768 /* below it, waking a thread costs more than the work, and so does asking OpenMP */

/* ------------------------------------------------------------------- norm ---- */

INLINE void norm_row(const int dtype, void *x, int64_t row, const float *weight, void *residual, void *out,
                     int64_t width, float eps) {
    const void *source = residual ? residual : x;
    const int64_t base = row * width, whole = width / 8 * 8;
    const int rest = (int)(width - whole);
    if (residual) {
        for (int64_t i = 0; i < whole; i += 8)
            v8write(dtype, residual, base + i, v8read(dtype, residual, base + i) + v8read(dtype, x, base + i));
        if (rest)
            v8write_some(dtype, residual, base + whole,
                         v8read_some(dtype, residual, base + whole, rest) + v8read_some(dtype, x, base + whole, rest),
                         rest);
    }
    v8 sums[2] = {v8splat(0.0f), v8splat(0.0f)};
    int64_t i = 0;
    for (; i + 16 <= whole; i += 16) {
        v8 a = v8read(dtype, source, base + i), b = v8read(dtype, source, base + i + 8);
        sums[0] = v8fma(a, a, sums[0]);
        sums[1] = v8fma(b, b, sums[1]);
    }
    for (; i < whole; i += 8) {
        v8 a = v8read(dtype, source, base + i);
        sums[0] = v8fma(a, a, sums[0]);
    }
    if (rest) {
        v8 a = v8read_some(dtype, source, base + whole, rest);
        sums[1] = v8fma(a, a, sums[1]);
    }
    const v8 inverse = v8splat(1.0f / sqrtf(v8sum(sums[0] + sums[1]) / (float)width + eps));
    for (i = 0; i < whole; i += 8)
        v8write(dtype, out, base + i, v8read(dtype, source, base + i) * inverse * v8load(weight + i));
    if (rest)
        v8write_some(dtype, out, base + whole,
                     v8read_some(dtype, source, base + whole, rest) * inverse *
                         v8read_some(DTYPE_F32, weight, whole, rest),
                     rest);
}

static void norm_any(int dtype, void *x, int64_t row, const float *weight, void *residual, void *out, int64_t width,
                     float eps) {
    if (dtype == DTYPE_F32) norm_row(DTYPE_F32, x, row, weight, residual, out, width, eps);
    else norm_row(DTYPE_BF16, x, row, weight, residual, out, width, eps);
}

/* x, residual (or null), out [rows, width] of `dtype`; weight [width] float32. */
void tm_rms_norm(int32_t dtype, void *x, const float *weight, void *residual, void *out, int64_t rows, int64_t width,
                 float eps, int32_t threads) {
    if (threads == 1 || rows * width <= PARALLEL_ELEMENTS) {
        for (int64_t row = 0; row < rows; ++row) norm_any(dtype, x, row, weight, residual, out, width, eps);
        return;
    }
#pragma omp parallel for num_threads(threads)
    for (int64_t row = 0; row < rows; ++row) norm_any(dtype, x, row, weight, residual, out, width, eps);
}

/* ------------------------------------------------------------------- SiLU ---- */

INLINE v8 silu(v8 gate) { return gate / (v8splat(1.0f) + v8exp(-gate)); }

INLINE void silu_row(const int dtype, const void *in, void *out, int64_t row, int64_t width) {
    const int64_t gate = row * 2 * width, up = gate + width, to = row * width, whole = width / 8 * 8;
    const int rest = (int)(width - whole);
    for (int64_t i = 0; i < whole; i += 8)
        v8write(dtype, out, to + i, silu(v8read(dtype, in, gate + i)) * v8read(dtype, in, up + i));
    if (rest)
        v8write_some(dtype, out, to + whole,
                     silu(v8read_some(dtype, in, gate + whole, rest)) * v8read_some(dtype, in, up + whole, rest), rest);
}

static void silu_any(int dtype, const void *in, void *out, int64_t row, int64_t width) {
    if (dtype == DTYPE_F32) silu_row(DTYPE_F32, in, out, row, width);
    else silu_row(DTYPE_BF16, in, out, row, width);
}

/* in [rows, 2 * width] (gate, then up), out [rows, width], both of `dtype`. */
void tm_silu_mul(int32_t dtype, const void *in, void *out, int64_t rows, int64_t width, int32_t threads) {
    if (threads == 1 || rows * width <= PARALLEL_ELEMENTS / 4) {
        for (int64_t row = 0; row < rows; ++row) silu_any(dtype, in, out, row, width);
        return;
    }
#pragma omp parallel for num_threads(threads)
    for (int64_t row = 0; row < rows; ++row) silu_any(dtype, in, out, row, width);
}

/* ------------------------------------------------------ rotary and KV write ---- */

INLINE void read_head(const int dtype, const void *base, int64_t index, float *head, int64_t head_dim) {
    for (int64_t i = 0; i < head_dim; i += 8) v8store(head + i, v8read(dtype, base, index + i));
}

INLINE void write_head(int dtype, void *base, int64_t index, const float *head, int64_t head_dim) {
    if (dtype == DTYPE_F32)
        for (int64_t i = 0; i < head_dim; i += 8) v8write(DTYPE_F32, base, index + i, v8load(head + i));
    else if (dtype == DTYPE_F16)
        for (int64_t i = 0; i < head_dim; i += 8) v8write(DTYPE_F16, base, index + i, v8load(head + i));
    else
        for (int64_t i = 0; i < head_dim; i += 8) v8write(DTYPE_BF16, base, index + i, v8load(head + i));
}

/* K or V of one head into `row` of the segment at byte `offset` of page `at`. */
INLINE void write_kv(int dtype, uint8_t *at, int64_t offset, int64_t scales, float fixed, int64_t row,
                     const float *head, int64_t head_dim) {
    uint8_t *to = at + offset + row * row_bytes(dtype, head_dim);
    if (dtype < DTYPE_I8) write_head(dtype, at + offset, row * head_dim, head, head_dim);
    else if (dtype == DTYPE_I4) quantize4(head, head_dim, to, at + scales + row * groups_of(head_dim) * 4);
    else if (fixed > 0.0f) quantize_fixed(dtype, fixed, head, head_dim, to);
    else quantize(dtype, head, head_dim, to, at + scales + row * 4);
}

/* The half-split (NeoX) form: element i turns with element i + rotary_dim / 2. */
INLINE void rotate(float *head, const float *cosine, const float *sine, int64_t half) {
    for (int64_t i = 0; i < half; ++i) {
        float a = head[i], b = head[i + half];
        head[i] = a * cosine[i] - b * sine[i];
        head[i + half] = b * cosine[i] + a * sine[i];
    }
}

INLINE void rope_token(const int dtype, const tm_rope_shape *s, const void *qkv, const float *cosine, const float *sine,
                       const float *q_norm, const float *k_norm, const tm_slab *slab, const tm_segments *segments,
                       int64_t token, int64_t page, int64_t row, void *q_out) {
    float head[MAX_HEAD];
    const int64_t d = s->head_dim, half = s->rotary_dim / 2;
    const int64_t base = token * (s->heads + 2 * s->kv_heads) * d;
    const float *c = cosine + token * half, *sn = sine + token * half;
    uint8_t *at = slab->slab + page * slab->page_bytes;
    for (int64_t h = 0; h < s->heads + s->kv_heads; ++h) {
        const float *norm = h < s->heads ? q_norm : k_norm;
        read_head(dtype, qkv, base + h * d, head, d);
        if (norm) norm_row(DTYPE_F32, head, 0, norm, NULL, head, d, s->eps);
        rotate(head, c, sn, half);
        if (h < s->heads) {
            write_head(dtype, q_out, (token * s->heads + h) * d, head, d);
        } else {
            const int64_t kv = h - s->heads;
            write_kv(segments->k_dtypes[kv], at, segments->k_offsets[kv], segments->k_scales[kv], segments->k_fixed[kv],
                     row, head, d);
        }
    }
    for (int64_t kv = 0; kv < s->kv_heads; ++kv) {
        read_head(dtype, qkv, base + (s->heads + s->kv_heads + kv) * d, head, d);
        write_kv(segments->v_dtypes[kv], at, segments->v_offsets[kv], segments->v_scales[kv], segments->v_fixed[kv], row,
                 head, d);
    }
}

static void rope_any(const tm_rope_shape *s, const void *qkv, const float *cosine, const float *sine,
                     const float *q_norm, const float *k_norm, const tm_slab *slab, const tm_segments *segments,
                     int64_t token, int64_t page, int64_t row, void *q_out) {
    if (s->dtype == DTYPE_F32)
        rope_token(DTYPE_F32, s, qkv, cosine, sine, q_norm, k_norm, slab, segments, token, page, row, q_out);
    else
        rope_token(DTYPE_BF16, s, qkv, cosine, sine, q_norm, k_norm, slab, segments, token, page, row, q_out);
}

/* Returns 0, or 1 + the first token whose page or row does not exist; nothing is written then. */
int64_t tm_rope_and_write(const tm_rope_shape *s, const void *qkv, const float *cosine, const float *sine,
                          const float *q_norm, const float *k_norm, const tm_slab *slab, const tm_segments *segments,
                          const int32_t *token_page, const int32_t *token_row, void *q_out, int32_t threads) {
    for (int64_t t = 0; t < s->tokens; ++t)
        if (token_page[t] < 0 || token_page[t] >= slab->num_pages || token_row[t] < 0 ||
            token_row[t] >= slab->block_size)
            return t + 1;
    const int64_t width = (s->heads + 2 * s->kv_heads) * s->head_dim;
    if (threads == 1 || s->tokens * width <= PARALLEL_ELEMENTS / 2) {
        for (int64_t t = 0; t < s->tokens; ++t)
            rope_any(s, qkv, cosine, sine, q_norm, k_norm, slab, segments, t, token_page[t], token_row[t], q_out);
        return 0;
    }
#pragma omp parallel for num_threads(threads)
    for (int64_t t = 0; t < s->tokens; ++t)
        rope_any(s, qkv, cosine, sine, q_norm, k_norm, slab, segments, t, token_page[t], token_row[t], q_out);
    return 0;
}
