/*
 * plan.h - how the gradients of a run are shared: what `auto` chose, kept where it can be used
 * again.
 *
 * A plan is one JSON object of schema lockstep.plan/1. It is in config.yaml, as a comment after the
 * configuration, and in a cache, so that a second run on the same hosts need not measure:
 *
 *   # plan: {"schema": "lockstep.plan/1", "strategy": "direct", "overlap": "off", "ranks": 4,
 *            "nodes": 2, "buckets": "5e0c...", "reason": "measured: ..."}      (one line)
 *
 * `--plan FILE` reads either and pins strategy and overlap. `buckets` is the hash of where the
 * gradient is cut; a model or a bucket size that cuts it elsewhere is refused.
 *
 * Choices of libraries' algorithms (kernels/algo_choices.h), which are part of how a run computes,
 * follow it in a line "# choices: {...}" of their own, if there are any.
 *
 * The cache is ${XDG_CACHE_HOME:-~/.cache}/lockstep/plan-KEY.json on rank 0's host. KEY is a hash
 * of the program, the MPI library, the hosts of all ranks, in order, and what each sees of the wire
 * between them (base/system/wire.h), the model's tensors, and the options that `auto` looks at.
 * What no host sees, such as a slower switch, is not in it: comm.plan_cache: off measures again.
 */
#ifndef DP_RUNTIME_RUN_PLAN_PLAN_H
#define DP_RUNTIME_RUN_PLAN_PLAN_H

#include <stdbool.h>

#include "base/files/file.h"
#include "base/json.h"
#include "collectives/exchange/exchange.h"

struct dp_plan {
    bool on;                          /* it was read, and is in force */
    char strategy[DP_EXCHANGE_LABEL]; /* with the sharding: "zero1:over=shm" */
    int overlap;                      /* DP_OVERLAP_...; auto: was not decided yet */
    int ranks, nodes;                 /* that it was made for */
    char buckets[17];                 /* 16 hexadecimal digits */
    char reason[192];
    char why[256];             /* for the banner: where it comes from, and the reason */
    char from[DP_PATH_BYTES];  /* rank 0: the file */
    char cache[DP_PATH_BYTES]; /* rank 0: where what is measured goes; empty: nowhere */
    char key[17];
};

/* What precedes a plan, and the choices of algorithms, in config.yaml. */
#define DP_PLAN_MARK "# plan: "
#define DP_PLAN_CHOICES_MARK "# choices: "

/* "auto", "on" or "off": of DP_OVERLAP_... */
const char *dp_plan_overlap_text(int overlap);

/* Reads a plan: the last one in a file with "# plan: {...}" lines, or a file that is one; fills in
 * what the object has. Errors: DP_ERR_NOINPUT, DP_ERR_DATA, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_plan_read(const char *path, struct dp_plan *plan);

/* The choices in such a file: *out is owned by the caller (dp_json_destroy), NULL: it has none.
 * Errors: as dp_plan_read(). */
DP_CHECKED dp_status dp_plan_read_choices(const char *path, struct dp_json **out);

/* A plan in one line; *text is owned by the caller (dp_free). Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_plan_text(const struct dp_plan *plan, char **text);

#endif
