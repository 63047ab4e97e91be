/* One layer's KV memory: the slab of pages and where in a page each head's K and V lie; and what reads and writes it. */
#ifndef TIDEMARK_CACHE_H
#define TIDEMARK_CACHE_H

#include "simd.h"

#define MAX_HEAD 256 /* elements a head; checks.py refuses more */

typedef struct {
    const int64_t *k_offsets, *v_offsets; /* [kv heads], bytes from the page's start */
    const int32_t *k_dtypes, *v_dtypes;   /* [kv heads], DTYPE_* */
    const int64_t *k_scales, *v_scales;   /* [kv heads], bytes from the page's start to each row's scales; -1: none */
    const float *k_fixed, *v_fixed;       /* [kv heads], the one scale of all rows; 0: none */
} tm_segments;

typedef struct {
    uint8_t *slab;
    int64_t num_pages, page_bytes, block_size;
} tm_slab;

typedef struct {
    int64_t tokens, heads, kv_heads, head_dim, rotary_dim;
    float eps;
    int32_t dtype;
} tm_rope_shape;

typedef struct {
    void *q; /* [tokens, heads, head_dim], as `out` */
    void *out;
    const int32_t *page_table, *query_start, *context_lens;
    int64_t max_pages, chunks, heads, kv_heads, head_dim, window; /* window 0: none */
    float scale, softcap;                                        /* softcap 0: none */
    int32_t dtype;
    int64_t tokens;
} tm_attention;

/* What all layers of one step share. */
typedef struct {
    tm_rope_shape shape;
    tm_attention attention;
    tm_slab slab;
    const float *cosine, *sine;
    const int32_t *token_page, *token_row;
} tm_step;

int64_t tm_rope_and_write(const tm_rope_shape *s, const void *qkv, const float *cosine, const float *sine,
                          const float *q_norm, const float *k_norm, const tm_slab *slab, const tm_segments *segments,
                          const int32_t *token_page, const int32_t *token_row, void *q_out, int32_t threads);

#endif
