/*
 * rank_check.h - several ranks against one: the same configuration, the same steps.
 *
 * With train.lanes both end with the same bits. Else the distance of their weights is compared with
 * what one rank comes to when each initial weight is rounded otherwise. Where batch norm normalises
 * each rank's rows by themselves, only the ranks' agreement is checked.
 */
#ifndef DP_RUNTIME_RUN_SELFTEST_RANK_CHECK_H
#define DP_RUNTIME_RUN_SELFTEST_RANK_CHECK_H

#include "runtime/run/selftest/selftest_lines.h"

/* Faults of the job (DP_FAULT) happen to the several ranks. rows: of a global batch. Collective.
 * Errors: in a job of several ranks those of its training. */
DP_CHECKED dp_status dp_rank_check(struct dp_selftest *selftest, size_t rows);

#endif
