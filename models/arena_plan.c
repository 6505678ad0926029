#include "models/arena_plan.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"

/* Orders of placing: largest first. */
enum order {
    BY_CROWD, /* the most that is used at any time of the block: the rest has room above that */
    BY_SIZE,
    BY_TIME, /* from first to last use: of blocks whose times are nested the outer one is lower */
    BY_AREA, /* size and time */
    ORDERS
};

/* A block in an order: larger keys first, then lower numbers. */
struct turn {
    double key, other;
    int block;
};

/* The arena while blocks are placed. */
struct placing {
    struct dp_arena_block *blocks;
    struct turn *turns; /* [count] */
    int *placed;        /* [count], from low to high */
    size_t *sums;       /* [count, DP_BLOCK_USES]: all that is used when a use of a block begins */
    size_t *best;       /* [count]: where blocks begin in the smallest arena so far */
};

bool dp_arena_meet(const struct dp_arena_block *a, const struct dp_arena_block *b)
{
    for (int i = 0; i < a->use_count; i++) {
        for (int k = 0; k < b->use_count; k++) {
            if (a->uses[i].first <= b->uses[k].last && b->uses[k].first <= a->uses[i].last) {
                return true;
            }
        }
    }
    return false;
}

static bool is_used_at(const struct dp_arena_block *block, int time)
{
    for (int i = 0; i < block->use_count; i++) {
        if (block->uses[i].first <= time && time <= block->uses[i].last) {
            return true;
        }
    }
    return false;
}

/* What is used at a time grows only where a use begins. */
static void add_up(const struct placing *p, int count)
{
    for (int i = 0; i < count; i++) {
        for (int u = 0; u < p->blocks[i].use_count; u++) {
            size_t *sum = &p->sums[i * DP_BLOCK_USES + u];
            for (int k = 0; k < count; k++) {
                *sum +=
                    is_used_at(&p->blocks[k], p->blocks[i].uses[u].first) ? p->blocks[k].size : 0;
            }
        }
    }
}

/* The most that is used at any time of this block; NULL: at any time. */
static size_t most_at(const struct placing *p, int count, const struct dp_arena_block *block)
{
    size_t most = 0;

    for (int i = 0; i < count; i++) {
        for (int u = 0; u < p->blocks[i].use_count; u++) {
            const size_t sum = p->sums[i * DP_BLOCK_USES + u];
            if (sum > most && (block == NULL || is_used_at(block, p->blocks[i].uses[u].first))) {
                most = sum;
            }
        }
    }
    return most;
}

static int compare_turns(const void *left, const void *right)
{
    const struct turn *a = left, *b = right;

    if (a->key != b->key) {
        return a->key > b->key ? -1 : 1;
    }
    if (a->other != b->other) {
        return a->other > b->other ? -1 : 1;
    }
    return a->block - b->block;
}

static double key_of(const struct placing *p, int count, enum order order,
                     const struct dp_arena_block *block)
{
    const double time = 1.0 + block->uses[block->use_count - 1].last - block->uses[0].first;

    switch (order) {
    case BY_CROWD:
        return (double)most_at(p, count, block);
    case BY_TIME:
        return time;
    case BY_AREA:
        return time * (double)block->size;
    default:
        return (double)block->size;
    }
}

/* Blocks that need memory, in this order. Returns how many there are. */
static int sort_turns(const struct placing *p, int count, enum order order)
{
    int turns = 0;

    for (int i = 0; i < count; i++) {
        const struct dp_arena_block *b = &p->blocks[i];
        if (b->use_count > 0 && b->size > 0) {
            p->turns[turns++] = (struct turn){
                key_of(p, count, order, b),
                key_of(p, count, order == BY_SIZE ? BY_TIME : BY_SIZE, b),
                i,
            };
        }
    }
    qsort(p->turns, (size_t)turns, sizeof(*p->turns), compare_turns);
    return turns;
}

/* The smallest gap, between `count` placed blocks that are used at the same time, that this block
 * fits into; else after the last of them. */
static size_t find_gap(const struct placing *p, int count, const struct dp_arena_block *block)
{
    size_t end = 0, best = 0, smallest = SIZE_MAX;

    for (int i = 0; i < count; i++) {
        const struct dp_arena_block *other = &p->blocks[p->placed[i]];
        if (!dp_arena_meet(block, other)) {
            continue;
        }
        if (other->begin >= end + block->size && other->begin - end < smallest) {
            smallest = other->begin - end;
            best = end;
        }
        end = other->begin + other->size > end ? other->begin + other->size : end;
    }
    return smallest < SIZE_MAX ? best : end;
}

static size_t place_in_order(struct placing *p, int count, enum order order)
{
    const int turns = sort_turns(p, count, order);
    size_t size = 0;

    for (int n = 0; n < turns; n++) {
        struct dp_arena_block *block = &p->blocks[p->turns[n].block];
        int at = n;
        block->begin = find_gap(p, n, block);
        for (; at > 0 && p->blocks[p->placed[at - 1]].begin > block->begin; at--) {
            p->placed[at] = p->placed[at - 1];
        }
        p->placed[at] = p->turns[n].block;
        size = block->begin + block->size > size ? block->begin + block->size : size;
    }
    return size;
}

/* The smallest of all orders; no more of them once none can be smaller. */
static size_t place_best(struct placing *p, int count, size_t least)
{
    size_t smallest = SIZE_MAX;

    for (int order = 0; order < ORDERS && smallest > least; order++) {
        const size_t size = place_in_order(p, count, (enum order)order);
        for (int i = 0; size < smallest && i < count; i++) {
            p->best[i] = p->blocks[i].begin;
        }
        smallest = size < smallest ? size : smallest;
    }
    for (int i = 0; i < count; i++) {
        p->blocks[i].begin = p->best[i];
    }
    return smallest;
}

dp_status dp_arena_place(struct dp_arena_block *blocks, int count, size_t *size, size_t *least)
{
    const size_t n = (size_t)count;
    struct placing p = {.blocks = blocks};
    dp_status status = DP_OK;

    p.turns = dp_zalloc(n, sizeof(*p.turns));
    p.placed = dp_zalloc(n, sizeof(*p.placed));
    p.sums = dp_zalloc(n, DP_BLOCK_USES * sizeof(*p.sums));
    p.best = dp_zalloc(n, sizeof(*p.best));
    if (p.turns == NULL || p.placed == NULL || p.sums == NULL || p.best == NULL) {
        status = DP_FAIL(DP_ERR_NOMEM, "placing %d blocks", count);
    } else {
        for (int i = 0; i < count; i++) {
            blocks[i].begin = 0;
        }
        add_up(&p, count);
        *least = most_at(&p, count, NULL);
        *size = place_best(&p, count, *least);
    }
    dp_free(p.best);
    dp_free(p.sums);
    dp_free(p.placed);
    dp_free(p.turns);
    return status;
}
