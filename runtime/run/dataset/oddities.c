#include "runtime/run/dataset/oddities.h"

#include <string.h>

#include "base/log.h"

/* Whether rows that are in memory have one class only, of those that the model tells apart. */
static bool has_one_class(const struct dp_run_job *job, const struct dp_samples_info *info)
{
    const int32_t *labels = job->data.train_labels;
    size_t same = 0;

    while (labels != NULL && same < job->data.train_count && labels[same] == labels[0]) {
        same++;
    }
    return labels != NULL && info->targets == 0 && job->model->classes > 1 && info->classes != 1 &&
           same == job->data.train_count;
}

static bool reads(const struct dp_data_config *data, const char *source)
{
    return strcmp(data->source, source) == 0;
}

/* Keys that are set, but not for this source. The label of lines counts for rows of numbers in any
 * files: ddp_predict takes lines. */
static void tell_idle_keys(const struct dp_data_config *data, bool split)
{
    const bool pictures = reads(data, "folder") || reads(data, "cifar10") || reads(data, "idx") ||
                          reads(data, "fashion-mnist");

    if (reads(data, "synthetic")) {
        return; /* --synthetic stands for any */
    }
    if (data->samples > 0 || data->test_samples > 0) {
        DP_WARN("data.%s: has no effect with data.source %s, of which all samples are used; "
                "train.steps ends a run sooner",
                data->samples > 0 ? "samples" : "test_samples", data->source);
    }
    if (data->label == DP_LABEL_LAST && pictures) {
        DP_WARN("data.label: has no effect with data.source %s, which has no lines", data->source);
    }
    if (data->test_fraction > 0.0 && !split) {
        DP_WARN("%s: has a test set, which is used: data.test_fraction has no effect", data->dir);
    }
}

void dp_run_tell_oddities(const struct dp_run_job *job, const struct dp_samples_info *info)
{
    const struct dp_data_config *data = &job->config->data;
    const int outputs = (int)job->model->classes;

    tell_idle_keys(data, info->split);
    if (info->note[0] != '\0') {
        DP_WARN("%s: %s", data->dir, info->note);
    }
    if (info->classes > 0 && info->classes < outputs) {
        DP_WARN("%s: the model has %d outputs for %d class%s: some of them are never right",
                data->dir, outputs, info->classes, info->classes == 1 ? "" : "es");
    }
    if (has_one_class(job, info)) {
        DP_WARN("%s: all training rows have class %d: there is nothing to learn; are these the "
                "labels?",
                data->dir, (int)job->data.train_labels[0]);
    }
    if (job->skipped_samples > 0) {
        DP_WARN("%s: %zu bad sample%s replaced by the next ones", data->dir, job->skipped_samples,
                job->skipped_samples == 1 ? " is" : "s are");
    }
}
