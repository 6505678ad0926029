#include "tests/support/strategies/strategy_traffic.h"

#include <stdio.h>
#include <string.h>

static _Thread_local struct recorder *recording;

static int core_of(int ranks)
{
    int core = 1;

    while (2 * core <= ranks) {
        core *= 2;
    }
    return core;
}

/* The rank after this one: the next of its node or, for the last there, the first of the next node,
 * so that a ring leaves each node once. */
static int next_by_nodes(const struct dp_group *group, int rank)
{
    const int node = group->node_of[rank];

    for (int other = rank + 1; other < group->size; other++) {
        if (group->node_of[other] == node) {
            return other;
        }
    }
    for (int other = 0;; other++) {
        if (group->node_of[other] == (node + 1) % group->nodes) {
            return other;
        }
    }
}

/* Reduce-scatter and allgather, p - 1 chunks of p each, all to the next rank. */
static double sent_ring(const struct dp_group *group, int from, int to)
{
    return to == next_by_nodes(group, from) ? 2.0 * (group->size - 1) / group->size : 0.0;
}

/* A chunk to its owner, and as owner to everybody. */
static double sent_direct(const struct dp_group *group, int from, int to)
{
    (void)from;
    (void)to;
    return 2.0 / group->size;
}

/* Ranks after the core send all, and get all, once more. */
static bool folds(const struct dp_group *group, int from, int to)
{
    const int core = core_of(group->size);

    return from == to + core || to == from + core;
}

/* Whether these are partners of a butterfly over the core: one bit differs. */
static bool partners(const struct dp_group *group, int from, int to)
{
    const int bits = from ^ to, core = core_of(group->size);

    return from < core && to < core && bits != 0 && (bits & (bits - 1)) == 0;
}

/* At distance d a part of 1 / 2d there, and the other one back. */
static double sent_rhd(const struct dp_group *group, int from, int to)
{
    return folds(group, from, to) ? 1.0 : partners(group, from, to) ? 1.0 / (from ^ to) : 0.0;
}

static double sent_doubling(const struct dp_group *group, int from, int to)
{
    return folds(group, from, to) || partners(group, from, to) ? 1.0 : 0.0;
}

/* The parent of a label from 1 to `size` in an in-order binary tree: its lowest bit moves up by
 * one, or where there is no such label falls away. 0: the root. */
static int tree_parent(int label, int size)
{
    const int bit = label & -label;
    const int up = (label ^ bit) | 2 * bit;

    return up <= size ? up : label ^ bit;
}

/* Half of the slice up and down each of two trees: the second one is the mirror image of the first
 * for an even number of ranks, and shifted by one for an odd one. */
static double sent_tree(const struct dp_group *group, int from, int to)
{
    const int size = group->size;
    double halves = 0.0;

    for (int tree = 0; tree < 2; tree++) {
        int a = from + 1, b = to + 1;
        if (tree == 1) {
            a = size % 2 == 0 ? size - from : from == 0 ? size : from;
            b = size % 2 == 0 ? size - to : to == 0 ? size : to;
        }
        halves += tree_parent(a, size) == b || tree_parent(b, size) == a;
    }
    return halves / 2.0;
}

/* Around a ring, or what any way of messages sends at least. */
static double volume_least(const struct dp_group *group)
{
    return 2.0 * (group->size - 1);
}

static double volume_shm(const struct dp_group *group)
{
    return group->size - 1;
}

/* In memory of a node, once for each rank but one, there and back; and a ring between nodes. */
static double volume_hier(const struct dp_group *group)
{
    return group->nodes == 1 ? volume_shm(group) : volume_least(group);
}

/* The longest text first. */
static const struct traffic rows[] = {
    {.text = "nccl", .volume = volume_least, .most = 2},
    {.text = "ipc", .volume = volume_shm, .most = 1},
    {.text = "staged:over=shm", .volume = volume_shm, .most = 1},
    {.text = "staged:over="},
    {.text = "staged", .volume = volume_shm, .most = 1},
    {.text = "shm", .volume = volume_shm, .most = 1},
    {.text = "hier:inner="}, /* as much as the inner one, its barriers included */
    {.text = "hier:rails=1,inner="},
    {.text = "hier", .volume = volume_hier, .most = 4},
    {.text = "ring", .sent = sent_ring},
    {.text = "tree", .sent = sent_tree},
    {.text = "direct", .sent = sent_direct},
    {.text = "rhd", .sent = sent_rhd},
    {.text = "doubling", .sent = sent_doubling},
    {.text = "mpi", .volume = volume_least, .most = 2},
};

const struct traffic *traffic_of(const char *text)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strncmp(rows[i].text, text, strlen(rows[i].text)) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

size_t traffic_count(int ranks)
{
    const int core = core_of(ranks);
    int odd = ranks;

    while (odd % 2 == 0) {
        odd /= 2;
    }
    return (size_t)DP_BLOCK * (size_t)odd * (size_t)core;
}

static dp_status record(struct dp_group *group, struct dp_slice out, struct dp_slice in,
                        struct dp_transfer *transfer)
{
    if (transfer->to >= 0) {
        recording->bytes[transfer->to] += dp_slice_bytes(out);
    }
    return recording->under->start(group, out, in, transfer);
}

void recorder_begin(struct recorder *recorder, struct dp_group *group)
{
    *recorder = (struct recorder){.transport = *group->transport, .under = group->transport};
    recorder->transport.start = record;
    recording = recorder;
    group->transport = &recorder->transport;
}

void recorder_end(const struct recorder *recorder, struct dp_group *group)
{
    group->transport = recorder->under;
    recording = NULL;
}

/* Every message has its place, and all are counted. */
static size_t wrong_messages(const struct dp_group *group, const struct traffic *row,
                             const struct recorder *recorder, uint64_t counted, size_t bytes)
{
    size_t wrong = 0;

    for (int to = 0; to < group->size; to++) {
        const double slices = to == group->rank ? 0.0 : row->sent(group, group->rank, to);
        if ((double)recorder->bytes[to] != slices * (double)bytes) {
            (void)fprintf(stderr, "%s, rank %d of %d: sends %.4f slices to rank %d, not %.4f\n",
                          row->text, group->rank, group->size,
                          (double)recorder->bytes[to] / (double)bytes, to, slices);
            wrong++;
        }
        counted -= recorder->bytes[to];
    }
    return wrong + (counted != 0);
}

size_t traffic_wrong(struct dp_group *group, const char *text, const struct recorder *recorder,
                     uint64_t counted, size_t bytes)
{
    const struct traffic *row = traffic_of(text);
    uint64_t each[TRAFFIC_RANKS] = {0}, all = 0, busiest = 0;
    size_t wrong = 0;

    if (dp_group_allgather(group, &counted, sizeof(counted), each) != DP_OK) {
        return 1;
    }
    for (int i = 0; i < group->size; i++) {
        all += each[i];
        busiest = each[i] > busiest ? each[i] : busiest;
    }
    if (row != NULL && row->sent != NULL) {
        return wrong_messages(group, row, recorder, counted, bytes);
    }
    if (row != NULL && row->volume != NULL) {
        wrong += (double)all != row->volume(group) * (double)bytes;
        wrong += (double)busiest > row->most * (double)bytes;
    } else { /* each element meets p - 1 others; at most everybody sends all of it to everybody */
        wrong += all < (uint64_t)(group->size - 1) * bytes;
        wrong += all > (uint64_t)(group->size - 1) * (uint64_t)group->size * bytes;
    }
    if (wrong > 0) {
        (void)fprintf(stderr, "%s, rank %d of %d: all ranks send %.4f slices, the busiest %.4f\n",
                      text, group->rank, group->size, (double)all / (double)bytes,
                      (double)busiest / (double)bytes);
    }
    return wrong;
}
