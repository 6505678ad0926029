/*
 * strategy_autotune.h - measures which strategy sums the buckets of a plan fastest here, for
 * `auto`.
 *
 * Every strategy that can run in the group sums scratch buffers, in turn with the others, of rising
 * sizes: those of the plan's buckets from 64 KiB up, with factors of at most eight between them. A
 * turn takes as long as its slowest rank. The median of a strategy's turns is one point of its
 * curve, and the curve predicts the time for all buckets of a step. A strategy that can no longer
 * become the fastest, whatever it does with larger sizes, is dropped. When the time is used up,
 * sizes that were not reached are predicted in proportion to their bytes. So a slow network is
 * measured with small buckets, a fast one with those of the model.
 *
 * With a compressor, what it sends is timed: its own sums of the plan's buckets, with their
 * tensors, over each strategy; and the tail, which is never compressed.
 *
 * One strategy is chosen for all buckets. A step has only one or two small ones (mostly the tail),
 * so a second strategy could save only a few latencies. One strategy has one name for the banner,
 * --plan and checkpoints, and one answer to whether lanes may use it.
 *
 * With group->ordered, only strategies that keep the tree's order over ranks are candidates.
 *
 * Ranks of one node that share memory are not measured. There `auto` means zero1 over shm with one
 * copy of the weights, which also saves optimizer time that timing of sums cannot see.
 */
#ifndef DP_COLLECTIVES_EXCHANGE_STRATEGY_AUTOTUNE_H
#define DP_COLLECTIVES_EXCHANGE_STRATEGY_AUTOTUNE_H

#include "collectives/core/bucket.h"
#include "collectives/core/group.h"

enum { DP_STRATEGY_AUTOTUNE_TEXT = 64, DP_STRATEGY_AUTOTUNE_WHY = 192 };

struct dp_strategy_autotune_config {
    const struct dp_bucket_plan *plan;
    const char *compressor; /* that the buckets go through; NULL, "none": they do not */
    double budget_s;        /* for all turns; a turn in progress at the end is finished */
    uint64_t (*now)(void);  /* nanoseconds by the clock of this rank; NULL: dp_now_ns() */
};

struct dp_strategy_autotune_result {
    char strategy[DP_STRATEGY_AUTOTUNE_TEXT];
    char why[DP_STRATEGY_AUTOTUNE_WHY]; /* "measured: direct 3.12 ms a step, ring 13.9, rhd 144" */
};

/*
 * Chooses the strategy, the same on every rank. group->stream must be set. Collective; no engine
 * may own the group. Memory is released when it returns.
 *
 * Errors: DP_ERR_CONFIG (no strategy here keeps the order), DP_ERR_NOMEM, those of the strategies.
 */
DP_CHECKED dp_status dp_strategy_autotune_run(struct dp_group *group,
                                              const struct dp_strategy_autotune_config *config,
                                              struct dp_strategy_autotune_result *out);

#endif
