/*
 * pass.h - the memory of a model's forward and backward for some rows, and the computation.
 *
 * If the device cannot read the host's memory, the next rows can be copied to it while it computes
 * the current ones (pass_input.c).
 *
 * Parts that run in parallel (lanes) have a pass each: activations, gradients of activations and a
 * stream. Everything is allocated at creation; forward and backward allocate nothing.
 */
#ifndef DP_MODELS_PASS_PASS_H
#define DP_MODELS_PASS_PASS_H

#include "models/model.h"

struct dp_pass;

/* Sums over rows of an evaluation: losses; scores (right answers, or mean distances: output_loss in
 * kernels/ops.h); and answers among the best DP_TOP, where dp_model_counts_top(). */
enum { DP_SUM_LOSS, DP_SUM_SCORE, DP_SUM_TOP, DP_EVALUATION_SUMS };

/* Some samples, in memory of the host. */
struct dp_pass_rows {
    const uint8_t *images; /* [count, input]; float32 where the model has float_samples */
    const int32_t
        *labels; /* [count, dp_model_train_words()]; to evaluate: dp_model_label_words() */
    size_t count;
    bool evaluated; /* what they are for */
};

/* One forward and backward over some rows of this rank. */
struct dp_pass_call {
    size_t rows;           /* samples; may be 0 */
    size_t first_row;      /* number of the first one in the global batch */
    size_t batch_rows;     /* of the global batch */
    const int32_t *labels; /* host memory: as given to dp_pass_load() */
    uint64_t seed;         /* not for evaluation */
    const void *weights;   /* [trained] in flat order, in the stream's compute type */
    const float *running;  /* [statistics] */
    float *grad;           /* [trained], then [statistics], loss, score; not for evaluation */
    float keep;            /* 1: add to grad; 0: replace */
    const struct dp_step_params *step_params; /* not for evaluation; device memory, as all arrays
                                               * except labels */
    const struct dp_model_hooks *hooks;       /* may be NULL: one rank */
};

/* Offset of the loss and the score of the step in the flat order: after the statistics. */
static inline size_t dp_model_loss_at(const struct dp_model *model)
{
    return model->trained + model->statistics;
}

/*
 * Allocates memory for up to `rows` samples on the stream's device. The model and the stream are
 * borrowed. training false: only dp_pass_evaluate may be called. Errors: DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_pass_create(const struct dp_model *model, struct dp_stream *stream,
                                    size_t rows, bool training, struct dp_pass **out);
void dp_pass_destroy(struct dp_pass *pass);

/* Elements that it reserves on a stream of a narrow type (dp_device.reserve) and on those of its
 * threads. tiles: dp_tiles_of() the stream. */
size_t dp_pass_reserved(const struct dp_model *model, size_t rows, struct dp_tiles tiles);

/* Bytes of what each of its threads has of its own: `local`, and gradients of parameters. */
size_t dp_pass_band_bytes(const struct dp_model *model, struct dp_tiles tiles, bool training);

/* Prepares for this row count, at most that of creation. training false: for evaluation only.
 * Called before the first step for every row count that can occur. */
DP_CHECKED dp_status dp_pass_prepare(struct dp_pass *pass, size_t rows, bool training);

/* The largest number of rows, from creation. */
size_t dp_pass_rows(const struct dp_pass *pass);

/* Where the input batch belongs, [rows, input] in the compute type: load it before a call. */
void *dp_pass_input(const struct dp_pass *pass);

/* Copies the bytes and labels of these rows to the device, if it cannot read the host's memory,
 * and converts them to the input, as bytes_load or floats_load in kernels/ops.h does. The rows must
 * stay valid until the stream has read them; at most as many as at creation. scale, shift
 * [channels] are device memory. Call it before forward; it cannot be recorded. */
DP_CHECKED dp_status dp_pass_load(struct dp_pass *pass, const struct dp_pass_rows *rows,
                                  const float *scale, const float *shift, size_t channels);

/* Allocates what dp_pass_send() needs; without it dp_pass_send() does nothing. Does nothing if the
 * device can read the host's memory. Errors: DP_ERR_NOMEM, those of the device. */
DP_CHECKED dp_status dp_pass_prepare_ahead(struct dp_pass *pass);

/* Starts to copy rows that will be loaded next, on a separate stream, in parallel with the
 * operations that are queued so far. The rows must not change until they were loaded and used, or
 * until dp_pass_drop_rows(). Loading other rows instead is allowed; the copy is then not used. */
DP_CHECKED dp_status dp_pass_send(struct dp_pass *pass, const struct dp_pass_rows *rows);

/* Waits until the device reads no rows that were sent or loaded, and forgets which were sent. */
DP_CHECKED dp_status dp_pass_drop_rows(struct dp_pass *pass);

/* Computes from the input to loss and score, which are added to (or replace those in) the tail of
 * `grad`. The gradient of the loss is then ready for backward. */
DP_CHECKED dp_status dp_pass_forward(struct dp_pass *pass, const struct dp_pass_call *call);

/* Called after forward of the same rows: computes gradients of all parameters. */
DP_CHECKED dp_status dp_pass_backward(struct dp_pass *pass, const struct dp_pass_call *call);

/* Called after forward: the address of a value of all rows, until the next pass: that which the
 * loss reads and, where there are tiles or the compute type is fp16, those which backward reads.
 * Compute type, device memory. NULL: its memory may hold another value, as that of what backward
 * computes again (model_parts.h). */
const void *dp_pass_kept(const struct dp_pass *pass, int value);

/* Forward with running statistics. result: sums over the rows, on the host. */
DP_CHECKED dp_status dp_pass_evaluate(struct dp_pass *pass, const struct dp_pass_call *call,
                                      float result[DP_EVALUATION_SUMS]);

#endif
