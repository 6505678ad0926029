#include "collectives/core/node_rule.h"

int dp_node_rule_node(enum dp_node_rule rule, int size, int local_size, int rank)
{
    return rule == DP_NODE_RULE_BLOCKS ? rank / local_size : rank % (size / local_size);
}

int dp_node_rule_local_rank(enum dp_node_rule rule, int size, int local_size, int rank)
{
    return rule == DP_NODE_RULE_BLOCKS ? rank % local_size : rank / (size / local_size);
}

bool dp_node_rule_seats(enum dp_node_rule rule, int size, int local_size, int rank,
                        const struct dp_node_seat *seat)
{
    int node;

    if (rule == DP_NODE_RULE_NONE || size % local_size != 0) {
        return false;
    }
    node = dp_node_rule_node(rule, size, local_size, rank);
    return seat->leader == (rule == DP_NODE_RULE_BLOCKS ? node * local_size : node) &&
           seat->local_rank == dp_node_rule_local_rank(rule, size, local_size, rank);
}
