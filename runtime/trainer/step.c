/*
 * step.c - the training step, from the top to the bottom.
 *
 * How gradients are computed is decided in compute.h, when weights change in update_rule.h. What
 * else happens in a step is in the table of step_hooks.c.
 */
#include "runtime/trainer/step.h"

#include "base/trace.h"
#include "runtime/optim/schedule.h"
#include "runtime/trainer/local_steps.h"
#include "runtime/trainer/step_hooks.h"
#include "runtime/trainer/tail.h"
#include "runtime/trainer/trainer_parts.h"
#include "runtime/trainer/update_rule.h"

/* What depends on the step; all else was chosen when the trainer was made. */
struct step_kind {
    bool local;    /* gradients stay on their rank: local steps */
    bool compares; /* all state of all ranks, before anything is updated */
    const struct dp_update_rule *rule;
};

static struct step_kind kind_of_step(const struct dp_trainer *t);
static void begin_exchange(struct dp_trainer *t, struct step_kind kind);
static void count_step(struct dp_trainer *t, struct dp_step_report *report);

dp_status dp_trainer_step(struct dp_trainer *t, struct dp_step_report *report)
{
    DP_SPAN(DP_PHASE_STEP, (int64_t)t->state.step);

    /* The next batch. */
    DP_TRY(dp_step_begin(t));
    DP_TRY(dp_model_state_send_params(&t->state, t->compute.stream));
    const struct step_kind kind = kind_of_step(t);

    /* Forward and backward; buckets leave as their gradients are made, the tail after them. */
    DP_TRY(dp_step_hooks_call(DP_STEP_BEFORE_COMPUTE, t, report));
    begin_exchange(t, kind);
    DP_TRY(dp_step_compute(t));
    DP_TRY(dp_step_hooks_call(DP_STEP_AFTER_COMPUTE, t, report));
    DP_TRY(dp_step_hooks_call(DP_STEP_BEFORE_UPDATE, t, report));
    DP_TRY(kind.rule->computed(t));
    DP_TRY(dp_tail_send(t));

    /* Sums arrive, and weights change. */
    for (int b = 0; b < dp_trainer_plan(t)->count; b++) {
        if (!dp_exchange_is_deferred(t->exchange, b)) {
            DP_TRY(dp_exchange_wait(t->exchange, b));
            DP_TRY(kind.rule->summed(t, b));
        }
    }
    DP_TRY(kind.rule->update(t, report));
    DP_TRY(dp_exchange_end(t->exchange));
    DP_TRY(dp_step_hooks_call(DP_STEP_AFTER_SUMS, t, report));

    /* What all ranks know now. */
    DP_TRY(kind.rule->read(t, report));
    DP_TRY(t->device->synchronize(t->compute.stream));
    count_step(t, report);
    return dp_step_hooks_call(DP_STEP_AFTER_STEP, t, report);
}

/* Ranks that are about to train on their own, or to publish weights over others, look at their
 * differences before: then the scalars are read before weights change. */
static struct step_kind kind_of_step(const struct dp_trainer *t)
{
    const struct dp_update_rule *rule = t->modes.rule;
    const bool local = dp_local_steps_now(t);
    const bool compares =
        dp_replica_check_due(t->modes.replica_check, t->state.step, t->modes.unaveraged);

    return (struct step_kind){
        .local = local,
        .compares = compares,
        .rule = local || compares ? rule->scalars_first : rule,
    };
}

static void begin_exchange(struct dp_trainer *t, struct step_kind kind)
{
    dp_exchange_defer(t->exchange, t->modes.deferred.on && !kind.compares);
    dp_exchange_begin(t->exchange, kind.local);
    t->modes.unaveraged = kind.local;
}

static void count_step(struct dp_trainer *t, struct dp_step_report *report)
{
    struct dp_model_state *s = &t->state;

    report->skipped = s->step_params->skip != 0;
    s->step_params->applied += report->skipped ? 0 : 1;
    s->batches_tracked += report->skipped ? 0 : 1;
    s->step++;
}

/* ---- pieces that async.c shares ---- */

static void set_step_params(struct dp_trainer *t)
{
    struct dp_step_params *p = t->state.step_params;
    const struct dp_batch *batch = &t->input.batch;

    p->lr = (float)dp_schedule_lr(&t->config->optimizer, t->state.step, t->schedule_steps);
    p->per_sample = 1.0f / (float)batch->global_rows;
    p->step = (uint32_t)t->state.step;
    p->loss_scale = (float)t->state.scaler.scale;
    p->loss_factor = p->per_sample * p->loss_scale;
    p->factor = 1.0f / p->loss_scale;
    if (dp_local_steps_now(t)) { /* this rank's mean, of gradients divided by the global batch */
        p->factor = batch->rows == 0 ? 0.0f : (float)batch->global_rows / (float)batch->rows;
    }
    p->skip = 0;
}

static dp_status next_batch(struct dp_trainer *t)
{
    DP_SPAN(DP_PHASE_INPUT, (int64_t)t->state.step);

    return dp_input_next(&t->input, t->state.step);
}

dp_status dp_step_begin(struct dp_trainer *t)
{
    DP_TRY(next_batch(t));
    set_step_params(t);
    return DP_OK;
}

dp_status dp_step_compute(struct dp_trainer *t)
{
    const struct dp_flat *f = &t->state.flat;
    const struct dp_pass_call call = {
        .seed = (uint64_t)t->config->train.seed,
        .weights = f->weights,
        .running = f->running,
        .grad = f->grad,
        .step_params = t->state.there,
        .hooks = &t->compute.hooks,
    };

    return t->compute.mode->run(&t->compute, &t->input.batch, &call);
}
