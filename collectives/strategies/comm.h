/*
 * comm.h - an open strategy over a group, with fallbacks for functions that it does not define.
 */
#ifndef DP_COLLECTIVES_STRATEGIES_COMM_H
#define DP_COLLECTIVES_STRATEGIES_COMM_H

#include "collectives/strategies/strategy.h"

struct dp_comm {
    struct dp_group *group; /* borrowed */
    const struct dp_strategy *strategy;
    struct dp_stream *codes; /* borrowed; where compressors compute: group->stream, unless gradients
                              * are in separate memory (bounce_buffer.h) */
    void *state;             /* of the strategy; owned */
    float *gather;           /* owned; [size * gather_count]: for strategies without a sum */
    float **parts;           /* owned; [size]: each rank's part of it */
    size_t gather_count;
    char text[96]; /* the strategy's name and options */
    char why[96];  /* why `auto` chose it; empty if the user did */
};

/* Writes "shm, ring": the strategies that share gradients and can run in this group. Local. */
void dp_comm_list_sharing(const struct dp_group *group, char *text, size_t size);

/* Whether sums of the strategy keep the tree's order over the ranks of a group (NULL: of any
 * group). If not, `problem` names the strategies that do. Local. Errors: DP_ERR_CONFIG. */
DP_CHECKED dp_status dp_comm_check_order(const struct dp_strategy *strategy, const void *state,
                                         const struct dp_group *group, char *problem,
                                         size_t problem_size);

/*
 * Opens the strategy that `text` names ("ring", "auto") for slices of up to max_count elements.
 * small_count of them (the tail) are summed even where the strategy shares nothing. Collective.
 *
 * Errors: DP_ERR_CONFIG (unknown), DP_ERR_UNAVAILABLE (cannot run here: names those that can),
 * DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_comm_create(struct dp_group *group, const char *text, size_t max_count,
                                    size_t small_count, struct dp_comm **out);

/* The same for a strategy that works over others: `option` of `owner` names this one, and errors
 * say so. Shares nothing where the strategy does not. */
DP_CHECKED dp_status dp_comm_create_for(const char *owner, const char *option,
                                        struct dp_group *group, const char *text, size_t max_count,
                                        struct dp_comm **out);
void dp_comm_destroy(struct dp_comm *comm);

/* Checks that memory allocated since can be summed, too: some strategies need shared memory, and it
 * may be private now. `who` is named in the error. The same on all ranks. Errors:
 * DP_ERR_UNAVAILABLE. */
DP_CHECKED dp_status dp_comm_check_scratch(const struct dp_comm *comm, const char *who);

/* As dp_strategy.sum; where the strategy has none, `data` is unchanged. */
DP_CHECKED dp_status dp_comm_sum(struct dp_comm *comm, struct dp_slice data, enum dp_keep keep);

/* As dp_comm_sum, for the tail: always summed. */
DP_CHECKED dp_status dp_comm_sum_exact(struct dp_comm *comm, struct dp_slice data);

/* As dp_strategy.gather. */
DP_CHECKED dp_status dp_comm_gather(struct dp_comm *comm, struct dp_slice data);

/* Returns when every rank has called it. */
DP_CHECKED dp_status dp_comm_barrier(struct dp_comm *comm);

#endif
