/*
 * strategy_staged.c - gradients on GPUs, summed on the host by another strategy. This strategy adds
 * only the copies to the host and back, in pieces: staging.h. Naming a strategy of the host does
 * the same where gradients are on GPUs; this name is explicit, and the one that `auto` chooses.
 */
#include "collectives/strategies/comm.h"

struct staged {
    const char *over;
    struct dp_comm *inner; /* owned */
};

static bool staged_supports(const struct dp_group *group, const char **why_not)
{
    *why_not = "the gradients are not on GPUs";
    return group->gpus != NULL;
}

static dp_status staged_check(const void *state, char *problem, size_t problem_size)
{
    return dp_strategy_check_option("staged", "over", ((const struct staged *)state)->over, problem,
                                    problem_size);
}

static dp_status staged_open(void *state, struct dp_group *group, size_t max_count)
{
    struct staged *staged = state;

    return dp_comm_create_for("staged", "over", group, staged->over, max_count, &staged->inner);
}

static dp_status staged_sum(void *state, struct dp_slice data, enum dp_keep keep)
{
    return dp_comm_sum(((struct staged *)state)->inner, data, keep);
}

static dp_status staged_gather(void *state, struct dp_slice data)
{
    return dp_comm_gather(((struct staged *)state)->inner, data);
}

static dp_status staged_barrier(void *state)
{
    return dp_comm_barrier(((struct staged *)state)->inner);
}

static void staged_close(void *state)
{
    dp_comm_destroy(((struct staged *)state)->inner);
}

static bool staged_keeps_order(const void *state, const struct dp_group *group)
{
    return dp_strategy_ordered(((const struct staged *)state)->over, group);
}

#define STAGED struct staged

/* clang-format off */
static const struct dp_option staged_options[] = {
    DP_STRING(STAGED, over, "auto", "the strategy that sums on the host"),
    {0},
};
/* clang-format on */

const struct dp_strategy dp_strategy_staged = {
    .plugin = {.name = "staged",
               .help = "from GPUs to the host and back, in pieces; another strategy sums there",
               .options = staged_options,
               .state_bytes = sizeof(struct staged)},
    .ordered = true,
    .keeps_order = staged_keeps_order,
    .gpus = true,
    .check = staged_check,
    .supports = staged_supports,
    .open = staged_open,
    .sum = staged_sum,
    .gather = staged_gather,
    .barrier = staged_barrier,
    .close = staged_close,
};
