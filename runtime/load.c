/*
 * load.c - the data set into memory: every rank opens the source, so that mistakes are found by
 * all alike; one rank of each node reads it.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "runtime/data/source.h"
#include "runtime/run.h"

/* Where the four arrays lie in one piece of memory. */
struct layout {
    size_t train_images, test_images, train_labels, test_labels, bytes;
};

static struct layout lay_out(const struct dp_source_info *info)
{
    struct layout l;

    l.train_labels = 0;
    l.test_labels = dp_round_up(info->train_count * sizeof(int32_t), DP_BLOCK);
    l.train_images = l.test_labels + dp_round_up(info->test_count * sizeof(int32_t), DP_BLOCK);
    l.test_images = l.train_images + dp_round_up(info->train_count * info->sample_bytes, DP_BLOCK);
    l.bytes = l.test_images + info->test_count * info->sample_bytes;
    return l;
}

static struct dp_source_config source_config(const struct dp_training *run)
{
    const struct dp_data_config *data = &run->config->data;
    const struct dp_shape *input = &run->config->model.input;
    const bool image = input->dims == 3;

    return (struct dp_source_config){
        .dir = data->dir,
        .sample_bytes = dp_shape_count(input),
        .height = image ? (int)input->dim[0] : 0,
        .width = image ? (int)input->dim[1] : 0,
        .channels = image ? (int)input->dim[2] : 0,
        .classes = (int)run->model->classes,
        .seed = (uint64_t)run->config->train.seed,
        .samples = (size_t)data->samples,
        .test_samples = (size_t)data->test_samples,
    };
}

/* Memory for the open source's rows, filled in by the node's writer. */
static dp_status load_rows(struct dp_training *run, const struct dp_source *source, void *state,
                           const struct dp_source_info *info)
{
    const struct layout l = lay_out(info);
    dp_status status = DP_OK;
    char *base;

    DP_TRY(dp_group_node_memory(run->world->all, DP_MEM_DATA, l.bytes, &run->data_memory));
    base = run->data_memory.data;
    if (run->data_memory.writer) {
        status = source->load(state, (uint8_t *)base + l.train_images,
                              (int32_t *)(base + l.train_labels), (uint8_t *)base + l.test_images,
                              (int32_t *)(base + l.test_labels));
    }
    DP_TRY(dp_group_agree(run->world->all, status));
    run->data = (struct dp_dataset){
        .train_images = (const uint8_t *)base + l.train_images,
        .test_images = (const uint8_t *)base + l.test_images,
        .train_labels = (const int32_t *)(base + l.train_labels),
        .test_labels = (const int32_t *)(base + l.test_labels),
        .train_count = info->train_count,
        .test_count = info->test_count,
        .sample_bytes = info->sample_bytes,
    };
    return DP_OK;
}

dp_status dp_run_load_data(struct dp_training *run)
{
    const struct dp_source_config config = source_config(run);
    const struct dp_plugin *plugin = NULL;
    const struct dp_source *source;
    struct dp_source_info info;
    char problem[256], where[256];
    void *state = NULL;
    dp_status status;

    dp_log_mute(dp_run_leads(run) ? 0 : 1);
    status = dp_plugin_create(&dp_sources, run->config->data.source, &plugin, &state, problem,
                              sizeof(problem));
    if (status != DP_OK) {
        status =
            DP_FAIL(status, "%s: %s",
                    dp_config_where(run->config, "data.source", where, sizeof(where)), problem);
        dp_log_mute(0);
        return status;
    }
    source = (const struct dp_source *)plugin;
    status = source->open(state, &config, &info);
    dp_log_mute(0);
    status = dp_group_agree(run->world->all, status);
    if (status == DP_OK) {
        status = load_rows(run, source, state, &info);
        source->close(state);
    }
    dp_free(state);
    return status;
}
