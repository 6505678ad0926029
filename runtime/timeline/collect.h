/*
 * collect.h - bytes of any length of every rank for rank 0, one rank after the other, so that rank
 * 0 needs memory for one of them only.
 */
#ifndef DP_RUNTIME_TIMELINE_COLLECT_H
#define DP_RUNTIME_TIMELINE_COLLECT_H

#include <stddef.h>

#include "base/status.h"
#include "collectives/exchange/exchange.h"

/* What rank 0 does with those of a rank; `data` is borrowed. */
typedef dp_status dp_collect_take(void *context, int rank, const void *data, size_t bytes);

/*
 * Collective, between steps. `take` is called on rank 0 only, for its own bytes first, in the order
 * of ranks. After it has failed the other ranks are not asked.
 *
 * Errors: of rank 0 those of `take`, DP_ERR_NOMEM; of all those of dp_group_exchange. So ranks
 * agree afterwards.
 */
DP_CHECKED dp_status dp_collect(struct dp_exchange *exchange, const void *mine, size_t bytes,
                                dp_collect_take *take, void *context);

#endif
