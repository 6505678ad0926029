/*
 * step.c - the training step: read from the bottom to the top.
 */
#include "base/trace.h"
#include "runtime/optim/schedule.h"
#include "runtime/trainer/overflow.h"
#include "runtime/trainer/trainer.h"

/* Wishes and hashes go into the tail, which is then shared like any bucket. */
static dp_status announce_tail(struct dp_trainer *t)
{
    for (int i = 0; i < DP_REQUEST_COUNT; i++) {
        t->scalars.request[i] = t->request[i];
    }
    t->scalars.hash[DP_AGREE_PLAN] = dp_exchange_plan(t->exchange)->hash;
    t->scalars.hash[DP_AGREE_ORDER] = dp_exchange_order(t->exchange);
    dp_step_scalars_write(dp_exchange_host_gradient(t->exchange) + dp_model_loss_at(t->model),
                          &t->scalars);
    return dp_exchange_ready_tail(t->exchange);
}

struct dp_update dp_trainer_update(const struct dp_trainer *t, int b, const float *grad)
{
    const struct dp_range mine = dp_exchange_mine(t->exchange, b);
    const size_t own = dp_exchange_plan(t->exchange)->buckets[b].owned_at;
    const bool fp32 = t->flat.type == DP_TYPE_F32; /* weights are their own masters */

    return (struct dp_update){
        .master = t->flat.master + (fp32 ? mine.begin : own),
        .weights = (char *)t->flat.weights + mine.begin * dp_type_bytes(t->flat.type),
        .grad = grad,
        .slots = {t->flat.slots[0] == NULL ? NULL : t->flat.slots[0] + own,
                  t->flat.slots[1] == NULL ? NULL : t->flat.slots[1] + own},
        .count = mine.count,
        .step_params = t->there,
    };
}

/* Updates this rank's part of bucket b, and sends the new weights on their way. */
static dp_status update(struct dp_trainer *t, int b)
{
    DP_SPAN(DP_PHASE_OPTIMIZER, b);
    const struct dp_update u =
        dp_trainer_update(t, b, t->flat.grad + dp_exchange_mine(t->exchange, b).begin);

    if (dp_exchange_plan(t->exchange)->buckets[b].exact) {
        return t->step_params->skip != 0 ? DP_OK
                                         : dp_model_absorb(t->model, t->stream, t->flat.running,
                                                           t->flat.grad + t->flat.trained);
    }
    DP_TRY(t->optimizer->update(t->optimizer_state, t->stream, &u));
    return dp_exchange_publish(t->exchange, b);
}

static dp_status look(struct dp_trainer *t, int b)
{
    DP_SPAN(DP_PHASE_OPTIMIZER, b);
    const struct dp_bucket *bucket = &dp_exchange_plan(t->exchange)->buckets[b];

    return bucket->exact ? DP_OK : dp_grad_norm_add(t->grad_norm, dp_exchange_mine(t->exchange, b));
}

/* The first step whose gradients stay on their rank. */
static uint64_t local_from(const struct dp_trainer *t)
{
    return (uint64_t)t->config->train.local_after;
}

static bool is_local(const struct dp_trainer *t)
{
    return t->config->train.local_steps > 1 && t->group->size > 1 && t->step >= local_from(t);
}

/* Loss, requests and hashes of all ranks, out of the tail. Ranks whose weights differ find out
 * where. */
static dp_status read_scalars(struct dp_trainer *t, struct dp_step_report *report)
{
    DP_TRY(t->device->synchronize(t->stream));
    DP_TRY(dp_step_scalars_read(dp_exchange_host_gradient(t->exchange) + dp_model_loss_at(t->model),
                                &t->scalars, t->group->size, t->step, report));
    report->loss /= t->step_params->loss_scale; /* a power of two: exact */
    return report->split ? dp_trainer_settle(t) : DP_OK;
}

/* Whether any rank skips the step. */
static dp_status skip_together(struct dp_trainer *t)
{
    float skip = (float)t->step_params->skip;

    DP_TRY(dp_exchange_sum_host(t->exchange, &skip, 1));
    t->step_params->skip = skip > 0.0f;
    return DP_OK;
}

/* Gradients that were held back: sent unscaled, if those of all ranks are finite. */
static dp_status send_held(struct dp_trainer *t)
{
    const size_t trained = t->flat.trained;

    DP_TRY(dp_grad_norm_add(t->grad_norm, (struct dp_range){0, trained}));
    DP_TRY(dp_grad_norm_fetch(t->grad_norm));
    t->step_params->skip = dp_grad_norm_overflowed(t->grad_norm) != NULL;
    DP_TRY(skip_together(t));
    DP_TRY(t->stream->ops->scale(t->stream, t->flat.grad, t->flat.grad, t->step_params->factor,
                                 trained));
    t->step_params->factor = 1.0f;
    for (int i = t->flat.tensor_count - 1; i >= 0; i--) {
        DP_TRY(dp_exchange_ready(t->exchange, i));
    }
    return DP_OK;
}

/* The gate has seen all that this rank has: what the others have, and the decision of all. */
static dp_status decide(struct dp_trainer *t)
{
    const bool parts = dp_exchange_parts(t->exchange);
    const bool apart = !dp_exchange_sums(t->exchange); /* each has its own gradient */

    if (parts) {
        DP_TRY(dp_exchange_sum(t->exchange, t->grad_norm->squares, t->grad_norm->blocks));
    }
    DP_TRY(dp_grad_norm_decide(t->grad_norm, t->step_params));
    return apart && t->scaler.on ? skip_together(t) : DP_OK;
}

static dp_status send_step_params(const struct dp_trainer *t)
{
    return t->device->upload(t->stream, t->there, t->step_params, sizeof(*t->there));
}

static dp_status hash_weights(struct dp_trainer *t)
{
    return dp_replica_check_hash(t->replica_check, t->step, t->apart,
                                 &t->scalars.hash[DP_AGREE_WEIGHTS]);
}

/* Forward and backward. Weights are hashed as they are for both: before, since ranks that share
 * them may write soon; but behind forward where some of them come only then. */
static dp_status compute(struct dp_trainer *t)
{
    const bool pending = t->deferred.end > 0,
               due = dp_replica_check_due(t->replica_check, t->step, t->apart);

    DP_TRY(pending ? DP_OK : hash_weights(t));
    dp_exchange_defer(t->exchange,
                      t->deferred.on && !due); /* all is compared before it is updated */
    t->apart = is_local(t);
    dp_exchange_begin(t->exchange, t->apart);
    DP_TRY(dp_trainer_compute(t));
    return pending ? hash_weights(t) : DP_OK;
}

/* Queues a step's work. Without a gate a bucket is updated while later ones are on the wire;
 * clipping must see all of them first, and so must a comparison of all state. */
static dp_status queue_step(struct dp_trainer *t, struct dp_step_report *report)
{
    const int count = dp_exchange_plan(t->exchange)->count;

    DP_TRY(compute(t));
    dp_async_copy_finish(t->async_copy);
    /* Ranks that are about to part, or to publish, look at their differences before. */
    const bool early = t->replica_check->whole || t->apart, waits = t->grad_norm != NULL || early;

    DP_TRY(t->hooks.ready == NULL ? send_held(t) : DP_OK);
    DP_TRY(announce_tail(t));
    if (t->grad_norm != NULL &&
        dp_exchange_parts(t->exchange)) { /* others look at the other parts */
        DP_TRY(dp_grad_norm_reset(t->grad_norm));
    }
    for (int b = 0; b < count; b++) {
        if (dp_exchange_is_deferred(t->exchange, b)) {
            continue;
        }
        DP_TRY(dp_exchange_wait(t->exchange, b));
        DP_TRY(t->grad_norm != NULL ? look(t, b) : DP_OK);
        DP_TRY(waits ? DP_OK : update(t, b));
    }
    DP_TRY(early ? read_scalars(t, report) : DP_OK);
    if (t->grad_norm != NULL) {
        DP_TRY(decide(t));
        DP_TRY(send_step_params(t));
    }
    for (int b = 0; waits && b < count; b++) {
        DP_TRY(update(t, b));
    }
    DP_TRY(dp_exchange_end(t->exchange));
    if (dp_exchange_defers(t->exchange)) {
        dp_deferred_update_begin(t);
    }
    DP_TRY(early ? DP_OK : read_scalars(t, report));
    return t->apart && (t->step + 1 - local_from(t)) % (uint64_t)t->config->train.local_steps == 0
               ? dp_trainer_meet(t)
               : DP_OK;
}

static dp_status next_batch(struct dp_trainer *t)
{
    DP_SPAN(DP_PHASE_INPUT, (int64_t)t->step);

    return dp_trainer_batch(t);
}

static void set_step_params(struct dp_trainer *t)
{
    t->step_params->lr = (float)dp_schedule_lr(&t->config->optimizer, t->step, t->schedule_steps);
    t->step_params->per_sample = 1.0f / (float)t->batch.global_rows;
    t->step_params->step = (uint32_t)t->step;
    t->step_params->loss_scale = (float)t->scaler.scale;
    t->step_params->loss_factor = t->step_params->per_sample * t->step_params->loss_scale;
    t->step_params->factor = 1.0f / t->step_params->loss_scale;
    if (is_local(t)) { /* gradients are divided by the global batch: this rank's mean is wanted */
        t->step_params->factor =
            t->batch.rows == 0 ? 0.0f : (float)t->batch.global_rows / (float)t->batch.rows;
    }
    t->step_params->skip = 0;
}

dp_status dp_trainer_begin(struct dp_trainer *t)
{
    DP_TRY(next_batch(t));
    set_step_params(t);
    return DP_OK;
}

/* What this step says about the scale of the next one. */
static dp_status settle_scale(struct dp_trainer *t, const struct dp_step_report *report)
{
    char where[sizeof(t->scaler.where)] = "";

    if (t->scaler.on && report->skipped && dp_loss_scaler_tells(&t->scaler)) {
        DP_TRY(dp_overflow_find(t, (double)report->loss, where, sizeof(where)));
    }
    dp_loss_scaler_step(&t->scaler, report->skipped, where, t->step, t->group->rank == 0);
    return DP_OK;
}

dp_status dp_trainer_step(struct dp_trainer *t, struct dp_step_report *report)
{
    DP_SPAN(DP_PHASE_STEP, (int64_t)t->step);

    if (t->deferred.end == 0) {
        t->wire_mark = dp_exchange_wire(t->exchange);
    }
    DP_TRY(dp_trainer_begin(t));
    DP_TRY(send_step_params(t));
    DP_TRY(queue_step(t, report));
    DP_TRY(t->device->synchronize(t->stream));
    report->skipped = t->step_params->skip != 0;
    t->step_params->applied += report->skipped ? 0 : 1;
    t->batches_tracked += report->skipped ? 0 : 1;
    t->step++;
    dp_trainer_note_wire(t);
    return settle_scale(t, report);
}
