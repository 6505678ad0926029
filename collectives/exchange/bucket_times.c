#include "collectives/exchange/bucket_times.h"

#include <string.h>

#include "base/mem.h"

enum { NOT_KEPT = -1, NOT_COUNTED = -2 };

dp_status dp_bucket_times_create(int count, struct dp_bucket_times **out)
{
    struct dp_bucket_times *t = dp_zalloc(1, sizeof(*t));

    if (t == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "times of %d buckets", count);
    }
    t->count = count;
    t->most = count > DP_BUCKET_TIMES_KEPT / 2 ? 2 : DP_BUCKET_TIMES_KEPT / count;
    t->sums = dp_zalloc((size_t)count, sizeof(*t->sums));
    t->now = dp_zalloc((size_t)count, sizeof(*t->now));
    t->times = dp_zalloc((size_t)t->most * (size_t)count, sizeof(*t->times));
    if (t->sums == NULL || t->now == NULL || t->times == NULL) {
        dp_bucket_times_destroy(t);
        return DP_FAIL(DP_ERR_NOMEM, "times of %d buckets", count);
    }
    dp_bucket_times_restart(t);
    *out = t;
    return DP_OK;
}

void dp_bucket_times_destroy(struct dp_bucket_times *t)
{
    if (t != NULL) {
        dp_free(t->sums);
        dp_free(t->now);
        dp_free(t->times);
        dp_free(t);
    }
}

void dp_bucket_times_restart(struct dp_bucket_times *t)
{
    memset(t->sums, 0, (size_t)t->count * sizeof(*t->sums));
    t->steps = t->end_wait_ns = 0;
    t->kept = 0;
    t->every = 1;
    t->row = NOT_COUNTED;
    for (int b = 0; b < t->count; b++) {
        t->now[b].row = NOT_COUNTED;
    }
}

/* Where row `row` is when every second one has been dropped. */
static int halved(int row)
{
    return row < 0 ? row : row % 2 == 0 ? row / 2 : NOT_KEPT;
}

/* Drops every second step that is kept. */
static void halve(struct dp_bucket_times *t)
{
    const size_t row = (size_t)t->count;

    for (int i = 2; i < t->kept; i += 2) {
        memcpy(t->times + (size_t)(i / 2) * row, t->times + (size_t)i * row,
               row * sizeof(*t->times));
    }
    for (int b = 0; b < t->count; b++) {
        t->now[b].row = halved(t->now[b].row);
    }
    t->kept = (t->kept + 1) / 2;
    t->every *= 2;
}

void dp_bucket_times_begin(struct dp_bucket_times *t, uint64_t begin_ns)
{
    t->begin_ns = begin_ns;
    t->row = NOT_KEPT;
    if (t->steps % t->every == 0) {
        if (t->kept == t->most) {
            halve(t);
        }
        if (t->steps % t->every == 0) {
            t->row = t->kept++;
            memset(t->times + (size_t)t->row * (size_t)t->count, 0,
                   (size_t)t->count * sizeof(*t->times));
        }
    }
    t->steps++;
}

void dp_bucket_times_submitted(struct dp_bucket_times *t, int b)
{
    t->now[b].begin_ns = t->begin_ns;
    t->now[b].row = t->row;
}

void dp_bucket_times_summed(struct dp_bucket_times *t, int b, const struct dp_bucket_time *time,
                            uint64_t sent_ns, uint64_t done_ns)
{
    const uint64_t begin_ns = t->now[b].begin_ns;
    struct dp_bucket_sums *sums = &t->sums[b];
    const int row = t->now[b].row;

    if (row == NOT_COUNTED) {
        return;
    }
    sums->steps++;
    sums->ready_ns += time->ready_ns - begin_ns;
    sums->sent_ns += sent_ns - begin_ns;
    sums->done_ns += done_ns - begin_ns;
    sums->exposed_ns += time->wait_ended_ns - time->wait_ns;
    if (row >= 0) {
        t->times[(size_t)row * (size_t)t->count + (size_t)b] = *time;
    }
}

void dp_bucket_times_coded(struct dp_bucket_times *t, int b, uint64_t encode_ns, uint64_t decode_ns)
{
    if (t->now[b].row != NOT_COUNTED) {
        t->sums[b].encode_ns += encode_ns;
        t->sums[b].decode_ns += decode_ns;
    }
}

void dp_bucket_times_exposed(struct dp_bucket_times *t, int b, uint64_t ns)
{
    t->sums[b].exposed_ns += t->now[b].row == NOT_COUNTED ? 0 : ns;
}
