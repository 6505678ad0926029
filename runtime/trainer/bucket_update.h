/*
 * bucket_update.h - the optimizer's update of a bucket, whenever its sum is there.
 */
#ifndef DP_RUNTIME_TRAINER_BUCKET_UPDATE_H
#define DP_RUNTIME_TRAINER_BUCKET_UPDATE_H

#include "base/status.h"
#include "kernels/flat.h"

struct dp_trainer;

/* Queues the update of this rank's part of bucket b, which is not the tail: from the gradient at
 * `grad`, with these step parameters (device memory). */
DP_CHECKED dp_status dp_bucket_update(struct dp_trainer *trainer, int b, const float *grad,
                                      const struct dp_step_params *step_params);

/* Its gradient, where the sum is when dp_exchange_wait() has returned. */
const float *dp_bucket_gradient(const struct dp_trainer *trainer, int b);

/* That, with the parameters of this step, and the new weights are on their way to the other ranks;
 * of the tail: takes its batch statistics into the running ones, unless the step is skipped. */
DP_CHECKED dp_status dp_bucket_update_now(struct dp_trainer *trainer, int b);

#endif
