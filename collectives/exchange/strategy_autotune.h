/*
 * strategy_autotune.h - which strategy sums the buckets of a plan fastest here: measured, for
 * `auto`.
 *
 * Every strategy that can run in the group sums scratch buffers, in turns with the others, of
 * rising sizes: from 64 KiB on those of the plan's buckets, and between them steps of eight times.
 * A turn takes as long as its slowest rank; the median of a strategy's turns is one point of its
 * curve, and the curve says how long it needs for all buckets of a step. One that cannot become the
 * fastest any more, whatever it does with larger sizes, drops out; when the time is gone, sizes
 * that were not reached are taken to cost their bytes. So a slow network is measured with small
 * buckets, a fast one with those of the model.
 *
 * One strategy is chosen for all buckets. Small ones (the tail, mostly) are one or two a step, so
 * what a second strategy could save is a few latencies; one strategy keeps one name for the banner,
 * --plan and checkpoints, and one answer to whether lanes may use it.
 *
 * Where group->ordered, only strategies take part that keep the order of the tree over ranks.
 *
 * Not in it: where ranks of one node share memory. There `auto` means zero1 over shm with one copy
 * of the weights, which saves optimizer time, too, that timing of sums cannot see.
 */
#ifndef DP_COLLECTIVES_EXCHANGE_STRATEGY_AUTOTUNE_H
#define DP_COLLECTIVES_EXCHANGE_STRATEGY_AUTOTUNE_H

#include "collectives/core/bucket.h"
#include "collectives/core/group.h"

enum { DP_STRATEGY_AUTOTUNE_TEXT = 64, DP_STRATEGY_AUTOTUNE_WHY = 192 };

struct dp_strategy_autotune_config {
    const struct dp_bucket_plan *plan;
    bool tail_alone; /* the buckets go through a compressor: only the tail counts */
    double budget_s; /* for all turns; the one under way when it is gone is finished */
};

struct dp_strategy_autotune_result {
    char strategy[DP_STRATEGY_AUTOTUNE_TEXT];
    char why[DP_STRATEGY_AUTOTUNE_WHY]; /* "measured: direct 3.12 ms a step, ring 13.9, rhd 144" */
};

/* Whether `text` is one of those that this group would measure. Local. */
bool dp_strategy_autotune_admits(const struct dp_group *group, const char *text);

/*
 * Chooses; the same on every rank. group->stream must be set. Collective; no engine may own the
 * group. Memory is released when it returns.
 *
 * Errors: DP_ERR_CONFIG (nothing can run here that keeps the order), DP_ERR_NOMEM, those of the
 * strategies.
 */
DP_CHECKED dp_status dp_strategy_autotune_run(struct dp_group *group,
                                              const struct dp_strategy_autotune_config *config,
                                              struct dp_strategy_autotune_result *out);

#endif
