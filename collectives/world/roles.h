/*
 * roles.h - what each rank of a job is there for. Ranks of a role follow each other:
 *
 *      | train ... | serve ... | read ... | evaluate |
 *
 *   train     gradients of its rows; rank 0 is always one
 *   serve     sums and updates: comm.servers
 *   read      reads, decodes and augments, and sends batches: data.input_ranks
 *   evaluate  evaluates the newest weights: train.eval_rank
 *
 * The first two share gradients and weights: they are the group dp_world.train. The others help:
 * they take no part in a step.
 */
#ifndef DP_COLLECTIVES_WORLD_ROLES_H
#define DP_COLLECTIVES_WORLD_ROLES_H

#include <stdbool.h>

enum dp_role { DP_ROLE_TRAIN, DP_ROLE_SERVE, DP_ROLE_READ, DP_ROLE_EVALUATE, DP_ROLE_COUNT };

struct dp_roles {
    int count[DP_ROLE_COUNT]; /* ranks of each role */
};

/* The first rank of a role, or where it would be. */
static inline int dp_role_first(const struct dp_roles *roles, enum dp_role role)
{
    int first = 0;

    for (int i = 0; i < (int)role; i++) {
        first += roles->count[i];
    }
    return first;
}

static inline enum dp_role dp_role_of(const struct dp_roles *roles, int rank)
{
    int role = 0;

    while (role + 1 < DP_ROLE_COUNT && rank >= dp_role_first(roles, (enum dp_role)(role + 1))) {
        role++;
    }
    return (enum dp_role)role;
}

/* How many ranks share gradients and weights, and whether there are others. */
static inline int dp_roles_sharing(const struct dp_roles *roles)
{
    return roles->count[DP_ROLE_TRAIN] + roles->count[DP_ROLE_SERVE];
}

static inline bool dp_roles_help(const struct dp_roles *roles)
{
    return roles->count[DP_ROLE_READ] + roles->count[DP_ROLE_EVALUATE] > 0;
}

#endif
