#include "runtime/run/selftest/model_run.h"

#include <string.h>

#include "runtime/trainer/compute/normalize.h"

/* fp16 has no numbers for small gradients. */
static const float fp16_scale = 1024.0f;

struct dp_model_run {
    const struct dp_model *model; /* borrowed */
    const struct dp_device *device;
    struct dp_stream *stream; /* owned, as all below */
    struct dp_pass *pass;
    struct dp_normalize normalize;
    struct dp_pass_rows rows; /* borrowed from the data set */
    float scale;              /* of the loss */
    uint64_t seed;
    void *weights; /* device memory, as all below but host */
    float *wide, *running, *grad;
    struct dp_step_params *step_params;
    float *host; /* [trained + statistics] */
};

static void *array(const struct dp_model_run *run, size_t bytes)
{
    return run->device->alloc(DP_MEM_OTHER, bytes > 0 ? bytes : 1);
}

static dp_status allocate(struct dp_model_run *run, enum dp_type type)
{
    const struct dp_model *m = run->model;

    run->weights = array(run, m->trained * dp_type_bytes(type));
    run->wide = array(run, m->trained * sizeof(float));
    run->running = array(run, m->statistics * sizeof(float));
    run->grad = array(run, (dp_model_loss_at(m) + 2) * sizeof(float));
    run->step_params = array(run, sizeof(*run->step_params));
    run->host = dp_zalloc(m->trained + m->statistics, sizeof(float));
    return run->weights != NULL && run->wide != NULL && run->running != NULL && run->grad != NULL &&
                   run->step_params != NULL && run->host != NULL
               ? DP_OK
               : DP_FAIL(DP_ERR_NOMEM, "the arrays of a selftest");
}

/* Statistics as at the start, and a step of just these rows. */
static dp_status fill(struct dp_model_run *run)
{
    const struct dp_model *m = run->model;
    const float per_sample = 1.0f / (float)run->rows.count;
    const struct dp_step_params step_params = {.lr = 0.01f,
                                               .per_sample = per_sample,
                                               .loss_scale = run->scale,
                                               .loss_factor = per_sample * run->scale,
                                               .factor = 1.0f / run->scale};
    float *running = run->host + m->trained;

    dp_model_init(m, run->seed, run->host, running);
    DP_TRY(dp_device_write(run->stream, run->running, running, m->statistics * sizeof(float)));
    return dp_device_write(run->stream, run->step_params, &step_params, sizeof(step_params));
}

static dp_status open_run(struct dp_model_run *run, const struct dp_run_job *job, enum dp_type type)
{
    const struct dp_model *m = run->model;
    const struct dp_normalize_config *n = &job->config->data.normalize;

    DP_TRY(dp_normalize_init(&run->normalize,
                             dp_normalize_channels(&m->values[0].shape, &n->mean, &n->std),
                             m->float_samples ? 1.0 : 255.0, &n->mean, &n->std));
    DP_TRY(run->device->stream_create(run->device, job->threads, &run->stream));
    run->stream->conv = (enum dp_conv_engine)job->config->device.conv;
    dp_stream_set_type(run->stream, type);
    DP_TRY(dp_normalize_place(&run->normalize, run->stream));
    DP_TRY(dp_pass_create(m, run->stream, run->rows.count, true, &run->pass));
    DP_TRY(dp_pass_prepare(run->pass, run->rows.count, true));
    DP_TRY(allocate(run, type));
    return fill(run);
}

dp_status dp_model_run_create(const struct dp_selftest *selftest, const struct dp_device *device,
                              enum dp_type type, size_t rows, struct dp_model_run **out)
{
    const struct dp_run_job *job = selftest->job;
    struct dp_model_run *run = dp_zalloc(1, sizeof(*run));
    dp_status status;

    if (run == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "a selftest");
    }
    run->model = job->model;
    run->device = device;
    run->scale = type == DP_TYPE_F16 ? fp16_scale : 1.0f;
    run->seed = (uint64_t)job->config->train.seed;
    run->rows = selftest->rows;
    run->rows.count = rows;
    status = open_run(run, job, type);
    if (status != DP_OK) {
        dp_model_run_destroy(run);
        return status;
    }
    *out = run;
    return DP_OK;
}

void dp_model_run_destroy(struct dp_model_run *run)
{
    void *const arrays[] = {run->weights, run->wide, run->running, run->grad, run->step_params};

    dp_free(run->host);
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
        if (arrays[i] != NULL) {
            run->device->release(arrays[i]);
        }
    }
    dp_pass_destroy(run->pass);
    dp_normalize_fini(&run->normalize);
    run->device->stream_destroy(run->stream);
    dp_free(run);
}

static struct dp_pass_call call_of(const struct dp_model_run *run)
{
    return (struct dp_pass_call){.rows = run->rows.count,
                                 .batch_rows = run->rows.count,
                                 .labels = run->rows.labels,
                                 .seed = run->seed,
                                 .weights = run->weights,
                                 .running = run->running,
                                 .grad = run->grad,
                                 .step_params = run->step_params};
}

static dp_status put_weights(struct dp_model_run *run, const float *weights)
{
    const size_t count = run->model->trained;

    if (run->stream->type == DP_TYPE_F32) {
        return dp_device_write(run->stream, run->weights, weights, count * sizeof(float));
    }
    DP_TRY(dp_device_write(run->stream, run->wide, weights, count * sizeof(float)));
    return run->stream->ops->narrow(run->stream, run->weights, run->wide, count, run->stream->type);
}

dp_status dp_model_run_loss(struct dp_model_run *run, const float *weights, double *loss)
{
    const struct dp_pass_call call = call_of(run);
    const struct dp_normalize *n = &run->normalize;
    float found;

    DP_TRY(put_weights(run, weights));
    DP_TRY(dp_pass_load(run->pass, &run->rows, n->scale, n->shift, n->channels));
    DP_TRY(dp_pass_forward(run->pass, &call));
    DP_TRY(dp_device_read(run->stream, &found, run->grad + dp_model_loss_at(run->model),
                          sizeof(found)));
    *loss = (double)found / (double)run->scale;
    return DP_OK;
}

dp_status dp_model_run_gradient(struct dp_model_run *run, const float *weights, double *loss,
                                float *gradient)
{
    const struct dp_pass_call call = call_of(run);
    const size_t count = run->model->trained;

    DP_TRY(dp_model_run_loss(run, weights, loss));
    DP_TRY(dp_pass_backward(run->pass, &call));
    DP_TRY(dp_device_read(run->stream, gradient, run->grad, count * sizeof(float)));
    for (size_t i = 0; i < count; i++) {
        gradient[i] /= run->scale;
    }
    return DP_OK;
}

dp_status dp_model_run_outputs(struct dp_model_run *run, float *outputs)
{
    const struct dp_model *m = run->model;
    const size_t count = run->rows.count * m->classes;
    const void *last = dp_pass_kept(run->pass, m->nodes[m->node_count - 1].y);

    if (last == NULL) {
        return DP_FAIL(DP_ERR_INTERNAL, "a pass keeps no outputs");
    }
    if (run->stream->type != DP_TYPE_F32) {
        return DP_FAIL(DP_ERR_ARG, "outputs of a narrow type");
    }
    return dp_device_read(run->stream, outputs, last, count * sizeof(float));
}
