/* Weight matrices in panels, as all matrix kernels read them.
 *
 * A panel holds NR outputs with their lanes side by side, so that one vector is VL outputs at one k. Per panel and
 * group of k's there is one block of bytes:
 *
 *   scales [NR] float16|float32 | mins [NR] (if any) | words [group/8 (4 bits) or group/4 (8 bits)][NR] uint32
 *
 * A word holds 8 (4) consecutive k's of one output, low bits first. With 32 bits the panel is [K][NR] float32.
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

typedef struct {
    const uint8_t *data;
    int64_t num_outputs, num_inputs, group, block_bytes;
    int32_t bits, has_min, half_scales;
} tm_weight;

INLINE const uint8_t *block_at(const tm_weight *w, int64_t panel, int64_t group) {
    return w->data + (panel * (w->num_inputs / w->group) + group) * w->block_bytes;
}

/* Bytes of scales and mins before the words of a block. */
INLINE int64_t header_bytes(const tm_weight *w) { return NR * (w->half_scales ? 2 : 4) * (w->has_min ? 2 : 1); }

#endif
