/*
 * node_rule.h - where ranks lie if launchers deal them out by a rule, as they do by default: each
 * rank then knows where all others are, and need not get it from them.
 */
#ifndef DP_COLLECTIVES_CORE_NODE_RULE_H
#define DP_COLLECTIVES_CORE_NODE_RULE_H

#include <stdbool.h>

/* Of nodes with equally many ranks. */
enum dp_node_rule {
    DP_NODE_RULE_NONE,
    DP_NODE_RULE_BLOCKS, /* the first ranks on the first node, the next on the next: mpirun's */
    DP_NODE_RULE_TURNS   /* one on each node, then again: mpirun --map-by node */
};

/* Where a rank is: the first rank of its node, and its number there. */
struct dp_node_seat {
    int leader, local_rank;
};

/* The node of a rank, and its number there. local_size: ranks of each node; it divides size. All of
 * these are local. */
int dp_node_rule_node(enum dp_node_rule rule, int size, int local_size, int rank);
int dp_node_rule_local_rank(enum dp_node_rule rule, int size, int local_size, int rank);

/* Whether the rank has this seat by that rule. False where local_size does not divide size. */
bool dp_node_rule_seats(enum dp_node_rule rule, int size, int local_size, int rank,
                        const struct dp_node_seat *seat);

#endif
