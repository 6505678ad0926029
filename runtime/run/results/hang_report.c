#include "runtime/run/results/hang_report.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "collectives/exchange/exchange_calls.h"
#include "collectives/world/host_names.h"
#include "runtime/report/summary_read.h"
#include "runtime/run/results/final_report.h"
#include "runtime/run/results/way_on.h"

/* Whether this rank sees the folder of the run: other hosts may have another one of that name. */
static bool has_folder(const struct dp_training *run)
{
    const struct dp_group *all = run->job.world->all;

    return run->job.output.shared[0] != '\0' && all->node_of[all->rank] == all->node_of[0];
}

/* Other ranks cannot be asked what they measured. */
static void describe_rank(const struct dp_run_job *job, int rank, struct dp_run_rank *out)
{
    const struct dp_rank_place *place = job->places != NULL               ? &job->places[rank]
                                        : rank == job->world->train->rank ? &job->place
                                                                          : NULL;

    out->rank = rank;
    (void)snprintf(out->host, sizeof(out->host), "%s", dp_host_names_of(job->world->hosts, rank));
    if (place != NULL) {
        out->threads = place->threads;
        (void)snprintf(out->cpus, sizeof(out->cpus), "%s", place->cpus);
    }
}

/* run.json. */
static void write_end(const struct dp_training *run, enum dp_run_exit exit, const char *cause)
{
    const struct dp_run_job *job = &run->job;
    const int count = dp_trainer_ranks(job->trainer);
    struct dp_run_summary summary = dp_run_summarize(run, -1);
    char path[DP_PATH_BYTES];

    summary.exit = exit;
    summary.reason = cause;
    if (dp_run_summary_resize(&summary, DP_TABLE_RANKS, count) != DP_OK) {
        DP_DEBUG("run.json has no ranks");
    }
    for (int i = 0; i < summary.rank_count; i++) {
        describe_rank(job, i, &summary.ranks[i]);
    }
    if (dp_file_join(path, job->output.shared, "run.json") != DP_OK ||
        dp_run_summary_write(&summary, path) != DP_OK) {
        DP_DEBUG("run.json does not say how the run ended");
    }
    dp_run_summary_release(&summary);
}

static void write_reports(const struct dp_run_job *job)
{
    dp_report_write_now(job->output.shared, job->config->report.html,
                        job->config->report.prometheus);
}

/* These two are called on the thread of the failure detector. */

static void report_hang(void *context, const char *cause)
{
    struct dp_training *run = context;

    dp_figures_flush(&run->figures);
    write_end(run, DP_RUN_HUNG, cause);
    write_reports(&run->job);
}

/* mpirun ends this rank soon, so what matters most comes first. */
static void report_loss(void *context, const char *cause)
{
    struct dp_training *run = context;

    dp_figures_flush(&run->figures);
    if (has_folder(run)) {
        write_end(run, DP_RUN_ERROR, cause);
    }
    dp_run_tell_way_on(&run->job, cause);
    if (has_folder(run)) {
        write_reports(&run->job);
    }
}

dp_status dp_run_watch_hang(struct dp_training *run)
{
    struct dp_run_job *job = &run->job;

    memcpy(job->output.shared, job->output.path, sizeof(job->output.shared));
    DP_TRY(dp_exchange_broadcast(dp_trainer_exchange(job->trainer), job->output.shared,
                                 sizeof(job->output.shared), 0));
    if (has_folder(run)) {
        dp_world_on_hang(job->world, report_hang, run);
    }
    if (job->output.shared[0] != '\0') {
        dp_world_on_loss(job->world, report_loss, run);
    }
    return DP_OK;
}
