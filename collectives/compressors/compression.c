#include "collectives/compressors/compression.h"

#include <string.h>

/* The compressor of that name, and a state to ask it with, owned; NULL: there is none. */
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

static dp_status find_compressor(struct dp_compression *p,
                                 const struct dp_compression_config *config)
{
    const struct dp_plugin *plugin;
    char problem[256];
    const dp_status status = dp_plugin_create(&dp_compressors, config->compressor, &plugin,
                                              &p->state, problem, sizeof(problem));

    if (status != DP_OK) {
        return DP_FAIL(status, "comm.compressor: %s", problem);
    }
    p->compressor = (const struct dp_compressor *)plugin;
    if (p->compressor->sum != NULL && p->comm->strategy->sum == NULL) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "comm.compressor %s needs a strategy that shares gradients, not %s",
                       plugin->name, p->comm->strategy->plugin.name);
    }
    return DP_OK;
}

static dp_status take_memory(struct dp_compression *p)
{
    const struct dp_compressor *compressor = p->compressor;
    size_t bytes = 0;

    for (int b = 0; b < p->plan->count && compressor->warm != NULL; b++) {
        const struct dp_bucket *bucket = &p->plan->buckets[b];
        p->warm_count += bucket->exact ? 0 : compressor->warm(p->state, bucket);
    }
    p->residuals = compressor->residuals == NULL ? 0 : compressor->residuals(p->state);
    p->compressed = dp_zalloc((size_t)p->plan->count, sizeof(*p->compressed));
    bool whole = p->compressed != NULL;
    for (int i = 0; i < p->residuals; i++) {
        p->residual[i] = p->device->alloc(DP_MEM_RESIDUALS, p->trained * sizeof(float));
        whole = whole && p->residual[i] != NULL;
        bytes += p->trained * sizeof(float);
    }
    if (p->warm_count > 0) {
        p->warm = p->device->alloc(DP_MEM_RESIDUALS, p->warm_count * sizeof(float));
        whole = whole && p->warm != NULL;
        bytes += p->warm_count * sizeof(float);
    }
    return whole ? DP_OK
                 : DP_FAIL(DP_ERR_NOMEM, "residuals of compressor %s need %zu MB",
                           compressor->plugin.name, bytes >> 20);
}

/* Copies of what was taken, for those who save it. */
static dp_status host_memory(struct dp_compression *p)
{
    struct dp_compression_array arrays[DP_COMPRESSION_ARRAYS];
    const int count = p->device->host_memory ? 0 : dp_compression_arrays(p, arrays);

    for (int i = 0; i < count; i++) {
        p->host[i] = p->device->alloc_host(DP_MEM_RESIDUALS, arrays[i].count * sizeof(float));
        if (p->host[i] == NULL) {
            return DP_FAIL(DP_ERR_NOMEM, "residuals of compressor %s need %zu MB of the host, too",
                           p->compressor->plugin.name, arrays[i].count * sizeof(float) >> 20);
        }
    }
    return DP_OK;
}

/* Where a bucket's start vectors begin: in the order of tensors, which stays where gradients are
 * cut otherwise. */
static size_t warm_at(const struct dp_compression *p, const struct dp_bucket *bucket)
{
    size_t at = 0;

    for (int b = 0; b < p->plan->count && p->compressor->warm != NULL; b++) {
        const struct dp_bucket *other = &p->plan->buckets[b];
        if (!other->exact && other->range.begin < bucket->range.begin) {
            at += p->compressor->warm(p->state, other);
        }
    }
    return at;
}

static void fill_buckets(struct dp_compression *p, float *grad,
                         const struct dp_compression_config *config)
{
    for (int b = 0; b < p->plan->count; b++) {
        const struct dp_bucket *bucket = &p->plan->buckets[b];
        if (bucket->exact) {
            continue;
        }
        p->compressed[b] = (struct dp_compressed_bucket){
            .bucket = bucket,
            .grad = {grad + bucket->range.begin, bucket->range.count, sizeof(float)},
            .warm = p->warm == NULL ? NULL : p->warm + warm_at(p, bucket),
            .step_params = bucket->deferred ? &p->compressed[b].kept : config->step_params,
            .seed = config->seed,
        };
        for (int i = 0; i < p->residuals; i++) {
            p->compressed[b].residual[i] = p->residual[i] + bucket->range.begin;
        }
    }
}

static dp_status compression_open(struct dp_compression *p, float *grad,
                                  const struct dp_compression_config *config)
{
    DP_TRY(find_compressor(p, config));
    if (p->compressor->sum == NULL || p->comm->group->size == 1) {
        return DP_OK;
    }
    DP_TRY(take_memory(p));
    DP_TRY(host_memory(p));
    fill_buckets(p, grad, config);
    DP_TRY(p->compressor->open(p->state, p->comm, p->plan));
    p->open = true;
    return DP_OK;
}

dp_status dp_compression_create(struct dp_comm *comm, const struct dp_bucket_plan *plan,
                                float *grad, size_t trained,
                                const struct dp_compression_config *config,
                                struct dp_compression **out)
{
    struct dp_compression *p;
    dp_status status;

    if (config->compressor == NULL) {
        return DP_OK;
    }
    p = dp_zalloc(1, sizeof(*p));
    if (p == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "compression");
    }
    p->comm = comm;
    p->plan = plan;
    p->step_params = config->step_params;
    p->device = comm->codes->device;
    p->trained = trained;
    status = compression_open(p, grad, config);
    if (status != DP_OK || !p->open) {
        dp_group_leave(comm->group, status);
        dp_compression_destroy(p);
        return status;
    }
    *out = p;
    return DP_OK;
}

void dp_compression_destroy(struct dp_compression *p)
{
    if (p == NULL) {
        return;
    }
    if (p->open) {
        p->compressor->close(p->state);
    }
    for (int i = 0; i < DP_COMPRESSION_ARRAYS; i++) {
        p->device->release_host(p->host[i]);
    }
    p->device->release(p->warm);
    p->device->release(p->residual[1]);
    p->device->release(p->residual[0]);
    dp_free(p->compressed);
    dp_free(p->state);
    dp_free(p);
}

void dp_compression_ready(struct dp_compression *p, int b)
{
    if (p != NULL && p->plan->buckets[b].deferred) {
        p->compressed[b].kept = *p->step_params;
    }
}

dp_status dp_compression_sum(struct dp_compression *p, int b, enum dp_keep keep)
{
    const struct dp_compressed_bucket *compressed = &p->compressed[b];

    return compressed->step_params->skip != 0 ? DP_OK
                                              : p->compressor->sum(p->state, compressed, keep);
}

void dp_compression_wire(const struct dp_compression *p, enum dp_keep keep, uint64_t *with,
                         uint64_t *without)
{
    *with = *without = 0;
    for (int b = 0; b < p->plan->count; b++) {
        const struct dp_bucket *bucket = &p->plan->buckets[b];
        if (!bucket->exact) {
            *with += p->compressor->wire(p->state, bucket, keep);
            *without += dp_compressor_plain_wire(p->comm, bucket->range.count, keep);
        }
    }
}

static struct dp_compression_array array_of(const struct dp_compression *p, const char *name,
                                            float *there, size_t count, int i)
{
    float *data = p->device->host_memory ? there : p->host[i];

    return (struct dp_compression_array){
        .name = name, .data = data, .there = there, .count = count};
}

int dp_compression_arrays(const struct dp_compression *p,
                          struct dp_compression_array arrays[DP_COMPRESSION_ARRAYS])
{
    static const char *const names[] = {DP_COMPRESSION_NAME "residual.0",
                                        DP_COMPRESSION_NAME "residual.1"};
    int count = 0;

    for (int i = 0; p != NULL && i < p->residuals && i < 2; i++, count++) {
        arrays[count] = array_of(p, names[i], p->residual[i], p->trained, count);
        arrays[count].owners = i == 1 && p->compressor->owners;
    }
    if (p != NULL && p->warm != NULL) {
        arrays[count] = array_of(p, DP_COMPRESSION_NAME "warm", p->warm, p->warm_count, count);
        arrays[count++].same = true;
    }
    return count;
}

dp_status dp_compression_fetch(const struct dp_compression *p)
{
    struct dp_compression_array arrays[DP_COMPRESSION_ARRAYS];
    const int count = dp_compression_arrays(p, arrays);

    for (int i = 0; i < count; i++) {
        DP_TRY(dp_device_read(p->comm->codes, arrays[i].data, arrays[i].there,
                              arrays[i].count * sizeof(float)));
    }
    return DP_OK;
}

dp_status dp_compression_put(const struct dp_compression *p)
{
    struct dp_compression_array arrays[DP_COMPRESSION_ARRAYS];
    const int count = dp_compression_arrays(p, arrays);

    for (int i = 0; i < count; i++) {
        DP_TRY(dp_device_write(p->comm->codes, arrays[i].there, arrays[i].data,
                               arrays[i].count * sizeof(float)));
    }
    return DP_OK;
}

dp_status dp_compression_forget(const struct dp_compression *p)
{
    struct dp_compression_array arrays[DP_COMPRESSION_ARRAYS];
    const int count = dp_compression_arrays(p, arrays);

    for (int i = 0; i < count; i++) {
        memset(arrays[i].data, 0, arrays[i].count * sizeof(float));
    }
    return count > 0 ? dp_compression_put(p) : DP_OK;
}
