/* Weight matrices in panels, as all matrix kernels read them.
 *
 * A panel holds NR outputs with their lanes side by side, so that one vector is VL outputs at one k. Per panel and
 * group of k's there is one block of bytes:
 *
 *   scales [NR] float16|float32 | mins or zeros [NR] (if any) | words [group/8 (4 bits) or group/4 (8 bits)][NR] uint32
 *
 * A word holds 8 (4) consecutive k's of one output, low bits first. A weight is q * scale + min, or (q - zero) * scale
 * with a zero that is a whole number: then it is the same sum with min = -(zero * scale), which 16-bit scales hold exactly.
 *
 * Without groups, scales and mins: with 16 bits the panel is [K/2][NR] words of two k's, with 32 [K][NR] float32.
 */
#ifndef TIDEMARK_PANELS_H
#define TIDEMARK_PANELS_H

#include "simd.h"

#if VL == 16 || VL == 8 || !defined(__aarch64__)
#define NV 2 /* vectors a panel */
#else
#define NV 4
#endif
#define NR (VL * NV)

/* What a code means. `tidemark_kernels.grouped` and `.halves` write the same numbers. */
enum { WHOLE4 = 4, WHOLE8 = 8, E4M3 = 9, BFLOAT16 = 16, FLOAT16 = 17, FLOAT32 = 32 };
enum { OFFSET_NONE = 0, OFFSET_MIN = 1, OFFSET_ZERO = 2 };

typedef struct {
    const uint8_t *data;
    int64_t num_outputs, num_inputs, group, block_bytes;
    int32_t kind, offset, half_scales;
} tm_weight;

INLINE int is_grouped(const int kind) { return kind < BFLOAT16; }
INLINE int codes_a_word(const int kind) { return kind == WHOLE4 ? 8 : kind < BFLOAT16 ? 4 : kind < FLOAT32 ? 2 : 1; }

INLINE const uint8_t *block_at(const tm_weight *w, int64_t panel, int64_t group) {
    return w->data + (panel * (w->num_inputs / w->group) + group) * w->block_bytes;
}

/* Bytes of scales and mins before the words of a block. */
INLINE int64_t header_bytes(const tm_weight *w) {
    if (!is_grouped(w->kind)) return 0;
    return NR * (w->half_scales ? 2 : 4) * (w->offset ? 2 : 1);
}

#endif
