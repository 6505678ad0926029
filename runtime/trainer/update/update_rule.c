#include "runtime/trainer/update/update_rule.h"

#include "base/trace.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/trainer/tail.h"
#include "runtime/trainer/trainer_parts.h"
#include "runtime/trainer/update/bucket_update.h"

static dp_status nothing_held_back(struct dp_trainer *t)
{
    (void)t;
    return DP_OK;
}

static dp_status nothing_summed(struct dp_trainer *t, int b)
{
    (void)t;
    (void)b;
    return DP_OK;
}

static dp_status nothing_left(struct dp_trainer *t, struct dp_step_report *report)
{
    (void)t;
    (void)report;
    return DP_OK;
}

/* ---- what needs the whole gradient ---- */

/* Whether any rank skips the step. */
static dp_status skip_together(struct dp_trainer *t)
{
    struct dp_step_params *params = t->state.step_params;
    float skip = (float)params->skip;

    DP_TRY(dp_exchange_sum_host(t->exchange, &skip, 1));
    params->skip = skip > 0.0f;
    return DP_OK;
}

/* Where ranks own parts of the sum each reads only its own. */
static dp_status begin_norm(struct dp_trainer *t)
{
    return t->modes.grad_norm != NULL && dp_exchange_is_sharded(t->exchange)
               ? dp_grad_norm_reset(t->modes.grad_norm)
               : DP_OK;
}

static dp_status add_to_norm(struct dp_trainer *t, int b)
{
    DP_SPAN(DP_PHASE_OPTIMIZER, b);

    return t->modes.grad_norm == NULL || dp_trainer_plan(t)->buckets[b].exact
               ? DP_OK
               : dp_grad_norm_add(t->modes.grad_norm, dp_exchange_mine(t->exchange, b));
}

/* After this rank's part of the norm: adds those of the others, and decides with them. */
static dp_status decide(struct dp_trainer *t)
{
    struct dp_grad_norm *norm = t->modes.grad_norm;

    if (norm == NULL) {
        return DP_OK;
    }
    if (dp_exchange_is_sharded(t->exchange)) {
        DP_TRY(dp_exchange_sum(t->exchange, norm->squares, norm->blocks));
    }
    DP_TRY(dp_grad_norm_decide(norm, t->state.step_params));
    if (!dp_trainer_sums(t) && t->state.scaler.on) { /* each rank has its own gradient */
        DP_TRY(skip_together(t));
    }
    return dp_model_state_send_params(&t->state, t->compute.stream);
}

/* Finds the layer-wise rates of this step, with the other ranks where each has only a part. */
static dp_status find_rates(struct dp_trainer *t)
{
    struct dp_param_groups *groups = t->modes.groups;
    const bool sharded = dp_exchange_is_sharded(t->exchange);

    if (groups == NULL || groups->rates == NULL || t->state.step_params->skip != 0) {
        return DP_OK;
    }
    DP_TRY(sharded ? dp_param_groups_reset(groups) : DP_OK);
    for (int b = 0; b < dp_trainer_plan(t)->count; b++) {
        DP_TRY(dp_trainer_plan(t)->buckets[b].exact ? DP_OK : dp_bucket_measure(t, b));
    }
    if (sharded) {
        DP_TRY(dp_exchange_sum(t->exchange, groups->squares, 2 * groups->blocks));
    }
    return dp_param_groups_find_rates(groups, t->state.there);
}

/* ---- after all sums ---- */

static dp_status update_all(struct dp_trainer *t)
{
    for (int b = 0; b < dp_trainer_plan(t)->count; b++) {
        DP_TRY(dp_bucket_update_now(t, b));
    }
    return DP_OK;
}

static dp_status decide_and_update(struct dp_trainer *t, struct dp_step_report *report)
{
    (void)report;
    DP_TRY(decide(t));
    DP_TRY(find_rates(t));
    return update_all(t);
}

static dp_status read_and_update(struct dp_trainer *t, struct dp_step_report *report)
{
    DP_TRY(dp_tail_read(t, report));
    return update_all(t);
}

static dp_status read_decide_and_update(struct dp_trainer *t, struct dp_step_report *report)
{
    DP_TRY(dp_tail_read(t, report));
    return decide_and_update(t, report);
}

/* ---- recorded ---- */

/* No sum is waited for, and no step is skipped. */
static dp_status update_after_backward(void *trainer)
{
    return update_all(trainer);
}

/* ---- agreed first ---- */

/* Sends the gradients that were held back, unscaled, if those of all ranks are finite. */
static dp_status send_finite(struct dp_trainer *t)
{
    const struct dp_flat *f = &t->state.flat;
    struct dp_step_params *params = t->state.step_params;
    struct dp_stream *stream = t->compute.stream;

    DP_TRY(dp_grad_norm_add(t->modes.grad_norm, (struct dp_range){0, f->trained}));
    DP_TRY(dp_grad_norm_read(t->modes.grad_norm));
    params->skip = t->modes.grad_norm->finite ? 0 : 1;
    DP_TRY(skip_together(t));
    DP_TRY(stream->ops->scale(stream, f->grad, f->grad, params->factor, f->trained));
    params->factor = 1.0f;
    for (int i = f->tensor_count - 1; i >= 0; i--) {
        DP_TRY(dp_exchange_ready(t->exchange, i));
    }
    return begin_norm(t);
}

/* ---- the rules, each after its twin (update_rule.h) ---- */

static const struct dp_update_rule streaming_scalars_first = {
    .computed = nothing_held_back,
    .summed = nothing_summed,
    .update = read_and_update,
    .read = nothing_left,
};

static const struct dp_update_rule streaming = {
    .computed = nothing_held_back,
    .summed = dp_bucket_update_now,
    .update = nothing_left,
    .read = dp_tail_read,
    .scalars_first = &streaming_scalars_first,
};

static const struct dp_update_rule recorded = {
    .computed = nothing_held_back,
    .summed = nothing_summed,
    .update = nothing_left,
    .read = dp_tail_read,
    .scalars_first = &recorded,
    .after_backward = update_after_backward,
};

static const struct dp_update_rule after_sums_scalars_first = {
    .computed = begin_norm,
    .summed = add_to_norm,
    .update = read_decide_and_update,
    .read = nothing_left,
};

static const struct dp_update_rule after_sums = {
    .computed = begin_norm,
    .summed = add_to_norm,
    .update = decide_and_update,
    .read = dp_tail_read,
    .scalars_first = &after_sums_scalars_first,
};

static const struct dp_update_rule agreed_first_scalars_first = {
    .computed = send_finite,
    .summed = add_to_norm,
    .update = read_decide_and_update,
    .read = nothing_left,
};

static const struct dp_update_rule agreed_first = {
    .computed = send_finite,
    .summed = add_to_norm,
    .update = decide_and_update,
    .read = dp_tail_read,
    .scalars_first = &agreed_first_scalars_first,
};

const struct dp_update_rule *dp_update_rule_choose(const struct dp_trainer *t)
{
    if (t->compute.hooks.ready == NULL) {
        return &agreed_first;
    }
    if (t->modes.grad_norm != NULL || t->state.optimizer->measure != NULL) {
        return &after_sums;
    }
    return t->group->size == 1 && t->compute.capture != NULL && !dp_config_stale(t->config)
               ? &recorded
               : &streaming;
}
