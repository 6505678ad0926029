#include "runtime/trainer/step_hooks.h"

#include "runtime/trainer/trainer_parts.h"
#include "runtime/trainer/update/deferred_update.h"
#include "runtime/trainer/update/local_steps.h"
#include "runtime/trainer/update/overflow.h"
#include "runtime/trainer/update/verify_sums.h"
#include "runtime/trainer/update/weight_sync.h"

/* ---- bytes on the wire ---- */

/* Not if deferred buckets of the previous step are still being sent: those count in this step. */
static dp_status mark_wire(struct dp_trainer *t, const struct dp_step_report *report)
{
    (void)report;
    if (!dp_deferred_update_pending(t)) {
        t->wire_mark = dp_exchange_wire(t->exchange);
    }
    return DP_OK;
}

static dp_status count_wire(struct dp_trainer *t, const struct dp_step_report *report)
{
    (void)report;
    dp_trainer_note_wire(t);
    return DP_OK;
}

/* ---- comparison of replicas ---- */

static dp_status hash_weights(struct dp_trainer *t)
{
    return dp_replica_check_hash(t->modes.replica_check, t->state.step, t->modes.unaveraged,
                                 &t->scalars.hash[DP_AGREE_WEIGHTS]);
}

/* Hashes the weights with which forward and backward compute: before forward, since ranks that
 * share weights may write them soon; or after forward, if some weights are updated only then. */
static dp_status hash_before(struct dp_trainer *t, const struct dp_step_report *report)
{
    (void)report;
    t->modes.hash_after = dp_deferred_update_pending(t);
    return t->modes.hash_after ? DP_OK : hash_weights(t);
}

static dp_status hash_after(struct dp_trainer *t, const struct dp_step_report *report)
{
    (void)report;
    return t->modes.hash_after ? hash_weights(t) : DP_OK;
}

/* ---- sums made once more ---- */

static dp_status keep_bucket(struct dp_trainer *t, const struct dp_step_report *report)
{
    (void)report;
    dp_verify_sums_begin(t->modes.verify_sums, t);
    return DP_OK;
}

static dp_status verify_sums(struct dp_trainer *t, const struct dp_step_report *report)
{
    (void)report;
    return dp_verify_sums_end(t->modes.verify_sums, t);
}

/* ---- what is copied during this step ---- */

static dp_status finish_copy(struct dp_trainer *t, const struct dp_step_report *report)
{
    (void)report;
    dp_modes_finish_copies(&t->modes);
    return DP_OK;
}

/* ---- what a step leaves for the next one ---- */

static dp_status defer_updates(struct dp_trainer *t, const struct dp_step_report *report)
{
    (void)report;
    if (dp_exchange_defers(t->exchange)) {
        dp_deferred_update_begin(t);
    }
    return DP_OK;
}

static dp_status average(struct dp_trainer *t, const struct dp_step_report *report)
{
    (void)report;
    return dp_local_steps_end(t) ? dp_trainer_sync_weights(t) : DP_OK;
}

/* Sets the loss scale of the next step. */
static dp_status scale_loss(struct dp_trainer *t, const struct dp_step_report *report)
{
    struct dp_loss_scaler *scaler = &t->state.scaler;
    char where[sizeof(scaler->where)] = "";

    if (scaler->on && report->skipped && dp_loss_scaler_tells(scaler)) {
        DP_TRY(dp_overflow_find(t, (double)report->loss, where, sizeof(where)));
    }
    dp_loss_scaler_step(scaler, report->skipped, where, t->state.step, t->group->rank == 0);
    return DP_OK;
}

/* ---- the table ---- */

typedef dp_status step_hook(struct dp_trainer *trainer, const struct dp_step_report *report);

static step_hook *const hooks[][DP_STEP_POINTS] = {
    {[DP_STEP_BEFORE_COMPUTE] = mark_wire, [DP_STEP_AFTER_STEP] = count_wire},
    {[DP_STEP_BEFORE_COMPUTE] = hash_before, [DP_STEP_AFTER_COMPUTE] = hash_after},
    {[DP_STEP_BEFORE_UPDATE] = finish_copy},
    {[DP_STEP_BEGUN] = keep_bucket, [DP_STEP_AFTER_SUMS] = verify_sums},
    {[DP_STEP_AFTER_SUMS] = defer_updates},
    {[DP_STEP_AFTER_SUMS] = average},
    {[DP_STEP_AFTER_STEP] = scale_loss},
};

dp_status dp_step_hooks_call(enum dp_step_point point, struct dp_trainer *t,
                             const struct dp_step_report *report)
{
    for (size_t i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++) {
        if (hooks[i][point] != NULL) {
            DP_TRY(hooks[i][point](t, report));
        }
    }
    return DP_OK;
}
