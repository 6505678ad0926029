/*
 * staging.h - a gradient in memory that only a device can use, and its copy where ranks share it.
 *
 * The gradient is made on one stream, bucket by bucket. What is to be shared is copied to the host
 * on a stream of its own, while backward goes on; when an event tells that it is there, the
 * bucket's job sums it, and the sum is copied back on the stream where it is used.
 *
 *   device   [ bucket 2 | bucket 1 | bucket 0 ]     out: ordered behind what made it
 *                |  ^        |  ^
 *   host     [ bucket 2 | bucket 1 | bucket 0 ]     arrive, sum over the ranks, in
 */
#ifndef DP_COLLECTIVES_STAGING_H
#define DP_COLLECTIVES_STAGING_H

#include <stdatomic.h>

#include "collectives/bucket.h"
#include "kernels/device.h"

struct dp_staging;

/* `host` [total] is borrowed, and so is `plan`, of whose last bucket the device makes the first
 * `tail` elements; the host writes the others itself. Errors: DP_ERR_NOMEM, those of the device. */
DP_CHECKED dp_status dp_staging_create(const struct dp_device *device,
                                       const struct dp_bucket_plan *plan, float *host, size_t total,
                                       size_t tail, struct dp_staging **out);
void dp_staging_destroy(struct dp_staging *staging);

/* The gradient: [total], device memory. */
float *dp_staging_gradient(const struct dp_staging *staging);

const struct dp_device *dp_staging_device(const struct dp_staging *staging);

/* On which stream gradients are made and used from now on, and what it updates; where ranks publish
 * weights to each other, `shared` is the host's array of them; elements are of `width`
 * bytes. All borrowed. */
void dp_staging_follow(struct dp_staging *staging, struct dp_stream *stream, void *weights,
                       void *shared, size_t width);

/* Bucket b is queued: sends it to the host behind that. */
DP_CHECKED dp_status dp_staging_out(struct dp_staging *staging, int b);

/* Instead, where codes of a bucket are all that leaves the device: arrive() tells when it is made. */
DP_CHECKED dp_status dp_staging_made(struct dp_staging *staging, int b);

/* What is queued from now on comes behind all that is queued on `codes`: the way back of those. */
DP_CHECKED dp_status dp_staging_behind(struct dp_staging *staging, struct dp_stream *codes);

/* Waits until it is there. Errors: DP_ERR_CANCELLED. */
DP_CHECKED dp_status dp_staging_arrive(const struct dp_staging *staging, int b,
                                       const atomic_int *cancel);

/* Queues the way back. */
DP_CHECKED dp_status dp_staging_in(struct dp_staging *staging, int b);

/* The same for weights that ranks publish: those that this rank has updated go to the host, where
 * dp_staging_arrive() waits for them; those of the whole bucket come back. */
DP_CHECKED dp_status dp_staging_weights_out(struct dp_staging *staging, int b,
                                            struct dp_range mine);
DP_CHECKED dp_status dp_staging_weights_in(struct dp_staging *staging, int b);

/* Any array of the device, to and from the host; done when they return. NULL staging: arrays are
 * all the host's. */
DP_CHECKED dp_status dp_staging_read(const struct dp_staging *staging, float *host,
                                     const float *device, size_t count);
DP_CHECKED dp_status dp_staging_write(const struct dp_staging *staging, float *device,
                                      const float *host, size_t count);

#endif
