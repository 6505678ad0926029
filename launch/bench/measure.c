#include "launch/bench/measure.h"

#include <math.h>
#include <string.h>

#include "base/random.h"
#include "base/statistics.h"
#include "base/trace.h"

/* Measures the jobs of an exchange. */
#include "collectives/compressors/compression.h"
#include "collectives/exchange/exchange_calls.h"
#include "collectives/exchange/exchange_probe.h"
#include "launch/bench/stats.h"

/* Values 0 to 16 are summed exactly in any order: float32 can hold the sum of a million of them. */
enum { PERIOD = 17 };

/* Something to time on all ranks at the same time. */
struct timing {
    struct dp_group *group;
    struct dp_exchange *exchange; /* whose barrier is used; NULL: the group's */
    int warmups, iterations;
    dp_status (*prepare)(void *arg, int call);
    dp_status (*call)(void *arg);
    void *arg;
    double *mine, *all; /* [iterations], [ranks * iterations]; owned: us */
};

static dp_status timing_init(struct timing *t, const struct dp_bench_options *options)
{
    const size_t count = (size_t)options->iterations;

    t->warmups = options->warmups;
    t->iterations = options->iterations;
    t->mine = dp_zalloc(count, sizeof(double));
    t->all = dp_zalloc(count * (size_t)t->group->size, sizeof(double));
    if (t->mine == NULL || t->all == NULL) {
        dp_group_leave(t->group, DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "times of %zu calls of %d ranks", count, t->group->size);
    }
    return DP_OK;
}

static void timing_fini(struct timing *t)
{
    dp_free(t->all);
    dp_free(t->mine);
}

/* Leaves the sorted times of the calls in t->mine. */
static dp_status timing_run(struct timing *t)
{
    const size_t count = (size_t)t->iterations;

    for (int i = -t->warmups; i < t->iterations; i++) {
        DP_TRY(t->prepare(t->arg, i));
        DP_TRY(t->exchange != NULL ? dp_exchange_probe_barrier(t->exchange)
                                   : dp_group_barrier(t->group));
        const uint64_t begin_ns = dp_now_ns();
        DP_TRY(t->call(t->arg));
        if (i >= 0) {
            t->mine[i] = (double)(dp_now_ns() - begin_ns) / 1e3;
        }
    }
    DP_TRY(dp_group_allgather(t->group, t->mine, count * sizeof(double), t->all));
    for (size_t i = 0; i < count; i++) {
        t->mine[i] = 0.0;
        for (int r = 0; r < t->group->size; r++) {
            t->mine[i] = fmax(t->mine[i], t->all[(size_t)r * count + i]);
        }
    }
    dp_sort(t->mine, count);
    return DP_OK;
}

/* The errors that a rank finds in the results: the worst of all rounds. The worst rank's are
 * reported, but wrong elements are added over all ranks. */
struct findings {
    double wrong, max_ulp, rel_l2, wire_bytes;
};

struct measure {
    struct dp_exchange *exchange;
    const struct dp_group *group; /* the exchange's */
    int bucket;
    const struct dp_bench_options *options;
    struct timing timing;
    struct findings mine;
    struct findings *all;  /* [ranks]; owned */
    struct dp_range range; /* the bucket's */
    float *values;         /* [range.count]; where the gradient is written: the bucket itself, */
    float *copy;           /* or this array if only the device reaches that; owned, or NULL */
    const float *result;   /* where the sum can be read, and */
    struct dp_range seen;  /* which of its elements */
};

/* Copies what was written to where gradients are computed. */
static dp_status put(struct measure *m)
{
    return m->copy != NULL ? dp_exchange_probe_write(m->exchange, m->bucket, m->copy) : DP_OK;
}

/* Rank r adds (i + 3 r + round) mod PERIOD to element i. */
static dp_status write_exact(struct measure *m, int round)
{
    int value = (3 * m->group->rank + round) % PERIOD;

    for (size_t i = 0; i < m->range.count; i++) {
        m->values[i] = (float)value;
        value = value + 1 == PERIOD ? 0 : value + 1;
    }
    return put(m);
}

/* A number in [-1, 1], the same on all ranks. Cubes, since most gradients are near zero, and since
 * all bits of their mantissas are used, so that sums are rounded. */
static void random_values(int rank, int round, uint64_t block, float out[4])
{
    uint32_t bits[4];

    dp_random_block((uint64_t)round, DP_RANDOM_TEST, (uint32_t)rank, block, bits);
    for (int k = 0; k < 4; k++) {
        const float unit = 2.0f * dp_random_unit(bits[k]) - 1.0f;
        out[k] = unit * unit * unit;
    }
}

static dp_status write_random(struct measure *m, int round)
{
    for (size_t i = 0; i < m->range.count; i += 4) {
        const size_t rest = m->range.count - i < 4 ? m->range.count - i : 4;
        float values[4];
        random_values(m->group->rank, round, i / 4, values);
        memcpy(m->values + i, values, rest * sizeof(float));
    }
    return put(m);
}

/* Does what a step does with a bucket. */
static dp_status share(void *arg)
{
    const struct measure *m = arg;

    return dp_exchange_probe_share(m->exchange, m->bucket);
}

static void count_wrong(struct measure *m, int round)
{
    const int ranks = m->group->size;
    float sums[PERIOD] = {0};
    double wrong = 0.0;

    for (int i = 0; i < PERIOD; i++) {
        for (int r = 0; r < ranks; r++) {
            sums[i] += (float)((i + 3 * r + round) % PERIOD);
        }
    }
    for (size_t i = m->seen.begin; i < m->seen.begin + m->seen.count; i++) {
        wrong += m->result[i] != sums[i % PERIOD];
    }
    m->mine.wrong = fmax(m->mine.wrong, wrong);
}

static void measure_errors(struct measure *m, int round)
{
    const size_t end = m->seen.begin + m->seen.count;
    double error2 = 0.0, exact2 = 0.0;

    for (size_t i = m->seen.begin; i < end; i += 4) { /* the begin of a chunk is a multiple of it */
        double sum[4] = {0.0}, magnitude[4] = {0.0};
        for (int r = 0; r < m->group->size; r++) {
            float values[4];
            random_values(r, round, i / 4, values);
            for (int k = 0; k < 4; k++) {
                sum[k] += (double)values[k];
                magnitude[k] += fabs((double)values[k]);
            }
        }
        for (size_t k = 0; k < 4 && i + k < end; k++) {
            const float found = m->result[i + k];
            const double error = (double)found - sum[k];
            error2 += error * error;
            exact2 += sum[k] * sum[k];
            m->mine.max_ulp = fmax(m->mine.max_ulp, dp_stats_ulps(found, sum[k], magnitude[k]));
        }
    }
    m->mine.rel_l2 = fmax(m->mine.rel_l2, dp_stats_relative(error2, exact2));
}

/* Resets what compressors keep, as before the first step: residuals of other values would count as
 * errors of these. */
static dp_status share_anew(struct measure *m)
{
    DP_TRY(dp_compression_forget(dp_exchange_compression(m->exchange)));
    DP_TRY(share(m));
    return dp_exchange_probe_read(m->exchange, m->bucket, m->copy, &m->result);
}

static dp_status check_results(struct measure *m)
{
    for (int round = 0; round < m->options->checks; round++) {
        DP_TRY(write_random(m, round));
        DP_TRY(share_anew(m));
        measure_errors(m, round);
        DP_TRY(dp_exchange_probe_barrier(m->exchange));
        DP_TRY(write_exact(m, round));
        DP_TRY(share_anew(m));
        count_wrong(m, round);
        DP_TRY(dp_exchange_probe_barrier(m->exchange));
    }
    /* All calls are timed alike, whether results are checked or not. */
    return dp_compression_forget(dp_exchange_compression(m->exchange));
}

static dp_status prepare_call(void *arg, int call)
{
    return write_exact(arg, call < 0 ? 0 : call);
}

static void fill_row(const struct measure *m, const struct findings *worst,
                     struct dp_bench_row *row)
{
    const int ranks = m->group->size;
    const double *us = m->timing.mine;
    const size_t calls = (size_t)m->timing.iterations;

    row->count = (double)m->range.count;
    row->size = row->count * sizeof(float);
    row->ranks = ranks;
    row->min_us = us[0];
    row->median_us = dp_median(us, calls);
    row->median_range = dp_stats_median_range(us, calls);
    row->p99_us = dp_quantile(us, calls, 0.99);
    row->algbw = dp_stats_algbw(row->size, row->median_us);
    row->busbw = dp_stats_busbw(row->size, row->median_us, ranks);
    row->wire_bytes = worst->wire_bytes;
    row->sent = m->mine.wire_bytes;
    if (m->options->checks > 0) {
        row->wrong = worst->wrong;
        row->max_ulp = worst->max_ulp;
        row->rel_l2 = worst->rel_l2;
    }
}

/* Runs all measurements as one job of the engine, which owns the group. */
static dp_status measure_job(void *arg, int index)
{
    struct measure *m = arg;
    struct dp_group *group = dp_exchange_group(m->exchange);
    uint64_t wire;

    (void)index;
    DP_TRY(check_results(m));
    wire = group->wire_bytes;
    DP_TRY(share(m));
    m->mine.wire_bytes = (double)(group->wire_bytes - wire);
    DP_TRY(timing_run(&m->timing));
    return dp_group_allgather(group, &m->mine, sizeof(m->mine), m->all);
}

static struct findings worst_of(const struct measure *m)
{
    struct findings worst = {0.0, 0.0, 0.0, 0.0};

    for (int r = 0; r < m->group->size; r++) {
        worst.wrong += m->all[r].wrong;
        worst.max_ulp = fmax(worst.max_ulp, m->all[r].max_ulp);
        worst.rel_l2 = fmax(worst.rel_l2, m->all[r].rel_l2);
        worst.wire_bytes = fmax(worst.wire_bytes, m->all[r].wire_bytes);
    }
    return worst;
}

/* Arrays on the host. */
static dp_status measure_init(struct measure *m)
{
    struct dp_exchange *e = m->exchange;

    m->range = dp_exchange_plan(e)->buckets[m->bucket].range;
    m->seen = dp_exchange_probe_summed(e, m->bucket);
    m->values = dp_exchange_host_gradient(e) + m->range.begin;
    m->all = dp_zalloc((size_t)m->group->size, sizeof(*m->all));
    if (dp_exchange_probe_on_device(e)) {
        m->copy = m->values = dp_zalloc(m->range.count, sizeof(float));
    }
    if (m->all == NULL || m->values == NULL) {
        dp_group_leave(dp_exchange_group(e), DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "findings of %d ranks", m->group->size);
    }
    return DP_OK;
}

static void measure_fini(struct measure *m)
{
    dp_free(m->copy);
    dp_free(m->all);
}

static void predict(const struct measure *m, const struct dp_cost *cost, struct dp_bench_row *row)
{
    if (cost == NULL) {
        return;
    }
    row->predicted_us = 1e6 * dp_exchange_probe_predict(m->exchange, m->bucket, cost);
    if (row->predicted_us > 0.0) {
        row->ratio = row->median_us / row->predicted_us;
    }
}

dp_status dp_bench_measure(struct dp_exchange *e, int b, const struct dp_bench_options *options,
                           const struct dp_cost *cost, struct dp_bench_row *row)
{
    struct dp_group *group = dp_exchange_group(e);
    struct measure m = {
        .exchange = e,
        .group = group,
        .bucket = b,
        .options = options,
        .timing = {.group = group, .exchange = e, .prepare = prepare_call, .call = share},
    };
    dp_status status;

    m.timing.arg = &m;
    status = measure_init(&m);
    if (status == DP_OK) {
        status = timing_init(&m.timing, options);
    }
    if (status == DP_OK) {
        status = dp_exchange_call(e, measure_job, &m, 0);
    }
    if (status == DP_OK) {
        const struct findings worst = worst_of(&m);
        fill_row(&m, &worst, row);
        predict(&m, cost, row);
    }
    timing_fini(&m.timing);
    measure_fini(&m);
    return status;
}

struct copying {
    float *from, *to; /* [count] */
    size_t count;
    struct dp_stream *stream;
};

static dp_status prepare_copy(void *arg, int call)
{
    const struct copying *c = arg;

    for (size_t i = 0; i < c->count; i++) {
        c->from[i] = (float)call;
    }
    return DP_OK;
}

static dp_status copy_once(void *arg)
{
    const struct copying *c = arg;

    return c->stream->ops->copy(c->stream, c->to, c->from, c->count * sizeof(float));
}

dp_status dp_bench_bound(struct dp_group *group, size_t bytes,
                         const struct dp_bench_options *options, double *us)
{
    const double p = group->size;
    struct copying c = {NULL, NULL, bytes / sizeof(float), group->stream};
    struct timing t = {.group = group, .prepare = prepare_copy, .call = copy_once, .arg = &c};
    dp_status status = timing_init(&t, options);

    c.from = dp_mem_arena(DP_MEM_COMM, bytes);
    c.to = dp_mem_arena(DP_MEM_COMM, bytes);
    if (status == DP_OK && (c.from == NULL || c.to == NULL)) {
        dp_group_leave(group, DP_ERR_NOMEM);
        status = DP_FAIL(DP_ERR_NOMEM, "copying needs %zu MB", 2 * bytes >> 20);
    }
    if (status == DP_OK) {
        status = timing_run(&t);
    }
    if (status == DP_OK) {
        const double traffic = 1.0 + 1.0 / p + 2.0 * (p - 1.0) / p;
        *us = dp_median(t.mine, (size_t)t.iterations) * traffic / 2.0;
    }
    dp_free(c.to);
    dp_free(c.from);
    timing_fini(&t);
    return status;
}
