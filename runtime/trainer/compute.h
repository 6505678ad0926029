/*
 * compute.h - what a rank computes with, and the ways to compute: forward and backward of its rows
 * of a batch, and forward of its test rows.
 *
 * How is chosen once, when the trainer is made, and is a table of functions. Whoever computes calls
 * these, and knows no more.
 *
 *   micro-batches   rows in one pass or several, one after the other (micro_batch.h)
 *   lanes           fixed parts of the global batch, side by side (lanes.h)
 *   server          no rows: brings nothing but what it requests, in the tail
 */
#ifndef DP_RUNTIME_TRAINER_COMPUTE_H
#define DP_RUNTIME_TRAINER_COMPUTE_H

#include "runtime/trainer/input.h"
#include "runtime/trainer/lanes.h"
#include "runtime/trainer/micro_batch.h"
#include "runtime/trainer/normalize.h"

struct dp_compute;

/* Rows are those of `share`, of so many over all ranks. */
struct dp_compute_mode {
    /* Prepares for so many rows; training false: for evaluation. */
    dp_status (*prepare)(const struct dp_compute *compute, struct dp_lanes_share share, size_t rows,
                         bool training);
    /* Forgets what was prepared on streams of its own. */
    dp_status (*forget)(const struct dp_compute *compute);
    /* Forward and backward of this rank's rows; as dp_micro_batch_run(). */
    dp_status (*run)(const struct dp_compute *compute, const struct dp_batch *batch,
                     const struct dp_pass_call *call);
    /* In how many passes this rank goes through its part of `rows` test rows. */
    size_t (*evaluations)(const struct dp_compute *compute, size_t rows);
    /* Adds losses and correct answers of the test rows of each lane (one, without lanes) to
     * sums [lanes][2]; of their passes, those in `passes`. As dp_micro_batch_evaluate(). */
    dp_status (*evaluate)(const struct dp_compute *compute, const struct dp_dataset *data,
                          struct dp_range passes, const struct dp_pass_call *call,
                          double (*sums)[2]);
};

extern const struct dp_compute_mode dp_compute_micro_batches, dp_compute_lanes, dp_compute_server;

struct dp_compute {
    const struct dp_compute_mode *mode;
    struct dp_lanes_share share;          /* this rank's part of rows */
    struct dp_stream *stream;             /* owned unless borrowed */
    struct dp_pass *pass;                 /* owned unless borrowed; NULL with lanes */
    struct dp_lanes *lanes;               /* owned unless borrowed; NULL without train.lanes */
    bool borrowed;                        /* these three are another trainer's */
    struct dp_algo_choices *algo_choices; /* borrowed, or NULL; the stream's, and those of lanes */
    struct dp_normalize normalize;
    struct dp_micro_batches micro_batches;
    struct dp_graph_capture *capture; /* owned; NULL: steps are not recorded */
    struct dp_model_hooks hooks; /* `ready` NULL: gradients are held back until backward is done */
};

/* What the hooks lead to may be gone; the stream is still there. */
void dp_compute_close(struct dp_compute *compute);

#endif
