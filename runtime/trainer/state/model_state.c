#include "runtime/trainer/state/model_state.h"

#include "runtime/trainer/step_scalars.h"

void dp_model_state_open(struct dp_model_state *s, const struct dp_config *config,
                         const struct dp_model *model)
{
    s->optimizer = dp_optimizer_of(&config->optimizer);
    s->optimizer_options = config->optimizer.chosen.state;
    s->flat.type = dp_precision_type(config->train.precision);
    s->flat.tensors = model->tensors;
    s->flat.tensor_count = model->tensor_count;
    s->flat.trained = model->trained;
    s->flat.total = model->trained + dp_step_scalars_tail(model->statistics);
}

dp_status dp_model_state_allocate_params(struct dp_model_state *s, const struct dp_device *device)
{
    s->step_params = device->alloc_host(DP_MEM_OTHER, sizeof(*s->step_params));
    return s->step_params != NULL ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "step parameters");
}

static dp_status allocate_average(struct dp_model_state *s, const struct dp_device *device)
{
    struct dp_flat *f = &s->flat;
    const size_t bytes = f->trained * sizeof(float);

    f->average = device->alloc(DP_MEM_OPTIMIZER, bytes);
    if (f->type != DP_TYPE_F32) {
        s->judged = device->alloc(DP_MEM_WEIGHTS, f->trained * dp_type_bytes(f->type));
    }
    return f->average != NULL && (s->judged != NULL || f->type == DP_TYPE_F32)
               ? DP_OK
               : DP_FAIL(DP_ERR_NOMEM, "the average of the weights needs %zu MB more", bytes >> 20);
}

dp_status dp_model_state_allocate(struct dp_model_state *s, const struct dp_model *model,
                                  const struct dp_device *device, bool averages)
{
    struct dp_flat *f = &s->flat;
    const size_t bytes = model->trained * dp_type_bytes(f->type), owned = f->owned * sizeof(float);

    if (f->weights == NULL) {
        f->weights = s->weights = device->alloc(DP_MEM_WEIGHTS, bytes);
    }
    f->running = device->alloc(DP_MEM_WEIGHTS, model->statistics * sizeof(float));
    s->there =
        device->host_memory ? s->step_params : device->alloc(DP_MEM_OTHER, sizeof(*s->there));
    if (f->type != DP_TYPE_F32) {
        s->masters = device->alloc(DP_MEM_WEIGHTS, owned);
    }
    f->master = f->type == DP_TYPE_F32 ? f->weights : s->masters;
    if (f->weights == NULL || f->master == NULL || f->running == NULL || s->there == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "weights need %zu MB",
                       (bytes + (f->type != DP_TYPE_F32 ? owned : 0)) >> 20);
    }
    for (int i = 0; i < 2 && s->optimizer->slots[i] != NULL; i++) {
        f->slots[i] = device->alloc(DP_MEM_OPTIMIZER, owned);
        if (f->slots[i] == NULL) {
            return DP_FAIL(DP_ERR_NOMEM, "optimizer state needs %zu MB more", owned >> 20);
        }
    }
    return averages ? allocate_average(s, device) : DP_OK;
}

dp_status dp_model_state_send_params(const struct dp_model_state *s, struct dp_stream *stream)
{
    return stream->device->upload(stream, s->there, s->step_params, sizeof(*s->there));
}

void dp_model_state_close(struct dp_model_state *s, const struct dp_device *device)
{
    for (int i = 0; i < 2; i++) {
        device->release(s->flat.slots[i]);
    }
    device->release(s->judged);
    device->release(s->flat.average);
    device->release(s->there != s->step_params ? s->there : NULL);
    device->release_host(s->step_params);
    device->release(s->flat.running);
    device->release(s->masters);
    device->release(s->weights);
}
