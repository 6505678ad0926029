#include "collectives/core/group.h"

#include <assert.h>
#include <string.h>

#include "base/log.h"
#include "base/trace.h"
#include "collectives/core/backoff.h"
#include "collectives/core/transport.h"

enum {
    EXCHANGE_DEPTH = 8,     /* pieces of a long message in flight */
    GATHER_SMALL = 8 << 10, /* bytes of a rank: up to here rounds cost more than links */
};

bool *dp_group_in_job(void)
{
    static _Thread_local bool in_job;

    return &in_job;
}

enum { EVEN = 32 /* of even chunks the last one is longer by a block in so many at most */ };

static size_t blocks_of(size_t count)
{
    return (count + DP_BLOCK - 1) / DP_BLOCK;
}

static bool are_even(size_t blocks, size_t parts)
{
    return blocks % parts * EVEN <= blocks / parts;
}

static size_t chunk_begin(size_t blocks, size_t parts, size_t i)
{
    if (are_even(blocks, parts)) {
        return i < parts ? blocks / parts * i : blocks;
    }
    return blocks * i / parts;
}

struct dp_slice dp_slice_chunk(struct dp_slice slice, int parts, int i)
{
    const size_t blocks = blocks_of(slice.count);
    size_t begin = chunk_begin(blocks, (size_t)parts, (size_t)i) * DP_BLOCK;
    size_t end = chunk_begin(blocks, (size_t)parts, (size_t)i + 1) * DP_BLOCK;

    begin = begin < slice.count ? begin : slice.count;
    end = end < slice.count ? end : slice.count;
    return (struct dp_slice){(char *)slice.data + begin * slice.width, end - begin, slice.width};
}

struct dp_slice dp_slice_chunks(struct dp_slice slice, int parts, int first, int span)
{
    const struct dp_slice begin = dp_slice_chunk(slice, parts, first);
    const struct dp_slice last = dp_slice_chunk(slice, parts, first + span - 1);
    const size_t bytes = (size_t)((char *)last.data - (char *)begin.data) + dp_slice_bytes(last);

    return (struct dp_slice){begin.data, bytes / slice.width, slice.width};
}

size_t dp_chunk_longest(size_t count, int parts)
{
    const size_t blocks = blocks_of(count), n = (size_t)parts, left = blocks % n;

    return (blocks / n + (are_even(blocks, n) ? left : 1)) * DP_BLOCK;
}

size_t dp_chunk_room(size_t most, int parts)
{
    const size_t each = (blocks_of(most) + (size_t)parts - 1) / (size_t)parts;

    return (each + each / EVEN) * DP_BLOCK;
}

struct dp_slice dp_slice_segment(struct dp_slice slice, size_t count, size_t i)
{
    const size_t begin = i * count < slice.count ? i * count : slice.count;
    const size_t rest = slice.count - begin;

    return (struct dp_slice){(char *)slice.data + begin * slice.width, rest < count ? rest : count,
                             slice.width};
}

size_t dp_group_segment(const struct dp_group *group, int asked_kb, int node_kb, int wire_kb)
{
    const int suits = dp_group_one_node(group) ? node_kb : wire_kb;

    return (size_t)(asked_kb > 0 ? asked_kb : suits) << 10;
}

dp_status dp_group_start(struct dp_group *group, int to, struct dp_slice out, int from,
                         struct dp_slice in, struct dp_transfer *transfer)
{
    assert(!group->guarded || *dp_group_in_job());
    assert(to != group->rank && from != group->rank && to < group->size && from < group->size);
    assert(to < 0 || dp_slice_bytes(out) <= DP_MESSAGE_MAX);
    assert(from < 0 || dp_slice_bytes(in) <= DP_MESSAGE_MAX);
    *transfer = (struct dp_transfer){.to = to, .from = from, .came = in};
    if (to >= 0) {
        group->wire_bytes += dp_slice_bytes(out);
    }
    return group->transport->start(group, out, in, transfer);
}

dp_status dp_group_finish(struct dp_group *group, struct dp_transfer *transfer)
{
    DP_AWAIT_RANKS();
    DP_TRY(group->transport->finish(group, transfer));
    transfer->to = transfer->from = -1;
    return DP_OK;
}

dp_status dp_group_test(struct dp_group *group, struct dp_transfer *transfer, bool *done)
{
    assert(!group->guarded || *dp_group_in_job());
    DP_TRY(group->transport->test(group, transfer, done));
    if (*done) {
        transfer->to = transfer->from = -1;
    }
    return DP_OK;
}

/* Piece `i` of a long message. A short one has one piece, which may be empty. */
static struct dp_slice message_piece(struct dp_slice slice, size_t most, size_t i)
{
    const size_t bytes = dp_slice_bytes(slice), at = i * most;
    const size_t rest = bytes - (at < bytes ? at : bytes);

    return (struct dp_slice){(char *)slice.data + (bytes - rest), rest < most ? rest : most, 1};
}

static size_t message_pieces(int peer, struct dp_slice slice, size_t most)
{
    const size_t bytes = dp_slice_bytes(slice);

    return peer < 0 ? 0 : bytes == 0 ? 1 : (bytes + most - 1) / most;
}

/* Sends in pieces, as strategies do: inside a node Open MPI takes up to three times as long for one
 * message of 8 MB as for its segments. */
dp_status dp_group_exchange(struct dp_group *group, int to, struct dp_slice out, int from,
                            struct dp_slice in)
{
    const size_t most = dp_group_segment(group, 0, DP_SEGMENT_NODE_KB, DP_SEGMENT_WIRE_KB);
    const size_t sent = message_pieces(to, out, most), got = message_pieces(from, in, most);
    const size_t total = sent > got ? sent : got;
    struct dp_transfer transfers[EXCHANGE_DEPTH];

    for (size_t i = 0; i < total + EXCHANGE_DEPTH; i++) {
        if (i >= EXCHANGE_DEPTH) {
            DP_TRY(dp_group_finish(group, &transfers[i % EXCHANGE_DEPTH]));
        }
        if (i < total) {
            DP_TRY(dp_group_start(group, i < sent ? to : -1, message_piece(out, most, i),
                                  i < got ? from : -1, message_piece(in, most, i),
                                  &transfers[i % EXCHANGE_DEPTH]));
        }
    }
    return DP_OK;
}

dp_status dp_group_add(struct dp_group *group, struct dp_slice sum, struct dp_slice in)
{
    assert(sum.count == in.count && sum.width == sizeof(float));
    return group->stream->ops->add(group->stream, sum.data, in.data, sum.count);
}

dp_status dp_group_barrier(struct dp_group *group)
{
    for (int distance = 1; distance < group->size; distance *= 2) {
        char out = 0, in = 0;
        const int to = (group->rank + distance) % group->size;
        const int from = (group->rank + group->size - distance) % group->size;
        DP_TRY(dp_group_exchange(group, to, (struct dp_slice){&out, 1, 1}, from,
                                 (struct dp_slice){&in, 1, 1}));
    }
    return DP_OK;
}

/* Rank v of the tree (the root is 0) receives the data from v without its lowest set bit. It sends
 * the data to v + 1, v + 2, v + 4 ... up to that bit, the farthest first. */
dp_status dp_group_broadcast(struct dp_group *group, void *data, size_t bytes, int root)
{
    const int size = group->size;
    const int v = (group->rank - root + size) % size;
    const struct dp_slice slice = {data, bytes, 1}, nothing = {NULL, 0, 1};
    int bit = 1;

    while (bit < size && (v & bit) == 0) {
        bit *= 2;
    }
    if (v != 0) {
        DP_TRY(dp_group_exchange(group, -1, nothing, (v - bit + root) % size, slice));
    }
    for (bit /= 2; bit > 0; bit /= 2) {
        if (v + bit < size) {
            DP_TRY(dp_group_exchange(group, (v + bit + root) % size, slice, -1, nothing));
        }
    }
    return DP_OK;
}

dp_status dp_group_broadcast_text(struct dp_group *group, char **text, dp_status status)
{
    size_t bytes = *text == NULL ? 0 : strlen(*text) + 1;
    struct {
        int status;
        size_t bytes;
    } head = {(int)status, bytes};

    DP_TRY(dp_group_broadcast(group, &head, sizeof(head), 0));
    if (head.status != DP_OK) {
        return (dp_status)head.status;
    }
    if (*text == NULL) {
        *text = dp_zalloc(1, head.bytes);
        if (*text == NULL) {
            return DP_FAIL(DP_ERR_NOMEM, "a text of %zu bytes from rank 0", head.bytes);
        }
    }
    return dp_group_broadcast(group, *text, head.bytes, 0);
}

/* Around a ring: each link carries each block once. */
static dp_status gather_around(struct dp_group *group, char *parts, size_t bytes)
{
    const int size = group->size, rank = group->rank;
    const int next = (rank + 1) % size, prev = (rank + size - 1) % size;

    for (int step = 0; step < size - 1; step++) {
        char *out = parts + (size_t)((rank - step + size) % size) * bytes;
        char *in = parts + (size_t)((rank - step - 1 + size) % size) * bytes;
        DP_TRY(dp_group_exchange(group, next, (struct dp_slice){out, bytes, 1}, prev,
                                 (struct dp_slice){in, bytes, 1}));
    }
    return DP_OK;
}

/* The blocks [first, first + count), counted around the ranks, as two pieces; the second is empty
 * unless they go past the last rank. */
static void split_blocks(int size, char *parts, size_t bytes, int first, int count,
                         struct dp_slice pieces[2])
{
    const int before = first + count <= size ? count : size - first;

    pieces[0] = (struct dp_slice){parts + (size_t)first * bytes, (size_t)before * bytes, 1};
    pieces[1] = (struct dp_slice){parts, (size_t)(count - before) * bytes, 1};
}

/* In round k each rank has 2^k blocks, from its own on, and gets the next ones from who has these:
 * Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing
 * systems", IEEE Trans. Parallel Distrib. Syst. 8 (1997), section 3; without its last rotation. */
static dp_status gather_doubling(struct dp_group *group, char *parts, size_t bytes)
{
    const int size = group->size, rank = group->rank;
    struct dp_slice out[2], in[2];

    for (int have = 1; have < size; have *= 2) {
        const int count = have < size - have ? have : size - have;
        const int to = (rank - have + size) % size, from = (rank + have) % size;

        split_blocks(size, parts, bytes, rank, count, out);
        split_blocks(size, parts, bytes, from, count, in);
        for (int i = 0; i < 2; i++) {
            DP_TRY(dp_group_exchange(group, i == 0 || out[i].count > 0 ? to : -1, out[i],
                                     i == 0 || in[i].count > 0 ? from : -1, in[i]));
        }
    }
    return DP_OK;
}

dp_status dp_group_allgather(struct dp_group *group, const void *mine, size_t bytes, void *all)
{
    char *parts = all;

    memmove(parts + (size_t)group->rank * bytes, mine, bytes);
    return bytes > GATHER_SMALL ? gather_around(group, parts, bytes)
                                : gather_doubling(group, parts, bytes);
}

/* In round k a rank whose bit k is set sends what it has, its own and the 2^k - 1 after it, to the
 * rank without that bit. */
static dp_status gather_tree(struct dp_group *group, char *parts, size_t bytes)
{
    const int size = group->size, rank = group->rank;

    for (int have = 1; have < size; have *= 2) {
        const bool sends = (rank & have) != 0;
        const int from = rank + have, left = size - (sends ? rank : from);
        const size_t count = (size_t)(have < left ? have : left) * bytes;
        if (sends) {
            return dp_group_exchange(group, rank - have, (struct dp_slice){parts, count, 1}, -1,
                                     (struct dp_slice){NULL, 0, 1});
        }
        if (from < size) {
            DP_TRY(dp_group_exchange(group, -1, (struct dp_slice){NULL, 0, 1}, from,
                                     (struct dp_slice){parts + (size_t)have * bytes, count, 1}));
        }
    }
    return DP_OK;
}

dp_status dp_group_gather(struct dp_group *group, const void *mine, size_t bytes, void *all)
{
    const int rank = group->rank, left = group->size - rank;
    const int most = rank & -rank; /* ranks whose records it passes on */
    char *parts = rank == 0 ? all : dp_zalloc((size_t)(most < left ? most : left), bytes);
    dp_status status = DP_OK, worst;

    if (parts == NULL) {
        status = DP_FAIL(DP_ERR_NOMEM, "records of %d ranks", most);
    }
    worst = dp_group_agree(group, status); /* those that only send would not know */
    status = status != DP_OK ? status : worst;
    if (status == DP_OK && parts != NULL) {
        memcpy(parts, mine, bytes);
        status = gather_tree(group, parts, bytes);
    }
    if (rank != 0) {
        dp_free(parts);
    }
    return status;
}

/* The board has two sides: who writes on one has seen that all others were in the gather before,
 * and so are done with what it showed two gathers ago. */
dp_status dp_group_gather_node(struct dp_group *group, const void *mine, size_t bytes, void *all)
{
    char *side;

    assert(bytes <= DP_NODE_RECORD);
    if (group->board == NULL && !group->unshared) {
        group->board = dp_group_memory(group, DP_MEM_COMM, (size_t)2 * DP_NODE_RECORD);
        if (group->board == NULL) {
            return DP_GROUP_FAIL(group, DP_ERR_NOMEM, "records of %d ranks", group->size);
        }
    }
    if (group->unshared) {
        return dp_group_allgather(group, mine, bytes, all);
    }
    side = group->board + (size_t)(group->boards++ % 2) * DP_NODE_RECORD;
    memcpy(side, mine, bytes);
    DP_TRY(dp_group_barrier(group));
    for (int i = 0; i < group->size; i++) {
        const void *theirs =
            group->node_of[i] == group->node_of[group->rank] ? dp_group_peer(group, side, i) : NULL;
        if (theirs != NULL) {
            memcpy((char *)all + (size_t)i * bytes, theirs, bytes);
        }
    }
    return DP_OK;
}

void *dp_group_memory(struct dp_group *group, enum dp_purpose purpose, size_t bytes)
{
    assert(!group->guarded || *dp_group_in_job());
    return group->transport->memory(group, purpose, bytes);
}

void dp_group_release(struct dp_group *group, void *memory)
{
    if (memory != NULL) {
        group->transport->release(group, memory);
    }
}

void *dp_group_peer(const struct dp_group *group, const void *mine, int peer)
{
    return group->transport->peer(group, mine, peer);
}

bool dp_group_reaches(const struct dp_group *group, const void *mine)
{
    bool reaches = dp_group_one_node(group) && !group->unshared;

    for (int i = 0; i < group->size && reaches; i++) {
        reaches = i == group->rank || dp_group_peer(group, mine, i) != NULL;
    }
    return reaches;
}

const char *dp_group_why_unshared(const struct dp_group *group)
{
    for (; group != NULL; group = group->parent) {
        if (group->parent != NULL && !group->parent->unshared) {
            return "only some ranks of this node take part (as between leaders of hier), and "
                   "memory is shared by all of them";
        }
    }
    return "a node has no room for shared memory (is /dev/shm full, or ulimit -f or -v small?)";
}

int dp_group_leader(const struct dp_group *group, int node)
{
    int leader = 0;

    while (group->node_of[leader] != node) {
        leader++;
    }
    return leader;
}

bool dp_group_even(const struct dp_group *group)
{
    for (int node = 0; node < group->nodes; node++) {
        int ranks = 0;
        for (int i = 0; i < group->size; i++) {
            ranks += group->node_of[i] == node;
        }
        if (ranks * group->nodes != group->size) {
            return false;
        }
    }
    return true;
}

dp_status dp_group_node_memory(struct dp_group *group, enum dp_purpose purpose, size_t bytes,
                               struct dp_node_memory *memory)
{
    const int leader = dp_group_leader(group, group->node_of[group->rank]);
    const bool first = leader == group->rank;
    struct dp_node_memory made = {NULL, NULL, first};

    made.handle = dp_group_memory(group, purpose, first ? bytes : 0);
    if (made.handle == NULL) {
        return DP_GROUP_FAIL(group, DP_ERR_NOMEM, "%s need %zu MB", dp_purpose_text(purpose),
                             bytes >> 20);
    }
    made.data = first ? made.handle : dp_group_peer(group, made.handle, leader);
    if (made.data == NULL) { /* no shared memory: a private copy */
        made.data = dp_mem_arena(purpose, bytes);
        made.writer = true;
    }
    const dp_status status = dp_group_agree(group, made.data != NULL ? DP_OK : DP_ERR_NOMEM);
    if (status != DP_OK) {
        dp_group_release_node(group, &made);
        return DP_GROUP_FAIL(group, status, "%s need %zu MB", dp_purpose_text(purpose),
                             bytes >> 20);
    }
    *memory = made;
    return DP_OK;
}

void dp_group_release_node(struct dp_group *group, struct dp_node_memory *memory)
{
    if (memory->handle == NULL) {
        return;
    }
    if (memory->writer && memory->data != memory->handle) {
        dp_free(memory->data);
    }
    dp_group_release(group, memory->handle);
    *memory = (struct dp_node_memory){NULL, NULL, false};
}

/* Dissemination of the least number that each rank knows. */
dp_status dp_group_least(struct dp_group *group, int *number)
{
    for (int distance = 1; distance < group->size; distance *= 2) {
        int heard = 0;
        const int to = (group->rank + distance) % group->size;
        const int from = (group->rank + group->size - distance) % group->size;
        DP_TRY(dp_group_exchange(group, to, (struct dp_slice){number, sizeof(*number), 1}, from,
                                 (struct dp_slice){&heard, sizeof(heard), 1}));
        *number = heard < *number ? heard : *number;
    }
    return DP_OK;
}

dp_status dp_group_agree(struct dp_group *group, dp_status mine)
{
    int least = -(int)mine;

    DP_TRY(dp_group_least(group, &least));
    return (dp_status)-least;
}

void dp_group_leave(struct dp_group *group, dp_status status)
{
    if (group->size > 1 && !dp_status_together(status)) {
        if (group->transport->leave != NULL) {
            group->transport->leave(group);
        } else {
            atomic_store(group->cancel, 1);
        }
    }
}

void dp_group_destroy(struct dp_group *group)
{
    if (group != NULL) {
        if (group->gpus != NULL) {
            group->destroy_gpus(group);
        }
        dp_group_release(group, group->board);
        group->transport->close(group);
    }
}
