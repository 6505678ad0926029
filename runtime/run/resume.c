/*
 * resume.c - going on from a checkpoint. Rank 0 finds it, checks it and reads it, since other nodes
 * may not see its file system; everything then reaches the other ranks as messages.
 */
#include "runtime/run/resume.h"

#include "collectives/compressors/compression.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/checkpoint_dir.h"
#include "runtime/run/run_fingerprint.h"
#include "runtime/run/run_plan.h"
#include "runtime/run/save.h"

/* ---- finding one ---- */

static bool same_folder(const char *a, const char *b)
{
    struct stat info[2];

    return stat(a, &info[0]) == 0 && stat(b, &info[1]) == 0 && info[0].st_dev == info[1].st_dev &&
           info[0].st_ino == info[1].st_ino;
}

/* Under --out, where there may be none. */
static dp_status find_newest(struct dp_training *run)
{
    struct dp_resume *r = &run->resume;
    char folder[DP_PATH_BYTES];
    struct stat info;

    if (run->cli->out == NULL) {
        DP_WARN("--resume without --out finds nothing: a run without --out has a new folder");
        return DP_OK;
    }
    DP_TRY(dp_file_join(folder, run->cli->out, "checkpoints"));
    if (stat(folder, &info) == 0) {
        DP_TRY(dp_checkpoint_dir_find(folder, r->path, &r->on));
    }
    r->continues = r->on;
    return DP_OK;
}

/* What --resume=PATH leads to. */
static dp_status find_given(struct dp_training *run)
{
    struct dp_resume *r = &run->resume;
    char run_folder[DP_PATH_BYTES];

    DP_TRY(dp_checkpoint_dir_find(run->cli->resume, r->path, NULL));
    DP_TRY(dp_file_join(run_folder, r->path, "../.."));
    r->continues = run->cli->out != NULL && same_folder(run_folder, run->cli->out);
    r->on = true;
    return DP_OK;
}

/* What `auto` chose then is what it takes again, on as many ranks and where it can run. */
static void take_strategy(struct dp_training *run, const char *strategy)
{
    struct dp_resume *r = &run->resume;
    struct dp_plan plan = {.ranks = r->ranks, .nodes = r->nodes};
    dp_status status = DP_ERR_CONFIG;

    if (run->plan.on || strcmp(run->config->comm.strategy, "auto") != 0 ||
        !dp_run_fingerprint_same_for_auto(run, dp_json_get(r->state, "run")) ||
        r->ranks != run->world->train->size || r->nodes != run->world->train->nodes) {
        return;
    }
    dp_log_soften(true);
    if ((size_t)snprintf(plan.strategy, sizeof(plan.strategy), "%s", strategy) <
        sizeof(plan.strategy)) {
        status = dp_run_check_plan(run, &plan, r->path);
    }
    dp_log_soften(false);
    if (status != DP_OK) {
        DP_WARN("comm.strategy auto chooses anew: that of %s, %.80s, cannot be taken over", r->path,
                strategy);
        return;
    }
    memcpy(r->strategy, plan.strategy, sizeof(r->strategy));
}

/* Whether the run that a checkpoint is of has ended with it, as run.json says: what a run does last
 * comes behind its last checkpoint. */
static bool has_ended(const struct dp_resume *r)
{
    char path[DP_PATH_BYTES], *text = NULL;
    struct dp_json *json = NULL;
    const char *exit = NULL;
    size_t bytes = 0;
    int64_t steps = -1;

    dp_log_mute(1);
    if (dp_file_join(path, r->path, "../../run.json") == DP_OK &&
        dp_file_read(path, 1 << 24, &text, &bytes) == DP_OK &&
        dp_json_parse(text, bytes, path, &json) == DP_OK) {
        exit = dp_json_text(dp_json_get(json, "exit"));
        (void)dp_json_int(dp_json_get(json, "steps"), &steps);
    }
    dp_log_mute(0);
    const bool ended = exit != NULL && steps == (int64_t)r->step &&
                       (strcmp(exit, dp_run_exit_text(DP_RUN_FINISHED)) == 0 ||
                        strcmp(exit, dp_run_exit_text(DP_RUN_EARLY_STOPPED)) == 0);
    dp_json_destroy(json);
    dp_free(text);
    return ended;
}

static dp_status read_head(struct dp_training *run)
{
    struct dp_resume *r = &run->resume;
    int64_t ranks = 0, nodes = 0, waited = 0;
    const char *strategy;

    DP_TRY(dp_checkpoint_open(r->path, &r->step, &r->state));
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
    take_strategy(run, strategy);
    r->ended = has_ended(r);
    return DP_OK;
}

dp_status dp_run_find_checkpoint(struct dp_training *run)
{
    if (run->cli->resume == NULL) {
        return DP_OK;
    }
    DP_TRY(strcmp(run->cli->resume, "auto") == 0 ? find_newest(run) : find_given(run));
    return run->resume.on ? read_head(run) : DP_OK;
}

dp_status dp_run_share_checkpoint(struct dp_training *run)
{
    struct dp_resume *r = &run->resume, mine = *r;

    DP_TRY(dp_group_broadcast(run->world->all, r, sizeof(*r), 0));
    r->state = mine.state;
    if (r->strategy[0] != '\0') {
        run->config->comm.strategy = r->strategy;
        run->config->comm.recalled = true;
    }
    return DP_OK;
}

/* Whether it had ended early, and would again: with more patience it goes on. */
static bool ended_early(const struct dp_training *run)
{
    const struct dp_improvement improvement = {.waited = run->resume.waited};

    return run->resume.early_stopped &&
           dp_improvement_ended(&improvement, &run->config->early_stop);
}

/* Rank 0. */
static void tell_finished(struct dp_training *run)
{
    const struct dp_resume *r = &run->resume;
    const unsigned long long step = r->step, total = run->total_steps;

    if (step >= total) {
        dp_progress_line(&run->progress,
                         "%s: %llu of %llu steps are done: nothing is left to do; more of "
                         "train.epochs, train.steps or --steps would train on",
                         r->path, step, total);
    } else {
        dp_progress_line(&run->progress,
                         "%s: stopped early behind step %llu of %llu: nothing is left to do; more "
                         "of early_stop.patience would train on",
                         r->path, step, total);
    }
}

/* Rank 0: a run that goes on finds out as it reads weights; one that has finished reads none. */
static dp_status check_model(const struct dp_training *run)
{
    const struct dp_model *m = run->model;
    const struct dp_weights weights = {.params = m->tensors,
                                       .param_count = m->tensor_count,
                                       .buffers = m->buffers,
                                       .buffer_count = m->buffer_count,
                                       .counters = m->counters,
                                       .counter_count = m->counter_count};
    char path[DP_PATH_BYTES];

    DP_TRY(dp_file_join(path, run->resume.path, "model.safetensors"));
    return dp_weights_check(path, &weights);
}

dp_status dp_run_check_checkpoint(struct dp_training *run)
{
    struct dp_resume *r = &run->resume;

    if (!r->on) {
        return DP_OK;
    }
    DP_TRY(dp_group_agree(run->world->all,
                          dp_run_leads(run)
                              ? dp_run_fingerprint_check(run, dp_json_get(r->state, "run"), r->path)
                              : DP_OK));
    r->finished = r->step > run->total_steps ||
                  (r->ended && (r->step == run->total_steps || ended_early(run)));
    if (!r->finished) {
        return DP_OK;
    }
    DP_TRY(dp_group_agree(run->world->all, dp_run_leads(run) ? check_model(run) : DP_OK));
    if (dp_run_leads(run)) {
        tell_finished(run);
    }
    return DP_OK;
}

/* ---- going on from it ---- */

/* Rank 0: whether what owners of sums left out is of places that they own no more: who owns what
 * follows from how gradients are cut and shared. */
static bool owners_moved(const struct dp_training *run)
{
    const struct dp_json *then = dp_json_get(run->resume.state, "run");
    bool owners = false;

    for (int i = 0; i < run->kept.count; i++) {
        owners = owners || run->kept.rows[i].spread == DP_SPREAD_OWNER;
    }
    return owners && (!dp_run_fingerprint_same(run, then, "buckets") ||
                      !dp_run_fingerprint_same(run, then, "comm.strategy"));
}

/* Rank 0: the checkpoint into a snapshot of as many ranks as saved it. */
static dp_status read_snapshot(struct dp_training *run, struct dp_snapshot **out)
{
    struct dp_resume *r = &run->resume;
    struct dp_snapshot *s = NULL;
    struct dp_weights weights;
    dp_status status;

    DP_TRY(dp_snapshot_create(&run->kept, dp_trainer_flat(run->trainer), r->ranks, &s));
    dp_snapshot_fill(s, &run->kept); /* for what it lacks */
    weights = dp_run_weights(run, s);
    /* Arrays of one compressor mean nothing to another, nor may those under other options. */
    r->loose = (struct dp_loose){
        .word = DP_COMPRESSION_NAME,
        .skip = !dp_run_fingerprint_same(run, dp_json_get(r->state, "run"), "comm.compressor")};
    status = dp_checkpoint_load(r->path, &weights, s->slots, s->slot_count, &r->loose);
    if (status == DP_OK) {
        status = dp_state_dict_read(&s->rows, dp_json_get(r->state, "kept"), r->path);
    }
    if (status != DP_OK) {
        dp_snapshot_destroy(s);
        return status;
    }
    s->moved = r->moved = owners_moved(run);
    *out = s;
    return DP_OK;
}

dp_status dp_run_restore(struct dp_training *run)
{
    const struct dp_resume *r = &run->resume;
    struct dp_trainer *t = run->trainer;
    struct dp_snapshot *s = NULL;
    dp_status status;

    DP_TRY(dp_exchange_agree(dp_trainer_exchange(t),
                             dp_run_leads(run) ? read_snapshot(run, &s) : DP_OK));
    status = dp_snapshot_restore(s, r->ranks, &run->kept, dp_trainer_flat(t),
                                 dp_trainer_exchange(t), run->cli->forget - 1);
    dp_snapshot_destroy(s);
    status = status == DP_OK ? dp_trainer_put(t) : status;
    if (status == DP_OK) {
        status = dp_trainer_round(t);
    }
    if (r->continues) { /* it is here already, should the run end where it began */
        run->saved = true;
        run->saved_step = run->saved_at = r->step;
        run->saved_early = r->early_stopped;
    }
    return status;
}

/* Of the arrays of compressors: what is not as it was. */
static void tell_loose(struct dp_training *run)
{
    const struct dp_resume *r = &run->resume;
    const int ranks = dp_trainer_group(run->trainer)->size;

    if (r->loose.dropped > 0) {
        DP_WARN("what the compressor of %s remembered is dropped: it does not fit %s on %d rank%s",
                r->path, run->config->comm.compressor, ranks, dp_plural(ranks));
    } else if (r->loose.taken > 0 && (r->ranks != ranks || r->moved)) {
        dp_progress_line(&run->progress,
                         "the residuals of %d rank%s are split evenly over %d: their sum stays",
                         r->ranks, dp_plural(r->ranks), ranks);
    }
}

void dp_run_tell_resume(struct dp_training *run)
{
    const struct dp_resume *r = &run->resume;
    char changes[600];
    bool same;

    if (!r->on) {
        return;
    }
    same = dp_run_fingerprint_compare(run, dp_json_get(r->state, "run"), changes, sizeof(changes));
    dp_progress_line(&run->progress, "going on from %s, step %llu of %llu%s%s%s", r->path,
                     (unsigned long long)r->step, (unsigned long long)run->total_steps,
                     changes[0] == '\0' ? "" : "; ", changes,
                     changes[0] == '\0' ? ""
                     : same             ? ": the bits stay the same"
                                        : ": the bits will differ from those of a run that was "
                                          "never interrupted");
    tell_loose(run);
}
