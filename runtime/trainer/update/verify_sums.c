#include "runtime/trainer/update/verify_sums.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/config/config_load.h"
#include "runtime/trainer/trainer_parts.h"

enum { PIECE = 16384 };

/* What a rank finds in its part of the sum. */
struct finding {
    char host[64];
    size_t wrong, first; /* elements; of the bucket */
    float is, should;    /* the first one */
};

struct dp_verify_sums {
    uint64_t every;
    int bucket;               /* kept in this step; -1: none */
    int next;                 /* the one after it */
    float *kept;              /* owned; [largest bucket] */
    float *all;               /* owned; [ranks, PIECE] */
    struct finding *findings; /* owned; [ranks] */
};

static dp_status refuse(const struct dp_trainer *t, const char *why)
{
    char where[256];

    return DP_FAIL(DP_ERR_CONFIG, "%s: %s",
                   dp_config_where(t->config, "train.verify_sums", where, sizeof(where)), why);
}

dp_status dp_verify_sums_create(const struct dp_trainer *t, struct dp_verify_sums **out)
{
    const size_t ranks = (size_t)t->group->size;
    struct dp_verify_sums *v;

    if (t->config->train.verify_sums == 0 || ranks == 1 || !dp_trainer_sums(t)) {
        return DP_OK;
    }
    if (dp_exchange_compression(t->exchange) != NULL) {
        return refuse(t, "cannot go with comm.compressor, whose sums are not exact");
    }
    if (!t->device->host_memory) {
        return refuse(t, "needs gradients in the host's memory: device.name cpu");
    }
    if (t->config->comm.servers > 0) {
        return refuse(t, "cannot go with comm.servers, whose ranks have no gradients");
    }
    if (t->config->train.local_steps > 1 && t->config->train.local_after == 0) {
        return refuse(t, "cannot go with train.local_steps from the first step on, where no "
                         "gradients are summed: train.local_after, or comm.checksum");
    }
    v = dp_zalloc(1, sizeof(*v));
    if (v == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "train.verify_sums");
    }
    v->every = (uint64_t)t->config->train.verify_sums;
    v->bucket = -1;
    v->kept = dp_zalloc(dp_trainer_plan(t)->largest, sizeof(float));
    v->all = dp_zalloc(ranks * PIECE, sizeof(float));
    v->findings = dp_zalloc(ranks, sizeof(*v->findings));
    if (v->kept == NULL || v->all == NULL || v->findings == NULL) {
        dp_verify_sums_destroy(v);
        return DP_FAIL(DP_ERR_NOMEM, "train.verify_sums");
    }
    *out = v;
    return DP_OK;
}

void dp_verify_sums_destroy(struct dp_verify_sums *v)
{
    if (v != NULL) {
        dp_free(v->findings);
        dp_free(v->all);
        dp_free(v->kept);
        dp_free(v);
    }
}

/* None is deferred, and so summed after the step; local steps share none. */
void dp_verify_sums_begin(struct dp_verify_sums *v, const struct dp_trainer *t)
{
    const int count = dp_trainer_plan(t)->count - 1; /* without the tail */

    if (v == NULL) {
        return;
    }
    v->bucket = -1;
    if ((t->state.step + 1) % v->every != 0 || t->modes.unaveraged) {
        return;
    }
    v->bucket = v->next;
    v->next = (v->bucket + 1) % count;
    dp_exchange_keep(t->exchange, v->bucket, v->kept);
}

/* Of element i of each rank's piece of `count`, in the order of the tree. */
static float tree_sum(const float *all, size_t count, int first, int ranks, size_t i)
/* NOLINT(misc-no-recursion) */
{
    int left = 1;

    if (ranks == 1) {
        return all[(size_t)first * count + i];
    }
    while (2 * left < ranks) {
        left *= 2;
    }
    const float a = tree_sum(all, count, first, left, i);
    const float b = tree_sum(all, count, first + left, ranks - left, i);
    return a + b;
}

/* What any order of adding may be off by. */
static double bound_of(const float *all, size_t count, int ranks, size_t i)
{
    double magnitude = 0.0;

    for (int r = 0; r < ranks; r++) {
        magnitude += fabs((double)all[(size_t)r * count + i]);
    }
    return (double)ranks * magnitude / 8388608.0;
}

/* Elements [begin, begin + count) of the bucket, of which v->all has what the ranks kept. */
static void compare_piece(const struct dp_verify_sums *v, const struct dp_trainer *t, size_t begin,
                          size_t count, struct finding *found)
{
    const struct dp_range bucket = dp_trainer_plan(t)->buckets[v->bucket].range;
    const struct dp_range mine = dp_exchange_mine(t->exchange, v->bucket);
    const bool ordered = dp_exchange_keeps_order(t->exchange);
    const int ranks = t->group->size;

    for (size_t i = 0; i < count; i++) {
        const size_t at = bucket.begin + begin + i;
        if (at < mine.begin || at >= mine.begin + mine.count) {
            continue; /* another rank's to sum */
        }
        const float is = t->state.flat.grad[at], should = tree_sum(v->all, count, 0, ranks, i);
        const bool same = is == should || (isnan(is) && isnan(should));
        if (same ||
            (!ordered && fabs((double)is - (double)should) <= bound_of(v->all, count, ranks, i))) {
            continue;
        }
        if (found->wrong++ == 0) {
            found->first = begin + i;
            found->is = is;
            found->should = should;
        }
    }
}

/* The name of the tensor that this element of the bucket belongs to. */
static const char *tensor_at(const struct dp_trainer *t, int b, size_t element)
{
    const struct dp_flat *f = &t->state.flat;
    const size_t at = dp_trainer_plan(t)->buckets[b].range.begin + element;
    int i = 0;

    while (i + 1 < f->tensor_count && f->tensors[i + 1].begin <= at) {
        i++;
    }
    return f->tensors[i].name;
}

/* Rank 0 reports, since all ranks know the same; none leaves before that. */
static dp_status refuse_sum(const struct dp_verify_sums *v, const struct dp_trainer *t, int rank,
                            bool others)
{
    const struct finding *f = &v->findings[rank];
    dp_status status = DP_ERR_DISAGREE;

    if (t->group->rank == 0) {
        status =
            DP_FAIL(status,
                    "after step %llu rank %d (%s)%s a wrong sum of bucket %d, tensor %s: "
                    "element %zu of the bucket is %.9g instead of %.9g (%zu of %zu elements "
                    "differ); test the memory of these hosts, and the network",
                    (unsigned long long)(t->state.step + 1), rank, f->host,
                    others ? " and others have" : " has", v->bucket,
                    tensor_at(t, v->bucket, f->first), f->first, (double)f->is, (double)f->should,
                    f->wrong, dp_trainer_plan(t)->buckets[v->bucket].range.count);
    }
    return dp_exchange_barrier(t->exchange) == DP_OK ? status : DP_ERR_DISAGREE;
}

static dp_status report(const struct dp_verify_sums *v, const struct dp_trainer *t)
{
    int first = -1, others = -1;

    for (int r = t->group->size - 1; r >= 0; r--) {
        others += v->findings[r].wrong > 0;
        first = v->findings[r].wrong > 0 ? r : first;
    }
    return first < 0 ? DP_OK : refuse_sum(v, t, first, others > 0);
}

dp_status dp_verify_sums_end(struct dp_verify_sums *v, const struct dp_trainer *t)
{
    struct finding mine;
    size_t total;

    if (v == NULL || v->bucket < 0) {
        return DP_OK;
    }
    memset(&mine, 0, sizeof(mine));
    (void)snprintf(mine.host, sizeof(mine.host), "%s", dp_log_host());
    total = dp_trainer_plan(t)->buckets[v->bucket].range.count;
    for (size_t begin = 0; begin < total; begin += PIECE) {
        const size_t left = total - begin, count = left < PIECE ? left : PIECE;
        DP_TRY(dp_exchange_gather(t->exchange, v->kept + begin, count * sizeof(float), v->all));
        compare_piece(v, t, begin, count, &mine);
    }
    DP_TRY(dp_exchange_gather(t->exchange, &mine, sizeof(mine), v->findings));
    return report(v, t);
}
