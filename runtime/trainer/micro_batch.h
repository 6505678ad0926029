/*
 * micro_batch.h - forward and backward of this rank's rows, in one pass or several.
 *
 * With train.micro_batch m, n rows go in k = ceil(n/m) passes [floor(jn/k), floor((j+1)n/k)), whose
 * gradients are added in order; the last one announces the tensors. A rank without rows runs one
 * pass over none, which writes zeros and joins every collective.
 */
#ifndef DP_RUNTIME_TRAINER_MICRO_BATCH_H
#define DP_RUNTIME_TRAINER_MICRO_BATCH_H

#include "models/pass.h"
#include "runtime/data/loader.h"
#include "runtime/trainer/graph_capture.h"
#include "runtime/trainer/normalize.h"

/* One forward and backward. */
struct dp_micro_batch {
    struct dp_range rows; /* of this rank's rows */
    bool adds;            /* to the gradient; otherwise replaces it */
    bool last;            /* announces tensors */
};

struct dp_micro_batches {
    const struct dp_model *model;         /* borrowed */
    struct dp_pass *pass;                 /* borrowed */
    size_t micro_batch;                   /* 0: all rows at once */
    const struct dp_normalize *normalize; /* borrowed */
    struct dp_graph_capture *capture;     /* borrowed; NULL: every operation is queued anew */
};

/* In how many passes `rows` rows go, and pass `i` of them. */
size_t dp_micro_batch_count(size_t rows, size_t micro_batch);
struct dp_micro_batch dp_micro_batch_at(size_t rows, size_t micro_batch, size_t i);

/* The most rows of one pass when a rank has at most `rows`. */
size_t dp_micro_batch_most(size_t rows, size_t micro_batch);

/* Prepares the pass for a rank with `rows` rows. */
DP_CHECKED dp_status dp_micro_batch_prepare(const struct dp_micro_batches *batches, size_t rows,
                                            bool training);

/* Runs all passes of the batch. `call` is filled in but for rows, first_row, labels and keep. */
DP_CHECKED dp_status dp_micro_batch_run(const struct dp_micro_batches *batches,
                                        const struct dp_batch *batch,
                                        const struct dp_pass_call *call);

/* In how many passes `rows` test rows go. */
size_t dp_micro_batch_evaluations(const struct dp_micro_batches *batches, size_t rows);

/* Forward over test rows: adds their losses and correct answers to sums[0] and sums[1]. Of their
 * passes, only those in `passes` (which may reach past the last): going through all in order, in
 * however many calls, gives the same sums. */
DP_CHECKED dp_status dp_micro_batch_evaluate(const struct dp_micro_batches *batches,
                                             const uint8_t *images, const int32_t *labels,
                                             size_t rows, struct dp_range passes,
                                             const struct dp_pass_call *call, double sums[2]);

#endif
