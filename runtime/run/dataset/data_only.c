#include "runtime/run/dataset/data_only.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/run/dataset/bad_data.h"

/* Batches that are not timed: threads start, and their number settles. At most a quarter. */
enum { LEFT_OUT = 32 };

/* After so many batches ranks tell each other whether some could not be read. */
enum { MEET_AFTER = 32 };

/* What a rank did in the time that counts. */
struct part {
    double seconds;
    uint64_t rows; /* of all ranks */
    struct dp_stage_times stages;
    int workers;
};

static const char *const stage_texts[] = {
#define X(name, text) text,
    DP_STAGES(X)
#undef X
};

/* So few that ranks need not meet meanwhile. All are taken, since ranks that read wait for whoever
 * takes none. */
static dp_status take_some(const struct dp_run_job *job, uint64_t count, uint64_t *rows)
{
    const struct dp_log_error *error;
    struct dp_log_error first = {.rank = 0};
    dp_status failure = DP_OK, status;

    for (uint64_t i = 0; i < count; i++) {
        dp_trainer_next_batch(job->trainer);
        status = dp_trainer_input_failure(job->trainer, &error);
        if (status != DP_OK && failure == DP_OK) {
            failure = status;
            first = *error;
        }
        *rows += dp_trainer_batch(job->trainer)->global_rows;
    }
    return dp_run_agree_input(job, failure, &first);
}

static dp_status take_batches(const struct dp_run_job *job, uint64_t count, uint64_t *rows)
{
    while (count > 0) {
        const uint64_t some = count < MEET_AFTER ? count : MEET_AFTER;
        DP_TRY(take_some(job, some, rows));
        count -= some;
    }
    return DP_OK;
}

static void subtract(struct dp_stage_times *stages, const struct dp_stage_times *before)
{
    for (int i = 0; i < DP_STAGE_COUNT; i++) {
        stages->ns[i] -= before->ns[i];
        stages->bytes[i] -= before->bytes[i];
    }
    stages->rows -= before->rows;
}

static dp_status measure(const struct dp_run_job *job, struct part *mine)
{
    const uint64_t quarter = job->total_steps / 4;
    const uint64_t first = quarter < LEFT_OUT ? quarter : LEFT_OUT;
    struct dp_loader_report before, after;
    uint64_t ignored = 0, begin_ns;

    memset(mine, 0, sizeof(*mine));
    DP_TRY(take_batches(job, first, &ignored));
    before = dp_trainer_input(job->trainer);
    begin_ns = dp_now_ns();
    DP_TRY(take_batches(job, job->total_steps - first, &mine->rows));
    mine->seconds = (double)(dp_now_ns() - begin_ns) / 1e9;
    after = dp_trainer_input(job->trainer);
    mine->stages = after.stages;
    subtract(&mine->stages, &before.stages);
    mine->workers = after.workers;
    return DP_OK;
}

static void show_stage(struct dp_progress *progress, const struct dp_stage_times *sum, int stage,
                       double all_ns)
{
    const double ns = (double)sum->ns[stage];
    char rate[DP_GROUPED_BYTES], speed[DP_GROUPED_BYTES];

    dp_progress_line(progress, "%-8s %9.1f %% %13.1f %13s %10s", stage_texts[stage],
                     100.0 * ns / all_ns, ns / 1e3 / (double)sum->rows,
                     dp_grouped(rate, (double)sum->rows * 1e9 / ns),
                     dp_grouped(speed, (double)sum->bytes[stage] / ns));
}

static void show_stages(struct dp_progress *progress, const struct dp_stage_times *sum)
{
    double all_ns = 0.0;
    int most = 0;

    for (int i = 0; i < DP_STAGE_COUNT; i++) {
        all_ns += (double)sum->ns[i];
        most = sum->ns[i] > sum->ns[most] ? i : most;
    }
    if (sum->rows == 0 || all_ns <= 0.0) {
        return; /* other ranks read */
    }
    dp_progress_line(progress, "%-8s %11s %13s %13s %10s", "stage", "of the time", "us a sample",
                     "samples/s", "GB/s");
    for (int i = 0; i < DP_STAGE_COUNT; i++) {
        if (sum->ns[i] > 0) {
            show_stage(progress, sum, i, all_ns);
        }
    }
    dp_progress_line(progress, "what limits: %s (rates are those of one thread)",
                     stage_texts[most]);
}

/* The slowest rank's time counts. */
static void show(const struct dp_run_job *job, struct dp_progress *progress,
                 const struct part *parts, int count)
{
    const struct dp_report_config *report = &job->config->report;
    struct part all = parts[0];
    const int readers = job->config->data.input_ranks;
    char rate[DP_GROUPED_BYTES], dollar[DP_GROUPED_BYTES];
    double price;

    if (dp_run_cached_input(job)) { /* a rate would be that of nothing */
        dp_progress_line(progress,
                         "input alone: %llu batch%s, each the first one, which is kept: no rate "
                         "(data.cache: batch, or --cached-input)",
                         (unsigned long long)job->total_steps, job->total_steps == 1 ? "" : "es");
        return;
    }
    for (int i = 1; i < count; i++) {
        all.seconds = parts[i].seconds > all.seconds ? parts[i].seconds : all.seconds;
        all.workers += parts[i].workers;
        dp_stage_times_add(&all.stages, &parts[i].stages);
    }
    const int shown = readers > 0 ? readers : all.workers; /* whose threads are not known here */
    dp_progress_line(progress, "input alone: %llu batch%s, %s samples/s over all ranks, %d %s%s",
                     (unsigned long long)job->total_steps, job->total_steps == 1 ? "" : "es",
                     dp_grouped(rate, (double)all.rows / all.seconds), shown,
                     readers > 0 ? "input rank" : "thread", dp_plural((uint64_t)shown));
    show_stages(progress, &all.stages);
    if (report->price_per_hour > 0.0) {
        price = report->price_per_hour *
                (report->price_per == DP_PRICE_PER_NODE ? job->world->all->nodes : count);
        dp_progress_line(progress, "%s samples per dollar",
                         dp_grouped(dollar, (double)all.rows / all.seconds * 3600.0 / price));
    }
}

dp_status dp_run_data_only(const struct dp_run_job *job, struct dp_progress *progress)
{
    const struct dp_group *group = dp_trainer_group(job->trainer);
    struct part mine, *parts = dp_zalloc((size_t)group->size, sizeof(*parts));
    dp_status status = parts == NULL ? DP_FAIL(DP_ERR_NOMEM, "figures of all ranks") : DP_OK;

    status = status == DP_OK ? measure(job, &mine) : status;
    if (status == DP_OK && parts != NULL) {
        status = dp_exchange_gather(dp_trainer_exchange(job->trainer), &mine, sizeof(mine), parts);
    }
    if (status == DP_OK && parts != NULL && dp_run_leads(job)) {
        show(job, progress, parts, group->size);
    }
    dp_free(parts);
    return status;
}
