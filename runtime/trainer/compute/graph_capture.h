/*
 * graph_capture.h - forward and backward of a whole batch, recorded once and replayed.
 *
 * On a GPU a small model's step is bound by the time that launching its operations takes. What a
 * rank queues for one pass of a whole batch is the same in every step: it is recorded once, and
 * from then on queued with one call. What changes is in device memory: weights, input, labels, step
 * parameters.
 *
 *      plain     the first steps, while libraries still load what they need
 *      recorded  once; nothing of it is done
 *      replayed  input -> [ segment ] ready, ready -> [ segment ] ready ... -> [ segment ]
 *
 * A pass is cut into segments where a bucket becomes ready, so that it is sent while the rest is
 * computed, as without a recording. Smaller batches, and evaluation, are queued operation by
 * operation. Both run the same operations in the same order, and so give the same bits.
 */
#ifndef DP_RUNTIME_TRAINER_COMPUTE_GRAPH_CAPTURE_H
#define DP_RUNTIME_TRAINER_COMPUTE_GRAPH_CAPTURE_H

#include "kernels/device.h"
#include "models/layers/layer.h"

struct dp_graph_capture;

struct dp_graph_capture_config {
    struct dp_stream *stream; /* borrowed */
    size_t rows;              /* of a whole global batch */
    int passes;               /* of this rank for it; in the last one tensors become ready */
    int tensors, buckets;
    bool must; /* a step that cannot be recorded is an error; else a warning, and it is queued
                * without recording */

    /* Whether a bucket, but not the last one, becomes ready with this tensor. */
    bool (*hands_over)(const void *context, int tensor);
    const void *context; /* borrowed */
};

enum { DP_GRAPH_CAPTURE_PLAIN = 2 }; /* number of steps before the recorded one */

/* Allocates all memory that recording needs, except what the device allocates. Errors:
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_graph_capture_create(const struct dp_graph_capture_config *config,
                                             struct dp_graph_capture **out);
void dp_graph_capture_destroy(struct dp_graph_capture *capture);

/* Queues one pass, and calls hooks->ready if that is set. */
typedef dp_status dp_graph_capture_pass(void *context, const struct dp_model_hooks *hooks);

/*
 * Does what pass(context, hooks) does, which is pass `number` of this rank's passes over a global
 * batch of `rows`. Either calls it, or replays a recording and calls hooks->ready. graph_capture
 * NULL: calls it.
 *
 * Errors: those of `pass` and the hooks; DP_ERR_UNAVAILABLE (must be recorded, and cannot).
 */
DP_CHECKED dp_status dp_graph_capture_run(struct dp_graph_capture *capture, int number, size_t rows,
                                          dp_graph_capture_pass *pass, void *context,
                                          const struct dp_model_hooks *hooks);

/* Passes replayed so far. NULL: 0. */
uint64_t dp_graph_capture_replays(const struct dp_graph_capture *capture);

#endif
