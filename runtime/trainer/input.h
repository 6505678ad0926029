/*
 * input.h - the data set in memory, and this rank's rows of it, batch by batch.
 */
#ifndef DP_RUNTIME_TRAINER_INPUT_H
#define DP_RUNTIME_TRAINER_INPUT_H

#include "runtime/data/loader.h"

/* The data set in memory: bytes, one copy on each node. */
struct dp_dataset {
    const uint8_t *train_images, *test_images;
    const int32_t *train_labels, *test_labels;
    size_t train_count, test_count, sample_bytes;
};

struct dp_input {
    const struct dp_dataset *data; /* borrowed */
    struct dp_loader *loader;      /* owned; NULL: this rank has no rows, it is a server */
    struct dp_batch batch;         /* of the last dp_input_next() */
    size_t global_batch;           /* rows over all ranks */
    bool drop_last;
    bool cached; /* the same batch in every step: measures without input */
};

/* Rows that the global batch of a step really has. */
size_t dp_input_global_rows(const struct dp_input *input, uint64_t step);

/* The batch of step `step`, which follows the last one: input->batch. Servers need none of
 * the data, only to know how many rows the batch has. Errors: those of dp_loader_next. */
DP_CHECKED dp_status dp_input_next(struct dp_input *input, uint64_t step);

#endif
