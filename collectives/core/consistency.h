/*
 * consistency.h - what all ranks must have alike before they work together: a strategy, a plan, a
 * model, and that all can. The first rank and field that differ, or the first failure, is reported.
 */
#ifndef DP_COLLECTIVES_CORE_CONSISTENCY_H
#define DP_COLLECTIVES_CORE_CONSISTENCY_H

#include "collectives/core/group.h"

enum { DP_CONSISTENCY_TEXT = 240 };

struct dp_consistency_item {
    const char *field;               /* "comm.strategy"; equal on all ranks */
    char value[DP_CONSISTENCY_TEXT]; /* for people: its beginning, or what describes it */
    uint64_t hash;                   /* of all of it */
    const char *remedy;              /* what to do about a difference; NULL: its value says it */
};

/* An item whose value is a text of any length. Local. */
struct dp_consistency_item dp_consistency_text(const char *field, const char *text);

/*
 * Compares this rank's items with those of all others; `count` is equal everywhere. Collective.
 *
 * Errors: DP_ERR_DISAGREE on all ranks, when rank 0 has reported which rank differs from it, on
 * which host, and in what; DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_consistency_check(struct dp_group *group,
                                          const struct dp_consistency_item *items, int count);

/* What `mine` comes to on all ranks: the status of the first rank that failed. That one reports
 * why; all were muted (dp_log_mute(1)) while they came to it. Collective. */
DP_CHECKED dp_status dp_consistency_settle(struct dp_group *group, dp_status mine);

#endif
