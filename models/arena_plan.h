/*
 * arena_plan.h - places blocks in one arena, so that blocks that are used at the same time do not
 * overlap, and the arena is small.
 *
 *   offset
 *     ^          +----+  +----+            of an arena of a model: values are written one after
 *     |       +--+----+--+----+--+         the other in forward, and read last in the opposite
 *     |    +--+------------------+--+      order, so that they lie on each other like a pyramid;
 *     | +--+------------------------+--+   gradients (at the top, and then lower and lower) take
 *     +-+------------------------------+-> time   the place of values that are not needed any more
 *
 * Which blocks to place first decides how much of the arena is never used, and to find the best
 * order is NP-hard. So some orders are tried, and the smallest arena is taken. Each block goes to
 * the smallest gap that it fits into, between blocks that are used at the same time.
 *
 * Source: Pisarchyk and Lee, "Efficient memory management for deep neural net inference",
 * arXiv:2001.03288: offsets by size, and by breadth.
 */
#ifndef DP_MODELS_ARENA_PLAN_H
#define DP_MODELS_ARENA_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Points in time, both included. */
struct dp_period {
    int first, last;
};

enum { DP_BLOCK_USES = 2 };

struct dp_arena_block {
    size_t size;
    struct dp_period uses[DP_BLOCK_USES]; /* in order; between them it holds nothing */
    int use_count;                        /* 0: it needs no memory, and begins at 0 */
    size_t begin;                         /* set by dp_arena_place() */
};

/* Whether two blocks are used at the same time. */
bool dp_arena_meet(const struct dp_arena_block *a, const struct dp_arena_block *b);

/* Places all blocks. *size: of the arena; *least: the most that is used at any time, below which no
 * arena can be. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_arena_place(struct dp_arena_block *blocks, int count, size_t *size,
                                    size_t *least);

#endif
