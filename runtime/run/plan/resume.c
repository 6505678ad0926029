/*
 * resume.c - going on from a checkpoint. Rank 0 finds it, checks it and reads it, since other nodes
 * may not see its file system; everything then reaches the other ranks as messages.
 */
#include "runtime/run/plan/resume.h"

#include "collectives/compressors/compression.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/checkpoint_dir.h"
#include "runtime/run/plan/run_fingerprint.h"
#include "runtime/run/plan/run_plan.h"
#include "runtime/run/saver.h"
#include "runtime/run/shrink.h"

/* ---- finding one ---- */

static bool same_folder(const char *a, const char *b)
{
    struct stat info[2];

    return stat(a, &info[0]) == 0 && stat(b, &info[1]) == 0 && info[0].st_dev == info[1].st_dev &&
           info[0].st_ino == info[1].st_ino;
}

/* The newest one under --out, if there is one. */
static dp_status find_newest(struct dp_run_job *job)
{
    struct dp_resume *r = &job->resume;
    char folder[DP_PATH_BYTES];
    struct stat info;

    if (job->options->out == NULL) {
        DP_WARN("--resume without --out finds nothing: a run without --out has a new folder");
        return DP_OK;
    }
    DP_TRY(dp_file_join(folder, job->options->out, "checkpoints"));
    if (stat(folder, &info) == 0) {
        DP_TRY(dp_checkpoint_dir_find(folder, r->path, &r->on));
    }
    r->continues = r->on;
    return DP_OK;
}

/* The one that --resume=PATH names. */
static dp_status find_given(struct dp_run_job *job)
{
    struct dp_resume *r = &job->resume;
    char run_folder[DP_PATH_BYTES];

    DP_TRY(dp_checkpoint_dir_find(job->options->resume, r->path, NULL));
    DP_TRY(dp_file_join(run_folder, r->path, "../.."));
    r->continues = job->options->out != NULL && same_folder(run_folder, job->options->out);
    r->on = true;
    return DP_OK;
}

/* What `auto` chose then it takes again, on as many ranks and nodes, if it can run here. */
static void take_strategy(struct dp_run_job *job, const char *strategy)
{
    struct dp_resume *r = &job->resume;
    struct dp_plan plan = {.ranks = r->ranks, .nodes = r->nodes};
    struct dp_log_capture capture;
    dp_status status = DP_ERR_CONFIG;

    if (job->plan.on || strcmp(job->config->comm.strategy, "auto") != 0 ||
        !dp_run_fingerprint_same_for_auto(job, dp_json_get(r->state, "run")) ||
        r->ranks != job->world->train->size || r->nodes != job->world->train->nodes) {
        return;
    }
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    if ((size_t)snprintf(plan.strategy, sizeof(plan.strategy), "%s", strategy) <
        sizeof(plan.strategy)) {
        status = dp_run_check_plan(job, &plan, r->path);
    }
    dp_log_capture_end(&capture, DP_LOG_SOFTEN);
    if (status != DP_OK) {
        DP_WARN("comm.strategy auto chooses anew: that of %s, %.80s, cannot be taken over", r->path,
                strategy);
        return;
    }
    memcpy(r->strategy, plan.strategy, sizeof(r->strategy));
}

/* Whether the checkpoint's run has ended with it, as run.json says: the last evaluation comes after
 * the last checkpoint, and may be missing. */
static bool has_ended(const struct dp_resume *r)
{
    char path[DP_PATH_BYTES], *text = NULL;
    struct dp_log_capture capture;
    struct dp_json *json = NULL;
    const char *exit = NULL;
    size_t bytes = 0;
    int64_t steps = -1;

    dp_log_capture_begin(&capture, DP_LOG_DEBUG);
    if (dp_file_join(path, r->path, "../../run.json") == DP_OK &&
        dp_file_read(path, 1 << 24, &text, &bytes) == DP_OK &&
        dp_json_parse(text, bytes, path, &json) == DP_OK) {
        exit = dp_json_text(dp_json_get(json, "exit"));
        (void)dp_json_int(dp_json_get(json, "steps"), &steps);
    }
    dp_log_capture_end(&capture, DP_LOG_DROP);
    const bool ended = exit != NULL && steps == (int64_t)r->step &&
                       (strcmp(exit, dp_run_exit_text(DP_RUN_FINISHED)) == 0 ||
                        strcmp(exit, dp_run_exit_text(DP_RUN_EARLY_STOPPED)) == 0);
    dp_json_destroy(json);
    dp_free(text);
    return ended;
}

/* What state.json says about the run. */
static dp_status read_head(struct dp_run_job *job)
{
    struct dp_resume *r = &job->resume;
    int64_t ranks = 0, nodes = 0, waited = 0;
    const char *strategy;

    strategy = dp_json_text(dp_json_get(r->state, "strategy"));
    if (!dp_json_int(dp_json_get(r->state, "ranks"), &ranks) || ranks < 1 ||
        ranks > DP_STEP_SCALARS_RANKS_MAX || !dp_json_int(dp_json_get(r->state, "nodes"), &nodes) ||
        strategy == NULL) {
        return DP_FAIL(DP_ERR_DATA, "%s: state.json does not say who saved it", r->path);
    }
    (void)dp_json_switch(dp_json_get(r->state, "early_stopped"), &r->early_stopped);
    (void)dp_json_int(dp_json_get(dp_json_get(r->state, "kept"), "early_stop.waited"), &waited);
    r->waited = (uint64_t)waited;
    r->ranks = (int)ranks;
    r->nodes = (int)nodes;
    take_strategy(job, strategy);
    r->ended = !r->memory && has_ended(r);
    return DP_OK;
}

/* What this rank kept of a run that has lost ranks. */
static dp_status find_kept(struct dp_run_job *job)
{
    struct dp_resume *r = &job->resume;

    (void)snprintf(r->path, sizeof(r->path), "memory");
    r->on = r->continues = r->memory = true;
    r->step = job->kept->step;
    DP_TRY(dp_json_parse(job->kept->state, strlen(job->kept->state), r->path, &r->state));
    return read_head(job);
}

dp_status dp_run_find_checkpoint(struct dp_run_job *job)
{
    struct dp_resume *r = &job->resume;

    if (job->kept != NULL && job->kept->snapshot != NULL) {
        return find_kept(job);
    }
    if (job->options->resume == NULL) {
        return DP_OK;
    }
    DP_TRY(strcmp(job->options->resume, "auto") == 0 ? find_newest(job) : find_given(job));
    if (!r->on) {
        return DP_OK;
    }
    DP_TRY(dp_checkpoint_open(r->path, &r->step, &r->state));
    return read_head(job);
}

dp_status dp_run_share_checkpoint(struct dp_run_job *job)
{
    struct dp_resume *r = &job->resume, mine = *r;

    DP_TRY(dp_group_broadcast(job->world->all, r, sizeof(*r), 0));
    r->state = mine.state;
    if (r->strategy[0] != '\0') {
        job->config->comm.strategy = r->strategy;
        job->config->comm.recalled = true;
    }
    return DP_OK;
}

/* Whether it had stopped early and would again; with more patience it goes on. */
static bool ended_early(const struct dp_run_job *job)
{
    const struct dp_improvement improvement = {.waited = job->resume.waited};

    return job->resume.early_stopped &&
           dp_improvement_ended(&improvement, &job->config->early_stop);
}

/* Rank 0. */
static void describe_finished(const struct dp_run_job *job, struct dp_progress *progress)
{
    const struct dp_resume *r = &job->resume;
    const unsigned long long step = r->step, total = job->total_steps;

    if (step >= total) {
        dp_progress_line(progress,
                         "%s: %llu of %llu steps are done: nothing is left to do; more of "
                         "train.epochs, train.steps or --steps would train on",
                         r->path, step, total);
    } else {
        dp_progress_line(progress,
                         "%s: stopped early after step %llu of %llu: nothing is left to do; more "
                         "of early_stop.patience would train on",
                         r->path, step, total);
    }
}

/* Rank 0: compares the checkpoint's arrays with the model. A run that goes on does so when it reads
 * weights; one that has finished reads none. */
static dp_status check_model(const struct dp_run_job *job)
{
    const struct dp_model *m = job->model;
    const struct dp_weights weights = {.params = m->tensors,
                                       .param_count = m->tensor_count,
                                       .buffers = m->buffers,
                                       .buffer_count = m->buffer_count,
                                       .counters = m->counters,
                                       .counter_count = m->counter_count};
    char path[DP_PATH_BYTES];

    DP_TRY(dp_file_join(path, job->resume.path, "model.safetensors"));
    return dp_weights_check(path, &weights);
}

/* Rank 0: whether it is of this run. */
static dp_status check_origin(const struct dp_run_job *job)
{
    const struct dp_resume *r = &job->resume;

    DP_TRY(dp_class_names_check(&job->class_names, r->state, r->path));
    return dp_run_fingerprint_check(job, dp_json_get(r->state, "run"), r->path);
}

dp_status dp_run_check_checkpoint(struct dp_run_job *job, struct dp_progress *progress)
{
    struct dp_resume *r = &job->resume;

    if (!r->on) {
        return DP_OK;
    }
    DP_TRY(dp_group_agree(job->world->all, dp_run_leads(job) ? check_origin(job) : DP_OK));
    r->finished =
        !job->options->reopens && (r->step > job->total_steps ||
                                   (r->ended && (r->step == job->total_steps || ended_early(job))));
    if (!r->finished) {
        return DP_OK;
    }
    DP_TRY(dp_group_agree(job->world->all, dp_run_leads(job) ? check_model(job) : DP_OK));
    if (dp_run_leads(job)) {
        describe_finished(job, progress);
    }
    return DP_OK;
}

/* ---- going on from it ---- */

/* Rank 0: whether residuals that owners of sums keep belong to elements that they own no more: who
 * owns what follows from how gradients are cut and shared. */
static bool owners_moved(const struct dp_run_job *job, const struct dp_state_dict *rows)
{
    const struct dp_json *then = dp_json_get(job->resume.state, "run");
    bool owners = false;

    for (int i = 0; i < rows->count; i++) {
        owners = owners || rows->rows[i].spread == DP_SPREAD_OWNER;
    }
    return owners && (!dp_run_fingerprint_same(job, then, "buckets") ||
                      !dp_run_fingerprint_same(job, then, "comm.strategy"));
}

/* Rank 0: reads the checkpoint into a snapshot of as many ranks as saved it. */
static dp_status read_snapshot(struct dp_run_job *job, const struct dp_state_dict *rows,
                               struct dp_snapshot **out)
{
    struct dp_resume *r = &job->resume;
    struct dp_snapshot *s = NULL;
    struct dp_weights weights;
    dp_status status;

    DP_TRY(dp_snapshot_create(rows, dp_trainer_flat(job->trainer), r->ranks, &s));
    dp_snapshot_fill(s, rows); /* for rows that the checkpoint lacks */
    weights = dp_saver_weights(job->model, s);
    /* Arrays of a compressor mean nothing to another one, or under other options. */
    r->loose = (struct dp_loose){
        .word = DP_COMPRESSION_NAME,
        .skip = !dp_run_fingerprint_same(job, dp_json_get(r->state, "run"), "comm.compressor")};
    status = dp_checkpoint_load(r->path, &weights, s->slots, s->slot_count, &r->loose);
    if (status == DP_OK) {
        status = dp_state_dict_read(&s->rows, dp_json_get(r->state, "kept"), r->path);
    }
    if (status != DP_OK) {
        dp_snapshot_destroy(s);
        return status;
    }
    s->moved = r->moved = owners_moved(job, rows);
    *out = s;
    return DP_OK;
}

dp_status dp_run_restore(struct dp_run_job *job, struct dp_saver *saver)
{
    const struct dp_resume *r = &job->resume;
    struct dp_trainer *t = job->trainer;
    const bool reads = dp_run_leads(job) && !r->memory;
    struct dp_snapshot *s = NULL;
    dp_status status;

    DP_TRY(dp_exchange_agree(dp_trainer_exchange(t),
                             reads ? read_snapshot(job, &saver->state_dict, &s) : DP_OK));
    if (dp_run_leads(job) && r->memory) {
        s = job->kept->snapshot;
    }
    status = dp_snapshot_restore(s, r->ranks, &saver->state_dict, dp_trainer_flat(t),
                                 dp_trainer_exchange(t));
    dp_snapshot_destroy(reads ? s : NULL);
    status = status == DP_OK ? dp_trainer_put(t) : status;
    if (status == DP_OK) {
        status = dp_trainer_round(t);
    }
    if (r->continues &&
        !r->memory) { /* should the run end at once, its checkpoint is there already */
        dp_saver_resume(saver, r);
    }
    return status;
}

/* What became of the arrays of compressors, where they are not as they were. */
static void describe_loose(const struct dp_run_job *job, struct dp_progress *progress)
{
    const struct dp_resume *r = &job->resume;
    const int ranks = dp_trainer_group(job->trainer)->size;

    if (r->loose.dropped > 0) {
        DP_WARN("what the compressor of %s remembered is dropped: it does not fit %s on %d rank%s",
                r->path, job->config->comm.compressor, ranks, dp_plural(ranks));
    } else if (r->loose.taken > 0 && (r->ranks != ranks || r->moved)) {
        dp_progress_line(progress,
                         "the residuals of %d rank%s are split evenly over %d: their sum stays",
                         r->ranks, dp_plural(r->ranks), ranks);
    }
}

void dp_run_describe_resume(const struct dp_run_job *job, struct dp_progress *progress)
{
    const struct dp_resume *r = &job->resume;
    char changes[600];
    bool same;

    if (!r->on) {
        return;
    }
    same = dp_run_fingerprint_compare(job, dp_json_get(r->state, "run"), changes, sizeof(changes));
    dp_progress_line(progress, "going on from %s, step %llu of %llu%s%s%s", r->path,
                     (unsigned long long)r->step, (unsigned long long)job->total_steps,
                     changes[0] == '\0' ? "" : "; ", changes,
                     changes[0] == '\0' ? ""
                     : same             ? ": the bits stay the same"
                                        : ": the bits will differ from those of a run that was "
                                          "never interrupted");
    describe_loose(job, progress);
}
