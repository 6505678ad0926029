#include "runtime/run/run_trace.h"

#include "base/log.h"
#include "collectives/world/host_names.h"
#include "runtime/data/rows.h"
#include "runtime/trainer/compute/micro_batch.h"

static const char *host_of(const void *job, int rank)
{
    return dp_host_names_of(((const struct dp_run_job *)job)->world->hosts, rank);
}

/* How often this rank computes a layer forward in a step, at most. */
static size_t layers_of_step(const struct dp_run_job *job)
{
    const struct dp_train_config *train = &job->config->train;
    const size_t lanes = train->lanes > 0 ? (size_t)train->lanes : 1;
    const size_t rows = dp_most_rows((size_t)train->global_batch,
                                     dp_exchange_group(dp_trainer_exchange(job->trainer))->size);
    const size_t passes = dp_micro_batch_count(rows, (size_t)train->micro_batch);

    return (size_t)job->model->node_count * (passes > lanes ? passes : lanes);
}

dp_status dp_run_trace_open(struct dp_training *run)
{
    const struct dp_run_job *job = &run->job;
    const struct dp_trace_request *request = &job->options->trace;
    const struct dp_tracing_config config = {
        .name = job->config->name,
        .version = DP_VERSION,
        .folder = job->output.path,
        .host_of = host_of,
        .context = job,
        .done = job->resume.step,
        .total = job->total_steps,
        .stream = dp_trainer_stream(job->trainer),
        .layers = layers_of_step(job),
    };

    if (!request->on) {
        return DP_OK;
    }
    if (job->async != NULL) {
        return dp_run_leads(job)
                   ? DP_FAIL(DP_ERR_USAGE, "--trace: ranks of asynchronous training (train.mode "
                                           "async) have no steps in common")
                   : DP_ERR_USAGE;
    }
    /* A job that is started again with the same flags, or has lost a rank, goes on. */
    if (dp_trace_request_passed(request, config.done, config.total)) {
        if (dp_run_leads(job)) {
            DP_WARN("--trace: nothing is traced: the first %llu steps are done",
                    (unsigned long long)config.done);
        }
        return DP_OK;
    }
    return dp_tracing_create(request, &config, dp_trainer_exchange(job->trainer), &run->tracing);
}

void dp_run_trace_before(const struct dp_training *run)
{
    if (run->tracing != NULL) {
        dp_tracing_before(run->tracing, dp_trainer_steps(run->job.trainer) + 1);
    }
}

void dp_run_trace_after(const struct dp_training *run, const struct dp_step_result *result)
{
    if (run->tracing != NULL) {
        dp_tracing_after(run->tracing, result->step,
                         (double)result->rows * 1e9 / (double)run->figures.ledger.last_ns);
    }
}

void dp_run_trace_pause(const struct dp_training *run, bool pauses)
{
    if (run->tracing != NULL) {
        dp_tracing_pause(run->tracing, pauses);
    }
}

dp_status dp_run_trace_write(struct dp_training *run, bool ends)
{
    dp_status status;

    if (run->tracing == NULL || !dp_tracing_due(run->tracing, ends)) {
        return DP_OK;
    }
    DP_TRY(dp_figures_mark_clock(&run->figures, &run->job));
    status = dp_tracing_write(run->tracing, &run->figures.clock);
    run->trace_failed = status == DP_ERR_WRITE;
    if (status == DP_OK && dp_run_leads(&run->job)) {
        dp_progress_line(&run->figures.progress, "trace: %s", dp_tracing_path(run->tracing));
    }
    dp_figures_restart(&run->figures, &run->job);
    return run->trace_failed ? DP_OK : status;
}
