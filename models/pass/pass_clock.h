/*
 * pass_clock.h - the clock that pass.c reads around each call of a layer, while layers are timed
 * (pass_profile.h).
 */
#ifndef DP_MODELS_PASS_PASS_CLOCK_H
#define DP_MODELS_PASS_PASS_CLOCK_H

#include <stdint.h>

#include "kernels/op_path.h"

enum { DP_FORWARD, DP_BACKWARD, DP_DIRECTIONS };

/* Arrays with an entry for each layer; borrowed. */
struct dp_pass_clock {
    uint64_t (*ns)[DP_DIRECTIONS]; /* the time of its calls so far */
    double *spared;                /* FLOPs of its calls that its algorithms did without */
    char (*paths)[DP_OP_PATH_BYTES];
    dp_status failed; /* what the device reported when it was waited for */
};

/* Before and after a call: waits until the stream is done, and adds the time. */
uint64_t dp_pass_clock_start(struct dp_pass_clock *clock, struct dp_stream *stream, int layer);
void dp_pass_clock_stop(struct dp_pass_clock *clock, struct dp_stream *stream, int layer,
                        int direction, uint64_t begin_ns);

#endif
