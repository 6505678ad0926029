/*
 * input.h - the data set, and this rank's rows of it, batch by batch.
 */
#ifndef DP_RUNTIME_TRAINER_COMPUTE_INPUT_H
#define DP_RUNTIME_TRAINER_COMPUTE_INPUT_H

#include "base/log.h"
#include "models/model.h"
#include "runtime/config/config.h"
#include "runtime/data/augment/augment.h"
#include "runtime/data/loader.h"
#include "runtime/data/stream/test_rows.h"
#include "runtime/trainer/input/batch_receiver.h"

/* The data set, one copy on each node, or read as it is wanted: bytes, or float32 where the model
 * has float_samples. */
struct dp_dataset {
    const uint8_t *train_images, *test_images; /* [count, sample_bytes]; NULL: they are read */
    const int32_t *train_labels, *test_labels; /* [count, label words of the model] */
    size_t train_count, test_count, sample_bytes;
    struct dp_sample_shape shape;               /* of a sample */
    struct dp_samples *samples;                 /* borrowed; where they are read */
    bool skips;                                 /* others take the places of bad ones */
    bool made;                                  /* training rows are changed at random already */
    const uint32_t *train_prints, *test_prints; /* [count]: row_print.h; NULL: not checked */
};

/* Who reports a failure that ranks find each by itself, and maybe all at once. */
struct dp_input_speaker {
    bool (*begins)(void *context); /* whether this rank is to; NULL: it is */
    void (*ends)(void *context);   /* it has */
    void *context;
};

struct dp_input {
    const struct dp_dataset *data;      /* borrowed */
    struct dp_augment *augment;         /* owned; NULL: none */
    struct dp_loader *loader;           /* owned; NULL: this rank reads no rows, */
    struct dp_batch_receiver *receiver; /* borrowed; but others do; NULL: it is a server */
    struct dp_test_rows *test;          /* owned; NULL: it is a server, or evaluates nothing */
    struct dp_batch batch;              /* set by dp_input_next() */
    struct dp_dataset lent;             /* what another trainer of this rank measures with */
    size_t global_batch;                /* rows over all ranks */
    bool drop_last;
    dp_status failure;         /* of dp_input_try(), which is not known to others yet */
    struct dp_log_error error; /* of it: of this rank, or of one that reads for it */
    struct dp_input_speaker speaker;
    bool cached; /* the same batch in every step: to measure without input */
};

/* Its test rows, for so many users and threads of each: test_rows.h. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_dataset_test_rows(const struct dp_dataset *data, size_t label_words,
                                          int users, int threads, struct dp_test_rows **out);

/* What changes its samples at random: data.augment. Errors: DP_ERR_CONFIG, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_dataset_augment(const struct dp_dataset *data,
                                        const struct dp_config *config, struct dp_augment **out);

/* What a loader of its training rows is made from; the caller sets global_batch, rank, ranks, the
 * steps and where batches are pinned. `device` is where steps compute. */
struct dp_loader_config dp_dataset_loader(const struct dp_dataset *data,
                                          const struct dp_config *config,
                                          const struct dp_model *model,
                                          const struct dp_augment *augment,
                                          const struct dp_device *device, int threads);

/* The number of rows in the global batch of a step: the last one of an epoch may be smaller. */
size_t dp_input_global_rows(const struct dp_input *input, uint64_t step);

/* Sets input->batch to the batch of `step`, which follows the previous call's. Servers get no data,
 * only the number of rows. input->speaker reports a failure. Errors: those of dp_loader_next, also
 * on ranks that read. */
DP_CHECKED dp_status dp_input_next(struct dp_input *input, uint64_t step);

/* The same; but a failure is kept in input->failure and input->error, and the batch has rows that
 * were not read: for a rank that goes through the step with all others, and ends with them. */
void dp_input_try(struct dp_input *input, uint64_t step);

/* The batch after that one, if it is ready, like dp_loader_peek(). */
bool dp_input_peek(const struct dp_input *input, struct dp_batch *next);

#endif
