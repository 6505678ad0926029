/*
 * direct_reduce.h - parts of an array go straight to the ranks that own them, are summed there in
 * tree order, and go straight to everybody.
 *
 *      rank 0   [ A0 | B0 ]        owner r gets chunk r of every contributor, all at once, adds in
 *      rank 1   [ A1 | B1 ]        tree order, and sends the sum to everybody
 *
 * Chunks travel in segments: while one is being added, later ones come in and sums of earlier ones
 * go out. An array is cut into as many chunks as there are owners (dp_slice_chunk).
 */
#ifndef DP_COLLECTIVES_STRATEGIES_DIRECT_REDUCE_H
#define DP_COLLECTIVES_STRATEGIES_DIRECT_REDUCE_H

#include "collectives/core/group.h"

struct dp_direct_reduce {
    struct dp_group *group;       /* borrowed */
    int contributors;             /* ranks [0, contributors) bring arrays */
    int first, count;             /* ranks [first, first + count) own chunks */
    float *incoming;              /* owned; [depth, size] segments */
    size_t incoming_bytes;        /* of one of them */
    const float **parts;          /* owned; [size]: what is added */
    struct dp_transfer *reducing; /* owned; [depth, size] */
    struct dp_transfer *sharding; /* owned; [depth, size] */
};

enum dp_direct_reduce_way {
    DP_DIRECT_REDUCE_REDUCE = 1, /* sums reach their owners */
    DP_DIRECT_REDUCE_SHARE = 2   /* chunks of owners reach everybody */
};

/* For arrays of at most max_count elements. The members group, contributors, first and count are
 * filled in. segment_kb: KiB that travel as one; 0: by where ranks live. Local.
 * Errors: DP_ERR_NOMEM, and nothing is left behind. */
DP_CHECKED dp_status dp_direct_reduce_open(struct dp_direct_reduce *direct_reduce, size_t max_count,
                                           int segment_kb);
void dp_direct_reduce_close(struct dp_direct_reduce *o);

/* The chunk of `data` that this rank owns; empty for others. Local. */
struct dp_slice dp_direct_reduce_mine(const struct dp_direct_reduce *o, struct dp_slice data);

/* ways: DP_DIRECT_REDUCE_REDUCE, DP_DIRECT_REDUCE_SHARE, or both, one after the other for each
 * segment. To reduce, data is float32; to share, bytes of any width. Collective. */
DP_CHECKED dp_status dp_direct_reduce_run(const struct dp_direct_reduce *direct_reduce,
                                          struct dp_slice data, unsigned ways);

#endif
