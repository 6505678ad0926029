/*
 * votes.h - the scalars that ranks share in every step: they ride in the tail of the gradient.
 *
 * Behind the batch statistics lie the loss and the correct answers, then wishes (0 or 1 of each
 * rank), then agreement hashes. A hash travels in pieces of 11 bits, so that the float32 sum of
 * equal pieces over up to 8192 ranks is exact: a rank that sees sum != ranks * mine knows that not
 * all ranks agree.
 */
#ifndef DP_RUNTIME_VOTES_H
#define DP_RUNTIME_VOTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum dp_wish {
    DP_WISH_STOP, /* was asked to: stop.h */
    DP_WISH_SAVE, /* was asked to */
    DP_WISH_SLOW, /* to stop, since training is too slow: halt.h */
    DP_WISH_COUNT
};

/* What must be equal on all ranks. */
enum dp_agreement {
    DP_AGREE_PLAN,    /* how the gradient is cut into buckets */
    DP_AGREE_ORDER,   /* communication jobs so far */
    DP_AGREE_WEIGHTS, /* a slice of the weights, or all state: replicas.h */
    DP_AGREE_COUNT
};

enum { DP_HASH_PIECES = 6, DP_VOTES_RANKS_MAX = 8192 };

/* Floats behind the batch statistics. */
enum { DP_VOTES_COUNT = 2 + DP_WISH_COUNT + DP_AGREE_COUNT * DP_HASH_PIECES };

struct dp_votes {
    uint64_t hash[DP_AGREE_COUNT];
    bool wish[DP_WISH_COUNT];
};

struct dp_step_report {
    float loss;               /* mean over the global batch */
    float correct;            /* rows whose largest logit is the label */
    bool wish[DP_WISH_COUNT]; /* some rank wishes so */
    bool skipped;             /* the gradient was not finite: nothing was changed */
    bool split;               /* ranks do not agree on the weights: see replicas.h */
};

/* Writes this rank's wishes and hashes into the tail: `tail` points at the loss. */
void dp_votes_write(float *tail, const struct dp_votes *votes);

/* Reads the sums. What to do about weights that differ is left to the caller (report->split).
 * Errors: DP_ERR_DISAGREE (names what else the ranks do not agree on). */
DP_CHECKED dp_status dp_votes_read(const float *tail, const struct dp_votes *votes, int ranks,
                                   uint64_t step, struct dp_step_report *report);

#endif
