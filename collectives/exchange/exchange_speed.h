/*
 * exchange_speed.h - how fast the strategy of an exchange sums when nothing else runs: the limit of
 * what a step does.
 *
 * Sums are of scratch buffers, of the sizes of the plan's buckets, without a compressor. Sizes that
 * would take too long are predicted in proportion to their bytes. A strategy that sums on GPUs is
 * timed there, from the call to the end of its work.
 */
#ifndef DP_COLLECTIVES_EXCHANGE_EXCHANGE_SPEED_H
#define DP_COLLECTIVES_EXCHANGE_EXCHANGE_SPEED_H

#include <stddef.h>

#include "base/status.h"

struct dp_exchange;

enum { DP_EXCHANGE_WHOLE_BYTES = 25 << 20, DP_EXCHANGE_BY_BYTES = 96 };

struct dp_exchange_speed {
    double bytes;   /* of a step's gradient; 0: nothing was measured, all else is 0 */
    double step_s;  /* its buckets one after the other; the slowest rank's time */
    double whole_s; /* the same in buckets of DP_EXCHANGE_WHOLE_BYTES */
    char by[DP_EXCHANGE_BY_BYTES]; /* the strategy that was timed */
};

/*
 * Takes about `seconds`; the same numbers on all ranks. Nothing is measured for one rank, for a
 * strategy that shares nothing, and where GPUs have no room for it. Call it between steps; its
 * memory is released when it returns. Collective. Errors: those of the strategy and transport;
 * DP_ERR_NOMEM, on all ranks.
 */
DP_CHECKED dp_status dp_exchange_measure_speed(struct dp_exchange *exchange, double seconds,
                                               struct dp_exchange_speed *out);

#endif
