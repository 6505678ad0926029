/*
 * verify_sums.h - the sum of a bucket, made once more from every rank's gradient: option
 * train.verify_sums.
 *
 * A message, or memory, that changed while a bucket was summed gives wrong weights on all ranks
 * alike, which a comparison of ranks does not see. So every so many steps each rank keeps its
 * gradient of one bucket, another one each time. After the step all ranks gather what was kept, add
 * it up in the order of the tree, and compare. Where the strategy keeps that order they must be
 * equal; else a sum of n numbers may be off by n roundings of the sum of their magnitudes.
 *
 * A gradient that was wrong before it was shared is not found so.
 */
#ifndef DP_RUNTIME_TRAINER_UPDATE_VERIFY_SUMS_H
#define DP_RUNTIME_TRAINER_UPDATE_VERIFY_SUMS_H

#include "base/status.h"

struct dp_trainer;
struct dp_verify_sums;

/* Leaves *out NULL where it is off, or nothing is shared. Errors: DP_ERR_CONFIG (sums are not
 * exact, or not made in the host's memory), DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_verify_sums_create(const struct dp_trainer *trainer,
                                           struct dp_verify_sums **out);
void dp_verify_sums_destroy(struct dp_verify_sums *verify);

/* Before a step's first bucket is submitted: keeps a bucket where one is due. NULL: nothing is.
 * Local. */
void dp_verify_sums_begin(struct dp_verify_sums *verify, const struct dp_trainer *trainer);

/* After all sums of the step: compares what was kept. Collective. Errors: DP_ERR_DISAGREE, on all
 * ranks; rank 0 reports it. */
DP_CHECKED dp_status dp_verify_sums_end(struct dp_verify_sums *verify,
                                        const struct dp_trainer *trainer);

#endif
