/*
 * algo_tuning.h - the algorithms that a GPU's libraries compute with, chosen by measuring: alike on
 * all ranks, and in every run that goes on or is repeated.
 *
 * With device.tune a stream that prepares takes what is known for a shape, and measures what is not
 * (kernels/algo_choices.h). What is known at the start comes, by order of precedence, from --plan,
 * from the checkpoint that the run goes on from, and from the cache, choices.json (base/cache.h);
 * rank 0 reads them, and all ranks get them. When all have prepared, and before the first step,
 * they agree: of several choices for one shape the one that is told first counts, mostly the lowest
 * rank's (tables go round in blocks), and whoever has taken another one prepares anew. From then on
 * nothing is measured. Rank 0 adds what is new to the cache, to config.yaml and to checkpoints.
 *
 *   device.tune  measures
 *   on           always
 *   off          never: the libraries' first proposals are taken
 *   auto         with --plan, or a checkpoint: where that run has; else where what was measured can
 *                be kept, and without train.lanes: their bits must not depend on a cache
 */
#ifndef DP_RUNTIME_RUN_ALGO_TUNING_H
#define DP_RUNTIME_RUN_ALGO_TUNING_H

#include <stdbool.h>

#include "collectives/exchange/exchange.h"
#include "kernels/algo_choices.h"

/*
 * Makes the choices of all ranks equal, where `status` (of preparing, on this rank) is DP_OK on all
 * of them, and settles them. *changed: what this rank has prepared is not what it is to use.
 * Collective, between steps. Errors: as dp_exchange_agree(); DP_ERR_NOMEM. All ranks return with
 * one.
 */
DP_CHECKED dp_status dp_algo_tuning_agree(struct dp_exchange *exchange, dp_status status,
                                          struct dp_algo_choices *algo_choices, bool *changed);

#endif
