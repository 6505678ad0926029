/*
 * algo_agreement.h - makes all ranks compute with the same algorithms, although their libraries
 * measured different times.
 *
 * Ranks agree after all have prepared, and before the first step. Of several choices for one shape
 * that of the rank which takes longest is taken, since the others wait for it; of those without a
 * time the lowest rank's. A rank that had chosen another one prepares again. After that nothing is
 * measured.
 */
#ifndef DP_RUNTIME_TRAINER_PREPARE_ALGO_AGREEMENT_H
#define DP_RUNTIME_TRAINER_PREPARE_ALGO_AGREEMENT_H

#include <stdbool.h>

#include "collectives/exchange/exchange.h"
#include "kernels/algo_choices.h"

/*
 * Makes the choices of all ranks equal, and then freezes them, if `status` (this rank's result of
 * preparing) is DP_OK on all ranks. *changed: this rank has to prepare again. Collective, between
 * steps. Errors, with which all ranks return: as dp_exchange_agree(); DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_algo_agreement_reach(struct dp_exchange *exchange, dp_status status,
                                             struct dp_algo_choices *algo_choices, bool *changed);

#endif
