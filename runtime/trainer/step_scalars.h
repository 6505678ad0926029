/*
 * step_scalars.h - the scalars that ranks share in every step, in the tail of the gradient.
 *
 * After the batch statistics come the loss and the score, the number of bad samples, requests (0 or
 * 1 from each rank), and agreement hashes. A hash is sent in pieces of 11 bits, so that the float32
 * sum of equal pieces over up to 8192 ranks is exact: if the sum is not ranks * mine, ranks do not
 * agree.
 */
#ifndef DP_RUNTIME_TRAINER_STEP_SCALARS_H
#define DP_RUNTIME_TRAINER_STEP_SCALARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/tensor.h"

enum dp_request {
    DP_REQUEST_STOP,  /* was asked to: stop.h */
    DP_REQUEST_SAVE,  /* was asked to */
    DP_REQUEST_INPUT, /* to end, since its samples cannot be read: runtime/run/dataset/bad_data.h */
    DP_REQUEST_SLOW,  /* to stop, since training is too slow: stop_criteria.h */
    DP_REQUEST_COUNT
};

/* What must be equal on all ranks. */
enum dp_agreement {
    DP_AGREE_PLAN,    /* how the gradient is cut into buckets */
    DP_AGREE_ORDER,   /* communication jobs so far */
    DP_AGREE_WEIGHTS, /* a slice of the weights, or all state: replica_check.h */
    DP_AGREE_COUNT
};

enum { DP_HASH_PIECES = 6, DP_STEP_SCALARS_RANKS_MAX = 8192 };

/* Floats after the batch statistics. */
enum { DP_STEP_SCALARS_COUNT = 3 + DP_REQUEST_COUNT + DP_AGREE_COUNT * DP_HASH_PIECES };

/* Elements of the gradient's tail: batch statistics, then those floats, and a gap. */
static inline size_t dp_step_scalars_tail(size_t statistics)
{
    return dp_round_up(statistics + DP_STEP_SCALARS_COUNT, DP_BLOCK);
}

struct dp_step_scalars {
    uint64_t hash[DP_AGREE_COUNT];
    bool request[DP_REQUEST_COUNT];
    size_t bad_samples; /* in whose places others stand, in this rank's rows */
};

struct dp_step_report {
    float loss;        /* mean over the global batch */
    float bad_samples; /* of the global batch, in whose places others stand */
    float score; /* number of rows with a right answer; of mse the sum of their mean distances */
    bool request[DP_REQUEST_COUNT]; /* whether some rank requests it */
    bool skipped;                   /* the gradient was not finite, so nothing was changed */
    bool split;                     /* ranks do not agree on the weights: see replica_check.h */
};

/* Writes this rank's requests and hashes into the tail: `tail` points at the loss. */
void dp_step_scalars_write(float *tail, const struct dp_step_scalars *scalars);

/* Reads the sums. If weights differ it sets report->split, and the caller resolves that. Errors:
 * DP_ERR_DISAGREE (names what else the ranks do not agree on). */
DP_CHECKED dp_status dp_step_scalars_read(const float *tail, const struct dp_step_scalars *scalars,
                                          int ranks, uint64_t step, struct dp_step_report *report);

#endif
