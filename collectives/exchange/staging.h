/*
 * staging.h - a gradient in memory that only a device can use: how it gets to where ranks share it,
 * and back.
 *
 * It is made on one stream, bucket by bucket. Either the strategy sums it where it is, on a stream
 * of its own, ordered by events; or what is to be shared is copied to the host, in pieces, on
 * a stream of its own, while backward goes on; when an event says that a piece is there, the
 * bucket's job sums it, and sends the sum back on a third stream while it sums the next piece. The
 * first stream waits for it where it is used.
 *
 *   device   [ bucket 2 | bucket 1 | bucket 0 ]     download: after what made it
 *                |  ^        |  ^
 *   host     [ bucket 2 | bucket 1 | bucket 0 ]     wait, sum over the ranks, upload; take
 */
#ifndef DP_COLLECTIVES_EXCHANGE_STAGING_H
#define DP_COLLECTIVES_EXCHANGE_STAGING_H

#include <stdatomic.h>

#include "collectives/core/bucket.h"
#include "collectives/core/group.h"
#include "kernels/device.h"

/* Elements of a piece, 4 MiB: long enough to be copied at full speed, and short against a
 * bucket. */
enum { DP_STAGING_PIECE = 1 << 20 };

struct dp_staging;

struct dp_staging_config {
    const struct dp_device *device;
    const struct dp_bucket_plan *plan; /* borrowed */
    float *host;                       /* [total]; borrowed */
    size_t total, tail; /* of the last bucket the device makes the first `tail` elements; the host
                           writes the others itself */
};

/* Collective where group->gpus is set. Errors: DP_ERR_NOMEM, those of the device. */
DP_CHECKED dp_status dp_staging_create(struct dp_group *group,
                                       const struct dp_staging_config *config,
                                       struct dp_staging **out);
void dp_staging_destroy(struct dp_staging *staging);

/* The gradient: [total], from dp_gpu_peers_memory(). */
float *dp_staging_gradient(const struct dp_staging *staging);

const struct dp_device *dp_staging_device(const struct dp_staging *staging);

/* What dp_staging_follow() set; NULL before. */
struct dp_stream *dp_staging_stream(const struct dp_staging *staging);
void *dp_staging_weights(const struct dp_staging *staging);

/* On which stream gradients are made and used from now on, and what it updates; where ranks publish
 * weights to each other, `shared` is the host's array of them; elements are of `width`
 * bytes. All borrowed. */
void dp_staging_follow(struct dp_staging *staging, struct dp_stream *stream, void *weights,
                       void *shared, size_t width);

/* ---- by way of the host ---- */

/* Bucket b is queued: sends it to the host after that. */
DP_CHECKED dp_status dp_staging_download(struct dp_staging *staging, int b);

/* Pieces of bucket b that go to the host; at least one. */
int dp_staging_pieces(const struct dp_staging *staging, int b);

/* Piece `i` of it, in the flat order. */
struct dp_range dp_staging_piece(const struct dp_staging *staging, int b, int i);

/* Waits until piece `i` of bucket b, and all before it, are there. Errors: DP_ERR_CANCELLED. */
DP_CHECKED dp_status dp_staging_wait(const struct dp_staging *staging, int b, int i,
                                     const atomic_int *cancel);

/* Queues the way back of a range of bucket b. */
DP_CHECKED dp_status dp_staging_upload(struct dp_staging *staging, int b, struct dp_range range);

/* The same for weights that ranks publish: those that this rank has updated go to the host, where
 * dp_staging_wait() waits for piece 0; those of the whole bucket come back. */
DP_CHECKED dp_status dp_staging_download_weights(struct dp_staging *staging, int b,
                                                 struct dp_range mine);
DP_CHECKED dp_status dp_staging_upload_weights(struct dp_staging *staging, int b);

/* ---- where it is, by a strategy on a stream of its own ---- */

/* Bucket b, or its weights, are queued: what that stream does from begin() on waits for it. */
DP_CHECKED dp_status dp_staging_ready(struct dp_staging *staging, int b);
DP_CHECKED dp_status dp_staging_begin(struct dp_staging *staging, int b, struct dp_stream *other);
DP_CHECKED dp_status dp_staging_end(struct dp_staging *staging, int b, struct dp_stream *other);

/* ---- either way ---- */

/* After upload() or end(): what is queued from now on finds the sum of bucket b. */
DP_CHECKED dp_status dp_staging_take(struct dp_staging *staging, int b);

/* Whether what take() waits for has come. */
DP_CHECKED dp_status dp_staging_done(const struct dp_staging *staging, int b, bool *done);

/* Any array of the device, to and from the host; done when they return. NULL staging: arrays are
 * all the host's. */
DP_CHECKED dp_status dp_staging_read(const struct dp_staging *staging, float *host,
                                     const float *device, size_t count);
DP_CHECKED dp_status dp_staging_write(const struct dp_staging *staging, float *device,
                                      const float *host, size_t count);

#endif
