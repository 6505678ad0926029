#include "collectives/compressors/compression.h"

#include <string.h>

#include "collectives/strategies/strategy.h"

/* Finds the compressor of that name and makes a state with its options, which the caller owns;
 * NULL: no such compressor. */
static const struct dp_compressor *compressor_of(const char *text, void **state)
{
    const struct dp_plugin *plugin;
    char problem[256];

    *state = NULL;
    return dp_plugin_create(&dp_compressors, text, &plugin, state, problem, sizeof(problem)) ==
                   DP_OK
               ? (const struct dp_compressor *)plugin
               : NULL;
}

struct dp_compression_size dp_compression_measure(const char *compressor,
                                                  const struct dp_tensor *tensors, int tensor_count,
                                                  size_t trained)
{
    const struct dp_bucket all = {.tensors = tensors, .tensor_count = tensor_count};
    struct dp_compression_size size = {0, 0};
    void *state;
    const struct dp_compressor *c = compressor_of(compressor, &state);

    if (c != NULL) {
        size.residuals = c->residuals == NULL ? 0 : (size_t)c->residuals(state) * trained;
        size.warm = c->warm == NULL ? 0 : c->warm(state, &all);
    }
    dp_free(state);
    return size;
}

size_t dp_compression_codes(const char *compressor, const struct dp_bucket_plan *plan, int ranks)
{
    void *state;
    const struct dp_compressor *c = compressor_of(compressor, &state);
    const size_t bytes = c == NULL || c->codes == NULL ? 0 : c->codes(state, plan, ranks);

    dp_free(state);
    return bytes;
}

double dp_compression_cost(const char *compressor, const char *strategy, const struct dp_cost *cost,
                           const struct dp_group *group, const struct dp_bucket *bucket)
{
    double seconds;
    void *state;
    const struct dp_compressor *c = compressor_of(compressor, &state);

    if (c == NULL || c->cost == NULL || bucket->exact) {
        seconds = dp_strategy_cost(strategy, cost, group, bucket->range.count * sizeof(float));
    } else if (group->size == 1 || bucket->range.count == 0) {
        seconds = 0.0;
    } else {
        seconds = c->cost(state, cost, group, strategy, bucket);
    }
    dp_free(state);
    return seconds;
}

struct dp_coding_work dp_compression_work(const char *compressor, int ranks)
{
    struct dp_coding_work work = {1.0, 1.0};
    void *state;
    const struct dp_compressor *c = compressor_of(compressor, &state);

    if (c != NULL && c->work != NULL) {
        work = c->work(state, ranks);
    }
    dp_free(state);
    return work;
}

static dp_status find_compressor(struct dp_compression *compression,
                                 const struct dp_compression_config *config)
{
    const struct dp_plugin *plugin;
    char problem[256];
    const dp_status status = dp_plugin_create(&dp_compressors, config->compressor, &plugin,
                                              &compression->state, problem, sizeof(problem));

    if (status != DP_OK) {
        return DP_FAIL(status, "comm.compressor: %s", problem);
    }
    compression->compressor = (const struct dp_compressor *)plugin;
    if (compression->compressor->sum != NULL && compression->comm->strategy->sum == NULL) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "comm.compressor %s needs a strategy that shares gradients, not %s",
                       plugin->name, compression->comm->strategy->plugin.name);
    }
    return DP_OK;
}

static dp_status take_memory(struct dp_compression *compression)
{
    const struct dp_compressor *compressor = compression->compressor;
    size_t bytes = 0;

    for (int b = 0; b < compression->plan->count && compressor->warm != NULL; b++) {
        const struct dp_bucket *bucket = &compression->plan->buckets[b];
        compression->warm_count += bucket->exact ? 0 : compressor->warm(compression->state, bucket);
    }
    compression->residuals =
        compressor->residuals == NULL ? 0 : compressor->residuals(compression->state);
    compression->compressed =
        dp_zalloc((size_t)compression->plan->count, sizeof(*compression->compressed));
    compression->coding = dp_zalloc((size_t)compression->plan->count, sizeof(*compression->coding));
    bool whole = compression->compressed != NULL && compression->coding != NULL;
    for (int i = 0; i < compression->residuals; i++) {
        compression->residual[i] =
            compression->device->alloc(DP_MEM_RESIDUALS, compression->trained * sizeof(float));
        whole = whole && compression->residual[i] != NULL;
        bytes += compression->trained * sizeof(float);
    }
    if (compression->warm_count > 0) {
        compression->warm =
            compression->device->alloc(DP_MEM_RESIDUALS, compression->warm_count * sizeof(float));
        whole = whole && compression->warm != NULL;
        bytes += compression->warm_count * sizeof(float);
    }
    return whole ? DP_OK
                 : DP_FAIL(DP_ERR_NOMEM, "residuals of compressor %s need %zu MB",
                           compressor->plugin.name, bytes >> 20);
}

/* Allocates host copies of the device's arrays, for checkpoints. */
static dp_status host_memory(struct dp_compression *compression)
{
    struct dp_compression_array arrays[DP_COMPRESSION_ARRAYS];
    const int count =
        compression->device->host_memory ? 0 : dp_compression_arrays(compression, arrays);

    for (int i = 0; i < count; i++) {
        compression->host[i] =
            compression->device->alloc_host(DP_MEM_RESIDUALS, arrays[i].count * sizeof(float));
        if (compression->host[i] == NULL) {
            return DP_FAIL(DP_ERR_NOMEM, "residuals of compressor %s need %zu MB of the host, too",
                           compression->compressor->plugin.name,
                           arrays[i].count * sizeof(float) >> 20);
        }
    }
    return DP_OK;
}

/* Offset of a bucket's start vectors. They are in the order of tensors, which does not depend on
 * how the gradient is cut. */
static size_t warm_at(const struct dp_compression *compression, const struct dp_bucket *bucket)
{
    size_t at = 0;

    for (int b = 0; b < compression->plan->count && compression->compressor->warm != NULL; b++) {
        const struct dp_bucket *other = &compression->plan->buckets[b];
        if (!other->exact && other->range.begin < bucket->range.begin) {
            at += compression->compressor->warm(compression->state, other);
        }
    }
    return at;
}

static void fill_buckets(struct dp_compression *compression, float *grad,
                         const struct dp_compression_config *config)
{
    for (int b = 0; b < compression->plan->count; b++) {
        const struct dp_bucket *bucket = &compression->plan->buckets[b];
        if (bucket->exact) {
            continue;
        }
        compression->compressed[b] = (struct dp_compressed_bucket){
            .bucket = bucket,
            .grad = {grad + bucket->range.begin, bucket->range.count, sizeof(float)},
            .warm =
                compression->warm == NULL ? NULL : compression->warm + warm_at(compression, bucket),
            .step_params =
                bucket->deferred ? &compression->compressed[b].kept : config->step_params,
            .seed = config->seed,
            .coding = compression->device->host_memory ? &compression->coding[b] : NULL,
        };
        for (int i = 0; i < compression->residuals; i++) {
            compression->compressed[b].residual[i] = compression->residual[i] + bucket->range.begin;
        }
    }
}

static dp_status compression_open(struct dp_compression *compression, float *grad,
                                  const struct dp_compression_config *config)
{
    DP_TRY(find_compressor(compression, config));
    if (compression->compressor->sum == NULL || compression->comm->group->size == 1) {
        return DP_OK;
    }
    DP_TRY(take_memory(compression));
    DP_TRY(host_memory(compression));
    fill_buckets(compression, grad, config);
    DP_TRY(compression->compressor->open(compression->state, compression->comm, compression->plan));
    compression->open = true;
    return DP_OK;
}

dp_status dp_compression_create(struct dp_comm *comm, const struct dp_bucket_plan *plan,
                                float *grad, size_t trained,
                                const struct dp_compression_config *config,
                                struct dp_compression **out)
{
    struct dp_compression *compression;
    dp_status status;

    if (config->compressor == NULL) {
        return DP_OK;
    }
    compression = dp_zalloc(1, sizeof(*compression));
    if (compression == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "compression");
    }
    compression->comm = comm;
    compression->plan = plan;
    compression->step_params = config->step_params;
    compression->device = comm->codes->device;
    compression->trained = trained;
    status = compression_open(compression, grad, config);
    if (status != DP_OK || !compression->open) {
        dp_compression_destroy(compression);
        return status;
    }
    *out = compression;
    return DP_OK;
}

void dp_compression_destroy(struct dp_compression *compression)
{
    if (compression == NULL) {
        return;
    }
    if (compression->open) {
        compression->compressor->close(compression->state);
    }
    for (int i = 0; i < DP_COMPRESSION_ARRAYS; i++) {
        compression->device->release_host(compression->host[i]);
    }
    compression->device->release(compression->warm);
    compression->device->release(compression->residual[1]);
    compression->device->release(compression->residual[0]);
    dp_free(compression->compressed);
    dp_free(compression->coding);
    dp_free(compression->state);
    dp_free(compression);
}

void dp_compression_ready(struct dp_compression *compression, int b)
{
    if (compression != NULL && compression->plan->buckets[b].deferred) {
        compression->compressed[b].kept = *compression->step_params;
    }
}

dp_status dp_compression_sum(struct dp_compression *compression, int b, enum dp_keep keep)
{
    const struct dp_compressed_bucket *compressed = &compression->compressed[b];

    compression->coding[b] = (struct dp_coding_times){0, 0};
    return compressed->step_params->skip != 0
               ? DP_OK
               : compression->compressor->sum(compression->state, compressed, keep);
}

struct dp_coding_times dp_compression_coding(const struct dp_compression *compression, int b)
{
    return compression == NULL ? (struct dp_coding_times){0, 0} : compression->coding[b];
}

void dp_compression_wire(const struct dp_compression *compression, enum dp_keep keep,
                         uint64_t *with, uint64_t *without)
{
    *with = *without = 0;
    for (int b = 0; b < compression->plan->count; b++) {
        const struct dp_bucket *bucket = &compression->plan->buckets[b];
        if (!bucket->exact) {
            *with += compression->compressor->wire(compression->state, bucket, keep);
            *without += dp_compressor_plain_wire(compression->comm, bucket->range.count, keep);
        }
    }
}

static struct dp_compression_array array_of(const struct dp_compression *compression,
                                            const char *name, float *there, size_t count, int i)
{
    float *data = compression->device->host_memory ? there : compression->host[i];

    return (struct dp_compression_array){
        .name = name, .data = data, .there = there, .count = count};
}

int dp_compression_arrays(const struct dp_compression *compression,
                          struct dp_compression_array arrays[DP_COMPRESSION_ARRAYS])
{
    static const char *const names[] = {DP_COMPRESSION_NAME "residual.0",
                                        DP_COMPRESSION_NAME "residual.1"};
    int count = 0;

    for (int i = 0; compression != NULL && i < compression->residuals && i < 2; i++, count++) {
        arrays[count] =
            array_of(compression, names[i], compression->residual[i], compression->trained, count);
        arrays[count].owners = i == 1 && compression->compressor->owners;
    }
    if (compression != NULL && compression->warm != NULL) {
        arrays[count] = array_of(compression, DP_COMPRESSION_NAME "warm", compression->warm,
                                 compression->warm_count, count);
        arrays[count++].same = true;
    }
    return count;
}

dp_status dp_compression_fetch(const struct dp_compression *compression)
{
    struct dp_compression_array arrays[DP_COMPRESSION_ARRAYS];
    const int count = dp_compression_arrays(compression, arrays);

    for (int i = 0; i < count; i++) {
        DP_TRY(dp_device_read(compression->comm->codes, arrays[i].data, arrays[i].there,
                              arrays[i].count * sizeof(float)));
    }
    return DP_OK;
}

dp_status dp_compression_put(const struct dp_compression *compression)
{
    struct dp_compression_array arrays[DP_COMPRESSION_ARRAYS];
    const int count = dp_compression_arrays(compression, arrays);

    for (int i = 0; i < count; i++) {
        DP_TRY(dp_device_write(compression->comm->codes, arrays[i].there, arrays[i].data,
                               arrays[i].count * sizeof(float)));
    }
    return DP_OK;
}

dp_status dp_compression_forget(const struct dp_compression *compression)
{
    struct dp_compression_array arrays[DP_COMPRESSION_ARRAYS];
    const int count = dp_compression_arrays(compression, arrays);

    for (int i = 0; i < count; i++) {
        memset(arrays[i].data, 0, arrays[i].count * sizeof(float));
    }
    return count > 0 ? dp_compression_put(compression) : DP_OK;
}
