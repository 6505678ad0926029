#include "runtime/run/dataset/bad_data.h"

#include "base/log.h"
#include "base/mem.h"
#include "collectives/exchange/exchange_calls.h"
#include "collectives/world/liveness.h"
#include "runtime/run/dataset/load_dataset.h"

dp_status dp_run_agree_input(const struct dp_run_job *job, dp_status mine,
                             const struct dp_log_error *error)
{
    struct dp_exchange *exchange = dp_trainer_exchange(job->trainer);
    const struct dp_group *group = dp_trainer_group(job->trainer);
    dp_status status, cause = DP_OK;
    dp_status *all = dp_zalloc((size_t)group->size, sizeof(*all));

    if (all == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "statuses of %d ranks", group->size);
    }
    status = dp_exchange_gather(exchange, &mine, sizeof(mine), all);
    for (int i = 0; status == DP_OK && i < group->size && cause == DP_OK; i++) {
        cause = all[i];
        if (cause != DP_OK && i == group->rank) {
            dp_log_error_of(error);
        }
    }
    if (status == DP_OK && cause != DP_OK) {
        status = dp_exchange_gather(exchange, &mine, sizeof(mine), all);
    }
    dp_free(all);
    return status != DP_OK ? status : cause;
}

/* How long the first rank may take to write a line on a busy machine. */
static const uint64_t write_ns = 2000000000;

static struct dp_one_speaker *speaker_of(const struct dp_world *world)
{
    return world->liveness != NULL ? dp_liveness_speaker(world->liveness) : NULL;
}

static bool begins(void *context)
{
    const struct dp_world *world = context;
    struct dp_one_speaker *one = speaker_of(world);

    return one == NULL || dp_one_speaker_begin(one, world->all->rank, write_ns);
}

static void ends(void *context)
{
    struct dp_one_speaker *one = speaker_of(context);

    if (one != NULL) {
        dp_one_speaker_end(one);
    }
}

struct dp_input_speaker dp_run_speaker(struct dp_run_job *job)
{
    return (struct dp_input_speaker){begins, ends, job->world};
}

static dp_status report_many(const struct dp_training *run, size_t count)
{
    const struct dp_trainer *t = run->job.trainer;
    const struct dp_group *group = dp_trainer_group(t);
    struct dp_log_capture capture;
    dp_status status, ended;
    char *all = dp_zalloc((size_t)group->size, 1), mine = 0;

    dp_log_capture_begin(dp_run_leads(&run->job) ? NULL : &capture, DP_LOG_ERROR);
    status = DP_FAIL(DP_ERR_DATA,
                     "%s: %zu of %zu samples are bad so far in this epoch: data.on_bad_sample skip "
                     "replaces at most 1 of %d: mend them, or take them out",
                     run->job.config->data.dir, count, run->job.data.train_count, DP_BAD_SHARE);
    dp_log_capture_end(dp_run_leads(&run->job) ? NULL : &capture, DP_LOG_DROP);
    ended = all != NULL ? dp_exchange_gather(dp_trainer_exchange(t), &mine, sizeof(mine), all)
                        : DP_ERR_NOMEM; /* rank 0 has reported before any of them leaves */
    dp_free(all);
    return ended == DP_OK ? status : ended;
}

dp_status dp_run_judge_data(struct dp_training *run, const struct dp_step_report *report)
{
    struct dp_run_job *job = &run->job;
    const uint64_t epoch = dp_trainer_batch(job->trainer)->epoch;
    const struct dp_log_error *error;
    const dp_status mine = dp_trainer_input_failure(job->trainer, &error);

    if (report->request[DP_REQUEST_INPUT]) {
        return dp_run_agree_input(job, mine, error);
    }
    if (report->bad_samples <= 0.0f) {
        return DP_OK;
    }
    if (run->bad_samples.epoch != epoch) {
        run->bad_samples.epoch = epoch;
        run->bad_samples.count = 0;
    }
    run->bad_samples.count += (size_t)report->bad_samples;
    if (run->bad_samples.count > job->skipped_samples) {
        job->skipped_samples = run->bad_samples.count;
    }
    return run->bad_samples.count * DP_BAD_SHARE > job->data.train_count
               ? report_many(run, run->bad_samples.count)
               : DP_OK;
}
