#include "runtime/timeline/bucket_table.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/report/summary_read.h"
#include "runtime/timeline/collect.h"

/* ---- collecting ---- */

/* What a rank sends: this, its sums and its times. */
struct head {
    uint64_t steps, end_wait_ns;
    int64_t count, kept;
};

static size_t bytes_of(int64_t count, int64_t kept)
{
    return sizeof(struct head) + (size_t)count * sizeof(struct dp_bucket_sums) +
           (size_t)(count * kept) * sizeof(struct dp_bucket_time);
}

static struct dp_bucket_sums *sums_of(struct head *head)
{
    return (struct dp_bucket_sums *)(head + 1);
}

static struct dp_bucket_time *times_of(struct head *head)
{
    return (struct dp_bucket_time *)(sums_of(head) + head->count);
}

/* Copies what this rank has, with times by the clock of rank 0. */
static struct head *packed(const struct dp_bucket_times *t, const struct dp_clock *clock)
{
    struct head *head = dp_zalloc(bytes_of(t->count, t->kept), 1);
    const size_t times = (size_t)t->kept * (size_t)t->count;

    if (head == NULL) {
        return NULL;
    }
    *head = (struct head){t->steps, t->end_wait_ns, t->count, t->kept};
    memcpy(sums_of(head), t->sums, (size_t)t->count * sizeof(*t->sums));
    for (size_t i = 0; i < times; i++) {
        times_of(head)[i] = (struct dp_bucket_time){
            .ready_ns = dp_clock_shared(clock, t->times[i].ready_ns),
            .wait_ns = dp_clock_shared(clock, t->times[i].wait_ns),
            .wait_ended_ns = dp_clock_shared(clock, t->times[i].wait_ended_ns),
        };
    }
    return head;
}

/* The struct and what it points to are one block of memory. */
static dp_status take(void *context, int rank, const void *data, size_t bytes)
{
    struct dp_all_times *all = context;
    struct head *head = dp_zalloc(bytes, 1);

    if (head == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "times of rank %d", rank);
    }
    memcpy(head, data, bytes);
    all->ranks[rank] = (struct dp_rank_times){head->steps,     head->end_wait_ns, (int)head->count,
                                              (int)head->kept, sums_of(head),     times_of(head)};
    return DP_OK;
}

dp_status dp_all_times_collect(struct dp_exchange *exchange, const struct dp_clock *clock,
                               struct dp_all_times *all)
{
    const struct dp_bucket_times *mine = dp_exchange_times(exchange);
    const struct dp_group *group = dp_exchange_group(exchange);
    struct head *head = packed(mine, clock);
    dp_status status = head != NULL ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "times of buckets");

    memset(all, 0, sizeof(*all));
    if (status == DP_OK && group->rank == 0) {
        all->ranks = dp_zalloc((size_t)group->size, sizeof(*all->ranks));
        all->count = all->ranks != NULL ? group->size : 0;
        status = all->ranks != NULL ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "times of ranks");
    }
    DP_TRY_GOTO(dp_exchange_agree(exchange, status), status, done);
    status = dp_collect(exchange, head, bytes_of(mine->count, mine->kept), take, all);
    status = dp_exchange_agree(exchange, status);

done:
    dp_free(head);
    if (status != DP_OK) {
        dp_all_times_release(all);
    }
    return status;
}

void dp_all_times_release(struct dp_all_times *all)
{
    for (int i = 0; i < all->count; i++) {
        if (all->ranks[i].sums != NULL) {
            union {
                const void *borrowed;
                struct dp_bucket_sums *sums;
            } behind = {.borrowed = all->ranks[i].sums};
            dp_free((struct head *)behind.sums - 1);
        }
    }
    dp_free(all->ranks);
    memset(all, 0, sizeof(*all));
}

/* ---- comparing ---- */

/* The ranks that share gradients, of the first `count`, and how many steps all of them keep. */
struct sharers {
    const struct dp_rank_times *ranks;
    int count, kept;
    int *first, *last; /* owned; [count]: how often each came first and last at a bucket */
    int *last_at;      /* owned; [count]: at all of them */
    double *late_ns;   /* owned; [count] */
};

/* Of one bucket in one step. */
struct arrival {
    int first, last;
    uint64_t first_ns, last_ns;
};

static bool shares(const struct sharers *s, int rank)
{
    return s->ranks[rank].steps > 0;
}

static const struct dp_bucket_time *time_at(const struct sharers *s, int rank, int step, int b)
{
    return &s->ranks[rank].times[(size_t)step * (size_t)s->ranks[rank].count + (size_t)b];
}

/* False: some rank has no time of it, since it was still being shared when the run ended. */
static bool arrival_at(const struct sharers *s, int step, int b, struct arrival *out)
{
    *out = (struct arrival){.first = -1};
    for (int i = 0; i < s->count; i++) {
        const uint64_t ready_ns = shares(s, i) ? time_at(s, i, step, b)->ready_ns : 0;

        if (shares(s, i) && ready_ns == 0) {
            return false;
        }
        if (shares(s, i) && (out->first < 0 || ready_ns < out->first_ns)) {
            out->first = i;
            out->first_ns = ready_ns;
        }
        if (shares(s, i) && ready_ns > out->last_ns) {
            out->last = i;
            out->last_ns = ready_ns;
        }
    }
    return out->first >= 0;
}

static int most_of(const int *counts, int count)
{
    int most = 0;

    for (int i = 1; i < count; i++) {
        most = counts[i] > counts[most] ? i : most;
    }
    return most;
}

/* That rank i waited for a bucket before the last rank had it. */
static double waited_ns(const struct dp_bucket_time *time, const struct arrival *arrival)
{
    const uint64_t end_ns =
        time->wait_ended_ns < arrival->last_ns ? time->wait_ended_ns : arrival->last_ns;

    return end_ns > time->wait_ns ? (double)(end_ns - time->wait_ns) : 0.0;
}

/* Who came first and last at a bucket; returns how many steps say so. Adds up what all ranks waited
 * for each other. */
static int compare_bucket(struct sharers *s, int b, struct dp_run_bucket *out, double *waiting_ns)
{
    double spread_ns = 0.0;
    int steps = 0;

    memset(s->first, 0, (size_t)s->count * sizeof(*s->first));
    memset(s->last, 0, (size_t)s->count * sizeof(*s->last));
    for (int step = 0; step < s->kept; step++) {
        struct arrival arrival;

        if (!arrival_at(s, step, b, &arrival)) {
            continue;
        }
        steps++;
        spread_ns += (double)(arrival.last_ns - arrival.first_ns);
        s->first[arrival.first]++;
        s->last[arrival.last]++;
        s->last_at[arrival.last] += arrival.last_ns > arrival.first_ns;
        for (int i = 0; i < s->count; i++) {
            if (shares(s, i)) {
                const struct dp_bucket_time *time = time_at(s, i, step, b);
                s->late_ns[i] += (double)(time->ready_ns - arrival.first_ns);
                *waiting_ns += waited_ns(time, &arrival);
            }
        }
    }
    if (steps > 0) {
        out->first_rank = most_of(s->first, s->count);
        out->last_rank = most_of(s->last, s->count);
        out->spread_ms = spread_ns / steps / 1e6;
    }
    return steps;
}

/* What coding takes, likewise; unknown where none was timed. */
static void average_coding(const struct sharers *s, int b, struct dp_run_bucket *out)
{
    double encode_ns = 0.0, decode_ns = 0.0;
    int ranks = 0;

    for (int i = 0; i < s->count; i++) {
        const struct dp_bucket_sums *sums = shares(s, i) ? &s->ranks[i].sums[b] : NULL;
        if (sums != NULL && sums->steps > 0) {
            ranks++;
            encode_ns += (double)sums->encode_ns / (double)sums->steps;
            decode_ns += (double)sums->decode_ns / (double)sums->steps;
        }
    }
    if (encode_ns > 0.0) {
        out->encode_ms = encode_ns / ranks / 1e6;
        out->decode_ms = decode_ns / ranks / 1e6;
    }
}

/* Mean of the ranks, each of its steps. */
static void average_bucket(const struct sharers *s, int b, struct dp_run_bucket *out)
{
    double ready_ns = 0.0, sent_ns = 0.0, done_ns = 0.0, exposed_ns = 0.0;
    int ranks = 0;

    for (int i = 0; i < s->count; i++) {
        if (shares(s, i) && s->ranks[i].sums[b].steps > 0) {
            const struct dp_bucket_sums *sums = &s->ranks[i].sums[b];
            const double steps = (double)sums->steps;

            ranks++;
            ready_ns += (double)sums->ready_ns / steps;
            sent_ns += (double)sums->sent_ns / steps;
            done_ns += (double)sums->done_ns / steps;
            exposed_ns += (double)sums->exposed_ns / steps;
        }
    }
    if (ranks > 0) {
        out->ready_ms = ready_ns / ranks / 1e6;
        out->sent_ms = sent_ns / ranks / 1e6;
        out->done_ms = done_ns / ranks / 1e6;
        out->exposed_ms = exposed_ns / ranks / 1e6;
        out->gbs = ranks > 1 && done_ns > sent_ns
                       ? (double)out->bytes / ((done_ns - sent_ns) / ranks)
                       : (double)NAN; /* one rank sends nothing */
    }
}

static dp_status open_sharers(struct sharers *s, const struct dp_all_times *all, int ranks)
{
    memset(s, 0, sizeof(*s));
    s->ranks = all->ranks;
    s->count = ranks < all->count ? ranks : all->count;
    s->kept = -1;
    for (int i = 0; i < s->count; i++) {
        if (shares(s, i) && (s->kept < 0 || s->ranks[i].kept < s->kept)) {
            s->kept = s->ranks[i].kept;
        }
    }
    s->first = dp_zalloc((size_t)s->count, sizeof(*s->first));
    s->last = dp_zalloc((size_t)s->count, sizeof(*s->last));
    s->last_at = dp_zalloc((size_t)s->count, sizeof(*s->last_at));
    s->late_ns = dp_zalloc((size_t)s->count, sizeof(*s->late_ns));
    return s->first != NULL && s->last != NULL && s->last_at != NULL && s->late_ns != NULL
               ? DP_OK
               : DP_FAIL(DP_ERR_NOMEM, "arrivals of %d ranks", s->count);
}

static void close_sharers(struct sharers *s)
{
    dp_free(s->first);
    dp_free(s->last);
    dp_free(s->last_at);
    dp_free(s->late_ns);
}

/* Waiting in a step of a mean rank: for each other's gradients, and at the end of the step. */
static double mean_waiting_ms(const struct sharers *s, double waiting_ns)
{
    double end_ns = 0.0;
    int ranks = 0;

    for (int i = 0; i < s->count; i++) {
        if (shares(s, i)) {
            ranks++;
            end_ns += (double)s->ranks[i].end_wait_ns / (double)s->ranks[i].steps;
        }
    }
    return s->kept > 0 ? (waiting_ns / s->kept + end_ns) / ranks / 1e6 : (double)NAN;
}

static dp_status fill(struct sharers *s, const struct dp_bucket_plan *plan,
                      struct dp_run_summary *summary, double *waiting_ms)
{
    double waiting_ns = 0.0;
    int compared = 0;

    DP_TRY(dp_run_summary_resize(summary, DP_TABLE_BUCKETS, plan->count));
    DP_TRY(dp_run_summary_resize(summary, DP_TABLE_STRAGGLERS, s->count));
    for (int b = 0; b < summary->bucket_count; b++) {
        summary->buckets[b].bytes = (int64_t)(plan->buckets[b].range.count * sizeof(float));
        summary->buckets[b].deferred = plan->buckets[b].deferred;
        average_bucket(s, b, &summary->buckets[b]);
        average_coding(s, b, &summary->buckets[b]);
        compared += compare_bucket(s, b, &summary->buckets[b], &waiting_ns);
    }
    for (int i = 0; i < summary->straggler_count; i++) {
        struct dp_run_straggler *straggler = &summary->stragglers[i];

        straggler->rank = i;
        if (compared > 0 && shares(s, i)) {
            straggler->last_at = (double)s->last_at[i] / compared;
            straggler->late_ms = s->late_ns[i] / compared / 1e6;
        }
    }
    *waiting_ms = mean_waiting_ms(s, waiting_ns);
    return DP_OK;
}

dp_status dp_bucket_table(const struct dp_all_times *all, int ranks,
                          const struct dp_bucket_plan *plan, struct dp_run_summary *summary,
                          double *waiting_ms)
{
    struct sharers sharers;
    dp_status status = open_sharers(&sharers, all, ranks);

    *waiting_ms = (double)NAN;
    if (status == DP_OK && sharers.kept >= 0) {
        status = fill(&sharers, plan, summary, waiting_ms);
    }
    close_sharers(&sharers);
    return status;
}
