/*
 * run_fingerprint.h - what a checkpoint says about the run that made it, and which differences
 * matter to one that goes on from it.
 */
#ifndef DP_RUNTIME_RUN_PLAN_RUN_FINGERPRINT_H
#define DP_RUNTIME_RUN_PLAN_RUN_FINGERPRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"

struct dp_run_job;

/* Sets a text for each field. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_run_fingerprint_write(const struct dp_run_job *job, struct dp_json *object);

/*
 * Refuses a checkpoint whose position in the data, or whose state, means nothing to this run:
 * another optimizer, precision, batch, seed, order or number of rows. `source` is the checkpoint.
 * Before the trainer is made.
 *
 * Errors: DP_ERR_CONFIG (one line names all that differs).
 */
DP_CHECKED dp_status dp_run_fingerprint_check(const struct dp_run_job *job,
                                              const struct dp_json *object, const char *source);

/* Whether a field is what it was. Before the trainer is made: of fields that are known by then,
 * such as "train.lanes". */
bool dp_run_fingerprint_same(const struct dp_run_job *job, const struct dp_json *object,
                             const char *name);

/* Whether all fields that comm.strategy auto looks at are what they were; and a hash of them, for
 * the key of what it chose. Before the trainer is made. */
bool dp_run_fingerprint_same_for_auto(const struct dp_run_job *job, const struct dp_json *object);
uint64_t dp_run_fingerprint_hash_for_auto(const struct dp_run_job *job, uint64_t seed);

/*
 * Lists the other differences that can change a bit of the weights, by the keys of the
 * configuration: "optimizer.lr 0.1 -> 0.2, ranks 2 -> 4"; empty: there is none.
 * Returns whether the bits stay those of a run that was never interrupted.
 */
bool dp_run_fingerprint_compare(const struct dp_run_job *job, const struct dp_json *object,
                                char *text, size_t size);

#endif
