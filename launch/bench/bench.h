/*
 * bench.h - ddp_bench behind its command line: what all kinds of runs share.
 *
 * sweep.c goes through sizes; model.c through the buckets of a model (--buckets, --train);
 * skips.c leaves out what cannot run; verdict.c says what came of it, by compare.c: what is better,
 * and what only scatters.
 */
#ifndef DP_LAUNCH_BENCH_BENCH_H
#define DP_LAUNCH_BENCH_BENCH_H

#include "collectives/strategies/cost.h"
#include "collectives/world/world.h"
#include "launch/bench/names.h"
#include "launch/bench/options.h"
#include "launch/bench/rows.h"
#include "runtime/run/training.h"

/* What was left out so far: told where nothing else is left. */
enum { DP_BENCH_WAY = 1024, DP_BENCH_SKIPPED = 2 * DP_BENCH_WAY };
struct dp_bench_skipped {
    char first[DP_BENCH_SKIPPED]; /* "nccl: the gradients are not on GPUs" */
    dp_status status;             /* DP_ERR_CONFIG while that alone is why */
    bool tried;                   /* some of it runs here, but not this way */
};

struct dp_bench {
    const struct dp_bench_options *options; /* borrowed */
    struct dp_world *world;                 /* borrowed */
    const struct dp_device *device;         /* of a sweep's gradients */
    struct dp_training *run;                /* owned; this rank's cores, with --buckets the model */
    struct dp_bench_names strategies, compressors;
    struct dp_cost cost;
    struct dp_bench_rows rows;
    struct dp_bench_skipped skipped;
};

/* Measures links and memory of the host for predictions, with up to max_bytes, or more where those
 * are few, and says what was found. The group's stream is set for that time. Collective. */
DP_CHECKED dp_status dp_bench_probe(struct dp_bench *bench, struct dp_group *group,
                                    size_t max_bytes);

/* Whether rows of this compressor are predictable and exact: those of the first one, which leaves
 * gradients as they are. */
bool dp_bench_plain(const char *compressor);

/* Whether `strategy` can be compared in this group; if not, says why. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_bench_usable(struct dp_bench *bench, const struct dp_group *group,
                                     const char *strategy, bool *usable);

/* While a way is made, what is wrong with it is not told: rank 0 holds it, and the others, which
 * refuse the same, keep silent. It is told as what it is: behind `end` an error that ends the
 * program, and by dp_bench_skips() why a way is left out. */
void dp_bench_try_begin(const struct dp_group *group);
void dp_bench_try_end(dp_status status);

/* Whether a status means that something cannot run here, found by all ranks alike, so that the next
 * one can be tried; says so. */
bool dp_bench_skips(struct dp_bench *bench, const char *strategy, const char *compressor,
                    dp_status status);

/* Says that a way is left out, and why: `status` is what it would end with. */
void dp_bench_leave_out(struct dp_bench *bench, const char *strategy, const char *compressor,
                        dp_status status, const char *why);

/* Where no way was left: the error with which all ranks end; rank 0 says what was wrong with the
 * first one, and what can run here. */
DP_CHECKED dp_status dp_bench_none_left(const struct dp_bench *bench);

/* All sizes; all buckets of a model. Collective. */
DP_CHECKED dp_status dp_bench_sweep(struct dp_bench *bench);
DP_CHECKED dp_status dp_bench_model(struct dp_bench *bench);

/* One line from the rows: which to use and why. *verdict: set on success, whole whatever its
 * length, and owned. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_bench_verdict(const struct dp_bench_rows *rows, char **verdict);

/* All of it: what main() calls. Collective. */
DP_CHECKED dp_status dp_bench_main(const struct dp_bench_options *options, struct dp_world *world);

#endif
