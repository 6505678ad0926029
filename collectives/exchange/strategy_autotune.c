/*
 * strategy_autotune.c - all ranks get the same times from every turn, so they drop candidates,
 * continue and stop together. Rank 0's choice is final.
 */
#include "collectives/exchange/strategy_autotune.h"

#include <stdio.h>
#include <string.h>

#include "base/statistics.h"
#include "base/trace.h"
#include "collectives/exchange/autotune_codes.h"
#include "collectives/exchange/strategy_candidates.h"
#include "collectives/strategies/comm.h"

enum {
    CANDIDATES_MAX = 32,
    TURNS_MAX = 7,      /* of one strategy at one size */
    STEP = 8,           /* factor from one size to the next, at most */
    POINT_SHARE = 8,    /* a size gets several turns if they take at most this part of the time */
    CONNECT_SHARE = 16, /* a first turn that takes less than this part is repeated: it may have
                         * connected */
    BYTES_FIRST = 64 << 10, /* smaller ones predict a step badly, and are noisy */
    BYTES_MAX = 32 << 20
};

/* A strategy must be this much faster than an earlier one to replace it. */
static const double margin = 0.97;

struct candidate {
    char text[DP_STRATEGY_AUTOTUNE_TEXT];
    struct dp_comm *comm; /* NULL: has been dropped */
    void *codes;          /* owned; the compressor's state over it, or NULL */
    double tail_s;        /* with a compressor: of the tail, which it leaves alone */
    struct dp_curve curve;
    double turns[TURNS_MAX]; /* at this size */
    int turn_count;
};

struct turn_time {
    double seconds, elapsed;
};

struct autotune {
    struct dp_group *group;
    const struct dp_strategy_autotune_config *config;
    struct candidate candidates[CANDIDATES_MAX];
    int count;
    struct dp_autotune_codes *codes; /* owned; NULL: no compressor */
    float *data;                     /* [most bytes]; from dp_group_memory */
    size_t most;                     /* bytes of the largest size */
    struct turn_time *timings;       /* [ranks] */
    uint64_t begin_ns;
    double elapsed; /* seconds, by the slowest rank's clock */
};

/* ---- candidates ---- */

static dp_status add_candidate(struct autotune *c, const char *text)
{
    struct candidate *e = &c->candidates[c->count];

    for (int i = 0; i < c->count; i++) {
        if (strcmp(c->candidates[i].text, text) == 0) {
            return DP_OK;
        }
    }
    if (c->count == CANDIDATES_MAX || !dp_strategy_candidate_runs(c->group, text)) {
        return DP_OK;
    }
    (void)snprintf(e->text, sizeof(e->text), "%s", text);
    c->count++;
    dp_trace_beat();
    DP_TRY(dp_comm_create(c->group, e->text, c->most / sizeof(float), 0, &e->comm));
    return c->codes == NULL ? DP_OK : dp_autotune_codes_open(c->codes, e->comm, &e->codes);
}

/* The default choice comes first: others must be faster. */
static dp_status add_candidates(struct autotune *c)
{
    const char *text, *reason;

    DP_TRY(add_candidate(c, dp_strategy_choose(c->group, &reason)));
    for (int i = 0; (text = dp_strategy_candidate(i)) != NULL; i++) {
        DP_TRY(add_candidate(c, text));
    }
    return c->count > 0 ? DP_OK
                        : DP_FAIL(DP_ERR_CONFIG, "comm.strategy auto: none that can run here keeps "
                                                 "the order of sums that train.lanes needs");
}

/* ---- predicted time of a step ---- */

/* With a compressor the tail is timed by itself, and 0 here. */
static size_t bucket_bytes(const struct autotune *c, int b)
{
    const struct dp_bucket *bucket = &c->config->plan->buckets[b];

    return c->codes != NULL && bucket->exact ? 0 : bucket->range.count * sizeof(float);
}

/* Seconds for all buckets. Beyond the curve's last size the longest possible time is in proportion
 * to the bytes (dp_curve_at), and the shortest is that of the last size. */
static double step_seconds(const struct autotune *c, const struct candidate *e, bool shortest)
{
    const double last = e->curve.bytes[e->curve.count - 1];
    double seconds = e->tail_s;

    for (int b = 0; b < c->config->plan->count; b++) {
        const double bytes = (double)bucket_bytes(c, b);
        if (bytes > 0.0) {
            seconds += dp_curve_at(&e->curve, shortest && bytes > last ? last : bytes);
        }
    }
    return seconds;
}

/* The fastest so far. */
static struct candidate *fastest(struct autotune *c)
{
    struct candidate *best = NULL;

    for (int i = 0; i < c->count; i++) {
        struct candidate *e = &c->candidates[i];
        if (e->comm != NULL && e->curve.count > 0 &&
            (best == NULL || step_seconds(c, e, false) < margin * step_seconds(c, best, false))) {
            best = e;
        }
    }
    return best;
}

static void drop(const struct autotune *c, struct candidate *e)
{
    if (c->codes != NULL) {
        dp_autotune_codes_close(c->codes, e->codes);
        e->codes = NULL;
    }
    dp_comm_destroy(e->comm);
    e->comm = NULL;
}

/* Drops candidates whose best case is slower than the fastest one's worst case. The limit is twice
 * that, since larger messages may use other protocols than small ones. Only those whose last turns
 * took longer than `least` are dropped. */
static void drop_hopeless(struct autotune *c, double least)
{
    const double bar = 2.0 * step_seconds(c, fastest(c), false);

    for (int i = 0; i < c->count; i++) {
        struct candidate *e = &c->candidates[i];
        if (e->comm != NULL && e->curve.seconds[e->curve.count - 1] > least &&
            step_seconds(c, e, true) > bar) {
            drop(c, e);
        }
    }
}

/* ---- timing ---- */

static uint64_t now(const struct autotune *c)
{
    return c->config->now == NULL ? dp_now_ns() : c->config->now();
}

/* Times one sum, of data rewritten as backward does; the slowest rank's time counts. */
static dp_status take_plain_turn(struct autotune *c, struct candidate *e, size_t bytes, bool plain,
                                 double *seconds)
{
    const struct dp_slice data = {c->data, bytes / sizeof(float), sizeof(float)};
    struct turn_time mine;

    for (size_t i = 0; i < data.count; i++) { /* all different: some codes sort */
        c->data[i] = (float)(i * 2654435761u % 65536u) / 65536.0f - 0.5f;
    }
    DP_SPAN(DP_PHASE_WAIT, -1);
    DP_TRY(dp_group_barrier(c->group));
    const uint64_t begin_ns = now(c);
    DP_TRY(plain ? dp_comm_sum(e->comm, data, DP_KEEP_ALL)
                 : dp_autotune_codes_sum(c->codes, e->codes, c->data, bytes));
    const uint64_t end_ns = now(c);
    mine.seconds = (double)(end_ns - begin_ns) / 1e9;
    mine.elapsed = (double)(end_ns - c->begin_ns) / 1e9;
    DP_TRY(dp_group_allgather(c->group, &mine, sizeof(mine), c->timings));
    *seconds = 0.0;
    for (int i = 0; i < c->group->size; i++) {
        *seconds = c->timings[i].seconds > *seconds ? c->timings[i].seconds : *seconds;
        c->elapsed = c->timings[i].elapsed > c->elapsed ? c->timings[i].elapsed : c->elapsed;
    }
    dp_trace_beat();
    return DP_OK;
}

static dp_status take_turn(struct autotune *c, struct candidate *e, size_t bytes, double *seconds)
{
    return take_plain_turn(c, e, bytes, c->codes == NULL, seconds);
}

/* With a compressor: the tail of each candidate, twice, since the first turn may connect. */
static dp_status measure_tails(struct autotune *c)
{
    const struct dp_bucket_plan *plan = c->config->plan;
    const size_t bytes = plan->buckets[plan->count - 1].range.count * sizeof(float);

    for (int i = 0; i < 2 * c->count && c->codes != NULL && bytes <= c->most; i++) {
        struct candidate *e = &c->candidates[i % c->count];
        DP_TRY(take_plain_turn(c, e, bytes, true, &e->tail_s));
    }
    return DP_OK;
}

/* Seconds of one turn of each candidate, as the last size took. */
static double round_seconds(const struct autotune *c)
{
    double seconds = 0.0;

    for (int i = 0; i < c->count; i++) {
        const struct candidate *e = &c->candidates[i];
        if (e->comm != NULL && e->curve.count > 0) {
            seconds += e->curve.seconds[e->curve.count - 1];
        }
    }
    return seconds;
}

/* The first turn of each candidate at a new size, starting with the fastest. The ratio of its times
 * predicts the others' times. *complete: there was time for all. */
static dp_status first_round(struct autotune *c, size_t bytes, bool *complete)
{
    const double before = round_seconds(c);
    const int first = before > 0.0 ? (int)(fastest(c) - c->candidates) : 0;

    *complete = true;
    for (int i = 0; i < c->count && *complete; i++) {
        struct candidate *e = &c->candidates[(first + i) % c->count];
        if (e->comm == NULL) {
            continue;
        }
        e->turn_count = 1;
        DP_TRY(take_turn(c, e, bytes, &e->turns[0]));
        if (before <= 0.0 && e->turns[0] < c->config->budget_s / CONNECT_SHARE) {
            DP_TRY(take_turn(c, e, bytes, &e->turns[0]));
        }
        *complete = c->elapsed < c->config->budget_s;
        if (i == 0 && before > 0.0) {
            const double last = e->curve.seconds[e->curve.count - 1];
            *complete = c->elapsed + (before - last) * (e->turns[0] / last) < c->config->budget_s;
        }
    }
    return DP_OK;
}

/* ---- one size ---- */

/* Sets the newest point of the curves to the median of the turns so far; of an even number the
 * lower one, since what disturbs a turn only makes it longer. */
static void set_points(struct autotune *c)
{
    for (int i = 0; i < c->count; i++) {
        struct candidate *e = &c->candidates[i];
        if (e->comm != NULL) {
            double sorted[TURNS_MAX];
            memcpy(sorted, e->turns, sizeof(sorted));
            dp_sort(sorted, (size_t)e->turn_count);
            e->curve.seconds[e->curve.count - 1] = dp_quantile(sorted, (size_t)e->turn_count, 0.5);
        }
    }
}

/* Adds a point to each curve when all candidates have had a turn; at the first size, drops those
 * that had none. */
static void add_points(struct autotune *c, size_t bytes)
{
    for (int i = 0; i < c->count; i++) {
        struct candidate *e = &c->candidates[i];
        if (e->comm != NULL && e->turn_count == 0) {
            drop(c, e);
        } else if (e->comm != NULL) {
            e->curve.bytes[e->curve.count++] = (double)bytes;
        }
    }
    set_points(c);
    drop_hopeless(c, c->config->budget_s / POINT_SHARE); /* others may have been disturbed */
}

static dp_status one_round(struct autotune *c, size_t bytes)
{
    for (int i = 0; i < c->count; i++) {
        struct candidate *e = &c->candidates[i];
        if (e->comm != NULL) {
            DP_TRY(take_turn(c, e, bytes, &e->turns[e->turn_count]));
            e->turn_count++;
        }
    }
    return DP_OK;
}

static dp_status more_rounds(struct autotune *c, size_t bytes)
{
    const double round = round_seconds(c), share = c->config->budget_s / POINT_SHARE;

    for (int k = 1; k < TURNS_MAX && c->elapsed + round < c->config->budget_s; k++) {
        if (k > 1 && k * round > share) {
            break;
        }
        DP_TRY(one_round(c, bytes));
    }
    set_points(c);
    drop_hopeless(c, 0.0);
    return DP_OK;
}

/* The next size: the largest bucket of at most STEP times this size. If all larger buckets are
 * beyond that: STEP times this size; with a compressor, which needs a bucket, the smallest of
 * them. */
static size_t next_size(const struct autotune *c, size_t bytes)
{
    const size_t limit = bytes * STEP < c->most ? bytes * STEP : c->most;
    size_t next = 0, smallest = c->most;

    for (int b = 0; b < c->config->plan->count; b++) {
        const size_t size = bucket_bytes(c, b);
        if (size > bytes && size <= limit && size > next) {
            next = size;
        }
        if (size > bytes && size < smallest) {
            smallest = size;
        }
    }
    return next > 0 ? next : c->codes != NULL ? smallest : limit;
}

/* Of a compressor the smallest bucket. */
static size_t first_size(const struct autotune *c)
{
    size_t smallest = c->most;

    for (int b = 0; b < c->config->plan->count && c->codes != NULL; b++) {
        const size_t size = bucket_bytes(c, b);
        smallest = size > 0 && size < smallest ? size : smallest;
    }
    return c->codes != NULL || c->most < BYTES_FIRST ? smallest : BYTES_FIRST;
}

static int left(const struct autotune *c)
{
    int count = 0;

    for (int i = 0; i < c->count; i++) {
        count += c->candidates[i].comm != NULL;
    }
    return count;
}

static dp_status measure(struct autotune *c)
{
    size_t bytes = first_size(c);
    bool complete;

    DP_TRY(dp_group_barrier(c->group));
    DP_EXPECT(c->config->budget_s); /* no part takes longer than all turns should */
    DP_TRY(add_candidates(c));
    c->begin_ns = now(c);
    DP_TRY(measure_tails(c));
    for (int k = 0; k < DP_CURVE_POINTS && left(c) > 1; k++) {
        if (k > 0 && c->elapsed + 2.0 * round_seconds(c) > c->config->budget_s) {
            break;
        }
        for (int i = 0; i < c->count; i++) {
            c->candidates[i].turn_count = 0;
        }
        DP_TRY(first_round(c, bytes, &complete));
        if (k > 0 && !complete) {
            break;
        }
        add_points(c, bytes);
        DP_TRY(more_rounds(c, bytes));
        if (bytes == c->most) {
            break;
        }
        bytes = next_size(c, bytes);
    }
    return DP_OK;
}

/* ---- the result ---- */

/* "3.12", "31.2", "312". */
static int digits(double ms)
{
    return ms < 10.0 ? 2 : ms < 100.0;
}

/* Writes "measured: direct 3.12 ms a step, ring 3.90": the winner, then the others by time. */
static void write_why(struct autotune *c, const struct candidate *winner, char *why, size_t size)
{
    double done = -1.0;
    const double ms = 1e3 * step_seconds(c, winner, false);
    size_t used =
        (size_t)snprintf(why, size, "measured: %s %.*f ms a step", winner->text, digits(ms), ms);

    for (;;) {
        const struct candidate *next = NULL;
        double least = 0.0;
        for (int i = 0; i < c->count; i++) {
            const struct candidate *e = &c->candidates[i];
            if (e == winner || e->curve.count == 0) {
                continue;
            }
            const double seconds = step_seconds(c, e, false);
            if (seconds > done && (next == NULL || seconds < least)) {
                next = e;
                least = seconds;
            }
        }
        if (next == NULL || used + strlen(next->text) + 24 > size) {
            return;
        }
        used += (size_t)snprintf(why + used, size - used, ", %s%s %.*f", next->text,
                                 next->curve.count < winner->curve.count ? " about" : "",
                                 digits(1e3 * least), 1e3 * least);
        done = least;
    }
}

static dp_status choose(struct autotune *c, struct dp_strategy_autotune_result *out)
{
    const struct candidate *winner = fastest(c);

    memset(out, 0, sizeof(*out));
    if (winner == NULL) { /* the only candidate: no turn was needed */
        (void)snprintf(out->strategy, sizeof(out->strategy), "%s", c->candidates[0].text);
        (void)snprintf(out->why, sizeof(out->why), "the only one here%s",
                       c->group->ordered ? " that keeps the order of sums" : "");
    } else {
        (void)snprintf(out->strategy, sizeof(out->strategy), "%s", winner->text);
        write_why(c, winner, out->why, sizeof(out->why));
    }
    return dp_group_broadcast(c->group, out, sizeof(*out), 0);
}

/* Of a compressor, which needs a whole bucket, the largest bucket that is no larger than
 * BYTES_MAX, or else the smallest one. */
static size_t largest_size(const struct dp_strategy_autotune_config *config)
{
    const bool codes = config->compressor != NULL && strcmp(config->compressor, "none") != 0;
    size_t most = 0, fits = 0, least = SIZE_MAX;

    for (int b = 0; b < config->plan->count; b++) {
        const size_t bytes = config->plan->buckets[b].range.count * sizeof(float);
        if (codes && config->plan->buckets[b].exact) {
            continue;
        }
        most = bytes > most ? bytes : most;
        fits = bytes > fits && bytes <= BYTES_MAX ? bytes : fits;
        least = bytes < least ? bytes : least;
    }
    if (codes) {
        return fits > 0 ? fits : least;
    }
    return most < BYTES_MAX ? most : BYTES_MAX;
}

dp_status dp_strategy_autotune_run(struct dp_group *group,
                                   const struct dp_strategy_autotune_config *config,
                                   struct dp_strategy_autotune_result *out)
{
    struct autotune *c = dp_zalloc(1, sizeof(*c));
    dp_status status = DP_OK;

    if (c == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "choosing a strategy");
    }
    c->group = group;
    c->config = config;
    c->most = largest_size(config);
    c->timings = dp_zalloc((size_t)group->size, sizeof(*c->timings));
    c->data = dp_group_memory(group, DP_MEM_COMM, c->most);
    if (c->data == NULL) {
        status =
            DP_GROUP_FAIL(group, DP_ERR_NOMEM, "choosing a strategy needs %zu MB", c->most >> 20);
    } else if (c->timings == NULL) {
        status = DP_FAIL(DP_ERR_NOMEM, "choosing a strategy of %d ranks", group->size);
    }
    if (status == DP_OK) {
        status = dp_autotune_codes_create(config->compressor, config->plan, c->most, &c->codes);
    }
    status = status == DP_OK ? measure(c) : status;
    status = status == DP_OK ? choose(c, out) : status;
    dp_group_leave(group, status);
    for (int i = 0; i < c->count; i++) {
        drop(c, &c->candidates[i]);
    }
    dp_autotune_codes_destroy(c->codes);
    dp_group_release(group, c->data);
    dp_free(c->timings);
    dp_free(c);
    return status;
}
