/*
 * strategy_checks.h - what every strategy must do, seen from one rank.
 *
 * The same checks run with ranks as threads (test_strategy.c) and under mpirun (mpi_collectives.c).
 */
#ifndef DP_TESTS_SUPPORT_STRATEGIES_STRATEGY_CHECKS_H
#define DP_TESTS_SUPPORT_STRATEGIES_STRATEGY_CHECKS_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/core/group.h"

/* Checks the contract of a strategy: `name` is its text, a const char *. A strategy that refuses
 * this group must give a reason and name those that can run; then nothing else is checked. Prints
 * the name of each check that fails. */
size_t check_strategy(struct dp_group *group, const void *name);

/* Whether the strategy of a text refuses this group, and why. Local. */
bool strategy_refuses(const struct dp_group *group, const char *text, const char **why_not);

/* If the test is about GPUs, chooses one for this rank. Collective. */
DP_CHECKED dp_status find_gpus(struct dp_group *group);

/* One element of the sum over ranks [first, first + count) in the order of the one binary tree. */
float tree_sum(int first, int count, size_t i, float (*value)(int rank, size_t i));

#endif
