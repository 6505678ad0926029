/*
 * small_model.h - for tests: models made from a few lines of YAML, and a batch to compute them on.
 *
 * Creating uses cmocka's assertions: on the main thread only.
 */
#ifndef DP_TESTS_SUPPORT_MODELS_SMALL_MODEL_H
#define DP_TESTS_SUPPORT_MODELS_SMALL_MODEL_H

#include "models/pass/pass.h"
#include "runtime/config/config.h"

struct small_model {
    struct dp_config *config;
    struct dp_config *plain; /* the same once more: a model keeps what it derives in the specs */
    struct dp_model *model;
};

/* Resolves and parses `text`, a whole model.cfg. */
struct dp_config *config_from(const char *text);

/* input "[4, 4, 2]", layers "[relu: {}, dense: {units: 3}]". */
struct small_model small_model_create(const char *input, const char *layers);
void small_model_destroy(struct small_model *small);

/* A batch with weights, as a rank's step sees them. All arrays are owned. */
struct small_batch {
    const struct dp_model *model; /* borrowed */
    size_t rows;
    float *input; /* [rows, input] */
    int32_t *labels;
    float *weights, *running;
    struct dp_step_params step_params; /* for a global batch of just these rows */
};

/* Seeded numbers; no weight is zero, so that every gradient matters. */
struct small_batch small_batch_create(const struct dp_model *model, size_t rows);
void small_batch_destroy(struct small_batch *batch);

/* Elements of a gradient with its tail: statistics, loss, correct. */
size_t grad_count(const struct dp_model *model);

/* What the batch asks of a pass over rows [first, first + rows); grad [grad_count]. */
struct dp_pass_call batch_call(const struct small_batch *batch, size_t first, size_t rows,
                               float *grad, float keep);

/* Puts rows [first, first + rows) in, then forward and backward. Usable on any thread. */
DP_CHECKED dp_status batch_step(const struct small_batch *batch, struct dp_pass *pass,
                                const struct dp_pass_call *call);

/* One step on a new pass that has room for `room` rows. */
void step_alone(const struct small_batch *batch, struct dp_stream *stream, size_t room,
                const struct dp_pass_call *call);

/* An array of NaN, which shows reads before writes, and missing writes. */
float *unknown(size_t count);

/* All elements of a gradient except the gaps between tensors, which are never written. */
void assert_gradients_near(const struct dp_model *model, const float *a, const float *b,
                           double tolerance);

/*
 * The same step, layer by layer as the configuration wrote them: nothing is fused, moved or written
 * in place, and each value and gradient has memory of its own. Fills call->grad in.
 *
 * With `result` not NULL it evaluates instead: sum of losses, and correct answers.
 */
void plain_step(const struct small_model *small, const struct small_batch *batch,
                struct dp_stream *stream, const struct dp_pass_call *call, float *result);

#endif
