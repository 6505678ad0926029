/*
 * algo_agreement.h - ranks whose libraries measured differently compute with the same algorithms.
 *
 * When all ranks have prepared, and before the first step, they agree: of several choices for one
 * shape the first one sent counts, mostly the lowest rank's (tables are gathered in blocks),
 * and a rank that has taken another one prepares anew. From then on nothing is measured.
 */
#ifndef DP_RUNTIME_TRAINER_ALGO_AGREEMENT_H
#define DP_RUNTIME_TRAINER_ALGO_AGREEMENT_H

#include <stdbool.h>

#include "collectives/exchange/exchange.h"
#include "kernels/algo_choices.h"

/*
 * Makes the choices of all ranks equal, where `status` (of preparing, on this rank) is DP_OK on all
 * of them, and closes them. *changed: what this rank has prepared is not what it is to use.
 * Collective, between steps. Errors: as dp_exchange_agree(); DP_ERR_NOMEM. All ranks return with
 * one.
 */
DP_CHECKED dp_status dp_algo_agreement_reach(struct dp_exchange *exchange, dp_status status,
                                             struct dp_algo_choices *algo_choices, bool *changed);

#endif
