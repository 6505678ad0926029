/*
 * micro_batch.h - forward and backward of this rank's rows, in one pass or several.
 *
 * With train.micro_batch m, n rows are computed in k = ceil(n/m) passes [floor(jn/k),
 * floor((j+1)n/k)), whose gradients are added in order; in the last one tensors become ready. A
 * rank without rows runs one pass over no rows, which writes zeros and joins every collective.
 */
#ifndef DP_RUNTIME_TRAINER_COMPUTE_MICRO_BATCH_H
#define DP_RUNTIME_TRAINER_COMPUTE_MICRO_BATCH_H

#include "models/pass/pass.h"
#include "runtime/data/loader.h"
#include "runtime/data/stream/test_rows.h"
#include "runtime/trainer/compute/graph_capture.h"
#include "runtime/trainer/compute/normalize.h"

/* One forward and backward. */
struct dp_micro_batch {
    struct dp_range rows; /* of this rank's rows */
    bool adds;            /* to the gradient; otherwise replaces it */
    bool last;            /* calls hooks->ready */
};

struct dp_micro_batches {
    const struct dp_model *model;         /* borrowed */
    struct dp_pass *pass;                 /* borrowed */
    size_t micro_batch;                   /* 0: all rows at once */
    const struct dp_normalize *normalize; /* borrowed */
    struct dp_graph_capture *capture;     /* borrowed; NULL: every operation is queued each time */
    dp_status (*after)(void *context);    /* queues what comes after a batch's last backward, and is
                                           * recorded with it; NULL: nothing */
    void *after_context;
};

/* The number of passes for `rows` rows, and the rows of pass `i`. */
size_t dp_micro_batch_count(size_t rows, size_t micro_batch);
struct dp_micro_batch dp_micro_batch_at(size_t rows, size_t micro_batch, size_t i);

/* The most rows of one pass when a rank has at most `rows`. */
size_t dp_micro_batch_most(size_t rows, size_t micro_batch);

/* Prepares the pass for a rank with `rows` rows. */
DP_CHECKED dp_status dp_micro_batch_prepare(const struct dp_micro_batches *batches, size_t rows,
                                            bool training);

/* Runs all passes of the batch. The caller fills in `call` except rows, first_row, labels and
 * keep. */
DP_CHECKED dp_status dp_micro_batch_run(const struct dp_micro_batches *batches,
                                        const struct dp_batch *batch,
                                        const struct dp_pass_call *call);

/* Starts to copy the first rows of the next batch to the device (dp_pass_send), if the pass was
 * prepared for that. */
DP_CHECKED dp_status dp_micro_batch_send(const struct dp_micro_batches *batches,
                                         const struct dp_batch *next);

/* The number of passes for `rows` test rows. */
size_t dp_micro_batch_evaluations(const struct dp_micro_batches *batches, size_t rows);

/* Does forward over these rows of the test set, which thread `user` takes: adds what
 * dp_pass_evaluate() returns to `sums`. Of their passes, only those in `passes`, whose end may be
 * too large. Calls that together cover all passes in order give the same sums as one call. */
DP_CHECKED dp_status dp_micro_batch_evaluate(const struct dp_micro_batches *batches,
                                             struct dp_test_rows *test, int user,
                                             struct dp_range rows, struct dp_range passes,
                                             const struct dp_pass_call *call,
                                             double sums[DP_EVALUATION_SUMS]);

#endif
