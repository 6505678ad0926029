/*
 * load.c - the data set into memory: every rank opens the source, so that mistakes are found before
 * anything is read; one rank of each node reads it. Files lie with each host, so what is wrong may
 * be wrong on some hosts only: that ends all ranks with one line.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "runtime/data/source.h"
#include "runtime/run.h"

/* A source that is open; `source` is NULL where it is not. */
struct opened {
    const struct dp_source *source;
    void *state; /* owned */
    struct dp_source_info info;
};

/* Where the four arrays lie in one piece of memory. */
struct layout {
    size_t train_images, test_images, train_labels, test_labels, bytes;
};

static struct layout lay_out(const struct dp_source_info *info)
{
    struct layout l;

    l.train_labels = 0;
    l.test_labels = l.train_labels + dp_round_up(info->train_count * sizeof(int32_t), DP_BLOCK);
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

/* What `mine` comes to on all ranks: the status of the first rank that failed. It says why; all
 * were muted until now. Collective. */
static dp_status settle(struct dp_group *group, dp_status mine)
{
    int first = DP_OK;

    if (dp_group_agree(group, mine) == DP_OK) {
        return DP_OK;
    }
    for (int rank = 0; rank < group->size && first == DP_OK; rank++) {
        first = (int)mine;
        DP_TRY(dp_group_broadcast(group, &first, sizeof(first), rank));
        if (rank == group->rank && first != DP_OK) {
            dp_log_tell();
        }
    }
    DP_TRY(dp_group_barrier(group)); /* behind this it is told: a rank may then end the others */
    return (dp_status)first;
}

static dp_status open_source(const struct dp_training *run, struct opened *opened)
{
    const struct dp_source_config config = source_config(run);
    const struct dp_plugin *plugin = NULL;
    const struct dp_source *source;
    char problem[256], where[256];
    dp_status status = dp_plugin_create(&dp_sources, run->config->data.source, &plugin,
                                        &opened->state, problem, sizeof(problem));

    if (status != DP_OK) {
        return DP_FAIL(status, "%s: %s",
                       dp_config_where(run->config, "data.source", where, sizeof(where)), problem);
    }
    source = (const struct dp_source *)plugin;
    DP_TRY(source->open(opened->state, &config, &opened->info));
    opened->source = source;
    return DP_OK;
}

static void close_source(struct opened *opened)
{
    if (opened->source != NULL) {
        opened->source->close(opened->state);
    }
    dp_free(opened->state);
}

/* Memory for the open source's rows, filled in by the node's writer. */
static dp_status load_rows(struct dp_training *run, const struct opened *opened)
{
    const struct dp_source_info *info = &opened->info;
    const struct layout l = lay_out(info);
    dp_status status = DP_OK;
    char *base;

    DP_TRY(dp_group_node_memory(run->world->all, DP_MEM_DATA, l.bytes, &run->data_memory));
    base = run->data_memory.data;
    run->data = (struct dp_dataset){
        .train_images = (const uint8_t *)base + l.train_images,
        .test_images = (const uint8_t *)base + l.test_images,
        .train_labels = (const int32_t *)(base + l.train_labels),
        .test_labels = (const int32_t *)(base + l.test_labels),
        .train_count = info->train_count,
        .test_count = info->test_count,
        .sample_bytes = info->sample_bytes,
    };
    if (run->data_memory.writer) {
        dp_log_mute(1);
        status = opened->source->load(
            opened->state, (uint8_t *)base + l.train_images, (int32_t *)(base + l.train_labels),
            (uint8_t *)base + l.test_images, (int32_t *)(base + l.test_labels));
        dp_log_mute(0);
    }
    return settle(run->world->all, status);
}

dp_status dp_run_load_data(struct dp_training *run)
{
    struct opened opened = {.source = NULL};
    dp_status status;

    dp_log_mute(1);
    status = open_source(run, &opened);
    dp_log_mute(0);
    status = settle(run->world->all, status);
    status = status == DP_OK ? load_rows(run, &opened) : status;
    close_source(&opened);
    return status;
}
