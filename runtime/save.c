/*
 * save.c - checkpoints of a run: a snapshot between two steps, which a thread then writes.
 */
#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "runtime/checkpoint.h"
#include "runtime/facts.h"
#include "runtime/run.h"

/* What state.json holds. */
static dp_status fill_state(const struct dp_training *run, struct dp_json *state)
{
    const struct dp_exchange *e = run->trainer->exchange;
    struct dp_json *object;

    DP_TRY(dp_json_set_text(state, "model", run->config->name));
    DP_TRY(dp_json_set_int(state, "ranks", e->group->size));
    DP_TRY(dp_json_set_int(state, "nodes", e->group->nodes));
    DP_TRY(dp_json_set_text(state, "strategy", e->label));
    DP_TRY(dp_json_set_bool(state, "early_stopped", run->saved_early));
    object = dp_json_set_object(state, "run");
    DP_TRY(dp_facts_write(run, object));
    object = dp_json_set_object(state, "kept");
    return dp_kept_write(&run->snapshot->rows, object);
}

struct dp_weights dp_run_weights(const struct dp_training *run, const struct dp_snapshot *snapshot)
{
    const struct dp_model *m = run->model;
    const struct dp_kept_list *rows = &snapshot->rows;

    return (struct dp_weights){
        m->tensors,  m->tensor_count,  dp_kept_find(rows, "weights")->data,
        m->buffers,  m->buffer_count,  dp_kept_find(rows, "running")->data,
        m->counters, m->counter_count, dp_kept_find(rows, "batches_tracked")->data};
}

static dp_status write_state(const struct dp_training *run, struct dp_json *state)
{
    const struct dp_checkpoint_config *c = &run->config->checkpoint;
    const struct dp_snapshot *s = run->snapshot;
    const struct dp_weights weights = dp_run_weights(run, s);
    const struct dp_checkpoint checkpoint = {.step = run->saved_step,
                                             .weights = &weights,
                                             .slots = s->slots,
                                             .slot_count = s->slot_count,
                                             .state = state,
                                             .room = run->save_room};
    char folder[DP_PATH_BYTES];

    DP_TRY(fill_state(run, state));
    DP_TRY(dp_file_join(folder, run->out, "checkpoints"));
    return dp_checkpoint_save(folder, &checkpoint, c->keep, (uint64_t)c->keep_every);
}

/* On the writer's thread. */
static dp_status write_snapshot(void *context)
{
    const struct dp_training *run = context;
    struct dp_json *state;
    dp_status status;

    DP_TRY(dp_snapshot_wait(run->snapshot));
    state = dp_json_create();
    dp_log_soften(!run->save_must);
    status = state == NULL ? DP_FAIL(DP_ERR_NOMEM, "checkpoint") : write_state(run, state);
    if (status != DP_OK && !run->save_must) {
        DP_WARN("there is no checkpoint of step %llu; training goes on, earlier ones stay",
                (unsigned long long)run->saved_step);
    }
    dp_json_destroy(state);
    return status;
}

/* What rank 0 alone has. */
static dp_status make_writer(struct dp_training *run)
{
    run->save_room = dp_mem_huge(DP_MEM_CHECKPOINT, DP_FILE_ROOM);
    if (run->save_room == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "checkpoint");
    }
    return dp_writer_create(write_snapshot, run, &run->writer);
}

dp_status dp_run_open_saving(struct dp_training *run)
{
    struct dp_trainer *t = run->trainer;

    /* Without sharing ranks differ: there is no one state to save. */
    run->saves = t->exchange->comm->strategy->sum != NULL;
    if (!run->saves) {
        return DP_OK;
    }
    DP_TRY(dp_snapshot_share(&run->kept, &t->flat, t->exchange, run->threads, &run->snapshot));
    t->copier = run->snapshot->copier;
    return dp_exchange_agree(t->exchange, dp_run_leads(run) ? make_writer(run) : DP_OK);
}

void dp_run_close_saving(struct dp_training *run)
{
    if (run->snapshot != NULL) { /* which may be what the writer waits for */
        dp_copier_finish(run->snapshot->copier);
    }
    dp_writer_destroy(run->writer);
    dp_free(run->save_room);
    dp_snapshot_destroy(run->snapshot);
}

void dp_run_settle_saving(struct dp_training *run)
{
    if (run->writer != NULL && run->saved && dp_writer_wait(run->writer) == DP_OK) {
        run->saved_at = run->saved_step;
    }
}

/* All ranks' part of it. Where a step does not wait for the gradients of all, none of them begins
 * before all have copied. */
static dp_status take_snapshot(struct dp_training *run)
{
    const struct dp_trainer *t = run->trainer;
    const bool loose = run->async != NULL || t->exchange->servers > 0;

    DP_TRY(dp_trainer_fetch(run->trainer));
    DP_TRY(dp_snapshot_take(run->snapshot, &run->kept, t->exchange));
    if (!loose) {
        return DP_OK;
    }
    dp_copier_finish(t->copier);
    return dp_exchange_barrier(t->exchange);
}

dp_status dp_run_save(struct dp_training *run)
{
    DP_SPAN(DP_PHASE_CHECKPOINT, (int64_t)run->trainer->step);
    struct dp_trainer *t = run->trainer;
    const bool early = run->exit == DP_RUN_EARLY_STOPPED;
    dp_status status;

    if (!run->saves || (run->saved && run->saved_step == t->step && run->saved_early == early)) {
        return DP_OK;
    }
    DP_TRY(dp_trainer_meet(t));
    dp_run_settle_saving(run); /* if it failed, that has been told */
    run->saved_step = t->step;
    run->saved_early = early;
    run->save_must = t->step >= run->total_steps;
    status = take_snapshot(run);
    run->saved = status == DP_OK;
    if (run->saved && run->writer != NULL) {
        dp_writer_start(run->writer);
    }
    return status;
}

dp_status dp_run_saved(struct dp_training *run, dp_status *written)
{
    DP_SPAN(DP_PHASE_CHECKPOINT, (int64_t)run->trainer->step);
    dp_status status = DP_OK;

    DP_TRY(dp_run_save(run));
    dp_copier_finish(run->trainer->copier);
    if (run->writer != NULL) {
        status = dp_writer_wait(run->writer);
    }
    if (status != DP_OK && !run->save_must) {
        run->save_must = true; /* once more: there may be room by now, and the cause is an error */
        dp_writer_start(run->writer);
        status = dp_writer_wait(run->writer);
    }
    dp_run_settle_saving(run);
    *written = status;
    return dp_exchange_broadcast(run->trainer->exchange, written, sizeof(*written), 0);
}
