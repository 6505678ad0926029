/*
 * load_dataset.c - the data set into memory: every rank opens the source, so that mistakes are
 * found before anything is read; one rank of each node reads it. Files lie with each host, so what
 * is wrong may be wrong on some hosts only, and what they hold may differ: both end all ranks with
 * one line.
 */
#include "runtime/run/load_dataset.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/log.h"
#include "collectives/core/consistency.h"
#include "runtime/config/config_load.h"
#include "runtime/data/source.h"
#include "runtime/trainer/memory_check.h"

/* Of each set of images about as much is compared: all of a small set, rows spread evenly over a
 * large one, so that it costs no time that anybody notices. */
enum { SAMPLE_BYTES = 512 * 1024 };

/* Hashes of a node's copy. Its writer, which has the rows in its cache, makes them for all: another
 * rank would map every page first, which takes ten times as long. */
struct prints {
    uint64_t train_labels, test_labels, train_images, test_images;
};

/* A source that is open; `source` is NULL where it is not. */
struct opened {
    const struct dp_source *source;
    void *state; /* owned */
    struct dp_source_info info;
};

/* Where the four arrays lie in one piece of memory, behind the hashes. */
struct layout {
    size_t train_images, test_images, train_labels, test_labels, bytes;
};

static struct layout lay_out(const struct dp_source_info *info)
{
    struct layout l;

    l.train_labels = dp_round_up(sizeof(struct prints), DP_BLOCK);
    l.test_labels = l.train_labels + dp_round_up(info->train_count * sizeof(int32_t), DP_BLOCK);
    l.train_images = l.test_labels + dp_round_up(info->test_count * sizeof(int32_t), DP_BLOCK);
    l.test_images = l.train_images + dp_round_up(info->train_count * info->sample_bytes, DP_BLOCK);
    l.bytes = l.test_images + info->test_count * info->sample_bytes;
    return l;
}

static struct dp_source_config source_config(const struct dp_config *c,
                                             const struct dp_model *model)
{
    const struct dp_data_config *data = &c->data;
    const struct dp_shape *input = &c->model.input;
    const bool image = input->dims == 3;

    return (struct dp_source_config){
        .dir = data->dir,
        .sample_bytes = dp_shape_count(input),
        .height = image ? (int)input->dim[0] : 0,
        .width = image ? (int)input->dim[1] : 0,
        .channels = image ? (int)input->dim[2] : 0,
        .classes = (int)model->classes,
        .seed = (uint64_t)c->train.seed,
        .samples = (size_t)data->samples,
        .test_samples = (size_t)data->test_samples,
    };
}

static dp_status open_source(const struct dp_config *c, const struct dp_model *model,
                             struct opened *opened)
{
    const struct dp_source_config config = source_config(c, model);
    const struct dp_plugin *plugin = NULL;
    const struct dp_source *source;
    char problem[256], where[256];
    dp_status status = dp_plugin_create(&dp_sources, c->data.source, &plugin, &opened->state,
                                        problem, sizeof(problem));

    if (status != DP_OK) {
        return DP_FAIL(status, "%s: %s", dp_config_where(c, "data.source", where, sizeof(where)),
                       problem);
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

size_t dp_run_data_bytes(const struct dp_config *c, const struct dp_model *model,
                         size_t *train_count)
{
    struct opened opened = {.source = NULL};
    size_t bytes = 0;
    dp_status status;

    dp_log_mute(1);
    status = open_source(c, model, &opened);
    dp_log_mute(0);
    *train_count = 0;
    if (status == DP_OK) {
        *train_count = opened.info.train_count;
        bytes = lay_out(&opened.info).bytes;
    }
    close_source(&opened);
    return bytes;
}

static uint64_t hash_images(const uint8_t *images, size_t count, size_t sample_bytes)
{
    const size_t every = count * sample_bytes / SAMPLE_BYTES + 1;
    uint64_t hash = 0;

    for (size_t row = 0; row < count; row += every) {
        hash = XXH3_64bits_withSeed(images + row * sample_bytes, sample_bytes, hash);
    }
    return hash;
}

static struct prints take_prints(const struct dp_dataset *d)
{
    return (struct prints){
        .train_labels = XXH3_64bits(d->train_labels, d->train_count * sizeof(*d->train_labels)),
        .test_labels = XXH3_64bits(d->test_labels, d->test_count * sizeof(*d->test_labels)),
        .train_images = hash_images(d->train_images, d->train_count, d->sample_bytes),
        .test_images = hash_images(d->test_images, d->test_count, d->sample_bytes),
    };
}

static struct dp_consistency_item hash_claim(const char *field, uint64_t hash)
{
    return (struct dp_consistency_item){
        .field = field, .hash = hash, .remedy = "give all hosts the same data set"};
}

static struct dp_consistency_item count_claim(const char *field, size_t count)
{
    struct dp_consistency_item item = hash_claim(field, count);

    (void)snprintf(item.value, sizeof(item.value), "%zu", count);
    return item;
}

/* Before memory is made for them, which ranks of a node share. Collective. */
static dp_status compare_counts(const struct dp_training *run, const struct dp_source_info *info)
{
    const struct dp_consistency_item items[] = {
        count_claim("training rows", info->train_count),
        count_claim("test rows", info->test_count),
    };

    return dp_consistency_check(run->world->all, items, sizeof(items) / sizeof(items[0]));
}

/* Every node has all rows, whatever the source, and whether its ranks train or serve. Collective.
 */
static dp_status compare_rows(const struct dp_training *run)
{
    const struct prints *prints = run->data_memory.data;
    const struct dp_consistency_item items[] = {
        hash_claim("list of training labels", prints->train_labels),
        hash_claim("list of test labels", prints->test_labels),
        hash_claim("set of training images", prints->train_images),
        hash_claim("set of test images", prints->test_images),
    };

    return dp_consistency_check(run->world->all, items, sizeof(items) / sizeof(items[0]));
}

/* Whether hosts have what the whole run will take, of which the data set is the first. Collective.
 */
static dp_status check_memory(const struct dp_training *run, const struct dp_source_info *info)
{
    const struct dp_config *c = run->config;
    const struct dp_group *group = run->world->all;
    const struct dp_memory_plan plan = {
        .config = c,
        .model = run->model,
        .device = run->device,
        .trainers = group->size - c->comm.servers,
        .threads = run->threads,
        .slots = dp_memory_plan_slots(c->optimizer.name),
        .one_node = dp_group_one_node(group),
        .data_bytes = lay_out(info).bytes,
        .train_count = info->train_count,
        .cached_input = run->cli->cached_input,
        .saves =
            !run->cli->dry_run && !run->cli->data_only && strcmp(c->comm.strategy, "none") != 0,
    };

    /* What leaves nobody to train is refused by the trainer. */
    return plan.trainers < 1 ? DP_OK : dp_memory_check_hosts(&plan, run->world->all, "");
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
        *(struct prints *)base = take_prints(&run->data);
    }
    return dp_consistency_settle(run->world->all, status);
}

dp_status dp_run_load_data(struct dp_training *run)
{
    struct opened opened = {.source = NULL};
    dp_status status;

    dp_log_mute(1);
    status = open_source(run->config, run->model, &opened);
    dp_log_mute(0);
    status = dp_consistency_settle(run->world->all, status);
    status = status == DP_OK ? compare_counts(run, &opened.info) : status;
    status = status == DP_OK ? check_memory(run, &opened.info) : status;
    status = status == DP_OK ? load_rows(run, &opened) : status;
    close_source(&opened);
    return status == DP_OK ? compare_rows(run) : status;
}
