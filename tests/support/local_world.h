/*
 * local_world.h - ranks as threads of a test program.
 *
 * A rank's thread must not use cmocka's assertions, which jump: it returns the number of errors,
 * and the test asserts on the sum.
 */
#ifndef DP_TESTS_SUPPORT_LOCAL_WORLD_H
#define DP_TESTS_SUPPORT_LOCAL_WORLD_H

#include <stddef.h>

#include "collectives/core/group.h"

/* The function of a rank. Returns the number of errors. */
typedef size_t rank_body(struct dp_group *group, const void *arg);

/* Runs `body` on `size` ranks, each with a stream of device ref on its group, and returns the sum
 * of what they returned. A rank that returns more than 0 cancels the others' waits. */
size_t on_local_ranks(int size, rank_body *body, const void *arg);

/* The same with rank i on node node_of[i], numbered from 0 by their first ranks. */
size_t on_local_nodes(int size, const int *node_of, rank_body *body, const void *arg);

/* The same, twice on the same groups; memory that the second time leaves is an error, too. */
size_t on_local_nodes_twice(int size, const int *node_of, rank_body *body, const void *arg);

/* For the test itself, since it asserts: runs `body` while the first allocation fails, then while
 * the second one does, and so on, until no rank finds anything wrong. Each time all ranks end, and
 * nothing stays allocated. node_of: NULL: one node. */
void check_failing_allocations(int size, const int *node_of, rank_body *body, const void *arg);

/* Where a GPU lacks memory to measure on, or to check cuDNN's engines on, or for their workspace,
 * the first algorithm or cublas computes: 27 allocations of a rank in the library on the host,
 * which ranks reach in any order. */
enum { MOST_UNNOTICED = 120 };

/* From now on so many allocations of such a check may fail without a word. 0 as at the start. */
void let_allocations_fail_unnoticed(int most);

/* From now on memory is shared for the first `requests` of each rank only (dp_local_hub_crowd); -1:
 * for all, as at the start. */
void local_world_room(int requests);

#endif
