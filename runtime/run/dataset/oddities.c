#include "runtime/run/dataset/oddities.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/config/config_load.h"
#include "runtime/config/config_print.h"
#include "runtime/data/remote/place.h"
#include "runtime/data/sample_reader.h"

/* ---- rows ---- */

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

/* The least and the largest of the numbers in some rows. */
struct range {
    float least, most;
};

enum { LOOKED_AT = 16 }; /* rows: the first ones */

static void widen(struct range *range, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        range->least = x[i] < range->least ? x[i] : range->least;
        range->most = x[i] > range->most ? x[i] : range->most;
    }
}

static size_t rows_to_see(const struct dp_samples_info *info)
{
    return info->count[DP_SET_TRAIN] < LOOKED_AT ? info->count[DP_SET_TRAIN] : LOOKED_AT;
}

/* Bad samples are told of when they are needed, and not here. */
static dp_status look_at_files(struct dp_samples *samples, const struct dp_samples_info *info,
                               struct range *range)
{
    struct dp_sample_reader *reader = NULL;
    int32_t *label = dp_zalloc(dp_label_words(info), sizeof(*label));
    float *row = dp_zalloc(info->shape.count, sizeof(*row));
    dp_status status =
        row != NULL && label != NULL ? dp_sample_reader_create(samples, &reader) : DP_ERR_NOMEM;

    for (size_t i = 0; status == DP_OK && i < rows_to_see(info); i++) {
        status = dp_sample_reader_read(reader, DP_SET_TRAIN, i, row, label);
        widen(range, row, status == DP_OK ? info->shape.count : 0);
    }
    dp_sample_reader_destroy(reader);
    dp_free(label);
    dp_free(row);
    return status;
}

/* Of a server, shards would be copied for that. */
static void look(const struct dp_run_job *job, const struct dp_samples_info *info,
                 struct range *range)
{
    struct dp_samples *samples = job->data.samples;
    struct dp_log_capture capture;

    if (job->data.train_images != NULL) {
        widen(range, (const float *)(const void *)job->data.train_images,
              rows_to_see(info) * info->shape.count);
    } else if (samples != NULL && !dp_samples_absent(samples) &&
               !dp_place_is_remote(job->config->data.dir)) {
        dp_log_capture_begin(&capture, DP_LOG_DEBUG);
        (void)look_at_files(samples, info, range);
        dp_log_capture_end(&capture, DP_LOG_DROP);
    }
}

enum {
    PIXELS = 64, /* a picture has as many numbers, and more than a table of measurements has */
    DARK = 16,   /* of so many pictures one is brighter, where white is 255 */
    WHITE = 255
};

/* Numbers of pictures that were bytes, and that nothing brings to about 0 to 1, as bytes are. */
static void tell_raw_pixels(const struct dp_run_job *job, const struct dp_samples_info *info)
{
    struct range range = {0.0F, 0.0F};

    if (info->shape.element != DP_ELEMENT_FLOAT || info->shape.count < PIXELS ||
        job->config->data.normalize.mean.count > 0) {
        return;
    }
    look(job, info, &range);
    if (range.least >= 0.0F && range.most >= DARK && range.most <= WHITE) {
        DP_WARN("%s: float32 numbers from 0 to %.9g, which are taken as they are; are these "
                "pixels? To bring them to 0 to 1, as bytes are, set data.normalize: {mean: [0], "
                "std: [255]}",
                job->config->data.dir, (double)range.most);
    }
}

/* ---- keys ---- */

static bool reads(const struct dp_data_config *data, const char *source)
{
    return strcmp(data->source, source) == 0;
}

/* Keys that count together with others alone. Generated samples may stand for those of a server. */
static void tell_lonely_keys(const struct dp_config *config)
{
    if (config->data.shuffle != DP_SHUFFLE_WINDOW && !dp_config_is_default(config, "data.window")) {
        DP_WARN("data.window: has no effect without data.shuffle=window");
    }
    if (!dp_place_is_remote(config->data.dir) && !reads(&config->data, "synthetic") &&
        !dp_config_is_default(config, "data.remote_wait_s")) {
        DP_WARN("data.remote_wait_s: has no effect, since data.dir is not the address of a server");
    }
}

static bool is_of_flag(const struct dp_config *config, const char *key)
{
    char where[DP_PATH_BYTES];

    return strncmp(dp_config_where(config, key, where, sizeof(where)), "--", 2) == 0;
}

/* Whether a key of the configuration file was meant for a source that a flag has replaced, as with
 * the shipped models, which have synthetic samples. */
static bool is_of_other_source(const struct dp_config *config, const char *key)
{
    return is_of_flag(config, "data.source") && !is_of_flag(config, key);
}

/* Keys that are set, but not for this source. The label of lines counts for rows of numbers in any
 * files: ddp_predict takes lines. */
static void tell_idle_keys(const struct dp_config *config, bool split)
{
    const struct dp_data_config *data = &config->data;
    const char *count = data->samples > 0 ? "data.samples" : "data.test_samples";
    const bool pictures = reads(data, "folder") || reads(data, "cifar10") || reads(data, "idx") ||
                          reads(data, "fashion-mnist");

    if (reads(data, "synthetic")) {
        return; /* --synthetic stands for any */
    }
    if ((data->samples > 0 || data->test_samples > 0) && !is_of_other_source(config, count)) {
        DP_WARN("%s: has no effect with data.source %s, of which all samples are used; "
                "train.steps ends a run sooner",
                count, data->source);
    }
    if (data->label == DP_LABEL_LAST && pictures) {
        DP_WARN("data.label: has no effect with data.source %s, which has no lines", data->source);
    }
    if (data->test_fraction > 0.0 && !split) {
        DP_WARN("%s: has a test set, which is used: data.test_fraction has no effect", data->dir);
    }
}

/* Samples that are read where they lie, in random order: nearly each is of another shard than the
 * one before. */
static void tell_copied_again(const struct dp_run_job *job, const struct dp_samples_info *info)
{
    const struct dp_data_config *data = &job->config->data;
    const uint64_t most = (uint64_t)data->local_cache_mb << 20;
    const bool read = job->data.samples != NULL && job->raw_units.data == NULL;
    const bool anywhere = data->shuffle == DP_SHUFFLE_ON || data->shuffle == DP_SHUFFLE_FULL;

    if (read && anywhere && most > 0 && info->copied > most) {
        DP_WARN("data.local_cache_mb: %d MB do not hold copies of all shards of %s: read in random "
                "order, nearly every sample has a shard copied again: set at least %llu, or "
                "data.shuffle=window",
                data->local_cache_mb, data->dir, (unsigned long long)((info->copied >> 20) + 1));
    }
}

void dp_run_tell_oddities(const struct dp_run_job *job, const struct dp_samples_info *info)
{
    const struct dp_data_config *data = &job->config->data;
    const int outputs = (int)job->model->classes;

    tell_lonely_keys(job->config);
    tell_idle_keys(job->config, info->split);
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
    tell_raw_pixels(job, info);
    tell_copied_again(job, info);
    if (job->skipped_samples > 0) {
        DP_WARN("%s: %zu bad sample%s replaced by the next ones", data->dir, job->skipped_samples,
                job->skipped_samples == 1 ? " is" : "s are");
    }
}
