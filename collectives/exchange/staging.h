/*
 * staging.h - a gradient in memory that only a device can use: how it gets to where ranks share it,
 * and back.
 *
 * It is made on one stream, bucket by bucket. Either the strategy sums it in place, on a stream of
 * its own, ordered by events. Or the data to share is copied to the host, in pieces, on a stream of
 * its own, while backward continues. When an event shows that a piece has arrived, the bucket's job
 * sums it, and sends the sum back on a third stream while it sums the next piece. The first stream
 * waits for the sum before it uses it.
 *
 *   device   [ bucket 2 | bucket 1 | bucket 0 ]     download: after the bucket is computed
 *                |  ^        |  ^
 *   host     [ bucket 2 | bucket 1 | bucket 0 ]     wait, sum over the ranks, upload; take
 */
#ifndef DP_COLLECTIVES_EXCHANGE_STAGING_H
#define DP_COLLECTIVES_EXCHANGE_STAGING_H

#include <stdatomic.h>

#include "collectives/core/bucket.h"
#include "collectives/core/group.h"
#include "kernels/device.h"

/* Elements of a piece, 4 MiB: long enough to be copied at full speed, and short compared with a
 * bucket. */
enum { DP_STAGING_PIECE = 1 << 20 };

struct dp_staging;

struct dp_staging_config {
    const struct dp_device *device;
    const struct dp_bucket_plan *plan; /* borrowed */
    float *host;                       /* [total]; borrowed */
    size_t total, tail; /* the device makes the first `tail` elements of the last bucket; the host
                         * writes the others itself */
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

/* Pins this range of the host's memory, which may go beyond the gradient: what crosses it. Called
 * once. */
void dp_staging_pin(struct dp_staging *staging, struct dp_range range);

/* Sets the stream on which gradients are made and used from now on, and the weights that it
 * updates. Where ranks publish weights to each other, `shared` is the host's array of them.
 * Elements have `width` bytes. All borrowed. */
void dp_staging_follow(struct dp_staging *staging, struct dp_stream *stream, void *weights,
                       void *shared, size_t width);

/* ---- through the host ---- */

/* Bucket b is queued: copies it to the host after that. */
DP_CHECKED dp_status dp_staging_download(struct dp_staging *staging, int b);

/* The number of pieces of bucket b that are copied to the host; at least one. */
int dp_staging_pieces(const struct dp_staging *staging, int b);

/* Piece `i` of it, in flat order. */
struct dp_range dp_staging_piece(const struct dp_staging *staging, int b, int i);

/* Waits until piece `i` of bucket b, and all before it, have arrived. Errors: DP_ERR_CANCELLED. */
DP_CHECKED dp_status dp_staging_wait(const struct dp_staging *staging, int b, int i,
                                     const atomic_int *cancel);

/* Queues the copy of a range of bucket b to the device. */
DP_CHECKED dp_status dp_staging_upload(struct dp_staging *staging, int b, struct dp_range range);

/* The same for weights that ranks publish. Those that this rank has updated are copied to the host,
 * where dp_staging_wait() waits for piece 0; those of the whole bucket are copied back. */
DP_CHECKED dp_status dp_staging_download_weights(struct dp_staging *staging, int b,
                                                 struct dp_range mine);
DP_CHECKED dp_status dp_staging_upload_weights(struct dp_staging *staging, int b);

/* ---- in place, by a strategy on a stream of its own ---- */

/* Bucket b, or its weights, are queued: what that stream does from begin() on waits for them. */
DP_CHECKED dp_status dp_staging_ready(struct dp_staging *staging, int b);
DP_CHECKED dp_status dp_staging_begin(struct dp_staging *staging, int b, struct dp_stream *other);
DP_CHECKED dp_status dp_staging_end(struct dp_staging *staging, int b, struct dp_stream *other);

/* ---- either way ---- */

/* Called after upload() or end(): work queued from now on sees the sum of bucket b. */
DP_CHECKED dp_status dp_staging_take(struct dp_staging *staging, int b);

/* Whether what take() waits for has arrived. */
DP_CHECKED dp_status dp_staging_done(const struct dp_staging *staging, int b, bool *done);

/* Copies any array of the device to or from the host; done when they return. NULL staging: all
 * arrays are on the host. */
DP_CHECKED dp_status dp_staging_read(const struct dp_staging *staging, float *host,
                                     const float *device, size_t count);
DP_CHECKED dp_status dp_staging_write(const struct dp_staging *staging, float *device,
                                      const float *host, size_t count);

#endif
