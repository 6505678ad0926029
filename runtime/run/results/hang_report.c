#include "runtime/run/results/hang_report.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/report/summary_read.h"
#include "runtime/run/results/final_report.h"

/* Other ranks cannot be asked what they measured. */
static void describe_rank(const struct dp_run_job *job, int rank, struct dp_run_rank *out)
{
    const struct dp_rank_place *place = &job->places[rank];

    out->rank = rank;
    out->threads = place->threads;
    (void)snprintf(out->host, sizeof(out->host), "%s", place->host);
    (void)snprintf(out->cpus, sizeof(out->cpus), "%s", place->cpus);
}

/* On the thread of the failure detector. */
static void write_report(void *context, const char *cause)
{
    const struct dp_training *run = context;
    const struct dp_run_job *job = &run->job;
    const int count = dp_trainer_ranks(job->trainer);
    struct dp_run_summary summary = dp_run_summarize(run, -1);
    char path[DP_PATH_BYTES];

    summary.exit = DP_RUN_HUNG;
    summary.reason = cause;
    if (dp_run_summary_resize(&summary, DP_TABLE_RANKS, count) != DP_OK) {
        DP_DEBUG("run.json has no ranks");
    }
    for (int i = 0; i < summary.rank_count; i++) {
        describe_rank(job, i, &summary.ranks[i]);
    }
    if (dp_file_join(path, job->output.shared, "run.json") != DP_OK ||
        dp_run_summary_write(&summary, path) != DP_OK) {
        DP_DEBUG("run.json does not say that the run hung");
    } else if (job->config->report.html) {
        dp_report_write_page(job->output.shared);
    }
    dp_run_summary_release(&summary);
}

dp_status dp_run_watch_hang(struct dp_training *run)
{
    struct dp_run_job *job = &run->job;
    const struct dp_group *all = job->world->all;

    memcpy(job->output.shared, job->output.path, sizeof(job->output.shared));
    DP_TRY(dp_exchange_broadcast(dp_trainer_exchange(job->trainer), job->output.shared,
                                 sizeof(job->output.shared), 0));
    /* Other hosts may have another folder of that name. */
    if (job->output.shared[0] != '\0' && all->node_of[all->rank] == all->node_of[0]) {
        dp_world_on_hang(job->world, write_report, run);
    }
    return DP_OK;
}
