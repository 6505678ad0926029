/*
 * bucket_update.h - the optimizer's update of a bucket whose sum has arrived.
 */
#ifndef DP_RUNTIME_TRAINER_UPDATE_BUCKET_UPDATE_H
#define DP_RUNTIME_TRAINER_UPDATE_BUCKET_UPDATE_H

#include "base/status.h"
#include "kernels/flat.h"

struct dp_trainer;

/* Queues the update of this rank's part of bucket b, not the tail, from the gradient at `grad`,
 * with these step parameters (device memory); and of the average of the weights, if there is
 * one. */
DP_CHECKED dp_status dp_bucket_update(struct dp_trainer *trainer, int b, const float *grad,
                                      const struct dp_step_params *step_params);

/* Queues the sums of squares that layer-wise rates need (runtime/optim/param_groups.h), of this
 * rank's part of bucket b, not the tail. */
DP_CHECKED dp_status dp_bucket_measure(struct dp_trainer *trainer, int b);

/* Where the bucket's sum is after dp_exchange_wait(). */
const float *dp_bucket_gradient(const struct dp_trainer *trainer, int b);

/* Updates bucket b with the parameters of this step, and starts to send the new weights to the
 * other ranks. For the tail: merges its batch statistics into the running ones, unless the step is
 * skipped. */
DP_CHECKED dp_status dp_bucket_update_now(struct dp_trainer *trainer, int b);

#endif
