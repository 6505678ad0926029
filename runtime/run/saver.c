/*
 * saver.c - checkpoints of a run: a snapshot between two steps, which a thread then writes.
 */
#include "runtime/run/saver.h"

#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/system/usage.h"
#include "base/trace.h"
#include "base/trace_ring.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/checkpoint/checkpoint_save.h"
#include "runtime/run/plan/run_fingerprint.h"

/* ---- on the writer's thread ---- */

dp_status dp_saver_describe(const struct dp_saver *s, const struct dp_state_dict *rows,
                            struct dp_json *state)
{
    const struct dp_run_job *job = s->job;
    const struct dp_exchange *e = dp_trainer_exchange(job->trainer);
    struct dp_json *object;

    DP_TRY(dp_json_set_text(state, "model", job->config->name));
    DP_TRY(dp_json_set_int(state, "ranks", dp_exchange_group(e)->size));
    DP_TRY(dp_json_set_int(state, "nodes", dp_exchange_group(e)->nodes));
    DP_TRY(dp_json_set_text(state, "strategy", dp_exchange_label(e)));
    DP_TRY(dp_json_set_bool(state, "early_stopped", s->early_stopped));
    DP_TRY(dp_class_names_write(&job->class_names, state));
    object = dp_json_set_object(state, "run");
    DP_TRY(dp_run_fingerprint_write(job, object));
    if (job->algo_choices != NULL) {
        object = dp_json_set_object(state, "choices");
        DP_TRY(dp_algo_choices_put(job->algo_choices, false, object));
    }
    object = dp_json_set_object(state, "kept");
    return dp_state_dict_write(rows, object);
}

struct dp_weights dp_saver_weights(const struct dp_model *m, const struct dp_snapshot *snapshot)
{
    const struct dp_state_dict *rows = &snapshot->rows;

    return (struct dp_weights){
        m->tensors,  m->tensor_count,  dp_state_dict_find(rows, "weights")->data,
        m->buffers,  m->buffer_count,  dp_state_dict_find(rows, "running")->data,
        m->counters, m->counter_count, dp_state_dict_find(rows, "batches_tracked")->data};
}

static dp_status write_state(const struct dp_saver *s, struct dp_json *state)
{
    const struct dp_checkpoint_config *c = &s->job->config->checkpoint;
    const struct dp_weights weights = dp_saver_weights(s->job->model, s->snapshot);
    const struct dp_checkpoint checkpoint = {.step = s->step,
                                             .weights = &weights,
                                             .slots = s->snapshot->slots,
                                             .slot_count = s->snapshot->slot_count,
                                             .state = state,
                                             .buffer = s->buffer};
    char folder[DP_PATH_BYTES];

    DP_TRY(dp_saver_describe(s, &s->snapshot->rows, state));
    DP_TRY(dp_file_join(folder, s->job->output.path, "checkpoints"));
    return dp_checkpoint_save(folder, &checkpoint, c->keep, (uint64_t)c->keep_every);
}

static uint64_t array_bytes(const struct dp_state_dict *rows)
{
    uint64_t sum = 0;

    for (int i = 0; i < rows->count; i++) {
        sum += dp_state_is_array(&rows->rows[i]) ? rows->rows[i].bytes : 0;
    }
    return sum;
}

/* It only notes why it failed: the run may have ended by then, and its last line must stay the
 * last. */
static dp_status write_snapshot(void *context)
{
    struct dp_saver *s = context;
    struct dp_log_capture capture;
    struct dp_json *state;
    uint64_t begin_ns, queued_ns;
    dp_status status;

    dp_trace_set_lane(DP_LANE_CHECKPOINT, 0);
    DP_SPAN(DP_PHASE_CHECKPOINT, (int64_t)s->step);
    DP_TRY(dp_snapshot_wait(s->snapshot));
    begin_ns = dp_now_ns();
    queued_ns = dp_thread_queued_ns();
    state = dp_json_create();
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = state == NULL ? DP_FAIL(DP_ERR_NOMEM, "checkpoint") : write_state(s, state);
    (void)snprintf(s->problem, sizeof(s->problem), "%s", dp_log_captured(&capture));
    dp_log_capture_end(&capture, DP_LOG_DROP);
    dp_json_destroy(state);
    if (status == DP_OK) {
        /* Without what this thread, which is idle, waited for a core. */
        s->write_ns = dp_now_ns() - begin_ns - (dp_thread_queued_ns() - queued_ns);
        s->write_bytes = array_bytes(&s->snapshot->rows);
    }
    return status;
}

/* ---- on the main thread ---- */

/* What rank 0 alone has. */
static dp_status make_writer(struct dp_saver *s)
{
    const struct dp_worker_config config = {.name = "dp-writer",
                                            .task = "writes checkpoints",
                                            .idle = true,
                                            .run = write_snapshot,
                                            .context = s};

    s->buffer = dp_mem_huge(DP_MEM_CHECKPOINT, DP_FILE_BUFFER);
    if (s->buffer == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "checkpoint");
    }
    return dp_worker_create(&config, &s->writer);
}

dp_status dp_saver_open(struct dp_saver *s, const struct dp_run_job *job)
{
    struct dp_trainer *t = job->trainer;

    s->job = job;
    /* Without sharing ranks differ: there is no one state to save. */
    s->enabled = dp_exchange_sums(dp_trainer_exchange(t));
    if (!s->enabled) {
        return DP_OK;
    }
    DP_TRY(dp_snapshot_share(&s->state_dict, dp_trainer_flat(t), dp_trainer_exchange(t),
                             job->threads, &s->snapshot));
    dp_trainer_set_async_copy(t, DP_ASYNC_COPY_SNAPSHOT, s->snapshot->async_copy);
    return dp_exchange_agree(dp_trainer_exchange(t), dp_run_leads(job) ? make_writer(s) : DP_OK);
}

void dp_saver_close(struct dp_saver *s)
{
    if (s->snapshot != NULL) { /* which may be what the writer waits for */
        dp_async_copy_finish(s->snapshot->async_copy);
    }
    dp_worker_destroy(s->writer);
    dp_free(s->buffer);
    dp_snapshot_destroy(s->snapshot);
}

void dp_saver_resume(struct dp_saver *s, const struct dp_resume *resume)
{
    s->taken = true;
    s->step = s->good_step = resume->step;
    s->early_stopped = resume->early_stopped;
}

void dp_saver_refuse(struct dp_saver *s, const struct dp_run_job *job)
{
    if (!s->refused) {
        DP_WARN("asked to save: nothing can be, since %s keeps no common weights",
                dp_exchange_label(dp_trainer_exchange(job->trainer)));
    }
    s->refused = true;
}

/* Begins to write the snapshot. */
static void start_writing(struct dp_saver *s)
{
    s->problem[0] = '\0';
    s->pending = true;
    dp_worker_start(s->writer);
}

void dp_saver_wait(struct dp_saver *s, const struct dp_outcome *outcome, struct dp_metrics *metrics)
{
    if (s->writer == NULL || !s->pending) {
        return;
    }
    s->pending = false;
    if (dp_worker_wait(s->writer) == DP_OK) {
        s->good_step = s->step;
    } else if (s->problem[0] != '\0') {
        /* Where metrics cannot be written either, waiting any longer would lose lines. */
        metrics->given_up = metrics->given_up || metrics->waiting_bytes > 0;
        DP_WARN("%s; there is no checkpoint of step %llu%s", s->problem,
                (unsigned long long)s->step,
                outcome->exit == DP_RUN_FINISHED && !metrics->given_up
                    ? "; training goes on, earlier ones stay"
                    : "");
    }
}

void dp_saver_poll(struct dp_saver *s, const struct dp_outcome *outcome, struct dp_metrics *metrics)
{
    if (s->pending && !s->required && !dp_worker_busy(s->writer)) {
        dp_saver_wait(s, outcome, metrics);
    }
}

/* The part of all ranks. Where a step does not wait for the gradients of all ranks, none begins the
 * next before all have copied. */
static dp_status take_snapshot(struct dp_saver *s)
{
    struct dp_trainer *t = s->job->trainer;
    const bool loose = s->job->async != NULL || dp_trainer_ranks(t) < dp_trainer_group(t)->size;

    DP_TRY(dp_trainer_fetch(t));
    DP_TRY(dp_snapshot_take(s->snapshot, &s->state_dict, dp_trainer_exchange(t)));
    if (!loose) {
        return DP_OK;
    }
    dp_trainer_finish_copies(t);
    return dp_exchange_barrier(dp_trainer_exchange(t));
}

dp_status dp_saver_save(struct dp_saver *s, const struct dp_outcome *outcome,
                        struct dp_metrics *metrics)
{
    struct dp_trainer *t = s->job->trainer;
    DP_SPAN(DP_PHASE_CHECKPOINT, (int64_t)dp_trainer_steps(t));
    const bool early = outcome->exit == DP_RUN_EARLY_STOPPED;
    dp_status status;

    if (!s->enabled || (s->taken && s->step == dp_trainer_steps(t) && s->early_stopped == early)) {
        return DP_OK;
    }
    DP_TRY(dp_trainer_sync_weights(t));
    dp_saver_wait(s, outcome, metrics);
    s->step = dp_trainer_steps(t);
    s->early_stopped = early;
    s->required = dp_trainer_steps(t) >= s->job->total_steps;
    status = take_snapshot(s);
    s->taken = status == DP_OK;
    if (s->taken && s->writer != NULL) {
        start_writing(s);
    }
    return status;
}

/* Rank 0: waits until the snapshot is on disk, and reports why it is not. */
static dp_status finish_writing(struct dp_saver *s)
{
    dp_status status = dp_worker_wait(s->writer);

    if (status != DP_OK && !s->required) { /* there may be room by now */
        s->required = true;
        start_writing(s);
        status = dp_worker_wait(s->writer);
    }
    s->pending = false;
    if (status == DP_OK) {
        s->good_step = s->step;
    } else if (s->problem[0] != '\0') {
        dp_log(DP_LOG_ERROR, __FILE__, __LINE__, "%s", s->problem);
    }
    return status;
}

dp_status dp_saver_finish(struct dp_saver *s, const struct dp_outcome *outcome,
                          struct dp_metrics *metrics, dp_status *written)
{
    struct dp_trainer *t = s->job->trainer;
    DP_SPAN(DP_PHASE_CHECKPOINT, (int64_t)dp_trainer_steps(t));
    dp_status status = DP_OK;

    DP_TRY(dp_saver_save(s, outcome, metrics));
    dp_trainer_finish_copies(t);
    if (s->writer != NULL && s->taken) {
        status = finish_writing(s);
    }
    *written = status;
    DP_TRY(dp_exchange_broadcast(dp_trainer_exchange(t), written, sizeof(*written), 0));
    s->taken = s->taken && *written == DP_OK; /* whoever tries again takes another one */
    return DP_OK;
}
