/*
 * graph_capture.h - forward and backward of a whole batch, recorded once and replayed.
 *
 * On a GPU a small model's step is bound by the time that launching its operations takes. What a
 * rank queues for one pass of a whole batch is the same in every step: it is recorded, and from
 * then on queued in one go. What does change lies in device memory: weights, input, labels, step
 * parameters.
 *
 *      plain     the first steps, while libraries still load what they need
 *      recorded  once; nothing of it is done
 *      replayed  input -> [ segment ] ready, ready -> [ segment ] ready ... -> [ segment ]
 *
 * A pass is cut into segments where a bucket is handed over, so that it is on its way to the other
 * ranks while the rest is computed, as without a recording. Batches that are not whole, and
 * evaluation, are queued operation by operation. Either way the same operations run in the same
 * order: the same bits.
 */
#ifndef DP_RUNTIME_TRAINER_GRAPH_CAPTURE_H
#define DP_RUNTIME_TRAINER_GRAPH_CAPTURE_H

#include "kernels/device.h"
#include "models/layer.h"

struct dp_graph_capture;

struct dp_graph_capture_config {
    struct dp_stream *stream; /* borrowed */
    size_t rows;              /* of a whole global batch */
    int passes;               /* of this rank for it; the last one announces tensors */
    int tensors, buckets;
    bool must; /* a step that cannot be recorded is an error; else a warning, and it stays plain */

    /* Whether a bucket is handed over after this tensor, of which more follow. */
    bool (*hands_over)(const void *context, int tensor);
    const void *context; /* borrowed */
};

enum { DP_GRAPH_CAPTURE_PLAIN = 2 }; /* steps before the one that is recorded */

/* Takes all memory that recording needs, but for the device's own. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_graph_capture_create(const struct dp_graph_capture_config *config,
                                             struct dp_graph_capture **out);
void dp_graph_capture_destroy(struct dp_graph_capture *capture);

/* Queues one pass and calls hooks->ready where that is wanted. */
typedef dp_status dp_graph_capture_pass(void *context, const struct dp_model_hooks *hooks);

/*
 * Does what pass(context, hooks) does, the pass number `number` of this rank's of a global batch of
 * `rows`: by calling it, or by a replay, which calls hooks->ready alone. graph capture NULL: calls
 * it.
 *
 * Errors: those of `pass` and the hooks; DP_ERR_UNAVAILABLE (must be recorded, and cannot).
 */
DP_CHECKED dp_status dp_graph_capture_run(struct dp_graph_capture *capture, int number, size_t rows,
                                          dp_graph_capture_pass *pass, void *context,
                                          const struct dp_model_hooks *hooks);

/* Passes replayed so far. NULL: 0. */
uint64_t dp_graph_capture_replays(const struct dp_graph_capture *capture);

#endif
