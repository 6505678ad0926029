#include "runtime/run/hang_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/run/final_report.h"

/* Other ranks cannot be asked what they measured. */
static void describe_rank(const struct dp_run_job *job, int rank, struct dp_run_rank *out)
{
    const struct dp_rank_place *place = &job->places[rank];

    memset(out, 0, sizeof(*out));
    out->rank = rank;
    out->threads = place->threads;
    (void)snprintf(out->host, sizeof(out->host), "%s", place->host);
    (void)snprintf(out->cpus, sizeof(out->cpus), "%s", place->cpus);
    out->samples_per_second = out->scaling_efficiency = out->compute_efficiency = (double)NAN;
    out->hidden_comm_ms = (double)NAN;
    out->peak_rss_bytes = out->peak_device_bytes = -1;
    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        out->step_ms[i] = (double)NAN;
    }
}

/* On the thread of the failure detector. */
static void write_report(void *context, const char *cause)
{
    const struct dp_training *run = context;
    const struct dp_run_job *job = &run->job;
    const int count = dp_trainer_ranks(job->trainer);
    struct dp_run_rank *ranks = dp_zalloc((size_t)count, sizeof(*ranks));
    struct dp_run_summary summary;
    char path[DP_PATH_BYTES];

    for (int i = 0; ranks != NULL && i < count; i++) {
        describe_rank(job, i, &ranks[i]);
    }
    summary = dp_run_summarize(run, ranks, -1);
    summary.rank_count = ranks == NULL ? 0 : count;
    summary.exit = DP_RUN_HUNG;
    summary.reason = cause;
    if (dp_file_join(path, job->output.shared, "run.json") != DP_OK ||
        dp_run_summary_write(&summary, path) != DP_OK) {
        DP_DEBUG("run.json does not say that the run hung");
    } else if (job->config->report.html) {
        dp_report_write_page(job->output.shared);
    }
    dp_free(ranks);
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
