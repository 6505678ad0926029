/*
 * compute.h - what a rank computes with, and the ways to compute: forward and backward of its rows
 * of a batch, and forward of its test rows.
 *
 * The way is chosen once, when the trainer is created: it is a table of functions.
 *
 *   micro-batches   rows in one pass or several, one after the other (micro_batch.h)
 *   lanes           fixed parts of the global batch, side by side (lanes.h)
 *   server          no rows: brings nothing but what it requests, in the tail
 */
#ifndef DP_RUNTIME_TRAINER_COMPUTE_COMPUTE_H
#define DP_RUNTIME_TRAINER_COMPUTE_COMPUTE_H

#include "runtime/trainer/compute/input.h"
#include "runtime/trainer/compute/lanes.h"
#include "runtime/trainer/compute/micro_batch.h"
#include "runtime/trainer/compute/normalize.h"

struct dp_compute;

/* This rank has `share` of the rows; the arguments are rows over all ranks. */
struct dp_compute_mode {
    /* Prepares for this number of rows; training false: for evaluation. */
    dp_status (*prepare)(const struct dp_compute *compute, struct dp_lanes_share share, size_t rows,
                         bool training);
    /* Discards what was prepared on its own streams. */
    dp_status (*forget)(const struct dp_compute *compute);
    /* Does forward and backward of this rank's rows, like dp_micro_batch_run(). */
    dp_status (*run)(const struct dp_compute *compute, const struct dp_batch *batch,
                     const struct dp_pass_call *call);
    /* Starts to copy the first rows of the next batch, like dp_micro_batch_send(). NULL: rows are
     * copied when they are loaded. */
    dp_status (*send)(const struct dp_compute *compute, const struct dp_batch *next);
    /* Returns the number of passes for this rank's part of `rows` test rows. */
    size_t (*evaluations)(const struct dp_compute *compute, size_t rows);
    /* Adds what the test rows of each lane (one, without lanes) come to, to sums [lanes]; of their
     * passes, only those in `passes`. Like dp_micro_batch_evaluate(). */
    dp_status (*evaluate)(const struct dp_compute *compute, struct dp_test_rows *test,
                          struct dp_range passes, const struct dp_pass_call *call,
                          double (*sums)[DP_EVALUATION_SUMS]);
};

extern const struct dp_compute_mode dp_compute_micro_batches, dp_compute_lanes, dp_compute_server;

struct dp_compute {
    const struct dp_compute_mode *mode;
    struct dp_lanes_share share;          /* this rank's part of rows */
    struct dp_stream *stream;             /* owned unless borrowed */
    struct dp_pass *pass;                 /* owned unless borrowed; NULL with lanes */
    struct dp_lanes *lanes;               /* owned unless borrowed; NULL without train.lanes */
    bool borrowed;                        /* these three belong to another trainer */
    struct dp_algo_choices *algo_choices; /* borrowed, or NULL; the stream's, and those of lanes */
    struct dp_normalize normalize;
    struct dp_micro_batches micro_batches;
    struct dp_graph_capture *capture; /* owned; NULL: steps are not recorded */
    struct dp_model_hooks hooks;      /* `ready` NULL: gradients are sent only after backward */
};

/* Threads that take test rows at the same time. */
static inline int dp_compute_users(const struct dp_compute *compute)
{
    return compute->lanes != NULL ? dp_lanes_users(compute->lanes) : 1;
}

/* Waits until the device no longer reads rows of batches. Call it before destroying their
 * loader. */
void dp_compute_drop_rows(const struct dp_compute *compute);

/* Call it while the stream exists; what the hooks use may have been destroyed. */
void dp_compute_close(struct dp_compute *compute);

#endif
