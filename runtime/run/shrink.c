#include "runtime/run/shrink.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/trace.h"
#include "collectives/world/host_names.h"
#include "runtime/config/config_load.h"
#include "runtime/report/summary_read.h"
#include "runtime/run/training.h"

void dp_kept_run_release(struct dp_kept_run *kept)
{
    dp_snapshot_destroy(kept->snapshot);
    dp_free(kept->state);
    dp_free(kept->ranks);
}

/* ---- what cannot go on ---- */

static const char *where(const struct dp_run_job *job, char text[256])
{
    return dp_config_where(job->config, "train.on_rank_failure", text, 256);
}

dp_status dp_shrink_check_world(const struct dp_run_job *job)
{
    const char *why_not = dp_world_why_no_shrink(job->world);
    char text[256];

    if (!dp_config_shrinks(job->config) || job->world->all->size == 1 || why_not == NULL) {
        return DP_OK;
    }
    return DP_GROUP_FAIL(job->world->all, DP_ERR_CONFIG,
                         "%s: shrink: %s; launch/supervise starts a run again without it",
                         where(job, text), why_not);
}

dp_status dp_shrink_check_state(const struct dp_training *run)
{
    const struct dp_run_job *job = &run->job;
    const struct dp_state_dict *rows = &run->saver.state_dict;
    const struct dp_exchange *exchange = dp_trainer_exchange(job->trainer);
    bool own = dp_exchange_is_sharded(exchange);
    char text[256];

    if (!dp_config_shrinks(job->config) || job->world->all->size == 1) {
        return DP_OK;
    }
    if (!job->device->host_memory) {
        return DP_GROUP_FAIL(job->world->all, DP_ERR_CONFIG, "%s: shrink needs device cpu, not %s",
                             where(job, text), job->device->plugin.name);
    }
    for (int i = 0; i < rows->count; i++) {
        own = own || dp_state_is_own(&rows->rows[i]);
    }
    return !own ? DP_OK
                : DP_GROUP_FAIL(
                      job->world->all, DP_ERR_CONFIG,
                      "%s: shrink: with %s a rank that dies takes a part of the state with it; "
                      "set comm.strategy or comm.compressor",
                      where(job, text), dp_exchange_label(exchange));
}

void dp_shrink_renumber_faults(const struct dp_run_job *job)
{
    const struct dp_world *world = job->world;

    if (job->kept != NULL && job->kept->lost_count > 0) {
        dp_fault_injection_renumber(job->faults, world->first_rank_of, world->all->size);
    }
}

/* ---- putting the state aside ---- */

/* All of it is whole on every rank: dp_shrink_check_state(). */
static dp_status keep_rows(const struct dp_training *run, struct dp_snapshot **out)
{
    const struct dp_state_dict *rows = &run->saver.state_dict;
    struct dp_snapshot *s;

    DP_TRY(dp_trainer_fetch(run->job.trainer));
    DP_TRY(dp_snapshot_create(rows, dp_trainer_flat(run->job.trainer), 1, &s));
    for (int i = 0; i < rows->count; i++) {
        memcpy(s->rows.rows[i].data, rows->rows[i].data, rows->rows[i].bytes);
    }
    *out = s;
    return DP_OK;
}

static dp_status keep_state(const struct dp_training *run, char **out)
{
    struct dp_json *state = dp_json_create();
    dp_status status = state == NULL ? DP_FAIL(DP_ERR_NOMEM, "state of a run") : DP_OK;

    if (status == DP_OK) {
        status = dp_saver_describe(&run->saver, &run->saver.state_dict, state);
    }
    if (status == DP_OK) {
        status = dp_json_dump(state, 0, DP_JSON_EXACT, out);
    }
    dp_json_destroy(state);
    return status;
}

static dp_status keep_ranks(const struct dp_run_job *job, struct dp_run_lost_rank **out)
{
    const int size = job->world->all->size;
    struct dp_run_lost_rank *ranks = dp_zalloc((size_t)size, sizeof(*ranks));

    if (ranks == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%d ranks", size);
    }
    for (int i = 0; i < size; i++) {
        ranks[i].rank = job->world->first_rank_of[i];
        (void)snprintf(ranks[i].host, sizeof(ranks[i].host), "%s",
                       dp_host_names_of(job->world->hosts, i));
    }
    *out = ranks;
    return DP_OK;
}

static dp_status keep(const struct dp_training *run, struct dp_kept_run *kept)
{
    const struct dp_run_job *job = &run->job;
    struct dp_snapshot *snapshot = NULL;
    struct dp_run_lost_rank *ranks = NULL;
    char *state = NULL;
    dp_status status = keep_rows(run, &snapshot);

    status = status == DP_OK ? keep_state(run, &state) : status;
    status = status == DP_OK ? keep_ranks(job, &ranks) : status;
    if (status != DP_OK) {
        dp_snapshot_destroy(snapshot);
        dp_free(state);
        return status;
    }
    dp_kept_run_release(kept);
    kept->snapshot = snapshot;
    kept->state = state;
    kept->ranks = ranks;
    kept->rank_count = job->world->all->size;
    kept->step = dp_trainer_steps(job->trainer);
    kept->lanes = job->config->train.lanes;
    kept->line = run->figures.line.step > 0 ? run->figures.line : kept->line;
    if (kept->out[0] == '\0') {
        memcpy(kept->out, job->output.shared, sizeof(kept->out));
    }
    return DP_OK;
}

bool dp_shrink_may(struct dp_training *run, dp_status failure, struct dp_kept_run *kept)
{
    struct dp_world *world = run->job.world;
    const bool began = run->outcome.ready;

    if (failure == DP_OK || (!began && kept->snapshot == NULL) ||
        (failure != DP_ERR_CANCELLED && failure != DP_ERR_MPI &&
         atomic_load(&world->cancel) == 0)) {
        return false;
    }
    kept->found_ns = dp_now_ns();
    return dp_world_lost(world) && (!began || keep(run, kept) == DP_OK);
}

/* ---- going on ---- */

/* Who has the newest state, the first of them; all ranks find the same. */
static dp_status find_newest(struct dp_group *group, const struct dp_kept_run *kept, int *newest)
{
    uint64_t *steps = dp_zalloc((size_t)group->size, sizeof(*steps));
    dp_status status;

    if (steps == NULL) {
        dp_group_leave(group, DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "steps of %d ranks", group->size);
    }
    status = dp_group_allgather(group, &kept->step, sizeof(kept->step), steps);
    *newest = 0;
    for (int i = 1; i < group->size; i++) {
        *newest = steps[i] > steps[*newest] ? i : *newest;
    }
    dp_free(steps);
    return status;
}

/* Only the first rank goes on from it: the others get theirs from that one. */
static dp_status share_newest(struct dp_group *group, struct dp_kept_run *kept)
{
    struct dp_state_dict *rows = &kept->snapshot->rows;
    int newest;

    DP_TRY(find_newest(group, kept, &newest));
    DP_TRY(dp_group_broadcast(group, &kept->step, sizeof(kept->step), newest));
    DP_TRY(dp_group_broadcast(group, &kept->line, sizeof(kept->line), newest));
    for (int i = 0; newest != 0 && i < rows->count; i++) {
        DP_TRY(dp_group_broadcast(group, rows->rows[i].data, rows->rows[i].bytes, newest));
    }
    return DP_OK;
}

dp_status dp_shrink_summarize(const struct dp_kept_run *kept, struct dp_run_summary *s)
{
    const int count = kept != NULL ? kept->lost_count : 0;

    DP_TRY(count > 0 ? dp_run_summary_resize(s, DP_TABLE_LOST_RANKS, count) : DP_OK);
    for (int i = 0; i < count; i++) {
        s->lost_ranks[i] = kept->lost[i];
    }
    return DP_OK;
}

static const char *host_of(const struct dp_kept_run *kept, int rank)
{
    for (int i = 0; i < kept->rank_count; i++) {
        if (kept->ranks[i].rank == rank) {
            return kept->ranks[i].host;
        }
    }
    return "?";
}

static void note_lost(struct dp_kept_run *kept, const struct dp_world_loss *loss, int size)
{
    kept->lost_before = kept->lost_count;
    for (int i = 0; i < loss->count && kept->lost_count < DP_WORLD_LOST_MOST; i++) {
        struct dp_run_lost_rank *lost = &kept->lost[kept->lost_count++];
        *lost = (struct dp_run_lost_rank){
            .rank = loss->ranks[i], .step = (int64_t)kept->step, .left = size};
        (void)snprintf(lost->host, sizeof(lost->host), "%s", host_of(kept, loss->ranks[i]));
    }
}

static double ms_between(uint64_t begin_ns, uint64_t end_ns)
{
    return (double)(end_ns - begin_ns) / 1e6;
}

bool dp_shrink_world(struct dp_world *world, struct dp_kept_run *kept)
{
    const struct dp_run_lost_rank *lost = kept->lost;
    const uint64_t begin_ns = dp_now_ns();
    uint64_t made_ns;
    struct dp_world_loss loss;

    if (!dp_world_shrink(world, kept->lanes, &loss)) {
        DP_WARN("leaves: train.lanes %d cannot be shared evenly by %d ranks", kept->lanes,
                loss.left);
        return false;
    }
    made_ns = dp_now_ns();
    if (share_newest(world->all, kept) != DP_OK) {
        dp_world_abort(world, dp_status_exit(DP_ERR_HUNG));
    }
    DP_DEBUG("going on: the run ended in %.1f ms, the world was made anew in %.1f ms, the newest "
             "state shared in %.1f ms",
             ms_between(kept->found_ns, begin_ns), ms_between(begin_ns, made_ns),
             ms_between(made_ns, dp_now_ns()));
    note_lost(kept, &loss, world->all->size);
    for (int i = kept->lost_before; world->all->rank == 0 && i < kept->lost_count; i++) {
        DP_WARN("rank %d (%s) has died: the others (%d) go on from memory, after step %llu",
                (int)lost[i].rank, lost[i].host, world->all->size, (unsigned long long)kept->step);
    }
    kept->options.out = kept->out[0] != '\0' ? kept->out : NULL;
    kept->options.resume = "auto";
    return true;
}

void dp_shrink_note_step(struct dp_kept_run *kept)
{
    dp_snapshot_destroy(kept->snapshot); /* the run has its own state again */
    kept->snapshot = NULL;
    for (int i = 0; i < kept->lost_count; i++) {
        if (kept->lost[i].away_ms == 0.0) {
            kept->lost[i].away_ms = ms_between(kept->found_ns, dp_now_ns());
        }
    }
}
