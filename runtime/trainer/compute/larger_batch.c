#include "runtime/trainer/compute/larger_batch.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "runtime/trainer/trainer_parts.h"

enum { PASSES = 5 };

/* What is made for it; all owned. */
struct larger {
    struct dp_stream *stream;
    struct dp_pass *pass;
    struct dp_pass_rows rows; /* zeros */
    void *images, *labels;
    float *grad;
};

static dp_status larger_open(struct larger *l, const struct dp_trainer *t, size_t rows)
{
    const struct dp_stream *like = t->compute.stream;
    const size_t count = dp_model_loss_at(t->model) + 2;

    l->images = dp_zalloc(rows, dp_model_sample_bytes(t->model));
    l->labels = dp_zalloc(rows, dp_model_train_words(t->model) * sizeof(int32_t));
    l->grad = t->device->alloc(DP_MEM_TRIAL, count * sizeof(*l->grad));
    if (l->images == NULL || l->labels == NULL || l->grad == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "a batch of %zu rows", rows);
    }
    l->rows = (struct dp_pass_rows){.images = l->images, .labels = l->labels, .count = rows};
    DP_TRY(t->device->stream_create(t->device, like->threads, &l->stream));
    dp_stream_set_like(l->stream, like);
    return dp_pass_create(t->model, l->stream, rows, true, &l->pass);
}

static void larger_close(struct larger *l, const struct dp_device *device)
{
    dp_pass_destroy(l->pass);
    if (l->stream != NULL) {
        device->stream_destroy(l->stream);
    }
    device->release(l->grad);
    dp_free(l->labels);
    dp_free(l->images);
}

static dp_status time_passes(const struct larger *l, const struct dp_trainer *t, size_t rows,
                             double *best)
{
    const struct dp_normalize *n = &t->compute.normalize;
    const struct dp_pass_call call = {
        .rows = rows,
        .batch_rows = rows,
        .labels = l->rows.labels,
        .seed = (uint64_t)t->config->train.seed,
        .weights = t->state.flat.weights,
        .running = t->state.flat.running,
        .grad = l->grad,
        .step_params = t->state.there,
    };

    DP_TRY(dp_pass_prepare(l->pass, rows, true));
    DP_TRY(dp_pass_load(l->pass, &l->rows, n->scale, n->shift, n->channels));
    for (int i = 0; i < PASSES; i++) {
        DP_TRY(t->device->synchronize(l->stream));
        const uint64_t begin_ns = dp_now_ns();
        DP_TRY(dp_pass_forward(l->pass, &call));
        DP_TRY(dp_pass_backward(l->pass, &call));
        DP_TRY(t->device->synchronize(l->stream));
        const double seconds = (double)(dp_now_ns() - begin_ns) / 1e9;
        *best = i == 0 || seconds < *best ? seconds : *best;
    }
    return DP_OK;
}

dp_status dp_larger_batch_cost(const struct dp_trainer *t, size_t rows, int times, double *cost)
{
    struct larger larger = {0};
    double now_s = 0.0, larger_s = 0.0;
    struct dp_log_capture capture; /* warnings of a stream of its own: the step's has had them */
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_WARN);
    status = larger_open(&larger, t, (size_t)times * rows);
    if (status == DP_OK) {
        status = time_passes(&larger, t, rows, &now_s);
    }
    if (status == DP_OK) {
        status = time_passes(&larger, t, (size_t)times * rows, &larger_s);
        *cost = now_s > 0.0 ? larger_s / now_s : 0.0;
    }
    larger_close(&larger, t->device);
    dp_log_capture_end(&capture, status == DP_OK ? DP_LOG_DROP : DP_LOG_PRINT);
    return status;
}
