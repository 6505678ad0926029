#include "runtime/trainer/update/bucket_update.h"

#include "base/trace.h"
#include "kernels/stream_trace.h"
#include "runtime/trainer/trainer_parts.h"

/* The update of this rank's part of bucket b. */
static struct dp_update update_of(const struct dp_trainer *t, int b, const float *grad,
                                  const struct dp_step_params *step_params)
{
    const struct dp_flat *f = &t->state.flat;
    const struct dp_range mine = dp_exchange_mine(t->exchange, b);
    const size_t own = dp_trainer_plan(t)->buckets[b].owned_at;
    const bool fp32 = f->type == DP_TYPE_F32; /* weights are their own masters */
    struct dp_update update = {
        .master = f->master + (fp32 ? mine.begin : own),
        .weights = (char *)f->weights + mine.begin * dp_type_bytes(f->type),
        .grad = grad,
        .slots = {f->slots[0] == NULL ? NULL : f->slots[0] + own,
                  f->slots[1] == NULL ? NULL : f->slots[1] + own},
        .count = mine.count,
        .step_params = step_params,
    };

    dp_param_groups_apply(t->modes.groups, mine.begin, &update);
    return update;
}

dp_status dp_bucket_update(struct dp_trainer *t, int b, const float *grad,
                           const struct dp_step_params *step_params)
{
    DP_STREAM_SPAN(t->compute.stream, DP_WORK_UPDATE, b);
    const struct dp_update update = update_of(t, b, grad, step_params);
    const struct dp_range mine = dp_exchange_mine(t->exchange, b);
    struct dp_stream *s = t->compute.stream;

    DP_TRY(t->state.optimizer->update(t->state.optimizer_options, s, &update));
    return t->state.flat.average == NULL || t->state.step_params->skip != 0
               ? DP_OK
               : s->ops->blend(s, t->state.flat.average + mine.begin, update.master,
                               (float)(1.0 - t->config->train.ema), mine.count);
}

dp_status dp_bucket_measure(struct dp_trainer *t, int b)
{
    const struct dp_update update = update_of(t, b, dp_bucket_gradient(t, b), t->state.there);

    return dp_param_groups_measure(t->modes.groups, dp_exchange_mine(t->exchange, b).begin,
                                   &update);
}

const float *dp_bucket_gradient(const struct dp_trainer *t, int b)
{
    return t->state.flat.grad + dp_exchange_mine(t->exchange, b).begin;
}

dp_status dp_bucket_update_now(struct dp_trainer *t, int b)
{
    DP_SPAN(DP_PHASE_OPTIMIZER, b);
    const struct dp_flat *f = &t->state.flat;

    if (dp_trainer_plan(t)->buckets[b].exact) {
        return t->state.step_params->skip != 0
                   ? DP_OK
                   : dp_model_absorb(t->model, t->compute.stream, f->running, f->grad + f->trained);
    }
    DP_TRY(dp_bucket_update(t, b, dp_bucket_gradient(t, b), t->state.there));
    return dp_exchange_publish(t->exchange, b);
}
