/* One layer's KV memory: the slab of pages and where in a page each head's K and V lie. */
#ifndef TIDEMARK_CACHE_H
#define TIDEMARK_CACHE_H

#include "simd.h"

typedef struct {
    const int64_t *k_offsets, *v_offsets; /* [kv heads], bytes from the page's start */
    const int32_t *k_dtypes, *v_dtypes;   /* [kv heads], DTYPE_* */
} tm_segments;

typedef struct {
    uint8_t *slab;
    int64_t num_pages, page_bytes, block_size;
} tm_slab;

#endif
