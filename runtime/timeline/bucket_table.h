/*
 * bucket_table.h - when ranks had their buckets, compared: the tables `buckets` and `stragglers` of
 * run.json.
 *
 * A rank is late by when it arrives at a bucket, never by how long something took on it: a rank
 * that waits for others takes as long as they do. Source: Ousterhout et al., "Making sense of
 * performance in data analytics frameworks", NSDI 2015, section 4 (blocked time analysis).
 */
#ifndef DP_RUNTIME_TIMELINE_BUCKET_TABLE_H
#define DP_RUNTIME_TIMELINE_BUCKET_TABLE_H

#include "collectives/core/clock.h"
#include "collectives/exchange/exchange.h"
#include "runtime/report/summary.h"

/* Of one rank; all times by one clock. */
struct dp_rank_times {
    uint64_t steps; /* 0: it shares no gradients */
    uint64_t end_wait_ns;
    int count, kept;
    const struct dp_bucket_sums *sums;  /* [count] */
    const struct dp_bucket_time *times; /* [kept][count] */
};

/* Those of all ranks of the exchange. Zeroed on ranks other than 0. */
struct dp_all_times {
    struct dp_rank_times *ranks; /* owned, with what they point to; [count] */
    int count;
};

/* Collective, between steps. Errors: those of dp_collect; all ranks get the same. */
DP_CHECKED dp_status dp_all_times_collect(struct dp_exchange *exchange,
                                          const struct dp_clock *clock, struct dp_all_times *all);
void dp_all_times_release(struct dp_all_times *all);

/*
 * Fills in summary->buckets and ->stragglers, without their hosts.
 *
 *   plan        the buckets
 *   ranks       how many of the first ranks train
 *   waiting_ms  out  that a mean rank waits in a step for a gradient which another one has not
 *                    computed yet; NaN: not known
 *
 * Local. Errors: DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_bucket_table(const struct dp_all_times *all, int ranks,
                                     const struct dp_bucket_plan *plan,
                                     struct dp_run_summary *summary, double *waiting_ms);

#endif
