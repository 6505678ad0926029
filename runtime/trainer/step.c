/*
 * step.c - the training step, which reads from the top to the bottom.
 *
 * compute.h says how gradients are computed, update_rule.h when weights change, and the table in
 * step_hooks.c what else happens in a step.
 */
#include "runtime/trainer/step.h"

#include "base/trace.h"
#include "runtime/optim/optimizer.h"
#include "runtime/trainer/step_hooks.h"
#include "runtime/trainer/tail.h"
#include "runtime/trainer/trainer_parts.h"
#include "runtime/trainer/update/local_steps.h"
#include "runtime/trainer/update/update_rule.h"

/* What depends on the step's number; all else was chosen when the trainer was created. */
struct step_kind {
    bool local;    /* gradients are not shared: a local step */
    bool compares; /* all state of all ranks is compared, before anything is updated */
    const struct dp_update_rule *rule;
};

static struct step_kind kind_of_step(const struct dp_trainer *t);
static void begin_exchange(struct dp_trainer *t, struct step_kind kind);
static dp_status wait_for_gradients(const struct dp_trainer *t);
static void inject_faults(struct dp_trainer *t, int bucket, bool summed);
static void count_step(struct dp_trainer *t, struct dp_step_report *report);

dp_status dp_trainer_step(struct dp_trainer *t, struct dp_step_report *report)
{
    DP_SPAN(DP_PHASE_STEP, (int64_t)t->state.step);

    /* The next batch. */
    DP_TRY(dp_step_begin(t));
    DP_TRY(dp_model_state_send_params(&t->state, t->compute.stream));
    const struct step_kind kind = kind_of_step(t);

    /* Forward and backward; buckets are sent as soon as their gradients are complete, the tail
     * after them. */
    DP_TRY(dp_step_hooks_call(DP_STEP_BEFORE_COMPUTE, t, report));
    begin_exchange(t, kind);
    DP_TRY(dp_step_hooks_call(DP_STEP_BEGUN, t, report));
    DP_TRY(dp_step_compute(t));
    DP_TRY(dp_step_hooks_call(DP_STEP_AFTER_COMPUTE, t, report));
    DP_TRY(dp_step_hooks_call(DP_STEP_BEFORE_UPDATE, t, report));
    DP_TRY(kind.rule->computed(t));
    DP_TRY(dp_tail_send(t));
    DP_TRY(wait_for_gradients(t));

    /* Sums arrive, and weights change. */
    for (int b = 0; b < dp_trainer_plan(t)->count; b++) {
        if (!dp_exchange_is_deferred(t->exchange, b)) {
            inject_faults(t, b, false);
            DP_TRY(dp_exchange_wait(t->exchange, b));
            inject_faults(t, b, true);
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

/* A device with memory of its own computes after compute() has returned. Where sums are waited for
 * on the host, it is waited for first: else all of the step would count as exposed communication.
 * Where GPUs sum, updates are queued after sums that have not begun, so nothing waits. */
static dp_status wait_for_gradients(const struct dp_trainer *t)
{
    DP_SPAN(DP_PHASE_BACKWARD, (int64_t)t->state.step);

    return t->device->host_memory || dp_exchange_sums_on_gpus(t->exchange)
               ? DP_OK
               : t->device->synchronize(t->compute.stream);
}

static void inject_faults(struct dp_trainer *t, int bucket, bool summed)
{
    if (t->modes.on_bucket != NULL) {
        t->modes.on_bucket(t->modes.on_bucket_context, t, bucket, summed);
    }
}

/* Before local steps, and before weights are published over others, ranks must know their
 * differences: then the scalars are read before weights change. Where ranks may go on without one
 * that dies, nothing changes before all messages have come. */
static struct step_kind kind_of_step(const struct dp_trainer *t)
{
    const struct dp_update_rule *rule = t->modes.rule;
    const bool local = dp_local_steps_now(t);
    const bool shrinks = dp_config_shrinks(t->config) && t->group->size > 1;
    const bool compares =
        dp_replica_check_due(t->modes.replica_check, t->state.step, t->modes.unaveraged);

    return (struct step_kind){
        .local = local,
        .compares = compares,
        .rule = local || compares || shrinks ? rule->scalars_first : rule,
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

    p->lr = (float)dp_optimizer_lr(&t->config->optimizer, t->state.step, t->schedule_steps);
    p->per_sample = 1.0f / (float)batch->global_rows;
    p->step = (uint32_t)t->state.step;
    p->loss_scale = (float)t->state.scaler.scale;
    p->loss_factor = p->per_sample * p->loss_scale;
    p->factor = 1.0f / p->loss_scale;
    if (dp_local_steps_now(t)) { /* to a mean over this rank's rows */
        p->factor = batch->rows == 0 ? 0.0f : (float)batch->global_rows / (float)batch->rows;
    }
    p->skip = 0;
}

static dp_status next_batch(struct dp_trainer *t)
{
    DP_SPAN(DP_PHASE_INPUT, (int64_t)t->state.step);
    const bool alone = t->group->size == 1 || dp_config_stale(t->config) || !dp_trainer_sums(t);

    if (alone) {
        return dp_input_next(&t->input, t->state.step);
    }
    dp_input_try(&t->input, t->state.step); /* the tail tells the others */
    return DP_OK;
}

dp_status dp_step_begin(struct dp_trainer *t)
{
    DP_TRY(next_batch(t));
    set_step_params(t);
    return DP_OK;
}

/* Starts to copy the next batch, if it is ready, while the device computes this one. */
static dp_status send_next_batch(const struct dp_trainer *t)
{
    struct dp_batch next;

    return !t->device->host_memory && t->compute.mode->send != NULL &&
                   dp_input_peek(&t->input, &next)
               ? t->compute.mode->send(&t->compute, &next)
               : DP_OK;
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

    DP_TRY(t->compute.mode->run(&t->compute, &t->input.batch, &call));
    return send_next_batch(t);
}
