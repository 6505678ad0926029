/*
 * bench.h - what all kinds of ddp_bench runs have in common, after the command line.
 *
 * sweep.c measures sizes; model.c the buckets of a model (--buckets, --train); skips.c leaves out
 * what cannot run; compare.c finds which rows are faster by more than noise; verdict.c describes
 * the result.
 */
#ifndef DP_LAUNCH_BENCH_BENCH_H
#define DP_LAUNCH_BENCH_BENCH_H

#include "launch/bench/names.h"
#include "launch/bench/options.h"
#include "launch/bench/rows.h"

/* Instead of runtime/lockstep.h, which hides exchanges and trainers: ddp_bench compares exchanges,
 * and creates a trainer for each way to share. */
#include "collectives/strategies/cost.h"
#include "collectives/world/world.h"
#include "runtime/run/training.h"

/* What was left out so far, to be reported if nothing remains. */
enum { DP_BENCH_WAY = 1024, DP_BENCH_SKIPPED = 2 * DP_BENCH_WAY };
struct dp_bench_skipped {
    char first[DP_BENCH_SKIPPED]; /* "nccl: the gradients are not on GPUs" */
    dp_status status;             /* DP_ERR_CONFIG unless there was another reason */
    bool tried;                   /* its parts can run here, but not in this combination */
};

struct dp_bench {
    const struct dp_bench_options *options; /* borrowed */
    struct dp_world *world;                 /* borrowed */
    const struct dp_device *device;         /* where a sweep's gradients are */
    struct dp_run_options asked;            /* with --buckets: of the model */
    struct dp_training *run;                /* owned; this rank's cores, with --buckets the model */
    struct dp_bench_names strategies, compressors;
    struct dp_cost cost;
    struct dp_bench_rows rows;
    struct dp_bench_skipped skipped;
};

/* Measures links and the host's memory for predictions, with up to max_bytes or a minimum, and
 * prints the result. Sets the group's stream meanwhile. Collective. */
DP_CHECKED dp_status dp_bench_probe(struct dp_bench *bench, struct dp_group *group,
                                    size_t max_bytes);

/* Whether rows of this compressor are predicted and exact: only those of the first one, which
 * changes nothing. */
bool dp_bench_plain(const char *compressor);

/* Whether `strategy` can be compared in this group; if not, says why. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_bench_usable(struct dp_bench *bench, const struct dp_group *group,
                                     const char *strategy, bool *usable);

/* Captures errors while a way to share is created, since all ranks refuse the same. Rank 0 then
 * reports them: after `end` as an error that ends the program, in dp_bench_skips() as the reason
 * why the way is left out. */
void dp_bench_try_begin(const struct dp_group *group);
void dp_bench_try_end(const struct dp_group *group, dp_status status);

/* Whether `status` means that a way cannot run here, on all ranks, so that the next one can be
 * tried. Prints that. */
bool dp_bench_skips(struct dp_bench *bench, const char *strategy, const char *compressor,
                    dp_status status);

/* Prints that a way is left out, and why; `status` is its error. */
void dp_bench_leave_out(struct dp_bench *bench, const char *strategy, const char *compressor,
                        dp_status status, const char *why);

/* Returns the error with which all ranks end when no way remains; rank 0 reports what was wrong
 * with the first one, and what can run here. */
DP_CHECKED dp_status dp_bench_none_left(const struct dp_bench *bench);

/* Measure all sizes, or all buckets of a model. Collective. */
DP_CHECKED dp_status dp_bench_sweep(struct dp_bench *bench);
DP_CHECKED dp_status dp_bench_model(struct dp_bench *bench);

/* Writes one line about the rows: which way to use, and why. *verdict: of any length; set on
 * success; owned by the caller. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_bench_verdict(const struct dp_bench_rows *rows, char **verdict);

/* The whole program, called by main(). Collective. */
DP_CHECKED dp_status dp_bench_main(const struct dp_bench_options *options, struct dp_world *world);

#endif
