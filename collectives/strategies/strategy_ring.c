/*
 * strategy_ring.c - ring allreduce: a reduce-scatter, then an allgather, around a ring, in
 * segments.
 *
 * Each rank sends 2 (p-1)/p of the buffer to its right neighbour in 2 (p-1) steps: the least
 * possible volume, at a latency that grows with p. Best for large buckets.
 *
 * Ranks of a node follow each other in the ring, however they are numbered (mpirun --map-by node
 * deals them out in turns): each node's link then carries what one rank sends. Below "rank" is a
 * place in the ring.
 *
 *      step 0..p-2     send chunk rank-step-1, receive chunk rank-step-2 and add it to one's own;
 *                      after the last step this rank has the whole sum of its own chunk
 *      step p-1..2p-3  the same chunks go round once more; what is received is final
 *
 * Chunks are sent in segments, of which a few are in flight: while one is being added, the next
 * ones are on the wire. A segment is sent on when it was added in the previous step, so there is no
 * pause between steps.
 *
 * Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
 * workstations", J. Parallel Distrib. Comput. 69 (2009), section 4.
 */
#include "collectives/strategies/strategy.h"

enum { RING_DEPTH = 8 /* segments in flight */ };

struct ring {
    int segment_kb;
    struct dp_group *group; /* borrowed */
    int *order;             /* owned; [size] ranks, round the ring */
    int place;              /* of this rank in it */
    float *incoming;        /* owned; [RING_DEPTH] segments */
    size_t incoming_bytes;  /* of one of these segments */
};

static int wrap(int rank, int size)
{
    return (rank % size + size) % size;
}

/* Node after node, each in the order of its ranks. */
static dp_status make_order(struct ring *ring, const struct dp_group *group)
{
    int next = 0;

    ring->order = dp_zalloc((size_t)group->size, sizeof(*ring->order));
    if (ring->order == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "ring of %d ranks", group->size);
    }
    for (int node = 0; node < group->nodes; node++) {
        for (int r = 0; r < group->size; r++) {
            if (group->node_of[r] == node) {
                ring->place = r == group->rank ? next : ring->place;
                ring->order[next++] = r;
            }
        }
    }
    return DP_OK;
}

static bool ring_supports(const struct dp_group *group, const char **why_not)
{
    (void)group;
    (void)why_not;
    return true;
}

static dp_status ring_open(void *state, struct dp_group *group, size_t max_count)
{
    struct ring *ring = state;
    const size_t chunk = dp_chunk_room(max_count, group->size) * sizeof(float);
    const size_t segment =
        dp_group_segment(group, ring->segment_kb, DP_SEGMENT_NODE_KB, DP_SEGMENT_WIRE_KB);

    ring->group = group;
    DP_TRY(make_order(ring, group));
    ring->incoming_bytes = segment < chunk ? segment : chunk;
    ring->incoming = dp_mem_arena(DP_MEM_COMM, RING_DEPTH * ring->incoming_bytes);
    if (ring->incoming == NULL) {
        dp_free(ring->order);
        return DP_FAIL(DP_ERR_NOMEM, "ring: segments of %zu kB", ring->incoming_bytes >> 10);
    }
    return DP_OK;
}

/* One pass round the ring: steps [first, last). */
struct ring_walk {
    const struct ring *ring;
    struct dp_slice data;
    size_t segment, segments; /* elements of a segment; segments of a chunk */
    struct dp_transfer transfers[RING_DEPTH];
};

/* The rank at a place of the ring. */
static int rank_at(const struct ring *ring, int place)
{
    return ring->order[wrap(place, ring->group->size)];
}

/* Of the chunk whose owner is at this place. */
static struct dp_slice walk_slice(const struct ring_walk *w, int place, size_t segment)
{
    return dp_slice_segment(dp_slice_chunk(w->data, w->ring->group->size, rank_at(w->ring, place)),
                            w->segment, segment);
}

/* Where a segment to be added is received. */
static struct dp_slice walk_incoming(const struct ring_walk *w, size_t i, size_t count)
{
    char *slots = (char *)w->ring->incoming;

    return (struct dp_slice){slots + i % RING_DEPTH * w->ring->incoming_bytes, count,
                             sizeof(float)};
}

static dp_status walk_start(struct ring_walk *w, int step, size_t segment, size_t i)
{
    struct dp_group *group = w->ring->group;
    const int place = w->ring->place;
    const struct dp_slice out = walk_slice(w, place - step - 1, segment);
    struct dp_slice in = walk_slice(w, place - step - 2, segment);

    if (step < group->size - 1) {
        in = walk_incoming(w, i, in.count);
    }
    return dp_group_start(group, out.count > 0 ? rank_at(w->ring, place + 1) : -1, out,
                          in.count > 0 ? rank_at(w->ring, place - 1) : -1, in,
                          &w->transfers[i % RING_DEPTH]);
}

static dp_status walk_finish(struct ring_walk *w, int step, size_t segment, size_t i)
{
    struct dp_group *group = w->ring->group;
    const struct dp_slice sum = walk_slice(w, w->ring->place - step - 2, segment);

    DP_TRY(dp_group_finish(group, &w->transfers[i % RING_DEPTH]));
    return step < group->size - 1 ? dp_group_add(group, sum, walk_incoming(w, i, sum.count))
                                  : DP_OK;
}

static dp_status ring_steps(const struct ring *ring, struct dp_slice data, int first, int last)
{
    struct ring_walk w = {.ring = ring, .data = data};
    const size_t longest = dp_chunk_longest(data.count, ring->group->size);
    size_t total, ahead;

    if (first >= last || data.count == 0) {
        return DP_OK;
    }
    w.segment = ring->incoming_bytes / data.width;
    w.segments = (longest + w.segment - 1) / w.segment;
    total = (size_t)(last - first) * w.segments;
    /* Never a whole step ahead: a segment must be added before it is sent. */
    ahead = w.segments < RING_DEPTH ? w.segments : RING_DEPTH;
    for (size_t i = 0; i < total + ahead; i++) {
        if (i >= ahead) {
            const size_t done = i - ahead;
            DP_TRY(walk_finish(&w, first + (int)(done / w.segments), done % w.segments, done));
        }
        if (i < total) {
            DP_TRY(walk_start(&w, first + (int)(i / w.segments), i % w.segments, i));
        }
    }
    return DP_OK;
}

static dp_status ring_sum(void *state, struct dp_slice data, enum dp_keep keep)
{
    const struct ring *ring = state;
    const int steps = ring->group->size - 1;

    return ring_steps(ring, data, 0, keep == DP_KEEP_CHUNK ? steps : 2 * steps);
}

static dp_status ring_gather(void *state, struct dp_slice data)
{
    const struct ring *ring = state;
    const int steps = ring->group->size - 1;

    return ring_steps(ring, data, steps, 2 * steps);
}

static double ring_cost(const void *state, const struct dp_cost *cost, const struct dp_group *group,
                        size_t bytes)
{
    (void)state;
    return dp_cost_ring(cost, group, (double)bytes);
}

static void ring_close(void *state)
{
    struct ring *ring = state;

    dp_free(ring->order);
    dp_free(ring->incoming);
}

#define RING struct ring

/* clang-format off */
static const struct dp_option ring_options[] = {
    DP_INT(RING, segment_kb, "0", 0, 65536,
           "KiB of a segment; 0: 96 inside a node, 1024 between nodes"),
    {0},
};
/* clang-format on */

const struct dp_strategy dp_strategy_ring = {
    .plugin = {.name = "ring",
               .help = "reduce-scatter and allgather around a ring; least volume, for networks",
               .options = ring_options,
               .state_bytes = sizeof(struct ring)},
    .supports = ring_supports,
    .open = ring_open,
    .sum = ring_sum,
    .gather = ring_gather,
    .cost = ring_cost,
    .close = ring_close,
};
