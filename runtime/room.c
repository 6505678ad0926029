#include "runtime/room.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "collectives/gpus.h"
#include "collectives/parcels.h"
#include "runtime/data/rows.h"
#include "runtime/lane_plan.h"
#include "runtime/parts.h"
#include "runtime/votes.h"

struct dp_share dp_share_of(const struct dp_config *c, const struct dp_model *m, int trainers,
                            size_t micro_batch)
{
    const int total = c->train.lanes, count = total / trainers;
    struct dp_share share = {1, 0, 1};

    share.rows = dp_parts_most(
        dp_most_rows((size_t)c->train.global_batch, total > 0 ? total : trainers), micro_batch);
    if (total > 0) {
        share.passes = (size_t)dp_lanes_workers(m, count, 1);
        share.gradients += (size_t)dp_lanes_extra_gradients(count, (int)share.passes);
    }
    return share;
}

/* Elements of an array that owners share out among them, on one rank. Of what `auto` becomes where
 * the host cannot use the device's memory, only servers own parts. */
static size_t owned(const struct dp_need *need)
{
    const struct dp_comm_config *c = &need->config->comm;
    const bool serves = strncmp(c->strategy, "ps", 2) == 0;
    const bool parts = serves || strncmp(c->strategy, "zero1", 5) == 0;

    if (c->servers > 0) {
        return 0;
    }
    return need->model->trained / (size_t)(parts ? need->trainers : 1);
}

/* What a compressor remembers; a rank alone has nothing to send. */
static size_t remembered(const struct dp_need *need)
{
    const struct dp_model *m = need->model;
    const struct dp_parcels_size size =
        dp_parcels_measure(need->config->comm.compressor, m->tensors, m->tensor_count, m->trained);

    return need->trainers + need->config->comm.servers > 1 ? size.residuals + size.warm : 0;
}

/* Bytes for what a compressor sends. */
static size_t sent(const struct dp_need *need)
{
    const struct dp_comm_config *c = &need->config->comm;
    const struct dp_model *m = need->model;
    const size_t tail = dp_round_up(m->statistics + DP_VOTES_COUNT, DP_BLOCK);
    const int ranks = need->trainers + c->servers;
    const struct dp_bucket_sizes sizes = {
        .first_count = (size_t)(c->first_bucket_mb * 1048576.0) / sizeof(float),
        .max_count = (size_t)(c->bucket_mb * 1048576.0) / sizeof(float)};
    struct dp_bucket_plan *plan = NULL;
    size_t bytes = 0;

    /* Cut as the trainer's (trainer.c). */
    if (ranks > 1 && dp_bucket_plan_create(m->tensors, m->tensor_count, m->trained,
                                           m->trained + tail, &sizes, &plan) == DP_OK) {
        bytes = dp_parcels_codes(c->compressor, plan, ranks);
    }
    dp_bucket_plan_destroy(plan);
    return bytes;
}

void dp_need_bytes(const struct dp_need *need, size_t micro_batch,
                   size_t bytes[DP_MEM_PURPOSE_COUNT])
{
    const struct dp_model *m = need->model;
    const enum dp_type type = dp_precision_type(need->config->train.precision);
    const struct dp_share share = dp_share_of(need->config, m, need->trainers, micro_batch);
    const size_t array = m->trained * sizeof(float);
    const size_t part = owned(need) * sizeof(float);
    const size_t input = share.rows * (m->values[0].count + sizeof(int32_t)); /* and labels */

    memset(bytes, 0, DP_MEM_PURPOSE_COUNT * sizeof(*bytes));
    bytes[DP_MEM_WEIGHTS] = m->trained * dp_type_bytes(type) + (type == DP_TYPE_F32 ? 0 : part);
    bytes[DP_MEM_GRADIENTS] = share.gradients * array;
    bytes[DP_MEM_OPTIMIZER] = (size_t)need->slots * part;
    bytes[DP_MEM_RESIDUALS] = remembered(need) * sizeof(float);
    bytes[DP_MEM_COMM] = sent(need);
    bytes[DP_MEM_ACTIVATIONS] =
        share.passes * (dp_model_activation_bytes(m, type, share.rows, 0, true) + input +
                        m->local * sizeof(float));
}

static size_t sum(const struct dp_need *need, size_t micro_batch)
{
    size_t bytes[DP_MEM_PURPOSE_COUNT], total = 0;

    dp_need_bytes(need, micro_batch, bytes);
    for (int i = 0; i < DP_MEM_PURPOSE_COUNT; i++) {
        total += bytes[i];
    }
    return total;
}

/* The rows of the fewest passes that fit; 0: not even a row does. */
static size_t rows_that_fit(const struct dp_need *need, size_t rows, size_t room)
{
    size_t fits = 0, least = 1, most = rows;

    while (least <= most) { /* the most rows of a pass that fit ... */
        const size_t middle = least + (most - least) / 2;
        if (sum(need, middle) <= room) {
            fits = middle;
            least = middle + 1;
        } else {
            most = middle - 1;
        }
    }
    if (fits == 0) {
        return 0;
    }
    const size_t passes = (rows + fits - 1) / fits; /* ... and as many passes as they make */
    return (rows + passes - 1) / passes;
}

static const char *size_text(char text[32], size_t bytes)
{
    const double mib = (double)bytes / 1048576.0;

    (void)snprintf(text, 32, mib < 1024.0 ? "%.1f MiB" : "%.1f GiB",
                   mib < 1024.0 ? mib : mib / 1024.0);
    return text;
}

/* "activations of 256 rows need 16.0 GiB, weights 0.1 GiB": the largest first. */
static void list_needs(const struct dp_need *need, size_t micro_batch, size_t rows, char *text,
                       size_t size)
{
    size_t bytes[DP_MEM_PURPOSE_COUNT], length = 0;
    char number[32], what[64];

    dp_need_bytes(need, micro_batch, bytes);
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
        length +=
            (size_t)snprintf(text + length, size - length, "%s%s %s%s", length > 0 ? ", " : "",
                             what, length > 0 ? "" : "need ", size_text(number, bytes[most]));
        bytes[most] = 0;
    }
}

dp_status dp_need_check(const struct dp_need *need, const struct dp_device_room *room)
{
    const struct dp_train_config *c = &need->config->train;
    const size_t micro_batch = (size_t)c->micro_batch;
    const struct dp_share now = dp_share_of(need->config, need->model, need->trainers, micro_batch);
    const size_t ranks = (size_t)need->sharing, all = room->left / ranks;
    const size_t here = all > room->workspace ? all - room->workspace : 0;
    const size_t lost = room->left / ranks / 32; /* between blocks */
    const bool whole = dp_lanes_synchronised(need->model);
    const int parts = c->lanes > 0 ? c->lanes : need->trainers;
    char needs[256] = "", left[32], total[32], advice[96], shared[48] = "";
    size_t fits;

    if (sum(need, micro_batch) <= here) {
        return DP_OK;
    }
    fits = lost < here ? rows_that_fit(need, now.rows, here - lost) : 0;
    if (ranks > 1) {
        (void)snprintf(shared, sizeof(shared), " for %zu ranks", ranks);
    }
    if (fits == 0) {
        (void)snprintf(advice, sizeof(advice), "not even one row at a time would fit");
    } else if (whole) {
        (void)snprintf(advice, sizeof(advice), "train.global_batch %zu would fit (now %d)",
                       fits * (size_t)parts, c->global_batch);
    } else {
        (void)snprintf(advice, sizeof(advice), "train.micro_batch %zu would fit (now %zu)", fits,
                       now.rows);
    }
    list_needs(need, micro_batch, now.rows, needs, sizeof(needs));
    return DP_FAIL(DP_ERR_NOMEM, "%s, %s, %s free%s: %s; %s", room->name,
                   size_text(total, room->total), size_text(left, room->left), shared, needs,
                   advice);
}

/* Ranks that share a GPU look at it before one of them takes something. */
dp_status dp_need_check_ranks(const struct dp_need *need, struct dp_group *group,
                              const struct dp_device *device, bool wants)
{
    struct dp_need mine = *need;
    struct dp_device_room room;
    dp_status status;

    DP_TRY(dp_gpus_create(group, device));
    mine.sharing = group->gpus != NULL ? group->gpus->here : 1;
    device->room(&room);
    status = dp_group_agree(group, wants ? dp_need_check(&mine, &room) : DP_OK);
    return status == DP_ERR_NOMEM ? DP_ERR_UNAVAILABLE : status;
}
