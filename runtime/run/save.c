/*
 * save.c - checkpoints of a run: a snapshot between two steps, which a thread then writes.
 */
#include "runtime/run/save.h"

#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/checkpoint/checkpoint_save.h"
#include "runtime/run/run_fingerprint.h"

/* What state.json holds. */
static dp_status fill_state(const struct dp_training *run, struct dp_json *state)
{
    const struct dp_exchange *e = dp_trainer_exchange(run->trainer);
    struct dp_json *object;

    DP_TRY(dp_json_set_text(state, "model", run->config->name));
    DP_TRY(dp_json_set_int(state, "ranks", dp_exchange_group(e)->size));
    DP_TRY(dp_json_set_int(state, "nodes", dp_exchange_group(e)->nodes));
    DP_TRY(dp_json_set_text(state, "strategy", dp_exchange_label(e)));
    DP_TRY(dp_json_set_bool(state, "early_stopped", run->saved_early));
    object = dp_json_set_object(state, "run");
    DP_TRY(dp_run_fingerprint_write(run, object));
    if (run->algo_choices != NULL) {
        object = dp_json_set_object(state, "choices");
        DP_TRY(dp_algo_choices_put(run->algo_choices, false, object));
    }
    object = dp_json_set_object(state, "kept");
    return dp_state_dict_write(&run->snapshot->rows, object);
}

struct dp_weights dp_run_weights(const struct dp_training *run, const struct dp_snapshot *snapshot)
{
    const struct dp_model *m = run->model;
    const struct dp_state_dict *rows = &snapshot->rows;

    return (struct dp_weights){
        m->tensors,  m->tensor_count,  dp_state_dict_find(rows, "weights")->data,
        m->buffers,  m->buffer_count,  dp_state_dict_find(rows, "running")->data,
        m->counters, m->counter_count, dp_state_dict_find(rows, "batches_tracked")->data};
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

/* On the writer's thread, which only notes why it failed: the run may have ended by then, and its
 * last word must stay the last. */
static dp_status write_snapshot(void *context)
{
    struct dp_training *run = context;
    struct dp_json *state;
    dp_status status;

    DP_TRY(dp_snapshot_wait(run->snapshot));
    state = dp_json_create();
    dp_log_hold(true);
    status = state == NULL ? DP_FAIL(DP_ERR_NOMEM, "checkpoint") : write_state(run, state);
    (void)snprintf(run->save_problem, sizeof(run->save_problem), "%s", dp_log_held());
    dp_log_hold(false);
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
    run->saves = dp_exchange_sums(dp_trainer_exchange(t));
    if (!run->saves) {
        return DP_OK;
    }
    DP_TRY(dp_snapshot_share(&run->kept, dp_trainer_flat(t), dp_trainer_exchange(t), run->threads,
                             &run->snapshot));
    dp_trainer_set_async_copy(t, run->snapshot->async_copy);
    return dp_exchange_agree(dp_trainer_exchange(t), dp_run_leads(run) ? make_writer(run) : DP_OK);
}

void dp_run_close_saving(struct dp_training *run)
{
    if (run->snapshot != NULL) { /* which may be what the writer waits for */
        dp_async_copy_finish(run->snapshot->async_copy);
    }
    dp_writer_destroy(run->writer);
    dp_free(run->save_room);
    dp_snapshot_destroy(run->snapshot);
}

/* Begins to write the snapshot that there is. */
static void start_writing(struct dp_training *run)
{
    run->save_problem[0] = '\0';
    run->save_open = true;
    dp_writer_start(run->writer);
}

void dp_run_settle_saving(struct dp_training *run)
{
    if (run->writer == NULL || !run->save_open) {
        return;
    }
    run->save_open = false;
    if (dp_writer_wait(run->writer) == DP_OK) {
        run->saved_at = run->saved_step;
    } else if (run->save_problem[0] != '\0') {
        /* Where there is no room for metrics either, each step that is waited costs some. */
        run->metrics.given_up = run->metrics.given_up || run->metrics.waiting_bytes > 0;
        DP_WARN("%s; there is no checkpoint of step %llu%s", run->save_problem,
                (unsigned long long)run->saved_step,
                run->exit == DP_RUN_FINISHED && !run->metrics.given_up
                    ? "; training goes on, earlier ones stay"
                    : "");
    }
}

void dp_run_note_saving(struct dp_training *run)
{
    if (run->save_open && !run->save_must && !dp_writer_busy(run->writer)) {
        dp_run_settle_saving(run);
    }
}

/* All ranks' part of it. Where a step does not wait for the gradients of all, none of them begins
 * before all have copied. */
static dp_status take_snapshot(struct dp_training *run)
{
    const struct dp_trainer *t = run->trainer;
    const bool loose = run->async != NULL || dp_trainer_ranks(t) < dp_trainer_group(t)->size;

    DP_TRY(dp_trainer_fetch(run->trainer));
    DP_TRY(dp_snapshot_take(run->snapshot, &run->kept, dp_trainer_exchange(t)));
    if (!loose) {
        return DP_OK;
    }
    dp_trainer_finish_copy(t);
    return dp_exchange_barrier(dp_trainer_exchange(t));
}

dp_status dp_run_save(struct dp_training *run)
{
    DP_SPAN(DP_PHASE_CHECKPOINT, (int64_t)dp_trainer_steps(run->trainer));
    struct dp_trainer *t = run->trainer;
    const bool early = run->exit == DP_RUN_EARLY_STOPPED;
    dp_status status;

    if (!run->saves ||
        (run->saved && run->saved_step == dp_trainer_steps(t) && run->saved_early == early)) {
        return DP_OK;
    }
    DP_TRY(dp_trainer_sync_weights(t));
    dp_run_settle_saving(run);
    run->saved_step = dp_trainer_steps(t);
    run->saved_early = early;
    run->save_must = dp_trainer_steps(t) >= run->total_steps;
    status = take_snapshot(run);
    run->saved = status == DP_OK;
    if (run->saved && run->writer != NULL) {
        start_writing(run);
    }
    return status;
}

/* Rank 0: the snapshot on disk, and why not. */
static dp_status finish_writing(struct dp_training *run)
{
    dp_status status = dp_writer_wait(run->writer);

    if (status != DP_OK && !run->save_must) { /* there may be room by now */
        run->save_must = true;
        start_writing(run);
        status = dp_writer_wait(run->writer);
    }
    run->save_open = false;
    if (status == DP_OK) {
        run->saved_at = run->saved_step;
    } else if (run->save_problem[0] != '\0') {
        dp_log(DP_LOG_ERROR, __FILE__, __LINE__, "%s", run->save_problem);
    }
    return status;
}

dp_status dp_run_saved(struct dp_training *run, dp_status *written)
{
    DP_SPAN(DP_PHASE_CHECKPOINT, (int64_t)dp_trainer_steps(run->trainer));
    dp_status status = DP_OK;

    DP_TRY(dp_run_save(run));
    dp_trainer_finish_copy(run->trainer);
    if (run->writer != NULL && run->saved) {
        status = finish_writing(run);
    }
    *written = status;
    return dp_exchange_broadcast(dp_trainer_exchange(run->trainer), written, sizeof(*written), 0);
}
