#include "runtime/trainer/deferred_update.h"

#include "base/trace.h"
#include "runtime/trainer/trainer.h"

bool dp_deferred_update_possible(const struct dp_trainer *t)
{
    const struct dp_config *c = t->config;
    const bool gated = c->optimizer.clip_norm > 0.0 || c->train.precision == DP_PRECISION_FP16;

    return !t->lent && !gated && c->train.lanes == 0 && c->train.local_steps == 1 &&
           c->comm.overlap != DP_OVERLAP_OFF && !dp_config_stale(c) &&
           !dp_lanes_synchronised(t->model);
}

void dp_deferred_update_begin(struct dp_trainer *t)
{
    t->deferred.step_params = *t->step_params;
    t->deferred.end = dp_exchange_plan(t->exchange)->count;
}

static dp_status update(struct dp_trainer *t, int b)
{
    struct dp_update u;

    DP_TRY(dp_exchange_wait(t->exchange, b));
    DP_SPAN(DP_PHASE_OPTIMIZER, b);
    u = dp_trainer_update(t, b, t->flat.grad + dp_exchange_mine(t->exchange, b).begin);
    u.step_params = &t->deferred.step_params;
    return t->optimizer->update(t->optimizer_state, t->stream, &u);
}

/* In the order in which they travel, down to bucket `to`. */
static dp_status update_down_to(struct dp_trainer *t, int to)
{
    while (t->deferred.end > to) {
        const int b = --t->deferred.end;
        DP_TRY(dp_exchange_plan(t->exchange)->buckets[b].deferred ? update(t, b) : DP_OK);
    }
    return DP_OK;
}

dp_status dp_deferred_update_need(void *trainer, int tensor)
{
    struct dp_trainer *t = trainer;
    const int bucket = dp_exchange_plan(t->exchange)->bucket_of[tensor];

    return update_down_to(t, bucket > 0 ? bucket + 1 : 0); /* none is late below bucket 1 */
}

dp_status dp_deferred_update_finish(struct dp_trainer *t)
{
    if (t->deferred.end == 0) {
        return DP_OK;
    }
    DP_TRY(update_down_to(t, 0));
    dp_trainer_note_wire(t);
    return DP_OK;
}
