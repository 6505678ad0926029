#include "collectives/exchange/exchange_speed.h"

#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/statistics.h"
#include "base/trace.h"
#include "collectives/core/backoff.h"
#include "collectives/exchange/exchange_own.h"
#include "collectives/gpu/gpu_peers.h"

enum {
    BYTES_LEAST = 1 << 10,
    BYTES_SMALL = 64 << 10,
    TURNS = 9, /* of one size, at most */
    SIZES = 4
};

struct speed {
    struct dp_exchange *exchange;
    struct dp_gpu_peers *gpus; /* borrowed; where buckets are summed on GPUs, else NULL */
    struct dp_event *done;     /* owned; on GPUs: of the last sum */
    struct dp_comm *comm;      /* owned; the exchange's strategy again, for scratch memory */
    float *data;               /* from dp_group_memory, or dp_gpu_peers_memory */
    double *seconds;           /* owned; [ranks] */
    struct dp_curve curve;
    double budget_s;
    struct dp_exchange_speed *out;
};

/* Returns when the sum that was queued last is there. */
static dp_status wait_for_gpu(const struct speed *s)
{
    DP_AWAIT_RANKS();
    const struct dp_device *device = s->gpus->device;
    struct dp_backoff backoff = {.cancel = s->exchange->group->cancel};
    bool done = false;

    DP_TRY(device->event_record(s->done, s->gpus->stream));
    for (;;) {
        DP_TRY(s->comm->strategy->poll != NULL ? s->comm->strategy->poll(s->comm->state) : DP_OK);
        DP_TRY(device->event_query(s->done, &done));
        if (done) {
            return DP_OK;
        }
        if (!dp_backoff_wait(&backoff)) {
            return DP_ERR_CANCELLED;
        }
    }
}

/* One sum, of data rewritten as backward does; the slowest rank's time. */
static dp_status take_turn(struct speed *s, size_t bytes, double *slowest)
{
    const struct dp_slice data = {s->data, bytes / sizeof(float), sizeof(float)};
    struct dp_group *group = s->exchange->group;
    double mine;

    for (size_t i = 0; s->gpus == NULL && i < data.count; i++) {
        s->data[i] = 1.0f;
    }
    DP_TRY(dp_group_barrier(group));
    const uint64_t begin_ns = dp_now_ns();
    DP_TRY(dp_comm_sum(s->comm, data, DP_KEEP_ALL));
    DP_TRY(s->gpus != NULL ? wait_for_gpu(s) : DP_OK);
    mine = (double)(dp_now_ns() - begin_ns) / 1e9;
    DP_TRY(dp_group_allgather(group, &mine, sizeof(mine), s->seconds));
    *slowest = 0.0;
    for (int i = 0; i < group->size; i++) {
        *slowest = s->seconds[i] > *slowest ? s->seconds[i] : *slowest;
    }
    dp_trace_beat();
    return DP_OK;
}

/* A point of the curve: the median of several turns, as far as there is time. The first turn of a
 * size may connect, and does not count where there are others. */
static dp_status add_point(struct speed *s, size_t bytes, double budget_s)
{
    double turns[TURNS], first = 0.0, spent;
    size_t count = 0;

    DP_TRY(take_turn(s, bytes, &first));
    for (spent = first; count < TURNS && spent < budget_s; count++) {
        DP_TRY(take_turn(s, bytes, &turns[count]));
        spent += turns[count];
    }
    dp_sort(turns, count);
    s->curve.bytes[s->curve.count] = (double)bytes;
    s->curve.seconds[s->curve.count++] = count > 0 ? dp_median(turns, count) : first;
    return DP_OK;
}

static size_t bucket_bytes(const struct dp_bucket_plan *plan, int b)
{
    return plan->buckets[b].exact ? 0 : plan->buckets[b].range.count * sizeof(float);
}

/* The plan's bytes, and the sizes of its smallest and largest bucket. */
static size_t sum_bytes(const struct dp_bucket_plan *plan, size_t *smallest, size_t *largest)
{
    size_t sum = 0;

    *smallest = (size_t)-1;
    *largest = 0;
    for (int b = 0; b < plan->count; b++) {
        const size_t bytes = bucket_bytes(plan, b);
        sum += bytes;
        *largest = bytes > *largest ? bytes : *largest;
        *smallest = bytes > 0 && bytes < *smallest ? bytes : *smallest;
    }
    return sum;
}

/* Rising sizes: the smallest bucket, a small one, the largest bucket, and all together. The speed
 * of one says how large the next may be. */
static dp_status measure_sizes(struct speed *s, size_t smallest, size_t largest, size_t whole)
{
    const size_t first = smallest < BYTES_LEAST ? BYTES_LEAST : smallest;
    const size_t wanted[SIZES] = {first < whole ? first : whole, BYTES_SMALL, largest, whole};
    const double share = s->budget_s / SIZES;

    DP_EXPECT(s->budget_s);
    for (int i = 0; i < SIZES; i++) {
        const int last = s->curve.count - 1;
        size_t bytes = wanted[i] < whole ? wanted[i] : whole;
        if (last >= 0) {
            const double fits = 0.5 * share * s->curve.bytes[last] / s->curve.seconds[last];
            bytes = fits < (double)bytes ? (size_t)fits / DP_MEM_ALIGN * DP_MEM_ALIGN : bytes;
        }
        if (last < 0 || (double)bytes > s->curve.bytes[last]) {
            DP_TRY(add_point(s, bytes, share));
        }
    }
    return DP_OK;
}

static void predict(struct speed *s, size_t sum)
{
    const struct dp_bucket_plan *plan = s->exchange->plan;
    const size_t whole = DP_EXCHANGE_WHOLE_BYTES;

    (void)snprintf(s->out->by, sizeof(s->out->by), "%s", s->comm->text);
    s->out->bytes = (double)sum;
    for (int b = 0; b < plan->count; b++) {
        const size_t bytes = bucket_bytes(plan, b);
        s->out->step_s += bytes > 0 ? dp_curve_at(&s->curve, (double)bytes) : 0.0;
    }
    for (size_t at = 0; at < sum; at += whole) {
        s->out->whole_s += dp_curve_at(&s->curve, (double)(sum - at < whole ? sum - at : whole));
    }
}

/* On GPUs; where they have no room nothing is measured. */
static dp_status take_gpu_memory(struct speed *s, size_t bytes)
{
    struct dp_group *group = s->exchange->group;
    dp_status status;

    s->data = dp_gpu_peers_memory(group, s->gpus->device, DP_MEM_TRIAL, bytes);
    status = s->data == NULL ? DP_ERR_UNAVAILABLE : s->gpus->device->event_create(&s->done);
    return status;
}

static dp_status take_memory(struct speed *s, size_t bytes)
{
    struct dp_group *group = s->exchange->group;
    dp_status status;

    s->seconds = dp_zalloc((size_t)group->size, sizeof(*s->seconds));
    if (s->gpus == NULL) {
        s->data = dp_group_memory(group, DP_MEM_COMM, bytes);
        status = s->data != NULL ? DP_OK
                                 : DP_GROUP_FAIL(group, DP_ERR_NOMEM,
                                                 "timing the sum alone needs %zu kB", bytes >> 10);
    } else {
        status = take_gpu_memory(s, bytes);
    }
    return s->seconds == NULL && s->data != NULL
               ? DP_FAIL(DP_ERR_NOMEM, "timing the sum of %d ranks alone", group->size)
               : status;
}

/* Scratch memory, and the strategy for it. Where there is no room to share it, a strategy that
 * needs that refuses: then nothing is measured, and the run goes on as if nobody had asked. */
static dp_status open_scratch(struct speed *s, size_t bytes)
{
    struct dp_group *group = s->exchange->group;
    const char *strategy = s->gpus != NULL ? s->exchange->gpus->text : s->exchange->comm->text;
    const bool unshared = group->unshared;
    struct dp_log_capture capture;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_DEBUG);
    status = dp_group_agree(group, take_memory(s, bytes));
    if (status == DP_OK) {
        status = dp_comm_create(group, strategy, bytes / sizeof(float), 0, &s->comm);
        status = s->gpus != NULL && status == DP_ERR_NOMEM ? DP_ERR_UNAVAILABLE : status;
    }
    dp_log_capture_end(&capture, status == DP_ERR_UNAVAILABLE ? DP_LOG_DROP : DP_LOG_PRINT);
    group->unshared = unshared;
    return status == DP_ERR_UNAVAILABLE ? DP_OK : status;
}

static void close_scratch(struct speed *s)
{
    struct dp_group *group = s->exchange->group;

    dp_comm_destroy(s->comm);
    if (s->gpus == NULL) {
        dp_group_release(group, s->data);
    } else {
        s->gpus->device->event_destroy(s->done);
        dp_gpu_peers_release(group, s->gpus->device, s->data);
    }
    dp_free(s->seconds);
}

/* A job of the engine: only its thread may use the group. */
static dp_status measure(void *context, int index)
{
    struct speed *s = context;
    size_t smallest, largest;
    const size_t sum = sum_bytes(s->exchange->plan, &smallest, &largest);
    const size_t whole = sum < DP_EXCHANGE_WHOLE_BYTES ? sum : DP_EXCHANGE_WHOLE_BYTES;
    const size_t most = whole > largest ? whole : largest;
    dp_status status;

    (void)index;
    status = open_scratch(s, most);
    if (status == DP_OK && s->comm != NULL) {
        status = measure_sizes(s, smallest, largest, most);
    }
    if (status == DP_OK && s->comm != NULL) {
        predict(s, sum);
    }
    close_scratch(s);
    return status;
}

dp_status dp_exchange_measure_speed(struct dp_exchange *e, double seconds,
                                    struct dp_exchange_speed *out)
{
    struct speed speed = {.exchange = e,
                          .gpus = e->gpus != NULL ? e->group->gpus : NULL,
                          .budget_s = seconds,
                          .out = out};

    *out = (struct dp_exchange_speed){0};
    return e->group->size < 2 || (e->gpus == NULL && e->comm->strategy->sum == NULL)
               ? DP_OK
               : dp_engine_call(e->engine, measure, &speed);
}
