/*
 * larger_batch.h - how long forward and backward of more rows would take: for a step that is short,
 * what of it are calls, whatever the rows.
 */
#ifndef DP_RUNTIME_TRAINER_COMPUTE_LARGER_BATCH_H
#define DP_RUNTIME_TRAINER_COMPUTE_LARGER_BATCH_H

#include <stddef.h>

#include "base/status.h"

struct dp_trainer;

/* Sets *cost to the time of forward and backward of `times` the rows over that of `rows` rows: the
 * fastest of some passes over zeros, with the trainer's weights, on a stream and in memory that
 * exist only meanwhile. Local. Errors: DP_ERR_NOMEM, those of the device. */
DP_CHECKED dp_status dp_larger_batch_cost(const struct dp_trainer *trainer, size_t rows, int times,
                                          double *cost);

#endif
