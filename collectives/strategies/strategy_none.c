/*
 * strategy_none.c - no sharing: every rank trains alone. It measures the upper limit of any
 * strategy. Only the tail (loss, stop requests) is summed, by the exchange itself.
 */
#include "collectives/strategies/strategy.h"

static bool none_supports(const struct dp_group *group, const char **why_not)
{
    (void)group;
    (void)why_not;
    return true;
}

static dp_status none_open(void *state, struct dp_group *group, size_t max_count)
{
    (void)state;
    (void)group;
    (void)max_count;
    return DP_OK;
}

static void none_close(void *state)
{
    (void)state;
}

const struct dp_strategy dp_strategy_none = {
    .plugin = {.name = "none", .help = "no sharing at all: the ceiling, for measuring only"},
    .ordered = true,
    .supports = none_supports,
    .open = none_open,
    .sum = NULL,
    .close = none_close,
};
