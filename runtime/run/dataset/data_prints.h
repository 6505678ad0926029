/*
 * data_prints.h - hashes of a data set: hosts that read different ones, and a run that goes on with
 * another one, are found by them.
 */
#ifndef DP_RUNTIME_RUN_DATASET_DATA_PRINTS_H
#define DP_RUNTIME_RUN_DATASET_DATA_PRINTS_H

#include "collectives/core/group.h"
#include "runtime/data/samples.h"
#include "runtime/trainer/compute/input.h"

/* Of a set in memory: of all labels, and of images of rows that are spread evenly. Of one that is
 * read: of rows that are spread evenly. */
struct dp_data_prints {
    uint64_t labels[DP_SETS], images[DP_SETS];
    uint64_t spread_labels; /* of rows to train on that are spread evenly: the same in both cases */
};

struct dp_data_prints dp_data_prints_of_memory(const struct dp_dataset *data, size_t label_words);

/* Errors: DP_ERR_NOMEM. A sample that cannot be read is left out: whoever needs it reports it. */
DP_CHECKED dp_status dp_data_prints_of_files(struct dp_samples *samples,
                                             struct dp_data_prints *out);

/* Compares with all ranks. Collective. Errors: DP_ERR_DISAGREE. */
DP_CHECKED dp_status dp_data_prints_compare(struct dp_group *group,
                                            const struct dp_data_prints *prints);

/* A claim for dp_consistency_check() about the data set. */
struct dp_consistency_item dp_data_claim(const char *field, uint64_t hash);

#endif
