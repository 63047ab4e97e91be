/* Causal attention that reads K and V in the pages where they lie.
 *
 * Keys are cut at absolute positions that are multiples of PART. For one query and one part: scores, their maximum,
 * e^(score - maximum), their sum, and the weighted sum of V; parts are then merged in ascending order (online softmax,
 * Milakov and Gimelshein 2018, arXiv:1805.02867):
 *
 *   m' = max(m, m_part)   l' = l e^(m - m') + l_part e^(m_part - m')   acc' likewise;   out = acc / l
 *
 * Every number is computed in an order that depends on the query's position and its keys alone: a result is the same
 * bit for bit in a chunk, in a decode step, in any company and on any number of threads. A key that is not visible to
 * a query weighs exactly 0.
 *
 * A row is one (query, head) of a group of heads that share K and V; rows of a work item share every load of K and V.
 * One row: bytes moved are K and V, once. K and V that are not float32 are widened into a buffer a part at a time.
 * Scales of 8-bit ones never touch an element: a key's scale multiplies its score, a value's scale its weight. 4-bit ones
 * have several scales a row, which are applied while they are widened.
 */
#include <omp.h>
#include <stdlib.h>

#include "quantized.h"

#define PART 128     /* keys a part */
#define MAX_ROWS 48  /* rows a work item */
#define ROWS 3       /* rows a tile: 3 rows x 4 vectors of sums fill 16 registers */

typedef struct { int64_t chunk, kv_head, row, rows, first_part, num_parts; float *partials; } item_t;

typedef struct {
    float q[MAX_ROWS * MAX_HEAD], scores[MAX_ROWS * PART], acc[MAX_ROWS * MAX_HEAD];
    float top[MAX_ROWS], sum[MAX_ROWS];
    float wide[PART * MAX_HEAD];
    const float *keys[PART];
    float scales[PART]; /* of `keys`, where they are quantized */
} __attribute__((aligned(64))) scratch_t;

typedef struct { int64_t from, to; } range_t; /* half-open */

INLINE int64_t group_of(const tm_attention *a) { return a->heads / a->kv_heads; }

/* Keys that row `row` of a chunk sees. */
INLINE range_t visible(const tm_attention *a, int64_t chunk, int64_t row) {
    const int64_t count = a->query_start[chunk + 1] - a->query_start[chunk];
    const int64_t position = a->context_lens[chunk] - count + row / group_of(a);
    return (range_t){a->window ? max64(0, position - a->window + 1) : 0, position + 1};
}

/* ------------------------------------------------------------- where keys lie ---- */

/* One head's K or V in a page. */
typedef struct { int64_t offset, scales; int dtype; float fixed; } segment_t;

INLINE segment_t keys_of(const tm_segments *seg, int64_t kv) {
    return (segment_t){seg->k_offsets[kv], seg->k_scales[kv], seg->k_dtypes[kv], seg->k_fixed[kv]};
}
INLINE segment_t values_of(const tm_segments *seg, int64_t kv) {
    return (segment_t){seg->v_offsets[kv], seg->v_scales[kv], seg->v_dtypes[kv], seg->v_fixed[kv]};
}

/* Pointers to rows [from, to) of K or V as float32; those of other dtypes are widened into `s->wide`. Those of 8 bits are
 * still without their scales, which go to `s->scales`: then it returns true. */
static int point(const tm_attention *a, const tm_slab *slab, const item_t *it, segment_t seg, range_t keys,
                 scratch_t *s) {
    const int dtype = seg.dtype, scaled = dtype >= DTYPE_I8 && dtype != DTYPE_I4;
    const int64_t d = a->head_dim, row = row_bytes(dtype, d);
    const int32_t *pages = a->page_table + it->chunk * a->max_pages;
    for (int64_t key = keys.from; key < keys.to;) {
        const int64_t page = key / slab->block_size, in_page = key - page * slab->block_size;
        const int64_t run = min64(keys.to - key, slab->block_size - in_page);
        const uint8_t *start = slab->slab + pages[page] * slab->page_bytes, *at = start + seg.offset + in_page * row;
        const float **pointer = s->keys + (key - keys.from);
        if (dtype == DTYPE_F32) {
            for (int64_t i = 0; i < run; ++i) pointer[i] = (const float *)(at + i * row);
        } else {
            float *wide = s->wide + (key - keys.from) * d;
            if (dtype == DTYPE_I4) widen4(at, start + seg.scales + in_page * groups_of(d) * 4, wide, run, d);
            else widen(dtype, at, wide, run * d);
            for (int64_t i = 0; i < run; ++i) pointer[i] = wide + i * d;
        }
        float *factors = s->scales + (key - keys.from);
        if (scaled && seg.fixed > 0.0f) fixed_scales(dtype, seg.fixed, at, d, run, factors);
        else if (scaled) read_scales(dtype, start + seg.scales, in_page, run, factors);
        key += run;
    }
    return scaled;
}

INLINE void multiply(float *values, const float *factors, int64_t count) {
    for (int64_t i = 0; i < count; ++i) values[i] *= factors[i];
}

/* ------------------------------------------------------------------- scores ---- */

#if defined(__AVX__)
INLINE void sum4(v8 a, v8 b, v8 c, v8 d, float *out) {
    __m256 ab = _mm256_hadd_ps((__m256)a, (__m256)b), cd = _mm256_hadd_ps((__m256)c, (__m256)d);
    __m256 all = _mm256_hadd_ps(ab, cd);
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}
#else
INLINE void sum4(v8 a, v8 b, v8 c, v8 d, float *out) {
    const v8 each[4] = {a, b, c, d};
    for (int i = 0; i < 4; ++i) {
        v8 v = each[i];
        out[i] = ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
    }
}
#endif

/* Products of `rows` queries with four keys at a time; the last keys are repeated, `scores` has room for that. */
INLINE void score_tile(const int rows, const float *q, int64_t d, const float *const *keys, int64_t count,
                       float *scores) {
    for (int64_t k = 0; k < count; k += 4) {
        const float *key[4];
        UNROLL for (int j = 0; j < 4; ++j) key[j] = keys[min64(k + j, count - 1)];
        v8 acc[ROWS][4];
        UNROLL for (int r = 0; r < rows; ++r) UNROLL for (int j = 0; j < 4; ++j) acc[r][j] = v8splat(0.0f);
        for (int64_t i = 0; i < d; i += 8) {
            v8 x[ROWS];
            UNROLL for (int r = 0; r < rows; ++r) x[r] = v8load(q + r * d + i);
            UNROLL for (int j = 0; j < 4; ++j) {
                v8 kj = v8load(key[j] + i);
                UNROLL for (int r = 0; r < rows; ++r) acc[r][j] = v8fma(x[r], kj, acc[r][j]);
            }
        }
        UNROLL for (int r = 0; r < rows; ++r) sum4(acc[r][0], acc[r][1], acc[r][2], acc[r][3], scores + r * PART + k);
    }
}

/* ------------------------------------------------------------------ softmax ---- */

/* Scores of one row become weights; keys outside [from, to) (relative to the part) weigh 0. Vectors begin at multiples
 * of 8 from the part's start, so the order of the sum does not depend on the tile. */
INLINE void weigh(const tm_attention *a, float *scores, int64_t from, int64_t to, float *top, float *sum) {
    const v8i lane = {0, 1, 2, 3, 4, 5, 6, 7};
    const v8 lowest = v8splat(-INFINITY), cap = v8splat(a->softcap);
    v8 highest = lowest, total = v8splat(0.0f);
    for (int64_t k = from / 8 * 8; k < to; k += 8) {
        v8i at = lane + (int32_t)k, inside = (at >= (int32_t)from) & (at < (int32_t)to);
        v8 x = v8load(scores + k);
        if (a->softcap > 0.0f) x = v8tanh(x / cap) * cap;
        x = v8select(inside, x, lowest);
        v8store(scores + k, x);
        highest = v8max(x, highest);
    }
    *top = v8top(highest);
    const v8 shift = v8splat(*top);
    for (int64_t k = from / 8 * 8; k < to; k += 8) {
        v8i at = lane + (int32_t)k, inside = (at >= (int32_t)from) & (at < (int32_t)to);
        v8 p = (v8)(inside & (v8i)v8exp(v8load(scores + k) - shift));
        v8store(scores + k, p);
        total = total + p;
    }
    *sum = v8sum(total);
    for (int64_t k = 0; k < from / 8 * 8; ++k) scores[k] = 0.0f;
    for (int64_t k = (to + 7) / 8 * 8; k < PART; ++k) scores[k] = 0.0f;
}

/* ---------------------------------------------------------- weighted sum of V ---- */

/* Elements [at, at + 8 * vectors) of the sums: the sums stay in registers while all keys pass. */
INLINE void sum_tile(const int rows, const int vectors, const float *weights, const float *const *values,
                     int64_t count, float *acc, int64_t d, int64_t at) {
    v8 sum[ROWS][4];
    UNROLL for (int r = 0; r < rows; ++r) UNROLL for (int i = 0; i < vectors; ++i) sum[r][i] = v8splat(0.0f);
    for (int64_t k = 0; k < count; ++k) {
        const float *value = values[k] + at;
        v8 x[4];
        UNROLL for (int i = 0; i < vectors; ++i) x[i] = v8load(value + i * 8);
        UNROLL for (int r = 0; r < rows; ++r) {
            v8 p = v8splat(weights[r * PART + k]);
            UNROLL for (int i = 0; i < vectors; ++i) sum[r][i] = v8fma(p, x[i], sum[r][i]);
        }
    }
    UNROLL for (int r = 0; r < rows; ++r)
        UNROLL for (int i = 0; i < vectors; ++i) v8store(acc + r * d + at + i * 8, sum[r][i]);
}

INLINE void sum_rows(const int rows, const float *weights, const float *const *values, int64_t count, float *acc,
                     int64_t d) {
    int64_t at = 0;
    for (; at + 32 <= d; at += 32) sum_tile(rows, 4, weights, values, count, acc, d, at);
    for (; at < d; at += 8) sum_tile(rows, 1, weights, values, count, acc, d, at);
}

/* -------------------------------------------------------------------- parts ---- */

/* One part of an item's keys: weighted sums [rows, d], maxima and sums [rows] (sum 0: nothing visible). */
static void part(const tm_attention *a, const tm_slab *slab, const tm_segments *seg, const item_t *it, int64_t index,
                 scratch_t *s, float *acc, float *top, float *sum) {
    const int64_t d = a->head_dim, start = index * PART, tiles = (it->rows + ROWS - 1) / ROWS;
    range_t keys = {max64(start, visible(a, it->chunk, it->row).from),
                    min64(start + PART, visible(a, it->chunk, it->row + it->rows - 1).to)};
    const int64_t count = keys.to - keys.from, skip = keys.from - start;
    float *scores = s->scores;
    const int64_t kv = it->kv_head;
    const int scaled_keys = point(a, slab, it, keys_of(seg, kv), keys, s);
    for (int64_t t = 0; t < tiles; ++t) {
        const int64_t r = it->rows * t / tiles, rows = it->rows * (t + 1) / tiles - r;
        float scored[ROWS * PART + 4]; /* room for repeated keys beyond the part's end */
        if (rows == 1) score_tile(1, s->q + r * d, d, s->keys, count, scored);
        else if (rows == 2) score_tile(2, s->q + r * d, d, s->keys, count, scored);
        else score_tile(3, s->q + r * d, d, s->keys, count, scored);
        for (int64_t i = 0; i < rows; ++i) {
            memcpy(scores + (r + i) * PART + skip, scored + i * PART, (size_t)count * 4);
            if (scaled_keys) multiply(scores + (r + i) * PART + skip, s->scales, count);
        }
    }
    for (int64_t r = 0; r < it->rows; ++r) {
        const range_t seen = visible(a, it->chunk, it->row + r);
        const int64_t from = max64(seen.from, start) - start, to = min64(seen.to, start + PART) - start;
        if (from < to) {
            weigh(a, scores + r * PART, from, to, top + r, sum + r);
        } else {
            memset(scores + r * PART, 0, PART * 4);
            top[r] = -INFINITY;
            sum[r] = 0.0f;
        }
    }
    if (point(a, slab, it, values_of(seg, kv), keys, s))
        for (int64_t r = 0; r < it->rows; ++r) multiply(scores + r * PART + skip, s->scales, count);
    for (int64_t t = 0; t < tiles; ++t) {
        const int64_t r = it->rows * t / tiles, rows = it->rows * (t + 1) / tiles - r;
        const float *weights = scores + r * PART + skip;
        if (rows == 1) sum_rows(1, weights, s->keys, count, acc + r * d, d);
        else if (rows == 2) sum_rows(2, weights, s->keys, count, acc + r * d, d);
        else sum_rows(3, weights, s->keys, count, acc + r * d, d);
    }
}

/* Merges one row's part into its state. The first visible part is taken as it is. */
INLINE void merge(float *acc, float *top, float *sum, const float *part_acc, float part_top, float part_sum, int64_t d) {
    if (part_sum == 0.0f) return; /* a visible part sums to at least 1, or to NaN, which must stay visible */
    if (*sum == 0.0f) {
        memcpy(acc, part_acc, (size_t)d * 4);
        *top = part_top;
        *sum = part_sum;
        return;
    }
    const float highest = part_top > *top ? part_top : *top;
    const v8 factors = v8exp((v8){*top - highest, part_top - highest});
    const v8 keep = v8splat(factors[0]), take = v8splat(factors[1]);
    for (int64_t i = 0; i < d; i += 8)
        v8store(acc + i, v8fma(v8load(acc + i), keep, v8load(part_acc + i) * take));
    *sum = *sum * factors[0] + part_sum * factors[1];
    *top = highest;
}

/* -------------------------------------------------------------------- items ---- */

INLINE int64_t row_index(const tm_attention *a, const item_t *it, int64_t r) { /* row of [T * heads] */
    const int64_t group = group_of(a), row = it->row + r;
    return (a->query_start[it->chunk] + row / group) * a->heads + it->kv_head * group + row % group;
}

static void load_queries(const tm_attention *a, const item_t *it, scratch_t *s) {
    const int64_t d = a->head_dim;
    const v8 scale = v8splat(a->scale);
    for (int64_t r = 0; r < it->rows; ++r) {
        const int64_t from = row_index(a, it, r) * d;
        for (int64_t i = 0; i < d; i += 8) {
            v8 x = a->dtype == DTYPE_F32 ? v8read(DTYPE_F32, a->q, from + i) : v8read(DTYPE_BF16, a->q, from + i);
            v8store(s->q + r * d + i, x * scale);
        }
    }
}

static void store_row(const tm_attention *a, const item_t *it, int64_t r, const float *acc, float sum) {
    const int64_t d = a->head_dim, to = row_index(a, it, r) * d;
    const v8 total = v8splat(sum);
    for (int64_t i = 0; i < d; i += 8) {
        v8 x = v8load(acc + i) / total;
        if (a->dtype == DTYPE_F32) v8write(DTYPE_F32, a->out, to + i, x);
        else v8write(DTYPE_BF16, a->out, to + i, x);
    }
}

static void run_item(const tm_attention *a, const tm_slab *slab, const tm_segments *seg, const item_t *it) {
    scratch_t s;
    float acc[MAX_ROWS * MAX_HEAD] __attribute__((aligned(64))), top[MAX_ROWS], sum[MAX_ROWS];
    const int64_t d = a->head_dim;
    load_queries(a, it, &s);
    for (int64_t r = 0; r < it->rows; ++r) { top[r] = -INFINITY; sum[r] = 0.0f; }
    for (int64_t p = 0; p < it->num_parts; ++p) {
        part(a, slab, seg, it, it->first_part + p, &s, s.acc, s.top, s.sum);
        for (int64_t r = 0; r < it->rows; ++r) merge(acc + r * d, top + r, sum + r, s.acc + r * d, s.top[r], s.sum[r], d);
    }
    for (int64_t r = 0; r < it->rows; ++r) store_row(a, it, r, acc + r * d, sum[r]);
}

/* Few items, many threads: one part of one item; its result waits in `it->partials` for the merge. */
static void run_part(const tm_attention *a, const tm_slab *slab, const tm_segments *seg, const item_t *it, int64_t p) {
    scratch_t s;
    float *mine = it->partials + p * it->rows * (a->head_dim + 2);
    load_queries(a, it, &s);
    part(a, slab, seg, it, it->first_part + p, &s, mine, mine + it->rows * a->head_dim,
         mine + it->rows * (a->head_dim + 1));
}

static void merge_item(const tm_attention *a, const item_t *it) {
    const int64_t d = a->head_dim;
    for (int64_t r = 0; r < it->rows; ++r) {
        float acc[MAX_HEAD], top = -INFINITY, sum = 0.0f;
        for (int64_t p = 0; p < it->num_parts; ++p) {
            const float *from = it->partials + p * it->rows * (d + 2), *tops = from + it->rows * d;
            merge(acc, &top, &sum, from + r * d, tops[r], tops[it->rows + r], d);
        }
        store_row(a, it, r, acc, sum);
    }
}

static int64_t list_items(const tm_attention *a, item_t *items) {
    int64_t n = 0;
    for (int64_t c = 0; c < a->chunks; ++c) {
        const int64_t rows = (a->query_start[c + 1] - a->query_start[c]) * group_of(a);
        const int64_t tiles = (rows + MAX_ROWS - 1) / MAX_ROWS;
        for (int64_t h = 0; h < a->kv_heads; ++h)
            for (int64_t t = tiles - 1; t >= 0; --t, ++n) { /* the longest first */
                if (!items) continue;
                item_t it = {c, h, rows * t / tiles, 0, 0, 0, NULL};
                it.rows = rows * (t + 1) / tiles - it.row;
                it.first_part = visible(a, c, it.row).from / PART;
                it.num_parts = (visible(a, c, it.row + it.rows - 1).to + PART - 1) / PART - it.first_part;
                items[n] = it;
            }
    }
    return n;
}

/* -1 where lengths or pages are impossible, else 0. A wrong page must never become a wild pointer. */
static int64_t check(const tm_attention *a, const tm_slab *slab) {
    if (a->query_start[0] != 0 || a->query_start[a->chunks] != a->tokens) return -1;
    for (int64_t c = 0; c < a->chunks; ++c) {
        const int64_t count = a->query_start[c + 1] - a->query_start[c], context = a->context_lens[c];
        const int64_t pages = (context + slab->block_size - 1) / slab->block_size;
        if (count < 0 || context < count || pages > a->max_pages) return -1;
        const int64_t first = a->window ? max64(0, context - count - a->window + 1) / slab->block_size : 0;
        for (int64_t p = first; p < pages; ++p) {
            const int32_t page = a->page_table[c * a->max_pages + p];
            if (page < 0 || page >= slab->num_pages) return -1;
        }
    }
    return 0;
}

static int64_t run_split(const tm_attention *a, const tm_slab *slab, const tm_segments *seg, item_t *items, int64_t n,
                         int64_t parts, int32_t threads) {
    int64_t floats = 0, done = 0;
    for (int64_t i = 0; i < n; ++i) floats += items[i].num_parts * items[i].rows * (a->head_dim + 2);
    float *room = malloc((size_t)floats * 4);
    int32_t *owner = malloc((size_t)parts * 4);
    int64_t *begin = malloc((size_t)(n + 1) * 8);
    if (room && owner && begin) {
        floats = 0;
        for (int64_t i = 0; i < n; ++i) {
            items[i].partials = room + floats;
            floats += items[i].num_parts * items[i].rows * (a->head_dim + 2);
            begin[i] = done;
            for (int64_t p = 0; p < items[i].num_parts; ++p) owner[done++] = (int32_t)i;
        }
#pragma omp parallel num_threads(threads)
        {
#pragma omp for schedule(dynamic, 1)
            for (int64_t j = 0; j < parts; ++j) run_part(a, slab, seg, items + owner[j], j - begin[owner[j]]);
#pragma omp for schedule(dynamic, 1)
            for (int64_t i = 0; i < n; ++i) merge_item(a, items + i);
        }
    }
    const int64_t failed = !(room && owner && begin);
    free(room);
    free(owner);
    free(begin);
    return failed;
}

/* Returns 0, -1 when lengths or pages are impossible (nothing is written), or 1 when there is no memory. */
int64_t tm_paged_attention(const tm_attention *a, const tm_slab *slab, const tm_segments *seg, int32_t threads) {
    const int64_t wrong = check(a, slab);
    if (wrong) return wrong;
    const int64_t n = list_items(a, NULL);
    if (n == 0) return 0;
    item_t *items = malloc((size_t)n * sizeof *items);
    if (!items) return 1;
    list_items(a, items);
    int64_t parts = 0, failed = 0;
    for (int64_t i = 0; i < n; ++i) parts += items[i].num_parts;
    if (threads > 1 && n < 4 * threads && parts >= 2 * n) {
        failed = run_split(a, slab, seg, items, n, parts, threads);
    } else if (threads == 1 || n == 1) {
        for (int64_t i = 0; i < n; ++i) run_item(a, slab, seg, items + i);
    } else {
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
        for (int64_t i = 0; i < n; ++i) run_item(a, slab, seg, items + i);
    }
    free(items);
    return failed;
}

/* Rotary embedding, the write of K and V, and the attention that reads them: `qkv` in, `step->attention.out` out, by way
 * of `step->attention.q`. Returns 0, -1 and 1 as above, or 2 + the first token whose page or row does not exist. */
int64_t tm_attend(const tm_step *step, const void *qkv, const float *q_norm, const float *k_norm,
                  const tm_segments *segments, int32_t threads) {
    const int64_t wrong = tm_rope_and_write(&step->shape, qkv, step->cosine, step->sine, q_norm, k_norm, &step->slab,
                                            segments, step->token_page, step->token_row, step->attention.q, threads);
    return wrong ? wrong + 1 : tm_paged_attention(&step->attention, &step->slab, segments, threads);
}
