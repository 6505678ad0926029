/*
 * gate.h - what must look at the whole gradient before any weight changes: clipping by norm, and
 * loss scaling, which leaves out steps whose gradient is not finite.
 *
 * Sums of squares are taken over blocks of DP_BLOCK elements and added in their order, so that the
 * norm does not depend on how the gradient is cut into buckets.
 */
#ifndef DP_RUNTIME_GATE_H
#define DP_RUNTIME_GATE_H

#include <stdbool.h>

#include "kernels/device.h"
#include "kernels/flat.h"

struct dp_gate {
    const struct dp_flat *flat; /* borrowed */
    double clip_norm;           /* 0: no clipping */
    bool checks;                /* a gradient that is not finite skips the step */
    size_t blocks;
    float *squares;           /* owned; device memory, [blocks] */
    float *seen;              /* owned; the host's copy of them, or squares itself */
    struct dp_stream *stream; /* borrowed */
    double norm;              /* of the last step, before clipping */
};

/* The stream is the one that looks. */
DP_CHECKED dp_status dp_gate_create(const struct dp_flat *flat, double clip_norm, bool checks,
                                    struct dp_stream *stream, struct dp_gate **out);
void dp_gate_destroy(struct dp_gate *gate);

/* Looks at one range of the gradient. */
DP_CHECKED dp_status dp_gate_look(struct dp_gate *gate, struct dp_range range);

/* Forgets the last step's squares: before the first look, where a rank looks at a part only. */
DP_CHECKED dp_status dp_gate_begin(struct dp_gate *gate);

/* Brings what it has seen to the host. Waits for the stream. */
DP_CHECKED dp_status dp_gate_read(struct dp_gate *gate);

/* All squares are there: reads them, and sets knobs->skip (the host's; if it is not set yet), or
 * multiplies knobs->factor, which applies to the gradient already. As
 * torch.nn.utils.clip_grad_norm_. */
DP_CHECKED dp_status dp_gate_decide(struct dp_gate *gate, struct dp_knobs *knobs);

/* Of what was read: the tensor, in order of backward, whose gradient is the first that is not
 * finite; NULL: none. */
const struct dp_tensor *dp_gate_overflowed(const struct dp_gate *gate);

#endif
