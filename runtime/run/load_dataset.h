/*
 * load_dataset.h - the data set into memory.
 */
#ifndef DP_RUNTIME_RUN_LOAD_DATASET_H
#define DP_RUNTIME_RUN_LOAD_DATASET_H

#include "runtime/run/training.h"

/* The data set into memory; run->data. Collective. */
DP_CHECKED dp_status dp_run_load_data(struct dp_training *run);

/* Bytes that the configured data set will take of each host's memory, and its training rows; 0
 * where it is not to be had here. */
size_t dp_run_data_bytes(const struct dp_config *config, const struct dp_model *model,
                         size_t *train_count);

#endif
