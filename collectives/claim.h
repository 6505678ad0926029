/*
 * claim.h - what all ranks must have alike before they work together: a strategy, a plan, a model.
 * One exchange of messages finds out; the first rank and field that differ are told.
 */
#ifndef DP_COLLECTIVES_CLAIM_H
#define DP_COLLECTIVES_CLAIM_H

#include "collectives/group.h"

enum { DP_CLAIM_TEXT = 240 };

struct dp_claim {
    const char *field;         /* "comm.strategy"; equal on all ranks */
    char value[DP_CLAIM_TEXT]; /* for people: its beginning, or what describes it */
    uint64_t hash;             /* of all of it */
    const char *remedy;        /* what to do about a difference; NULL: its value says it */
};

/* A claim whose value is a text of any length. Local. */
struct dp_claim dp_claim_text(const char *field, const char *text);

/*
 * Compares this rank's claims with those of all others; `count` is equal everywhere. Collective.
 *
 * Errors: DP_ERR_DISAGREE on all ranks, when rank 0 has told which rank differs from it, on which
 * host, and in what; DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_claims_compare(struct dp_group *group, const struct dp_claim *claims,
                                       int count);

#endif
