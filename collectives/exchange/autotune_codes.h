/*
 * autotune_codes.h - what autotuning (strategy_autotune.h) times where buckets go through a
 * compressor: the compressor's own sums, over each strategy, of buckets as the plan cuts them.
 *
 * Gradients, residuals and start vectors are scratch memory that all strategies use in turn.
 */
#ifndef DP_COLLECTIVES_EXCHANGE_AUTOTUNE_CODES_H
#define DP_COLLECTIVES_EXCHANGE_AUTOTUNE_CODES_H

#include "collectives/core/bucket.h"
#include "collectives/strategies/comm.h"

struct dp_autotune_codes;

/* For the plan's buckets of at most most_bytes, its tail left out. The plan is borrowed. *out stays
 * NULL where nothing is compressed (NULL, "none"). Errors: DP_ERR_CONFIG, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_autotune_codes_create(const char *compressor,
                                              const struct dp_bucket_plan *plan, size_t most_bytes,
                                              struct dp_autotune_codes **out);
void dp_autotune_codes_destroy(struct dp_autotune_codes *codes);

/* Opens the compressor over a strategy; close releases it, NULL is allowed. Collective. Errors:
 * those of the compressor. */
DP_CHECKED dp_status dp_autotune_codes_open(const struct dp_autotune_codes *codes,
                                            struct dp_comm *comm, void **state);
void dp_autotune_codes_close(const struct dp_autotune_codes *codes, void *state);

/* Sums data [bytes], with the tensors of a bucket of so many bytes. Collective. */
DP_CHECKED dp_status dp_autotune_codes_sum(struct dp_autotune_codes *codes, void *state,
                                           float *data, size_t bytes);

#endif
