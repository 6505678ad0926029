/*
 * strategy_tree.c - two binary trees in parallel, in segments: one reduces and broadcasts the first
 * half of the data, the other one the second half.
 *
 * In one tree inner ranks receive and send twice as much as leaves. So the second tree has the
 * leaves of the first as its inner ranks, and all ranks have about the same load: full bandwidth at
 * a latency of 2 lg p. Best for many ranks and middle sizes.
 *
 *      6 ranks, labels 1 to 6     first tree        second tree (labels from the other end)
 *                                    4                 3
 *                                  /   \             /   \
 *                                 2     6           1     5
 *                                / \   /             \   / \
 *                               1   3 5               2 4   6
 *
 * The algorithm runs in rounds, the same on all ranks. A rank at depth h of a tree of height H
 * sends segment u to its parent in round u + H - h, and to its children in round u + H + h. What is
 * sent in one round is received in the next. While one tree's segment is added, the other one's are
 * in flight.
 *
 * Source: Sanders, Speck and Traff, "Two-tree algorithms for full bandwidth broadcast, reduction
 * and scan", Parallel Computing 35 (2009), sections 2 and 3.
 */
#include "collectives/strategies/strategy.h"

enum { TREES = 2, CHILDREN = 2, LINKS = 6 /* messages of a rank in one round of one tree */ };

/* This rank's position in one tree; -1: no such rank. */
struct tree_place {
    int parent, child[CHILDREN], depth;
};

struct tree {
    int segment_kb;
    struct dp_group *group; /* borrowed */
    struct tree_place places[TREES];
    int height;
    size_t segment;  /* elements */
    float *incoming; /* owned; [2 rounds, TREES, CHILDREN] segments */
    struct dp_transfer transfers[2][TREES][LINKS];
    int under_way[2][TREES];
};

static bool tree_supports(const struct dp_group *group, const char **why_not)
{
    (void)group;
    (void)why_not;
    return true;
}

/* The root of the tree over labels [low, high]: the label with the most trailing zero bits. Odd
 * labels are leaves. */
static int root_of(int low, int high)
{
    int step = 1;

    while ((low + 2 * step - 1) / (2 * step) * (2 * step) <= high) {
        step *= 2;
    }
    return (low + step - 1) / step * step;
}

/* Walks from the root of labels [1, size] down to `label`; numbers are labels, 0: none. */
static struct tree_place find_label(int label, int size)
{
    struct tree_place place = {0, {0, 0}, 0};
    int low = 1, high = size, at = root_of(low, high);

    while (at != label) {
        place.parent = at;
        place.depth++;
        low = label < at ? low : at + 1;
        high = label < at ? at - 1 : high;
        at = root_of(low, high);
    }
    place.child[0] = low < at ? root_of(low, at - 1) : 0;
    place.child[1] = at < high ? root_of(at + 1, high) : 0;
    return place;
}

/* Labels of the first tree are ranks + 1. The second tree is its mirror image. For an odd number of
 * ranks that would have the same leaves, so labels are shifted by one instead. */
static int label_of(int rank, int size, int tree)
{
    if (tree == 0) {
        return rank + 1;
    }
    return size % 2 == 0 ? size - rank : (rank + size - 1) % size + 1;
}

static int rank_of(int label, int size, int tree)
{
    if (label == 0) {
        return -1;
    }
    if (tree == 0) {
        return label - 1;
    }
    return size % 2 == 0 ? size - label : label % size;
}

static struct tree_place find_place(int rank, int size, int tree)
{
    struct tree_place place = find_label(label_of(rank, size, tree), size);

    place.parent = rank_of(place.parent, size, tree);
    for (int c = 0; c < CHILDREN; c++) {
        place.child[c] = rank_of(place.child[c], size, tree);
    }
    return place;
}

/* As many segments as the trees are high must pass before all ranks work. So between nodes a
 * segment has half the size of other strategies' segments. Inside a node a larger one is better:
 * there are fewer rounds to wait for. */
static size_t segment_bytes(const struct tree *tree, const struct dp_group *group)
{
    return dp_group_segment(group, tree->segment_kb, 256, DP_SEGMENT_WIRE_KB / 2);
}

static dp_status tree_open(void *state, struct dp_group *group, size_t max_count)
{
    struct tree *tree = state;
    const size_t longest = dp_chunk_room(max_count, TREES);
    const size_t segment = segment_bytes(tree, group) / sizeof(float);

    tree->group = group;
    tree->segment = segment < longest || longest == 0 ? segment : longest;
    for (int t = 0; t < TREES; t++) {
        tree->places[t] = find_place(group->rank, group->size, t);
    }
    for (int rank = 0; rank < group->size; rank++) {
        const int depth = find_place(rank, group->size, 0).depth;
        tree->height = depth > tree->height ? depth : tree->height;
    }
    tree->incoming =
        dp_mem_arena(DP_MEM_COMM, (size_t)2 * TREES * CHILDREN * tree->segment * sizeof(float));
    return tree->incoming != NULL
               ? DP_OK
               : DP_FAIL(DP_ERR_NOMEM, "tree: segments of %zu elements", tree->segment);
}

/* Segment u of the half that tree t carries; empty where u is out of range. */
static struct dp_slice half_segment(const struct tree *tree, struct dp_slice data, int t, long u)
{
    const struct dp_slice half = dp_slice_chunk(data, TREES, t);

    return u < 0 ? (struct dp_slice){half.data, 0, half.width}
                 : dp_slice_segment(half, tree->segment, (size_t)u);
}

/* The segment that this rank sends up, or down, in a round. */
static long segment_up(const struct tree *tree, int t, long round)
{
    return round - tree->height + tree->places[t].depth;
}

static long segment_down(const struct tree *tree, int t, long round)
{
    return round - tree->height - tree->places[t].depth;
}

static struct dp_slice slot(const struct tree *tree, int t, long round, int child, size_t count)
{
    const size_t at = ((size_t)(round % 2) * TREES + (size_t)t) * CHILDREN + (size_t)child;

    return (struct dp_slice){tree->incoming + at * tree->segment, count, sizeof(float)};
}

/* Starts a message that must be done before round + 2 of this tree. */
static dp_status begin(struct tree *tree, int t, long round, int to, struct dp_slice out, int from,
                       struct dp_slice in)
{
    const int at = tree->under_way[round % 2][t];

    if ((to < 0 || out.count == 0) && (from < 0 || in.count == 0)) {
        return DP_OK;
    }
    tree->under_way[round % 2][t]++;
    return dp_group_start(tree->group, to, out, from, in, &tree->transfers[round % 2][t][at]);
}

static dp_status end_all(struct tree *tree, int t, long round)
{
    for (int i = 0; i < tree->under_way[round % 2][t]; i++) {
        DP_TRY(dp_group_finish(tree->group, &tree->transfers[round % 2][t][i]));
    }
    tree->under_way[round % 2][t] = 0;
    return DP_OK;
}

/* Starts to receive what neighbours will have sent when `round` begins. */
static dp_status expect(struct tree *tree, struct dp_slice data, int t, long round)
{
    const struct tree_place *place = &tree->places[t];
    const struct dp_slice nothing = {NULL, 0, sizeof(float)};
    const size_t up = half_segment(tree, data, t, segment_up(tree, t, round)).count;

    for (int c = 0; c < CHILDREN; c++) {
        DP_TRY(begin(tree, t, round, -1, nothing, place->child[c], slot(tree, t, round, c, up)));
    }
    return begin(tree, t, round, -1, nothing, place->parent,
                 half_segment(tree, data, t, segment_down(tree, t, round)));
}

/* Adds what children sent, and sends what is due. */
static dp_status hand_on(struct tree *tree, struct dp_slice data, int t, long round)
{
    const struct tree_place *place = &tree->places[t];
    const struct dp_slice nothing = {NULL, 0, sizeof(float)};
    const struct dp_slice up = half_segment(tree, data, t, segment_up(tree, t, round));
    const struct dp_slice down = half_segment(tree, data, t, segment_down(tree, t, round));

    for (int c = 0; c < CHILDREN; c++) {
        if (place->child[c] >= 0 && up.count > 0) {
            DP_TRY(dp_group_add(tree->group, up, slot(tree, t, round, c, up.count)));
        }
    }
    /* With the next round's messages: neighbours receive them then. */
    DP_TRY(begin(tree, t, round + 1, place->parent, up, -1, nothing));
    for (int c = 0; c < CHILDREN; c++) {
        DP_TRY(begin(tree, t, round + 1, place->child[c], down, -1, nothing));
    }
    return DP_OK;
}

/* Keeping a chunk costs as much as keeping all: the sum comes down from the root in any case. */
static dp_status tree_sum(void *state, struct dp_slice data, enum dp_keep keep)
{
    struct tree *tree = state;
    const size_t longest = dp_chunk_longest(data.count, TREES);
    const long segments = (long)((longest + tree->segment - 1) / tree->segment);
    const long rounds = segments + 2 * (long)tree->height;

    (void)keep;
    if (tree->group->size == 1 || data.count == 0) {
        return DP_OK;
    }
    for (long round = 0; round < rounds; round++) {
        for (int t = 0; t < TREES; t++) {
            DP_TRY(end_all(tree, t, round));
            DP_TRY(expect(tree, data, t, round + 1));
            DP_TRY(hand_on(tree, data, t, round));
        }
    }
    for (int t = 0; t < TREES; t++) {
        DP_TRY(end_all(tree, t, rounds));
    }
    return DP_OK;
}

/* Inner ranks of one tree send and receive three halves, and a fourth as leaves of the other tree;
 * with two ranks it is two halves. In addition, a segment passes the height of the trees twice, up
 * and down. */
static double tree_cost(const void *state, const struct dp_cost *cost, const struct dp_group *group,
                        size_t bytes)
{
    const double segment = (double)segment_bytes(state, group), half = (double)bytes / 2.0;
    const double sent = group->size < 3 ? 2.0 * half : 4.0 * half;
    int height = 1;

    if (group->size == 1) {
        return 0.0;
    }
    while (2 << height <= group->size) {
        height++;
    }
    return dp_cost_neighbour_add(cost, group, sent / 2.0) +
           dp_cost_neighbour(cost, group, sent / 2.0) +
           2.0 * (height - 1) * dp_cost_neighbour(cost, group, segment < half ? segment : half);
}

static void tree_close(void *state)
{
    struct tree *tree = state;

    dp_free(tree->incoming);
}

#define TREE struct tree

/* clang-format off */
static const struct dp_option tree_options[] = {
    DP_INT(TREE, segment_kb, "0", 0, 65536,
           "KiB of a segment; 0: 256 inside a node, 512 between nodes"),
    {0},
};
/* clang-format on */

const struct dp_strategy dp_strategy_tree = {
    .plugin = {.name = "tree",
               .help = "double binary tree, in segments; for many ranks",
               .options = tree_options,
               .state_bytes = sizeof(struct tree)},
    .supports = tree_supports,
    .open = tree_open,
    .sum = tree_sum,
    .cost = tree_cost,
    .close = tree_close,
};
