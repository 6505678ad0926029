#include "runtime/trainer/compute/layer_times.h"

#include "base/log.h"
#include "base/mem.h"
#include "runtime/trainer/compute/larger_batch.h"
#include "runtime/trainer/trainer_parts.h"

enum { PASSES_MOST = 20, REPEATS_MOST = 20 };

static const double short_s = 0.003; /* more rows are tried where a pass takes less */
static const double slow_s = 0.5;    /* products of a slower pass are not repeated */

/* Where rows are computed. */
struct place {
    struct dp_pass *pass;
    size_t rows;  /* of one pass; they are loaded */
    double times; /* how often a step does that, one after the other */
};

static struct place place_of(const struct dp_trainer *t)
{
    const struct dp_compute *c = &t->compute;
    const struct dp_batch *batch = &t->input.batch;
    size_t rows = batch->rows;
    struct place place = {c->pass, 0, 1.0};

    if (c->lanes != NULL) {
        const struct dp_lanes_first first = dp_lanes_first(c->lanes, c->share, batch->global_rows);
        rows = first.rows;
        place.pass = first.pass;
        place.times = first.lanes;
    }
    if (place.pass != NULL && rows > 0) {
        const size_t m = c->micro_batches.micro_batch, count = dp_micro_batch_count(rows, m);
        place.rows = dp_micro_batch_at(rows, m, count - 1).rows.count;
        place.times *= (double)rows / (double)place.rows;
    }
    return place;
}

static dp_status measure(const struct dp_trainer *t, const struct place *place, float *grad,
                         double seconds, struct dp_layer_times *out)
{
    const struct dp_pass_effort effort = {seconds / 2, PASSES_MOST, REPEATS_MOST, slow_s};
    const struct dp_pass_call call = {
        .rows = place->rows,
        .first_row = t->input.batch.first_row,
        .batch_rows = t->input.batch.global_rows,
        .labels = t->input.batch.labels,
        .seed = (uint64_t)t->config->train.seed,
        .weights = t->state.flat.weights,
        .running = t->state.flat.running,
        .grad = grad,
        .step_params = t->state.there,
    };

    out->layers = dp_zalloc((size_t)dp_pass_profile_most(t->model), sizeof(*out->layers));
    if (out->layers == NULL) {
        return DP_ERR_NOMEM;
    }
    DP_TRY(dp_pass_profile(place->pass, &call, &effort, out->layers, &out->count));
    out->rows = t->input.batch.rows;
    for (int i = 0; i < out->count; i++) {
        struct dp_layer_profile *l = &out->layers[i];
        l->seconds[DP_FORWARD] *= place->times;
        l->seconds[DP_BACKWARD] *= place->times;
        l->best_s *= place->times;
        l->flops *= place->times;
        l->bytes *= place->times;
    }
    return DP_OK;
}

/* Of one pass. */
static double sum_of(const struct dp_layer_times *times, const struct place *place)
{
    double sum = 0.0;

    for (int i = 0; i < times->count; i++) {
        sum += times->layers[i].seconds[DP_FORWARD] + times->layers[i].seconds[DP_BACKWARD];
    }
    return sum / place->times;
}

/* Without memory nothing is measured. */
dp_status dp_layer_times_measure(const struct dp_trainer *t, double seconds,
                                 struct dp_layer_times *out)
{
    const struct place place = place_of(t);
    const size_t count = dp_model_loss_at(t->model) + 2;
    struct dp_log_capture capture;
    float *grad;
    dp_status status;

    *out = (struct dp_layer_times){0};
    if (place.rows == 0) {
        return DP_OK;
    }
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    grad = t->device->alloc(DP_MEM_TRIAL, count * sizeof(*grad));
    status = grad == NULL ? DP_ERR_NOMEM : measure(t, &place, grad, seconds, out);
    t->device->release(grad);
    if (status == DP_OK && sum_of(out, &place) < short_s && t->compute.lanes == NULL) {
        status = dp_larger_batch_cost(t, place.rows, DP_LARGER_TIMES, &out->larger_cost);
    }
    dp_log_capture_end(&capture, status == DP_OK ? DP_LOG_PRINT : DP_LOG_DROP);
    if (status != DP_OK) {
        dp_free(out->layers);
        *out = (struct dp_layer_times){0};
    }
    return status == DP_ERR_NOMEM ? DP_OK : status;
}
