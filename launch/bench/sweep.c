/*
 * sweep.c - measures sizes from small to large, each shared in every way.
 *
 * For each row it creates a gradient of one tensor and one bucket, so that memory, sharding and
 * compressor are as in training on the device that `auto` chooses.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "launch/bench/bench.h"
#include "launch/bench/measure.h"

/* Compares exchanges: one for each row, as ranks have it in training. */
#include "collectives/exchange/exchange.h"
#include "collectives/exchange/exchange_probe.h"
#include "collectives/gpu/gpu_peers.h"
#include "runtime/run/place.h"
#include "runtime/run/setup.h"

/* The probe's messages need not be longer: beyond, curves are straight. */
enum { PROBE_BYTES = 16 << 20 };

/* One tensor of `count` elements, as near to a square as powers of two allow: some compressors use
 * rows and columns. */
static struct dp_tensor make_tensor(size_t count)
{
    struct dp_tensor tensor = {.name = "bench", .dims = 2, .count = count};
    size_t rows = 1;

    while (count % (2 * rows) == 0 && 4 * rows * rows <= count) {
        rows *= 2;
    }
    tensor.shape[0] = rows;
    tensor.shape[1] = tensor.channels = count / rows;
    tensor.spatial = 1;
    return tensor;
}

/* Measures where a device computes gradients: on a stream of its own, and with weights if ranks
 * publish them. */
static dp_status measure_there(struct dp_bench *bench, const struct dp_device *device,
                               struct dp_exchange *exchange, size_t count, struct dp_bench_row *row)
{
    const bool published = dp_exchange_probe_publishes(exchange);
    struct dp_stream *stream = NULL;
    void *weights = NULL;
    dp_status status = device->stream_create(device, 1, &stream);

    if (status == DP_OK && published) {
        weights = device->alloc(DP_MEM_WEIGHTS, count * sizeof(float));
        status = weights != NULL ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "weights of %zu elements", count);
    }
    if (status == DP_OK) {
        dp_exchange_follow(exchange, stream, weights);
        status = dp_bench_measure(exchange, 0, bench->options, NULL, row);
    } else {
        dp_group_leave(dp_exchange_group(exchange), status);
    }
    if (stream != NULL) {
        device->stream_destroy(stream);
    }
    device->release(weights);
    return status;
}

/* Measures one row. */
static dp_status measure_way(struct dp_bench *bench, size_t count, struct dp_bench_row *row)
{
    struct dp_group *group = bench->world->train;
    const struct dp_tensor tensor = make_tensor(count);
    struct dp_flat flat = {
        .tensors = &tensor,
        .tensor_count = 1,
        .trained = count,
        .total = dp_round_up(count, DP_BLOCK) + DP_BLOCK,
    };
    const struct dp_step_params step_params = {
        .per_sample = 1.0f, .loss_scale = 1.0f, .factor = 1.0f};
    struct dp_exchange_config config = {
        .strategy = row->strategy,
        .compressor = row->compressor,
        .device = bench->device,
        .step_params = &step_params,
        .bucket_bytes = count * sizeof(float),
        .first_bucket_bytes = count * sizeof(float),
        .run = DP_RUN_AT_WAIT,
        .threads = bench->run->job.threads,
    };
    struct dp_exchange *exchange = NULL;
    dp_status status;

    dp_bench_try_begin(group);
    status = dp_exchange_create(group, &config, &flat, &exchange);
    dp_bench_try_end(group, status);
    DP_TRY(status);
    status = bench->device->host_memory
                 ? dp_bench_measure(exchange, 0, bench->options,
                                    dp_bench_plain(row->compressor) ? &bench->cost : NULL, row)
                 : measure_there(bench, bench->device, exchange, count, row);
    dp_exchange_destroy(exchange);
    return status;
}

/* Between nodes: the time on the wire of one message with the least bytes that each node must send
 * and receive. */
static double wire_bound(const struct dp_bench *bench, size_t bytes)
{
    const double nodes = bench->world->train->nodes;
    const double least = 2.0 * (nodes - 1.0) / nodes * (double)bytes;

    return 1e6 * dp_curve_at(&bench->cost.exchange[DP_LINK_WIRE], least);
}

static dp_status find_bound(struct dp_bench *bench, size_t bytes, struct dp_bench_row *row)
{
    struct dp_group *group = bench->world->train;
    const struct dp_device *device;
    dp_status status;

    if (!bench->device->host_memory) {
        return DP_OK;
    }
    if (group->nodes > 1) {
        row->bound = "wire";
        row->bound_us = wire_bound(bench, bytes);
        return DP_OK;
    }
    if (!bench->options->bound) {
        return DP_OK;
    }
    DP_TRY(dp_device_find("cpu", &device));
    DP_TRY(device->stream_create(device, bench->run->job.threads, &group->stream));
    status = dp_bench_bound(group, bytes, bench->options, &row->bound_us);
    device->stream_destroy(group->stream);
    group->stream = NULL;
    return status;
}

/* Measures all compressors over one strategy. What cannot run is left out from then on, since
 * larger sizes need no less. */
static dp_status sweep_strategy(struct dp_bench *bench, const char *strategy, bool *usable,
                                size_t count, const struct dp_bench_row *bounds)
{
    for (int c = 0; c < bench->compressors.count; c++) {
        const char *compressor = bench->compressors.at[c];
        struct dp_bench_row row;
        if (!usable[c]) {
            continue;
        }
        dp_bench_row_init(&row);
        row.strategy = strategy;
        row.compressor = compressor;
        row.bound = bounds->bound;
        row.bound_us = bounds->bound_us;
        const dp_status status = measure_way(bench, count, &row);
        if (status == DP_OK) {
            DP_TRY(dp_bench_rows_add(&bench->rows, &row));
        } else if (!dp_bench_skips(bench, strategy, compressor, status)) {
            return status;
        } else {
            usable[c] = false;
        }
    }
    return DP_OK;
}

static int ranks_beside(const struct dp_group *group, int rank)
{
    int count = 0;

    for (int i = 0; i < group->size; i++) {
        count += group->node_of[i] == group->node_of[rank];
    }
    return count;
}

/* The gradients of all ranks of a host, which are the least that a size needs, must fit into its
 * memory, which rank 0 knows. */
static dp_status check_hosts(const struct dp_bench *bench, size_t bytes)
{
    const struct dp_group *group = bench->world->all;

    for (int i = 0; i < group->size; i++) {
        const struct dp_rank_place *place = &bench->run->job.places[i];
        const int ranks = ranks_beside(group, i);
        if (place->memory == 0 || bytes <= place->memory / (size_t)ranks) {
            continue;
        }
        return DP_FAIL(DP_ERR_UNAVAILABLE,
                       "a size of %zu MB has no room on %s, whose memory of %zu MB %d rank%s would "
                       "have to share; end at a smaller one with -e",
                       bytes >> 20, place->host, place->memory >> 20, ranks,
                       dp_plural((uint64_t)ranks));
    }
    return DP_OK;
}

/* Before any rank allocates. */
static dp_status check_memory(const struct dp_bench *bench, size_t bytes)
{
    const bool decides = bench->device->host_memory && bench->world->all->rank == 0;

    return dp_group_agree(bench->world->all, decides ? check_hosts(bench, bytes) : DP_OK);
}

static dp_status sweep_size(struct dp_bench *bench, bool *usable, size_t bytes)
{
    const size_t count = bytes / sizeof(float);
    struct dp_bench_row bounds;

    dp_bench_row_init(&bounds);
    DP_TRY(check_memory(bench, count * sizeof(float)));
    DP_TRY(find_bound(bench, count * sizeof(float), &bounds));
    for (int s = 0; s < bench->strategies.count; s++) {
        DP_TRY(sweep_strategy(bench, bench->strategies.at[s],
                              usable + (size_t)s * (size_t)bench->compressors.count, count,
                              &bounds));
    }
    return DP_OK;
}

/* usable [strategies * compressors]: which ways have not failed so far. */
static dp_status find_usable(struct dp_bench *bench, bool *usable)
{
    for (int s = 0; s < bench->strategies.count; s++) {
        bool runs = false;
        DP_TRY(dp_bench_usable(bench, bench->world->train, bench->strategies.at[s], &runs));
        for (int c = 0; c < bench->compressors.count; c++) {
            *usable++ = runs;
        }
    }
    return DP_OK;
}

static bool any(const bool *usable, size_t ways)
{
    for (size_t i = 0; i < ways; i++) {
        if (usable[i]) {
            return true;
        }
    }
    return false;
}

static dp_status sweep_sizes(struct dp_bench *bench, bool *usable, size_t ways)
{
    const struct dp_bench_options *o = bench->options;

    DP_TRY(find_usable(bench, usable));
    if (!any(usable, ways)) {
        return DP_OK;
    }
    DP_TRY(dp_bench_probe(bench, bench->world->train,
                          o->max_bytes < PROBE_BYTES ? o->max_bytes : PROBE_BYTES));
    for (size_t bytes = o->min_bytes; bytes <= o->max_bytes && any(usable, ways);
         bytes *= (size_t)o->factor) {
        DP_TRY(sweep_size(bench, usable, bytes));
    }
    return DP_OK;
}

dp_status dp_bench_sweep(struct dp_bench *bench)
{
    const size_t ways = (size_t)bench->strategies.count * (size_t)bench->compressors.count;
    bool *usable;
    dp_status status;

    DP_TRY(dp_run_place(&bench->run->job));
    if (!bench->device->host_memory) {
        DP_TRY(dp_gpu_peers_create(bench->world->train, bench->device));
    }
    if (bench->options->bound && !bench->device->host_memory) {
        dp_bench_rows_note(&bench->rows,
                           "no bound: device %s has the gradients, and no copy of the "
                           "host bounds that",
                           bench->device->plugin.name);
    }
    usable = dp_zalloc(ways, sizeof(*usable));
    if (usable == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%zu ways to share", ways);
    }
    status = sweep_sizes(bench, usable, ways);
    dp_free(usable);
    return status;
}
