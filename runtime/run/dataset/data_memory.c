#include "runtime/run/dataset/data_memory.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/core/consistency.h"
#include "collectives/gpu/gpu_peers.h"
#include "runtime/data/augment/augment.h"
#include "runtime/data/stream/raw_cache.h"
#include "runtime/report/resources/memory_use.h"
#include "runtime/run/run_model.h"
#include "runtime/trainer/prepare/memory_check.h"

enum { SHARED_BYTES = 64 << 20 /* of a rank, where data.memory_mb is 0 */ };

static bool on_one_node(const struct dp_group *group, int ranks)
{
    for (int i = 1; i < ranks; i++) {
        if (group->node_of[i] != group->node_of[0]) {
            return false;
        }
    }
    return true;
}

static struct dp_memory_plan plan_of(const struct dp_run_job *job, size_t train_count, size_t bytes)
{
    const struct dp_config *c = job->config;
    const struct dp_group *group = job->world->all;

    return (struct dp_memory_plan){
        .config = c,
        .model = job->model,
        .device = job->device,
        .trainers = job->world->roles.count[DP_ROLE_TRAIN],
        .threads = job->threads,
        .one_node = on_one_node(group, dp_roles_sharing(&job->world->roles)),
        .data_bytes = bytes,
        .train_count = train_count,
        .cached_input = dp_run_cached_input(job),
        .saves = dp_run_options_write(job->options) && strcmp(c->comm.strategy, "none") != 0,
    };
}

/* What this rank will take, of which its host has some only once. */
static int64_t predict_rank(const struct dp_run_job *job, const struct dp_memory_plan *plan)
{
    const struct dp_group *group = job->world->all;
    const size_t micro_batch = (size_t)job->config->train.micro_batch;
    const bool trains = group->rank < plan->trainers;
    struct dp_memory_ranks ranks = {
        .trainers = trains, .servers = !trains, .first = true, .leads = group->rank == 0};
    size_t bytes[DP_MEM_PURPOSE_COUNT];
    struct dp_memory_parts now;

    for (int i = 0; i < group->rank; i++) {
        ranks.first = ranks.first && group->node_of[i] != group->node_of[group->rank];
    }
    if (job->device->host_memory) {
        dp_memory_plan_host(plan, &ranks, micro_batch, bytes);
    } else {
        dp_memory_plan_device(plan, micro_batch, bytes);
    }
    dp_memory_parts_read(&now); /* libraries are loaded by now */
    return (int64_t)dp_memory_plan_sum(bytes) + (job->device->host_memory ? now.code : 0);
}

size_t dp_data_window_rows(const struct dp_config *c, size_t rows)
{
    const size_t window = (size_t)c->data.window, batch = (size_t)c->train.global_batch;
    size_t most = rows;

    if (c->data.shuffle == DP_SHUFFLE_WINDOW) {
        most = window + window / 4;
    } else if (c->data.shuffle == DP_SHUFFLE_OFF) {
        most = batch;
    }
    return most < rows ? most : rows;
}

size_t dp_data_shared_bytes(const struct dp_config *c, const struct dp_data_need *need, int readers)
{
    const size_t allowed = (size_t)c->data.memory_mb << 20;
    size_t most = c->data.shuffle == DP_SHUFFLE_WINDOW || c->data.shuffle == DP_SHUFFLE_OFF
                      ? SHARED_BYTES
                      : 0; /* of the whole set only what was allowed */

    if (allowed > 0) {
        most = allowed > need->bytes ? (allowed - need->bytes) / (size_t)readers : 0;
    }
    return need->window < most ? need->window : most;
}

int dp_data_readers_here(const struct dp_run_job *job)
{
    const struct dp_group *all = job->world->all;
    const struct dp_roles *roles = &job->world->roles;
    const enum dp_role role = roles->count[DP_ROLE_READ] > 0 ? DP_ROLE_READ : DP_ROLE_TRAIN;
    int count = 0;

    for (int i = 0; i < all->size; i++) {
        count += all->node_of[i] == all->node_of[all->rank] && dp_role_of(roles, i) == role;
    }
    return count > 0 ? count : 1;
}

/* A dp_recompute_fits: whether this rank keeps within report.memory_budget_mb, and its host or GPU
 * has as much free. */
static bool fits_here(const void *context, const struct dp_memory_plan *plan)
{
    const struct dp_run_job *job = context;
    const int64_t budget = (int64_t)job->config->report.memory_budget_mb << 20;
    const struct dp_gpu_peers *gpus = job->world->all->gpus;

    if (budget > 0 && predict_rank(job, plan) > budget) {
        return false;
    }
    if (job->device->room != NULL) {
        struct dp_memory_plan mine = *plan;
        struct dp_device_room room;
        mine.ranks_per_device = gpus != NULL ? gpus->here : 1;
        job->device->room(&room);
        return dp_memory_fits_device(&mine, &room);
    }
    return dp_memory_fits_host(plan, job->world->all, "");
}

/* model.recompute auto: as many parts as the rank needs that needs the most. Collective. */
static dp_status choose_parts(struct dp_run_job *job, const struct dp_memory_plan *plan)
{
    struct dp_group *all = job->world->all;
    int mine = 1, parts = 1, *each = dp_zalloc((size_t)all->size, sizeof(*each));
    dp_status status = each == NULL ? DP_FAIL(DP_ERR_NOMEM, "parts of %d ranks", all->size)
                                    : dp_recompute_choose(plan, job->model, fits_here, job);

    status = dp_group_agree(all, status);
    if (status == DP_OK && each != NULL) {
        mine = dp_model_parts(job->model);
        status = dp_group_allgather(all, &mine, sizeof(mine), each);
        for (int i = 0; i < all->size; i++) {
            parts = each[i] > parts ? each[i] : parts;
        }
    }
    dp_free(each);
    return status == DP_OK ? dp_model_cut(job->model, parts) : status;
}

static dp_status cut_model(struct dp_run_job *job, const struct dp_memory_plan *plan)
{
    const int asked = job->config->model.recompute;

    if (asked == DP_RECOMPUTE_OFF) {
        return DP_OK;
    }
    DP_TRY(asked == DP_RECOMPUTE_AUTO ? choose_parts(job, plan) : DP_OK);
    DP_TRY(dp_recompute_describe(plan, job->model, job->recompute));
    if (asked == DP_RECOMPUTE_AUTO && !fits_here(job, plan)) {
        const size_t used = strlen(job->recompute);
        (void)snprintf(job->recompute + used, sizeof(job->recompute) - used,
                       "; no number of parts fits");
    }
    return DP_OK;
}

dp_status dp_run_check_data_memory(struct dp_run_job *job, const struct dp_data_need *need)
{
    struct dp_memory_plan plan = plan_of(job, need->rows, need->bytes);

    if (plan.trainers < 1) {
        return DP_OK; /* the trainer refuses */
    }
    plan.read_tests = need->read_tests;
    plan.reader_bytes = need->reader;
    plan.shared_bytes = dp_data_shared_bytes(job->config, need, dp_data_readers_here(job));
    DP_TRY(cut_model(job, &plan));
    job->predicted_memory = predict_rank(job, &plan);
    return dp_memory_check_hosts(&plan, job->world->all, "");
}

/* ---- where samples are kept ---- */

static size_t allowed(const struct dp_run_job *job)
{
    return (size_t)job->config->data.memory_mb << 20;
}

/* On all hosts. Collective. */
static dp_status fits(const struct dp_run_job *job, size_t train_count, size_t bytes, bool *fits)
{
    const struct dp_memory_plan plan = plan_of(job, train_count, bytes);
    const bool here = plan.trainers < 1  ? true
                      : allowed(job) > 0 ? bytes <= allowed(job)
                                         : dp_memory_fits_host(&plan, job->world->all, "");
    const dp_status status = dp_group_agree(job->world->all, here ? DP_OK : DP_STOPPED);

    *fits = status == DP_OK;
    return status == DP_STOPPED ? DP_OK : status;
}

/* Sizes of all units, by all ranks of each node. Collective. */
static dp_status measure_units(struct dp_run_job *job, const struct dp_samples *samples,
                               size_t *bytes)
{
    const size_t units = dp_samples_absent(samples) ? 0 : dp_samples_info(samples)->units;
    struct dp_group *all = job->world->all;

    DP_TRY(
        dp_group_node_memory(all, DP_MEM_DATA, dp_raw_cache_index_bytes(units), &job->raw_index));
    DP_TRY(dp_group_agree(
        all, units > 0 ? dp_raw_cache_measure(samples, job->raw_index.data, job->threads) : DP_OK));
    if (job->raw_index.writer) {
        (void)dp_raw_cache_place(job->raw_index.data, units);
    }
    DP_TRY(dp_group_barrier(all));
    *bytes = dp_raw_cache_bytes(job->raw_index.data, units);
    return DP_OK;
}

/* Whether data.augment takes parts of pictures as they are: then they cannot be kept decoded. */
static dp_status takes_parts(const struct dp_run_job *job, const struct dp_samples_info *info,
                             bool *parts)
{
    struct dp_augment *augment = NULL;
    char problem[256];
    bool more;

    if (dp_augment_create(job->config->data.augment, &info->shape, 0, &augment, problem,
                          sizeof(problem)) != DP_OK) {
        return DP_FAIL(DP_ERR_CONFIG, "data.augment: %s", problem);
    }
    *parts = augment != NULL && info->any_order && info->resized &&
             dp_augment_takes_part(augment, &more);
    dp_augment_destroy(augment);
    return DP_OK;
}

/* What the source does not allow. */
static dp_status check_asked(const struct dp_run_job *job, const struct dp_samples_info *info,
                             size_t decoded, bool *parts)
{
    const struct dp_data_config *c = &job->config->data;

    DP_TRY(takes_parts(job, info, parts));
    if (c->cache == DP_CACHE_DECODED && *parts) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "data.cache: data.augment takes parts of pictures as they are in files, so "
                       "they cannot be decoded before: take raw, none or auto");
    }

    if ((c->cache == DP_CACHE_NONE || c->cache == DP_CACHE_RAW) && !info->any_order) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "data.cache: source %s is read from front to back only: take decoded, or "
                       "pack it first (ddp_data pack)",
                       c->source);
    }
    if (c->cache == DP_CACHE_RAW && info->units == 0) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "data.cache: samples of source %s have no files or blocks that raw could "
                       "keep: take none or decoded",
                       c->source);
    }
    if (c->cache == DP_CACHE_DECODED && allowed(job) > 0 && decoded > allowed(job)) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "data.memory_mb: decoded samples take %zu MiB: allow them, or set "
                       "data.cache to auto",
                       (decoded >> 20) + 1);
    }
    return DP_OK;
}

static dp_status choose(struct dp_run_job *job, const struct dp_samples *samples, size_t decoded,
                        bool parts, int *cache)
{
    const struct dp_samples_info *info = dp_samples_info(samples);
    const size_t rows = info->count[DP_SET_TRAIN];
    bool fit = true;
    size_t raw;

    *cache = DP_CACHE_DECODED;
    if (parts) {
        fit = false;
    } else if (info->any_order) {
        DP_TRY(fits(job, rows, decoded, &fit));
    }
    if (fit) {
        return DP_OK;
    }
    if (info->units > 0) {
        DP_TRY(measure_units(job, samples, &raw));
        DP_TRY(fits(job, rows, raw, &fit));
    }
    *cache = fit ? DP_CACHE_RAW : DP_CACHE_NONE;
    return DP_OK;
}

dp_status dp_run_choose_cache(struct dp_run_job *job, const struct dp_samples *samples,
                              size_t decoded, int *cache)
{
    const int asked = job->config->data.cache;
    struct dp_log_capture capture;
    bool parts = false;
    dp_status status;
    size_t raw;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = check_asked(job, dp_samples_info(samples), decoded, &parts);
    DP_TRY(dp_consistency_agree(job->world->all, status, &capture));
    if (asked == DP_CACHE_AUTO || asked == DP_CACHE_BATCH) {
        return choose(job, samples, decoded, parts, cache);
    }
    *cache = asked;
    return asked == DP_CACHE_RAW ? measure_units(job, samples, &raw) : DP_OK;
}
