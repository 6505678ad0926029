/*
 * checks.h - what every group must do, seen from one rank.
 *
 * The same checks run with ranks as threads (test_group.c) and under mpirun
 * (mpi_collectives.c). Each function has the form of a rank_body: it is collective and returns the
 * number of things that were wrong on this rank.
 */
#ifndef DP_TESTS_SUPPORT_CHECKS_H
#define DP_TESTS_SUPPORT_CHECKS_H

#include <stddef.h>

#include "collectives/core/group.h"

size_t check_exchange(struct dp_group *group, const void *unused);
size_t check_transfers(struct dp_group *group, const void *unused);
size_t check_tests(struct dp_group *group, const void *unused);
size_t check_barrier(struct dp_group *group, const void *unused);
size_t check_broadcast(struct dp_group *group, const void *unused);
size_t check_allgather(struct dp_group *group, const void *unused);
size_t check_agree(struct dp_group *group, const void *unused);
size_t check_memory(struct dp_group *group, const void *unused);
size_t check_node_memory(struct dp_group *group, const void *unused);

/* All of the above. Prints the name of each check that fails. */
size_t check_group(struct dp_group *group, const void *unused);

#endif
