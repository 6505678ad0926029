/*
 * consistency.h - what must be equal on all ranks before they work together: a strategy, a plan, a
 * model, and success. The first rank and field that differ, or the first failure, is reported.
 */
#ifndef DP_COLLECTIVES_CORE_CONSISTENCY_H
#define DP_COLLECTIVES_CORE_CONSISTENCY_H

#include "base/log.h"
#include "collectives/core/group.h"

enum { DP_CONSISTENCY_TEXT = 240 };

struct dp_consistency_item {
    const char *field;               /* "comm.strategy"; equal on all ranks */
    char value[DP_CONSISTENCY_TEXT]; /* shown to people: its beginning, or a description */
    uint64_t hash;                   /* of the whole value */
    const char *remedy;              /* what to do about a difference; NULL: the value says it */
};

/* An item whose value is a text of any length. Local. */
struct dp_consistency_item dp_consistency_text(const char *field, const char *text);

/*
 * Compares this rank's items with those of all others; `count` is equal everywhere. Collective.
 *
 * Errors: DP_ERR_DISAGREE on all ranks, after rank 0 has reported which rank differs from it, on
 * which host, and in what; DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_consistency_check(struct dp_group *group,
                                          const struct dp_consistency_item *items, int count);

/* Returns on all ranks the status of the first rank that failed; `mine` is this rank's. Ends the
 * capture that each rank began before its attempt: that rank prints it, the others drop it.
 * Collective. */
DP_CHECKED dp_status dp_consistency_agree(struct dp_group *group, dp_status mine,
                                          struct dp_log_capture *capture);

#endif
