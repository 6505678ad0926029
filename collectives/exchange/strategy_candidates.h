/*
 * strategy_candidates.h - the strategies among which `auto` may choose.
 */
#ifndef DP_COLLECTIVES_EXCHANGE_STRATEGY_CANDIDATES_H
#define DP_COLLECTIVES_EXCHANGE_STRATEGY_CANDIDATES_H

#include "collectives/core/group.h"

/* Number i, from 0, of what may be a candidate in some group; NULL past the last. */
const char *dp_strategy_candidate(int i);

/* Whether `text` is a candidate in this group. Only the group's ranks, nodes and flags are read.
 * Local. */
bool dp_strategy_candidate_runs(const struct dp_group *group, const char *text);

#endif
