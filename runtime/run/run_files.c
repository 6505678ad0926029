#include "runtime/run/run_files.h"

#include "base/files/disk.h"
#include "runtime/run/plan/run_plan.h"
#include "runtime/run/roles/evaluation.h"

bool dp_run_writes_reports(const struct dp_run_job *job)
{
    const struct dp_report_config *report = &job->config->report;

    return report->html || report->tensorboard || report->prometheus[0] != '\0';
}

static dp_status start_reports(const struct dp_run_job *job, struct dp_report_writer **out)
{
    const struct dp_report_config *report = &job->config->report;
    const struct dp_report_writer_config config = {.folder = job->output.path,
                                                   .html = report->html,
                                                   .tensorboard = report->tensorboard,
                                                   .prometheus = report->prometheus};

    return dp_report_writer_create(&config, out);
}

/* Of the evaluation after the last step of a checkpoint, that is made once more: the line about it
 * goes, if the evaluation was not known when the checkpoint was written. */
static int64_t evaluated_until(const struct dp_run_job *job, uint64_t evaluated_at)
{
    const uint64_t step = job->resume.step;

    return (int64_t)(dp_evaluation_scheduled(job, step) ? evaluated_at : step);
}

static dp_status open_files(const struct dp_run_job *job, uint64_t evaluated_at,
                            struct dp_figures *figures)
{
    char path[DP_PATH_BYTES];

    DP_TRY(dp_run_write_config(job));
    DP_TRY(dp_file_join(path, job->output.path, "run.json"));
    (void)dp_disk_unlink(path); /* it is of the run before */
    DP_TRY(dp_file_join(path, job->output.path, "metrics.jsonl"));
    if (job->resume.continues) {
        DP_TRY(
            dp_metrics_trim(path, (int64_t)job->resume.step, evaluated_until(job, evaluated_at)));
    }
    DP_TRY(dp_metrics_open(&figures->metrics, path, job->resume.continues));
    figures->metrics_open = true;
    /* A run that goes on without a rank that dies has all lines, also of that rank. */
    figures->metrics.at_once = dp_config_shrinks(job->config);
    return dp_run_writes_reports(job) ? start_reports(job, &figures->reports) : DP_OK;
}

dp_status dp_run_begin_files(const struct dp_run_job *job, uint64_t evaluated_at,
                             struct dp_figures *figures)
{
    const dp_status status = open_files(job, evaluated_at, figures);
    char path[DP_PATH_BYTES];

    if (status != DP_OK && !job->resume.continues &&
        dp_file_join(path, job->output.path, "config.yaml") == DP_OK) {
        (void)dp_disk_unlink(path);
    }
    return status;
}
