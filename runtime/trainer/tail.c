#include "runtime/trainer/tail.h"

#include "runtime/trainer/state/state.h"
#include "runtime/trainer/trainer_parts.h"

dp_status dp_tail_send(struct dp_trainer *t)
{
    for (int i = 0; i < DP_REQUEST_COUNT; i++) {
        t->scalars.request[i] = t->request[i];
    }
    t->scalars.request[DP_REQUEST_INPUT] = t->input.failure != DP_OK;
    t->scalars.bad_samples = t->input.batch.skipped;
    t->scalars.hash[DP_AGREE_PLAN] = dp_exchange_plan(t->exchange)->hash;
    t->scalars.hash[DP_AGREE_ORDER] = dp_exchange_order(t->exchange);
    dp_step_scalars_write(dp_trainer_tail(t), &t->scalars);
    return dp_exchange_ready_tail(t->exchange);
}

dp_status dp_tail_read(struct dp_trainer *t, struct dp_step_report *report)
{
    DP_TRY(t->device->synchronize(t->compute.stream));
    DP_TRY(dp_step_scalars_read(dp_trainer_tail(t), &t->scalars, t->group->size, t->state.step,
                                report));
    report->loss /= t->state.step_params->loss_scale; /* a power of two: exact */
    return report->split ? dp_trainer_resolve_split(t) : DP_OK;
}
