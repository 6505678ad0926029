#include "runtime/trainer/prepare/memory_check.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/core/consistency.h"
#include "collectives/gpu/gpu_peers.h"
#include "runtime/trainer/compute/lane_plan.h"

/* Whose memory is meant. */
struct side {
    const struct dp_memory_plan *plan;
    const struct dp_memory_ranks *ranks; /* of a host; NULL: one rank on its device */
};

static void bytes_of(const struct side *side, size_t micro_batch,
                     size_t bytes[DP_MEM_PURPOSE_COUNT])
{
    if (side->ranks != NULL) {
        dp_memory_plan_host(side->plan, side->ranks, micro_batch, bytes);
    } else {
        dp_memory_plan_device(side->plan, micro_batch, bytes);
    }
}

static size_t sum(const struct side *side, size_t micro_batch)
{
    size_t bytes[DP_MEM_PURPOSE_COUNT];

    bytes_of(side, micro_batch, bytes);
    return dp_memory_plan_sum(bytes);
}

static size_t rows_of(const struct dp_memory_plan *plan, size_t micro_batch)
{
    return dp_share_of(plan->config, plan->model, plan->trainers, micro_batch, plan->threads).rows;
}

/* Rows per pass with the fewest passes that fit; 0: not even one row fits. */
static size_t rows_that_fit(const struct side *side, size_t rows, size_t room)
{
    size_t fits = 0, least = 1, most = rows;

    while (least <= most) { /* the most rows of a pass that fit, */
        const size_t middle = least + (most - least) / 2;
        if (sum(side, middle) <= room) {
            fits = middle;
            least = middle + 1;
        } else {
            most = middle - 1;
        }
    }
    if (fits == 0) {
        return 0;
    }
    const size_t passes = (rows + fits - 1) / fits; /* and the number of passes that follows */
    return (rows + passes - 1) / passes;
}

static const char *size_text(char text[32], size_t bytes)
{
    const double mib = (double)bytes / 1048576.0;

    (void)snprintf(text, 32, mib < 1024.0 ? "%.1f MiB" : "%.1f GiB",
                   mib < 1024.0 ? mib : mib / 1024.0);
    return text;
}

static bool is_plural(enum dp_purpose purpose)
{
    const char *text = dp_purpose_text(purpose);

    return purpose == DP_MEM_DATA || text[strlen(text) - 1] == 's';
}

/* "activations of 256 rows need 16.0 GiB, weights 0.1 GiB": the largest first. */
static void list_needs(const struct side *side, char *text, size_t size)
{
    const size_t micro_batch = (size_t)side->plan->config->train.micro_batch;
    const size_t rows = rows_of(side->plan, micro_batch);
    size_t bytes[DP_MEM_PURPOSE_COUNT], length = 0;
    char number[32], what[64];

    bytes_of(side, micro_batch, bytes);
    while (length < size) {
        int most = 0;
        for (int i = 1; i < DP_MEM_PURPOSE_COUNT; i++) {
            most = bytes[i] > bytes[most] ? i : most;
        }
        if (bytes[most] == 0) {
            return;
        }
        (void)snprintf(what, sizeof(what), most == DP_MEM_ACTIVATIONS ? "%s of %zu row%s" : "%s",
                       dp_purpose_text((enum dp_purpose)most), rows, dp_plural(rows));
        length += (size_t)snprintf(text + length, size - length, "%s%s %s%s",
                                   length > 0 ? ", " : "", what,
                                   length > 0                         ? ""
                                   : is_plural((enum dp_purpose)most) ? "need "
                                                                      : "needs ",
                                   size_text(number, bytes[most]));
        bytes[most] = 0;
    }
}

enum { ADVICE = 112 };

/* Advises to compute a smaller part of the batch at a time: `fits` rows fit. */
static void advise_rows(const struct dp_memory_plan *plan, size_t fits, char advice[ADVICE])
{
    const struct dp_train_config *c = &plan->config->train;
    const int parts = c->lanes > 0 ? c->lanes : plan->trainers;

    if (dp_lanes_synchronised(plan->model)) {
        (void)snprintf(advice, ADVICE, "train.global_batch %zu would fit (now %d)",
                       fits * (size_t)parts, c->global_batch);
    } else {
        (void)snprintf(advice, ADVICE, "train.micro_batch %zu would fit (now %zu)", fits,
                       rows_of(plan, (size_t)c->micro_batch));
    }
}

/* What a rank may take of its GPU: a part of what is left, but for its libraries' workspace. */
static size_t room_of(const struct dp_memory_plan *plan, const struct dp_device_room *room)
{
    const size_t all = room->left / (size_t)plan->ranks_per_device;

    return all > room->workspace ? all - room->workspace : 0;
}

bool dp_memory_fits_device(const struct dp_memory_plan *plan, const struct dp_device_room *room)
{
    const struct side side = {plan, NULL};

    return sum(&side, (size_t)plan->config->train.micro_batch) <= room_of(plan, room);
}

dp_status dp_memory_check_device(const struct dp_memory_plan *plan,
                                 const struct dp_device_room *room)
{
    const size_t micro_batch = (size_t)plan->config->train.micro_batch;
    const size_t ranks = (size_t)plan->ranks_per_device, here = room_of(plan, room);
    const size_t lost = room->left / ranks / 32; /* unused memory between blocks */
    const struct side side = {plan, NULL};
    char needs[256] = "", left[32], total[32], advice[ADVICE], shared[48] = "";
    size_t fits;

    if (sum(&side, micro_batch) <= here) {
        return DP_OK;
    }
    fits = lost < here ? rows_that_fit(&side, rows_of(plan, micro_batch), here - lost) : 0;
    if (ranks > 1) {
        (void)snprintf(shared, sizeof(shared), " for %zu ranks", ranks);
    }
    if (fits == 0) {
        (void)snprintf(advice, sizeof(advice), "not even one row at a time would fit");
    } else {
        advise_rows(plan, fits, advice);
    }
    list_needs(&side, needs, sizeof(needs));
    return DP_FAIL(DP_ERR_NOMEM, "%s, %s, %s free%s: %s; %s", room->name,
                   size_text(total, room->total), size_text(left, room->left), shared, needs,
                   advice);
}

/* Ranks that share a GPU read its free memory before any of them allocates. */
dp_status dp_memory_check_gpus(const struct dp_memory_plan *plan, struct dp_group *group,
                               const struct dp_device *device, bool wants)
{
    struct dp_memory_plan mine = *plan;
    struct dp_device_room room;
    dp_status status;

    DP_TRY(dp_gpu_peers_create(group, device));
    mine.ranks_per_device = group->gpus != NULL ? group->gpus->here : 1;
    device->room(&room);
    status = dp_group_agree(group, wants ? dp_memory_check_device(&mine, &room) : DP_OK);
    return status == DP_ERR_NOMEM ? DP_ERR_UNAVAILABLE : status;
}

/* ---- the host ---- */

/* The system's own figures may be wrong by this much: what it reserves counts as used there. */
static size_t unsure(const struct dp_memory_limit *limit)
{
    return limit->total / 32;
}

enum dp_memory_fit dp_memory_fit(const size_t bytes[DP_MEM_PURPOSE_COUNT],
                                 const struct dp_memory_limit *limit)
{
    const size_t all = dp_memory_plan_sum(bytes), sure = all - bytes[DP_MEM_OTHER];

    return all <= limit->available                                  ? DP_MEMORY_FITS
           : sure <= limit->available + limit->swap + unsure(limit) ? DP_MEMORY_TIGHT
                                                                    : DP_MEMORY_LACKS;
}

/* Advises fewer ranks on this host, which compute the same batch. False: not even one fits. */
static bool advise_ranks(const struct side *side, size_t room, char advice[ADVICE])
{
    const struct dp_memory_plan *plan = side->plan;
    const int lanes = plan->config->train.lanes, others = plan->trainers - side->ranks->trainers;

    for (int left = side->ranks->trainers - 1; left > 0; left--) {
        struct dp_memory_plan fewer = *plan;
        struct dp_memory_ranks ranks = *side->ranks;
        ranks.trainers = left;
        fewer.trainers = others + left;
        const struct side then = {&fewer, &ranks};
        if ((lanes == 0 || lanes % fewer.trainers == 0) &&
            sum(&then, (size_t)plan->config->train.micro_batch) <= room) {
            (void)snprintf(advice, ADVICE, "%d rank%s here would fit (now %d)", left,
                           dp_plural(left), side->ranks->trainers);
            return true;
        }
    }
    return false;
}

static void advise_host(const struct side *side, const struct dp_memory_limit *limit,
                        char advice[ADVICE])
{
    const size_t rows = rows_of(side->plan, (size_t)side->plan->config->train.micro_batch);
    const size_t fits = side->ranks->trainers > 0 ? rows_that_fit(side, rows, limit->available) : 0;
    const struct dp_memory_ranks one = {.trainers = 1, .first = true, .leads = true};
    struct dp_memory_plan alone = *side->plan;
    const struct side least = {&alone, &one};
    char text[32];

    alone.trainers = 1;
    if (fits > 0) {
        advise_rows(side->plan, fits, advice);
    } else if (!advise_ranks(side, limit->available, advice)) {
        (void)snprintf(advice, ADVICE,
                       "a rank alone, with one row at a time, would need %s: take a smaller model",
                       size_text(text, sum(&least, 1)));
    }
}

/* "node7, control group /sys/fs/cgroup/job": whose memory it is. */
static void name_limit(const struct dp_memory_limit *limit, char *text, size_t size)
{
    const char *host = dp_log_host();

    (void)snprintf(text, size, "%s%s%s", host[0] != '\0' ? host : "this host",
                   limit->name[0] != '\0' ? ", " : "", limit->name);
}

dp_status dp_memory_check_host(const struct dp_memory_plan *plan,
                               const struct dp_memory_ranks *ranks,
                               const struct dp_memory_limit *limit)
{
    const struct side side = {plan, ranks};
    const int count = ranks->trainers + ranks->servers + ranks->readers + ranks->evaluators;
    size_t bytes[DP_MEM_PURPOSE_COUNT];
    char needs[320] = "", left[32], total[32], all[32], advice[ADVICE], name[256];
    enum dp_memory_fit fit;

    bytes_of(&side, (size_t)plan->config->train.micro_batch, bytes);
    fit = dp_memory_fit(bytes, limit);
    if (fit == DP_MEMORY_FITS) {
        return DP_OK;
    }
    name_limit(limit, name, sizeof(name));
    (void)size_text(left, limit->available);
    (void)size_text(total, limit->total);
    if (fit == DP_MEMORY_TIGHT) {
        DP_WARN("%s, %s, %s available: %d rank%s will need about %s; the system may swap, or end "
                "a rank",
                name, total, left, count, dp_plural(count),
                size_text(all, dp_memory_plan_sum(bytes)));
        return DP_OK;
    }
    advise_host(&side, limit, advice);
    list_needs(&side, needs, sizeof(needs));
    return DP_FAIL(DP_ERR_NOMEM, "%s, %s, %s available for %d rank%s: %s; %s", name, total, left,
                   count, dp_plural(count), needs, advice);
}

/* The limits of a rank. */
struct ids {
    int count;
    uint64_t id[DP_MEMORY_LIMITS];
};

static bool has_limit(const struct ids *ids, uint64_t id)
{
    for (int i = 0; i < ids->count; i++) {
        if (ids->id[i] == id) {
            return true;
        }
    }
    return false;
}

/* The number of ranks that share gradients; ranks that read follow, then who evaluates. */
static int sharing(const struct dp_memory_plan *plan)
{
    return plan->trainers + plan->config->comm.servers;
}

static int first_evaluator(const struct dp_memory_plan *plan)
{
    return sharing(plan) + plan->config->data.input_ranks;
}

/* The ranks of this host that share a limit. False: this rank is not the first of them. */
static bool count_ranks(const struct dp_memory_plan *plan, const struct dp_group *group,
                        const struct ids *all, uint64_t id, struct dp_memory_ranks *ranks)
{
    int first_here = group->rank, first = group->rank;

    *ranks = (struct dp_memory_ranks){.trainers = 0};
    for (int i = group->size - 1; i >= 0; i--) {
        if (group->node_of[i] != group->node_of[group->rank]) {
            continue;
        }
        first_here = i;
        if (has_limit(&all[i], id)) {
            first = i;
            ranks->trainers += i < plan->trainers;
            ranks->servers += i >= plan->trainers && i < sharing(plan);
            ranks->readers += i >= sharing(plan) && i < first_evaluator(plan);
            ranks->evaluators += i >= first_evaluator(plan);
        }
    }
    ranks->first = first == first_here;
    ranks->leads = first == 0;
    return first == group->rank;
}

/* This rank's part of the comparison. */
static dp_status check_limits(const struct dp_memory_plan *plan, const struct dp_group *group,
                              const struct dp_memory_limits *limits, const struct ids *all)
{
    struct dp_memory_ranks ranks;

    for (int i = 0; i < limits->count; i++) {
        if (count_ranks(plan, group, all, limits->limit[i].id, &ranks)) {
            DP_TRY(dp_memory_check_host(plan, &ranks, &limits->limit[i]));
        }
    }
    return DP_OK;
}

/* Address space is not shared, and an allocation that fails reports it. So only what fails for sure
 * is refused. */
static dp_status check_addresses(const struct dp_memory_plan *plan, const struct dp_group *group,
                                 size_t left)
{
    const int rank = group->rank;
    const struct dp_memory_ranks mine = {
        .trainers = rank < plan->trainers,
        .servers = rank >= plan->trainers && rank < sharing(plan),
        .readers = rank >= sharing(plan) && rank < first_evaluator(plan),
        .evaluators = rank >= first_evaluator(plan),
        .first = true,
        .leads = rank == 0,
    };
    const struct dp_memory_limit limit = {
        .total = left, .available = left, .name = "address space (ulimit -v)"};
    size_t bytes[DP_MEM_PURPOSE_COUNT];

    if (left == SIZE_MAX) {
        return DP_OK;
    }
    dp_memory_plan_host(plan, &mine, (size_t)plan->config->train.micro_batch, bytes);
    return dp_memory_fit(bytes, &limit) == DP_MEMORY_LACKS
               ? dp_memory_check_host(plan, &mine, &limit)
               : DP_OK;
}

/* Errors are captured until all ranks know whose is reported; warnings are not. */
static dp_status compare(const struct dp_memory_plan *plan, struct dp_group *group,
                         const char *root, const struct dp_memory_limits *limits,
                         const struct ids *all)
{
    struct dp_log_capture capture;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_DEBUG);
    status = check_limits(plan, group, limits, all);
    status =
        status == DP_OK ? check_addresses(plan, group, dp_memory_addresses_left(root)) : status;
    DP_TRY(dp_consistency_agree(group, status, &capture));
    return check_limits(plan, group, limits, all);
}

dp_status dp_memory_check_hosts(const struct dp_memory_plan *plan, struct dp_group *group,
                                const char *root)
{
    struct dp_memory_limits limits;
    struct ids mine = {.count = 0}, *all = dp_zalloc((size_t)group->size, sizeof(*all));
    dp_status status = all == NULL ? DP_FAIL(DP_ERR_NOMEM, "limits of memory") : DP_OK;

    status = dp_group_agree(group, status);
    if (status != DP_OK || all == NULL) {
        dp_free(all);
        return status;
    }
    dp_memory_limits_read(root, &limits);
    mine.count = limits.count;
    for (int i = 0; i < limits.count; i++) {
        mine.id[i] = limits.limit[i].id;
    }
    status = dp_group_gather_node(group, &mine, sizeof(mine), all);
    status = status == DP_OK ? compare(plan, group, root, &limits, all) : status;
    dp_free(all);
    return status == DP_ERR_NOMEM ? DP_ERR_UNAVAILABLE : status;
}

bool dp_memory_fits_host(const struct dp_memory_plan *plan, const struct dp_group *group,
                         const char *root)
{
    struct dp_memory_ranks ranks = {.first = true, .leads = true};
    struct dp_memory_limits limits;
    size_t bytes[DP_MEM_PURPOSE_COUNT];

    for (int i = 0; i < group->size; i++) {
        if (group->node_of[i] == group->node_of[group->rank]) {
            ranks.trainers += i < plan->trainers;
            ranks.servers += i >= plan->trainers;
        }
    }
    dp_memory_plan_host(plan, &ranks, (size_t)plan->config->train.micro_batch, bytes);
    dp_memory_limits_read(root, &limits);
    for (int i = 0; i < limits.count; i++) {
        if (dp_memory_fit(bytes, &limits.limit[i]) != DP_MEMORY_FITS) {
            return false;
        }
    }
    return true;
}
