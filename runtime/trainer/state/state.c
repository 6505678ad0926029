#include "runtime/trainer/state/state.h"

#include <string.h>

#include "collectives/compressors/compression.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/trainer/trainer_parts.h"
#include "runtime/trainer/update/deferred_update.h"

float *dp_trainer_whole(struct dp_trainer *t)
{
    return t->state.flat.type == DP_TYPE_F32 ? t->state.host->flat.weights
                                             : dp_exchange_host_gradient(t->exchange);
}

/* weights [range] = master [own ...], rounded. */
static dp_status round_range(struct dp_trainer *t, struct dp_range range, size_t own)
{
    return t->compute.stream->ops->narrow(
        t->compute.stream, (uint16_t *)t->state.flat.weights + range.begin,
        t->state.flat.master + own, range.count, t->state.flat.type);
}

dp_status dp_trainer_round(struct dp_trainer *t)
{
    const struct dp_bucket_plan *plan = dp_exchange_plan(t->exchange);

    if (t->state.flat.type == DP_TYPE_F32) {
        return DP_OK;
    }
    for (int b = 0; b < plan->count; b++) {
        if (!plan->buckets[b].exact) {
            DP_TRY(round_range(t, dp_exchange_mine(t->exchange, b), plan->buckets[b].owned_at));
            DP_TRY(dp_exchange_publish(t->exchange, b));
        }
    }
    return dp_exchange_end(t->exchange);
}

dp_status dp_trainer_resolve_split(struct dp_trainer *t)
{
    DP_TRY(dp_deferred_update_finish(t));
    DP_TRY(dp_replica_check_resolve(t->modes.replica_check, t->state.step));
    return dp_exchange_is_sharded(t->exchange) ? DP_OK : dp_trainer_round(t);
}

dp_status dp_trainer_compare_replicas(struct dp_trainer *t)
{
    bool split;

    DP_TRY(dp_replica_check_all(t->modes.replica_check, &split));
    return split ? dp_trainer_resolve_split(t) : DP_OK;
}

dp_status dp_trainer_take(struct dp_trainer *t)
{
    const struct dp_bucket_plan *plan = dp_exchange_plan(t->exchange);
    const float *whole = dp_trainer_whole(t);

    if (t->state.flat.average != NULL) { /* it begins there */
        memcpy(t->state.host->flat.average, whole, t->state.flat.trained * sizeof(float));
    }
    if (t->state.flat.type == DP_TYPE_F32) {
        DP_TRY(dp_host_state_put(t->state.host));
        return dp_exchange_barrier(t->exchange);
    }
    for (int b = 0; b < plan->count; b++) {
        const struct dp_range mine = dp_exchange_mine(t->exchange, b);
        if (!plan->buckets[b].exact) {
            memcpy(t->state.host->flat.master + plan->buckets[b].owned_at, whole + mine.begin,
                   mine.count * sizeof(float));
        }
    }
    DP_TRY(dp_host_state_put(t->state.host));
    return dp_trainer_round(t);
}

dp_status dp_trainer_wide(struct dp_trainer *t, const float **out)
{
    const size_t trained = t->state.flat.trained;
    float *host = dp_exchange_host_gradient(t->exchange);

    *out = dp_trainer_whole(t);
    if (t->state.flat.type == DP_TYPE_F32) {
        return dp_host_state_fetch_weights(t->state.host, (struct dp_range){0, trained});
    }
    DP_TRY(t->compute.stream->ops->widen(t->compute.stream, t->state.flat.grad,
                                         t->state.flat.weights, trained, t->state.flat.type));
    return dp_device_read(t->compute.stream, host, t->state.flat.grad, trained * sizeof(float));
}

dp_status dp_trainer_init(struct dp_trainer *t)
{
    const bool writes = t->state.flat.type != DP_TYPE_F32 || dp_exchange_writes(t->exchange);

    dp_model_init(t->model, (uint64_t)t->config->train.seed, writes ? dp_trainer_whole(t) : NULL,
                  t->state.host->flat.running);
    return dp_trainer_take(t);
}

dp_status dp_trainer_copy_state(struct dp_trainer *to, const struct dp_trainer *from)
{
    const struct dp_flat *f = &from->state.flat;
    struct dp_stream *s = to->compute.stream;

    DP_TRY(
        s->ops->copy(s, to->state.flat.weights, f->weights, f->trained * dp_type_bytes(f->type)));
    if (f->type != DP_TYPE_F32) {
        DP_TRY(s->ops->widen(s, to->state.flat.master, f->weights, f->trained, f->type));
    }
    DP_TRY(s->ops->copy(s, to->state.flat.running, f->running,
                        from->model->statistics * sizeof(float)));
    for (int i = 0; i < 2 && f->slots[i] != NULL; i++) {
        DP_TRY(s->ops->copy(s, to->state.flat.slots[i], f->slots[i], f->owned * sizeof(float)));
    }
    if (f->average != NULL) {
        DP_TRY(s->ops->copy(s, to->state.flat.average, f->average, f->trained * sizeof(float)));
    }
    *to->state.step_params = *from->state.step_params;
    to->state.scaler = from->state.scaler;
    to->state.step = from->state.step;
    return to->device->synchronize(s);
}

void dp_trainer_add_state(struct dp_trainer *t, struct dp_state_dict *list)
{
    const struct dp_flat *f = &t->state.host->flat;
    struct dp_compression_array arrays[DP_COMPRESSION_ARRAYS];
    const bool fp32 = f->type == DP_TYPE_F32;

    dp_state_dict_add_array(list, "weights", f->master, fp32 ? f->trained : f->owned,
                            DP_STATE_WEIGHTS, fp32 ? DP_SPREAD_SAME : DP_SPREAD_OWNED);
    dp_state_dict_add_array(list, "running", f->running, t->model->statistics, DP_STATE_RUNNING,
                            DP_SPREAD_SAME);
    for (int i = 0; i < 2 && f->slots[i] != NULL; i++) {
        dp_state_dict_add_array(list, t->state.optimizer->slots[i], f->slots[i], f->owned,
                                DP_STATE_SLOT, DP_SPREAD_OWNED);
    }
    if (f->average != NULL) {
        dp_state_dict_add_array(list, DP_AVERAGE_NAME, f->average, f->trained, DP_STATE_SLOT,
                                DP_SPREAD_OWNED);
    }
    /* In reverse, so that what owners left out comes before the residuals to which it may be
     * added. */
    for (int i = dp_compression_arrays(dp_exchange_compression(t->exchange), arrays) - 1; i >= 0;
         i--) {
        dp_state_dict_add_array(list, arrays[i].name, arrays[i].data, arrays[i].count,
                                arrays[i].same ? DP_STATE_ARRAY : DP_STATE_SLOT,
                                arrays[i].same     ? DP_SPREAD_SAME
                                : arrays[i].owners ? DP_SPREAD_OWNER
                                                   : DP_SPREAD_RANK);
    }
    dp_state_dict_add_i64(list, "batches_tracked", &t->state.batches_tracked);
    dp_state_dict_add_u32(list, "applied", &t->state.step_params->applied);
    dp_state_dict_add_u64(list, "step", &t->state.step);
    if (t->state.scaler.on) {
        dp_state_dict_add_f64(list, "loss_scale", &t->state.scaler.scale);
        dp_state_dict_add_u64(list, "loss_scale.good", &t->state.scaler.good);
        dp_state_dict_add_u64(list, "loss_scale.skipped", &t->state.scaler.skipped);
    }
}

dp_status dp_trainer_fetch(struct dp_trainer *t)
{
    DP_TRY(dp_host_state_fetch(t->state.host));
    return dp_compression_fetch(dp_exchange_compression(t->exchange));
}

dp_status dp_trainer_put(struct dp_trainer *t)
{
    DP_TRY(dp_host_state_put(t->state.host));
    return dp_compression_put(dp_exchange_compression(t->exchange));
}
