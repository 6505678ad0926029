/*
 * pass.h - the memory in which a model is computed for some rows, and computing there.
 *
 * Parts that run side by side (lanes) have a pass each: activations, gradients of activations and
 * a stream. Everything is allocated at creation; forward and backward allocate nothing.
 */
#ifndef DP_MODELS_PASS_H
#define DP_MODELS_PASS_H

#include "models/model.h"

struct dp_pass;

/* One forward and backward over some rows of this rank. */
struct dp_pass_call {
    size_t rows;           /* samples; may be 0 */
    size_t first_row;      /* of them, in the global batch */
    size_t batch_rows;     /* of the global batch */
    const int32_t *labels; /* [rows]; host memory: those that were fed */
    uint64_t seed;
    const void *weights;  /* [trained] in flat order, in the stream's compute type */
    const float *running; /* [statistics] */
    float *grad;          /* [trained], then [statistics], loss, correct; not for evaluation */
    float keep;           /* 1: add to grad; 0: replace */
    const struct dp_step_params *step_params; /* device memory, as all arrays but labels */
    const struct dp_model_hooks *hooks;       /* may be NULL: alone */
};

/* Where loss and correct answers of the step lie in the flat order: behind the statistics. */
static inline size_t dp_model_loss_at(const struct dp_model *model)
{
    return model->trained + model->statistics;
}

/*
 * Takes memory for up to `rows` samples on the stream's device. The model and the stream are
 * borrowed. training false: only dp_pass_evaluate may be called.
 * Errors: DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_pass_create(const struct dp_model *model, struct dp_stream *stream,
                                    size_t rows, bool training, struct dp_pass **out);
void dp_pass_destroy(struct dp_pass *pass);

/* Elements that it reserves on a stream of a narrow type (dp_device.reserve); tile_bytes: of the
 * device, for each of the stream's threads. */
size_t dp_pass_reserved(const struct dp_model *model, size_t rows, size_t tile_bytes);

/* Prepares for this row count, which must be at most that of creation; training false: for
 * evaluation only. Called before the first step for every row count that can occur. */
DP_CHECKED dp_status dp_pass_prepare(struct dp_pass *pass, size_t rows, bool training);

/* At most how many rows it was created for. */
size_t dp_pass_rows(const struct dp_pass *pass);

/* Where the input batch belongs, [rows, input] in the compute type: load it before a call. */
void *dp_pass_input(const struct dp_pass *pass);

/* Sends the host's bytes of `rows` samples [rows, input], and their labels, to where operations
 * read them; both must stay until the stream is through with them. Before load and a call. */
DP_CHECKED dp_status dp_pass_feed(struct dp_pass *pass, const uint8_t *images,
                                  const int32_t *labels, size_t rows);

/* Puts the input there from those bytes: as bytes_load in kernels/ops.h. scale, shift [channels]
 * are device memory. */
DP_CHECKED dp_status dp_pass_load(struct dp_pass *pass, const uint8_t *images, const float *scale,
                                  const float *shift, size_t channels, size_t rows);

/* From the input to loss and correct answers, added to (or put in) the tail of `grad`. The
 * gradient of the loss is ready for backward. */
DP_CHECKED dp_status dp_pass_forward(struct dp_pass *pass, const struct dp_pass_call *call);

/* Behind forward of the same rows: gradients of all parameters. */
DP_CHECKED dp_status dp_pass_backward(struct dp_pass *pass, const struct dp_pass_call *call);

/* Behind forward: where a value of all rows lies, if backward or the loss reads it, until the next
 * pass. Compute type, device memory. NULL: its memory may have another one. */
const void *dp_pass_kept(const struct dp_pass *pass, int value);

/* Forward with running statistics; result: sum of the rows' losses, and correct answers. Host. */
DP_CHECKED dp_status dp_pass_evaluate(struct dp_pass *pass, const struct dp_pass_call *call,
                                      float result[2]);

#endif
