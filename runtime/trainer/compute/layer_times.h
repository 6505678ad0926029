/*
 * layer_times.h - how long each layer of a step takes on this rank, and what computes it.
 *
 * The rows of the last batch go through forward and backward again, with scratch gradients: nothing
 * that training uses is changed. With lanes, it is the first one of this rank, on the thread of the
 * caller.
 */
#ifndef DP_RUNTIME_TRAINER_COMPUTE_LAYER_TIMES_H
#define DP_RUNTIME_TRAINER_COMPUTE_LAYER_TIMES_H

#include "models/pass/pass_profile.h"

struct dp_trainer;

struct dp_layer_times {
    struct dp_layer_profile *layers; /* owned (dp_free); [count]; of a whole step */
    size_t rows;                     /* of this rank in that step */
    double larger_cost; /* forward and backward of DP_LARGER_TIMES times the rows, over that of the
                         * rows; 0: it was not measured, since a step is long, or has lanes */
    int count;          /* 0: this rank computes nothing, or had no memory for it */
};

enum { DP_LARGER_TIMES = 4 };

/* Takes about `seconds`, or a few passes if these take longer. Between steps, with no deferred
 * update left. Local. Errors: those of the device. */
DP_CHECKED dp_status dp_layer_times_measure(const struct dp_trainer *trainer, double seconds,
                                            struct dp_layer_times *out);

#endif
