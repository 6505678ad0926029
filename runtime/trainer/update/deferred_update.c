#include "runtime/trainer/update/deferred_update.h"

#include "base/trace.h"
#include "runtime/trainer/trainer_parts.h"
#include "runtime/trainer/update/bucket_update.h"

bool dp_deferred_update_possible(const struct dp_trainer *t)
{
    const struct dp_config *c = t->config;
    const bool sees_all = c->optimizer.clip_norm > 0.0 || t->state.optimizer->measure != NULL ||
                          c->train.precision == DP_PRECISION_FP16;

    return !t->compute.borrowed && !sees_all && !dp_config_shrinks(c) && c->train.lanes == 0 &&
           c->train.local_steps == 1 && c->comm.overlap != DP_OVERLAP_OFF && !dp_config_stale(c) &&
           !dp_lanes_synchronised(t->model);
}

void dp_deferred_update_allow(struct dp_trainer *t, bool on)
{
    t->modes.deferred.on = on;
}

bool dp_deferred_update_pending(const struct dp_trainer *t)
{
    return t->modes.deferred.end > 0;
}

void dp_deferred_update_begin(struct dp_trainer *t)
{
    t->modes.deferred.step_params = *t->state.step_params;
    t->modes.deferred.end = dp_exchange_plan(t->exchange)->count;
}

static dp_status update(struct dp_trainer *t, int b)
{
    DP_TRY(dp_exchange_wait(t->exchange, b));
    DP_SPAN(DP_PHASE_OPTIMIZER, b);
    return dp_bucket_update(t, b, dp_bucket_gradient(t, b), &t->modes.deferred.step_params);
}

/* Waits and updates in the order of sending, down to bucket `to`. */
static dp_status update_down_to(struct dp_trainer *t, int to)
{
    while (t->modes.deferred.end > to) {
        const int b = --t->modes.deferred.end;
        DP_TRY(dp_exchange_plan(t->exchange)->buckets[b].deferred ? update(t, b) : DP_OK);
    }
    return DP_OK;
}

dp_status dp_deferred_update_need(void *trainer, int tensor)
{
    struct dp_trainer *t = trainer;
    const int bucket = dp_exchange_plan(t->exchange)->bucket_of[tensor];

    return update_down_to(t, bucket > 0 ? bucket + 1 : 0); /* bucket 0 is never deferred */
}

dp_status dp_deferred_update_finish(struct dp_trainer *t)
{
    if (!dp_deferred_update_pending(t)) {
        return DP_OK;
    }
    DP_TRY(update_down_to(t, 0));
    dp_trainer_note_wire(t);
    return DP_OK;
}
