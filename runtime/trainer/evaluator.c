#include "runtime/trainer/evaluator.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "runtime/data/rows.h"
#include "runtime/trainer/compute/compute.h"
#include "runtime/trainer/prepare/prepare.h"
#include "runtime/trainer/state/model_state.h"

struct dp_evaluator {
    struct dp_evaluator_config is;
    struct dp_model_state state; /* weights, running statistics */
    struct dp_compute compute;
    struct dp_test_rows *test;          /* owned */
    double (*sums)[DP_EVALUATION_SUMS]; /* owned; [lanes] of a share */
    size_t lanes;
};

static size_t test_rows(const struct dp_evaluator *e, int rank)
{
    return dp_row_range(e->is.data->test_count, rank, e->is.trainers).count;
}

static dp_status allocate(struct dp_evaluator *e)
{
    const struct dp_model *model = e->is.model;
    struct dp_model_state *s = &e->state;
    const size_t bytes = model->trained * dp_type_bytes(s->flat.type);

    s->flat.weights = s->weights = e->is.device->alloc(DP_MEM_WEIGHTS, bytes);
    s->flat.running = e->is.device->alloc(DP_MEM_WEIGHTS, model->statistics * sizeof(float));
    e->sums = dp_zalloc(e->lanes, sizeof(*e->sums));
    return s->weights != NULL && s->flat.running != NULL && e->sums != NULL
               ? DP_OK
               : DP_FAIL(DP_ERR_NOMEM, "weights need %zu MB", bytes >> 20);
}

static dp_status make_compute(struct dp_evaluator *e)
{
    const struct dp_evaluator_config *c = &e->is;
    const struct dp_normalize_config *normalize = &c->config->data.normalize;
    const struct dp_compute_plan plan = {.config = c->config,
                                         .model = c->model,
                                         .device = c->device,
                                         .type = e->state.flat.type,
                                         .ranks = c->trainers,
                                         .threads = c->threads,
                                         .global_batch = (size_t)c->config->train.global_batch};

    DP_TRY(dp_normalize_init(
        &e->compute.normalize,
        dp_normalize_channels(&c->model->values[0].shape, &normalize->mean, &normalize->std),
        c->model->float_samples ? 1.0 : 255.0, &normalize->mean, &normalize->std));
    e->compute.algo_choices = c->algo_choices;
    DP_TRY(dp_prepare_stream(&e->compute, &plan));
    DP_TRY(dp_prepare_passes(&e->compute, &plan));
    DP_TRY(dp_normalize_place(&e->compute.normalize, e->compute.stream));
    e->compute.mode = dp_prepare_mode(c->config);
    e->compute.micro_batches =
        (struct dp_micro_batches){.model = c->model,
                                  .pass = e->compute.pass,
                                  .micro_batch = (size_t)c->config->train.micro_batch,
                                  .normalize = &e->compute.normalize};
    for (int rank = 0; rank < c->trainers; rank++) {
        DP_TRY(e->compute.mode->prepare(&e->compute, (struct dp_lanes_share){rank, c->trainers},
                                        c->data->test_count, false));
    }
    return dp_dataset_test_rows(c->data, dp_model_label_words(c->model),
                                dp_compute_users(&e->compute), c->threads, &e->test);
}

dp_status dp_evaluator_create(const struct dp_evaluator_config *config, struct dp_evaluator **out)
{
    struct dp_evaluator *e = dp_zalloc(1, sizeof(*e));
    dp_status status;

    if (e == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "evaluator");
    }
    e->is = *config;
    e->lanes = config->config->train.lanes > 0
                   ? (size_t)(config->config->train.lanes / config->trainers)
                   : 1;
    dp_model_state_open(&e->state, config->config, config->model);
    status = allocate(e);
    status = status == DP_OK ? make_compute(e) : status;
    if (status != DP_OK) {
        dp_evaluator_destroy(e);
        return status;
    }
    *out = e;
    return DP_OK;
}

void dp_evaluator_destroy(struct dp_evaluator *e)
{
    if (e != NULL) {
        dp_test_rows_destroy(e->test);
        dp_compute_close(&e->compute);
        dp_model_state_close(&e->state, e->is.device);
        dp_free(e->sums);
        dp_free(e);
    }
}

void *dp_evaluator_weights(struct dp_evaluator *e)
{
    return e->state.flat.weights;
}

float *dp_evaluator_running(struct dp_evaluator *e)
{
    return e->state.flat.running;
}

/* Sets e->sums to what the share of a rank comes to. */
static dp_status evaluate_share(struct dp_evaluator *e, int rank, dp_evaluator_stop *stop,
                                void *context)
{
    struct dp_compute *c = &e->compute;
    const struct dp_pass_call call = {.weights = e->state.flat.weights,
                                      .running = e->state.flat.running,
                                      .batch_rows = test_rows(e, rank)};
    struct dp_range passes = {0, 1};
    dp_status status;
    const char *error;
    size_t count;

    c->share = (struct dp_lanes_share){rank, e->is.trainers};
    count = c->mode->evaluations(c, e->is.data->test_count);
    memset(e->sums, 0, e->lanes * sizeof(*e->sums));
    while (passes.begin < count) {
        const uint64_t begin_ns = dp_now_ns();
        status = c->mode->evaluate(c, e->test, passes, &call, e->sums);
        if (dp_test_rows_failure(e->test, &error) != DP_OK) {
            dp_log(DP_LOG_ERROR, __FILE__, __LINE__, "%s", error);
        }
        DP_TRY(status);
        passes.begin += passes.count;
        passes.count = dp_evaluation_round(passes.count, (double)(dp_now_ns() - begin_ns) / 1e9);
        if (stop != NULL && stop(context)) {
            return DP_STOPPED;
        }
    }
    return DP_OK;
}

dp_status dp_evaluator_run(struct dp_evaluator *e, dp_evaluator_stop *stop, void *context,
                           struct dp_evaluation *out)
{
    DP_SPAN(DP_PHASE_EVALUATE, 0);
    double sum[DP_EVALUATION_SUMS] = {0.0};

    for (int rank = 0; rank < e->is.trainers; rank++) {
        DP_TRY(evaluate_share(e, rank, stop, context));
        for (size_t i = 0; i < e->lanes; i++) { /* in the order of dp_trainer_evaluate() */
            for (int k = 0; k < DP_EVALUATION_SUMS; k++) {
                sum[k] += e->sums[i][k];
            }
        }
    }
    *out = dp_evaluation_of(e->is.model, sum, (double)e->is.data->test_count);
    return DP_OK;
}
