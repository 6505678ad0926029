/*
 * direct_reduce.h - each rank owns a part of an array. All ranks send their data of a part directly
 * to its owner, which adds in tree order and sends the sum directly to all ranks.
 *
 *      rank 0   [ A0 | B0 ]        owner r gets chunk r of every contributor, all together, adds in
 *      rank 1   [ A1 | B1 ]        tree order, and sends the sum to all ranks
 *
 * Chunks are sent in segments: while one is being added, later ones arrive and sums of earlier ones
 * are sent. An array is cut into as many chunks as there are owners (dp_slice_chunk).
 */
#ifndef DP_COLLECTIVES_STRATEGIES_DIRECT_REDUCE_H
#define DP_COLLECTIVES_STRATEGIES_DIRECT_REDUCE_H

#include "collectives/core/group.h"

struct dp_direct_reduce {
    struct dp_group *group;       /* borrowed */
    int contributors;             /* ranks [0, contributors) provide arrays */
    int first, count;             /* ranks [first, first + count) own chunks */
    float *incoming;              /* owned; [depth, size] segments */
    size_t incoming_bytes;        /* of one of these segments */
    const float **parts;          /* owned; [size]: the parts to add */
    struct dp_transfer *reducing; /* owned; [depth, size] */
    struct dp_transfer *sharing;  /* owned; [depth, size] */
};

enum dp_direct_reduce_way {
    DP_DIRECT_REDUCE_REDUCE = 1, /* sums are sent to their owners */
    DP_DIRECT_REDUCE_SHARE = 2   /* owners send their chunks to all ranks */
};

/* For arrays of at most max_count elements. The caller has set group, contributors, first and
 * count. segment_kb: KiB per segment; 0: depends on the nodes. Local. On error nothing is left
 * allocated. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_direct_reduce_open(struct dp_direct_reduce *direct_reduce, size_t max_count,
                                           int segment_kb);
void dp_direct_reduce_close(struct dp_direct_reduce *direct_reduce);

/* The chunk of `data` that this rank owns; empty for others. Local. */
struct dp_slice dp_direct_reduce_mine(const struct dp_direct_reduce *direct_reduce,
                                      struct dp_slice data);

/* ways: DP_DIRECT_REDUCE_REDUCE, DP_DIRECT_REDUCE_SHARE, or both in this order for each segment. To
 * reduce, data is float32; to share, bytes of any width. Collective. */
DP_CHECKED dp_status dp_direct_reduce_run(const struct dp_direct_reduce *direct_reduce,
                                          struct dp_slice data, unsigned ways);

#endif
