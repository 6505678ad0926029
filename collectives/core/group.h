/*
 * group.h - some ranks that communicate: who they are, messages between them, shared memory.
 *
 * A group is made by a transport (transport.h). All functions are collective unless marked local:
 * every rank of the group calls them in the same order. Once an engine owns the group, only its
 * jobs may call them. Debug builds check this for starting and testing a message, and for memory.
 */
#ifndef DP_COLLECTIVES_CORE_GROUP_H
#define DP_COLLECTIVES_CORE_GROUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "kernels/device.h"

struct dp_slice {
    void *data;
    size_t count, width; /* elements, bytes an element */
};

enum dp_keep {
    DP_KEEP_ALL,  /* the whole result on every rank */
    DP_KEEP_CHUNK /* dp_slice_chunk(data, size, rank); the rest may be undefined */
};

struct dp_transport;

enum {
    DP_MESSAGE_MAX = 1 << 30, /* bytes of one message */
    DP_TRANSFERS_MAX = 32,    /* messages that may be in flight from one rank to another */
    DP_PIECES = 16            /* pieces that a transport may cut a message into */
};

/* Messages in flight, at most one in each direction; see dp_group_start(). */
struct dp_transfer {
    int to, from;                           /* -1: none */
    size_t far_bytes;                       /* the larger direction, if between nodes; else 0 */
    uint64_t out[DP_PIECES], in[DP_PIECES]; /* the transport's own */
    int check;                              /* number of its checksums; 0: none */
    struct dp_slice came;                   /* where it comes to */
};

/* See dp_group_node_memory(). */
struct dp_node_memory {
    void *data;   /* the memory that all ranks of the node use */
    void *handle; /* owned; this rank's share of it */
    bool writer;
};

struct dp_group {
    int rank, size;
    const struct dp_transport *transport;
    void *link;                /* the transport's own */
    struct dp_stream *stream;  /* borrowed; sums run here. Set before a strategy is opened */
    struct dp_gpu_peers *gpus; /* owned; only where ranks compute on GPUs: gpu_peers.h */
    void (*destroy_gpus)(struct dp_group *group); /* of `gpus`; called by dp_group_destroy() */
    const struct dp_group *parent; /* borrowed; the group that this one is a part of, or NULL */
    const int *node_of;            /* [size]: number of the node each rank lives on */
    int nodes, local_size;         /* nodes of the group; ranks on this node */
    atomic_int *cancel;            /* not 0: every wait of this process gives up */
    uint64_t spin_ns;              /* how long waits spin: see backoff.h */
    bool unshared; /* some memory (gradients, or what is allocated later) is not shared: no
                          * space for it, or the group has only some ranks of a node */
    bool ordered;  /* its sums must keep the tree's order over ranks: lanes */
    bool guarded;  /* an engine owns it: only jobs call it */
    struct dp_message_checks *checks; /* message_check.h; NULL: messages have no checksums */
    char *board;         /* owned; what dp_group_gather_node() shows; NULL: not used yet */
    unsigned boards;     /* how often it was used */
    uint64_t wire_bytes; /* sent by this rank, and read from peers' memory, so far; what MPI and
                          * NCCL send internally is estimated (dp_slice_passes) */
};

/* Part `i` of `parts`, cut at multiples of DP_BLOCK elements. The parts of a slice cover it, in
 * order; some may be empty. They differ by a block at most; or, where that makes the last one
 * longer by a 32nd at most, all others are equal. Local. */
struct dp_slice dp_slice_chunk(struct dp_slice slice, int parts, int i);

/* Parts [first, first + span) as one slice; span is 1 or more. Local. */
struct dp_slice dp_slice_chunks(struct dp_slice slice, int parts, int first, int span);

/* An upper bound, tight to a few elements, for the longest of `parts` chunks of `count` elements;
 * and for those of any count up to `most`. Local. */
size_t dp_chunk_longest(size_t count, int parts);
size_t dp_chunk_room(size_t most, int parts);

/* Segment `i` of a slice that is cut every `count` elements; empty past the end. Local. */
struct dp_slice dp_slice_segment(struct dp_slice slice, size_t count, size_t i);

static inline size_t dp_slice_bytes(struct dp_slice slice)
{
    return slice.count * slice.width;
}

/* Estimates the bytes sent by a library that does not report them: `times` bandwidth-optimal
 * passes, each of (p-1)/p of the slice, in whole elements. Local. */
static inline uint64_t dp_slice_passes(struct dp_slice slice, int ranks, int times)
{
    const size_t parts = (size_t)times * ((size_t)ranks - 1) * slice.count;

    return (parts + (size_t)ranks - 1) / (size_t)ranks * slice.width;
}

/* Default sizes of segments in KiB. Inside a node eight segments in flight fit a core's second
 * cache (1 MiB; ring, rhd and doubling from 4 MB up are 10 % faster than with 256). Over a network
 * several MB must be in flight, or each wait for a core stalls it. */
enum { DP_SEGMENT_NODE_KB = 96, DP_SEGMENT_WIRE_KB = 1024 };

/* Bytes of the segments that a strategy sends: asked_kb KiB, or where that is 0 node_kb inside a
 * node and wire_kb between nodes. Local. */
size_t dp_group_segment(const struct dp_group *group, int asked_kb, int node_kb, int wire_kb);

/* Sends `out` to one rank while receiving `in` from another; -1: none. Returns when both are done.
 * Lengths must match on both sides, and may be of any size. */
DP_CHECKED dp_status dp_group_exchange(struct dp_group *group, int to, struct dp_slice out,
                                       int from, struct dp_slice in);

/*
 * The same in two halves, so that a rank can compute while a message is in flight. start returns
 * immediately; finish returns when both directions are done. Until then `out` must not change and
 * `in` must not be read. Messages from one rank to another arrive in the order in which they were
 * started, on both sides. At most DP_TRANSFERS_MAX of them, of at most DP_MESSAGE_MAX bytes each,
 * are in flight. finish does nothing for a zeroed transfer with to and from -1, and when called
 * again.
 *
 * After an error no wait of the group may be started any more: see dp_group_leave().
 */
DP_CHECKED dp_status dp_group_start(struct dp_group *group, int to, struct dp_slice out, int from,
                                    struct dp_slice in, struct dp_transfer *transfer);
DP_CHECKED dp_status dp_group_finish(struct dp_group *group, struct dp_transfer *transfer);

/* Tests without waiting whether both directions are done; if so, the transfer is finished. To wait
 * for one of several transfers, test them in turn, with dp_backoff_wait() between. */
DP_CHECKED dp_status dp_group_test(struct dp_group *group, struct dp_transfer *transfer,
                                   bool *done);

/* sum += in; float32. Local. */
DP_CHECKED dp_status dp_group_add(struct dp_group *group, struct dp_slice sum, struct dp_slice in);

/* Returns when every rank has called it. Dissemination: Hensgen, Finkel and Manber 1988. */
DP_CHECKED dp_status dp_group_barrier(struct dp_group *group);

/* Sends `data` of `root` to all ranks, along a binomial tree. */
DP_CHECKED dp_status dp_group_broadcast(struct dp_group *group, void *data, size_t bytes, int root);

/* Gives all ranks the text of rank 0, or the status with which rank 0 failed to get one. *text:
 * NULL on other ranks before; afterwards owned by the caller (dp_free). Collective. Errors: rank
 * 0's; DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_group_broadcast_text(struct dp_group *group, char **text, dp_status status);

/* all [size * bytes]: `mine` of every rank, in rank order. In log2(size) rounds, or around a ring
 * where `mine` is long. */
DP_CHECKED dp_status dp_group_allgather(struct dp_group *group, const void *mine, size_t bytes,
                                        void *all);

/* all [size * bytes], on rank 0: `mine` of every rank, in rank order; NULL on the others. Along a
 * binomial tree, so that what travels grows as size x log2(size). Errors also DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_group_gather(struct dp_group *group, const void *mine, size_t bytes,
                                     void *all);

/* all [size * bytes]: `mine` of the ranks of this node, at their places in rank order; what is at
 * the others is undefined. No message carries it: it is at most DP_NODE_RECORD bytes in memory that
 * the node shares. Collective over all ranks. Errors also DP_ERR_NOMEM. */
enum { DP_NODE_RECORD = 256 };
DP_CHECKED dp_status dp_group_gather_node(struct dp_group *group, const void *mine, size_t bytes,
                                          void *all);

/*
 * Returns zeroed memory, aligned to DP_MEM_ALIGN, that the other ranks of this node can read and
 * write. Where some node cannot share memory, it is private, one warning is logged, and
 * group->unshared is set on all ranks. Counted under `purpose`. Collective. Returns NULL on all
 * ranks when one of them cannot allocate.
 * DP_GROUP_FAIL is for what all ranks lack at once, such as this memory: rank 0 reports it.
 */
#define DP_GROUP_FAIL(group, status, ...) \
    ((group)->rank == 0 ? DP_FAIL(status, __VA_ARGS__) : (status))
void *dp_group_memory(struct dp_group *group, enum dp_purpose purpose, size_t bytes);
void dp_group_release(struct dp_group *group, void *memory);

/* Returns the address in rank `peer`'s memory that corresponds to `mine`, which points into memory
 * from dp_group_memory(). NULL when this rank cannot reach it. Local. */
void *dp_group_peer(const struct dp_group *group, const void *mine, int peer);

/* Returns why group->unshared is set: a static text for people. Local. */
const char *dp_group_why_unshared(const struct dp_group *group);

/* Whether all ranks are on this node and reach each other's memory that corresponds to `mine`, from
 * dp_group_memory(). The same on all ranks. Local. */
bool dp_group_reaches(const struct dp_group *group, const void *mine);

/*
 * Allocates one piece of zeroed memory for all ranks of this node. memory->writer says whether this
 * rank must fill it: one rank of each node. Without shared memory every rank is a writer with a
 * copy of its own, and dp_group_reaches() of the handle is false.
 *
 * Collective. Released by dp_group_release_node(), which is collective too. Errors: DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_group_node_memory(struct dp_group *group, enum dp_purpose purpose,
                                          size_t bytes, struct dp_node_memory *memory);
void dp_group_release_node(struct dp_group *group, struct dp_node_memory *memory);

/* The least of all ranks' numbers, on all ranks. Collective. */
DP_CHECKED dp_status dp_group_least(struct dp_group *group, int *number);

/* Returns the worst of all ranks' statuses on all ranks, so that they leave together.
 * Collective. */
DP_CHECKED dp_status dp_group_agree(struct dp_group *group, dp_status mine);

/* Whether all ranks are on one node. Local. */
static inline bool dp_group_one_node(const struct dp_group *group)
{
    return group->nodes == 1;
}

/* The first rank of a node. Local. */
int dp_group_leader(const struct dp_group *group, int node);

/* Whether all nodes have the same number of ranks. Local, and the same on all ranks. */
bool dp_group_even(const struct dp_group *group);

/*
 * Called when a collective creation failed on this rank with `status`. If the error may be this
 * rank's alone, the others may wait for it in the next collective. So this rank must not wait for
 * them: all waits of this process end, and memory is released without the others. The caller ends
 * the job. An error that all ranks have in common changes nothing. Local.
 */
void dp_group_leave(struct dp_group *group, dp_status status);

void dp_group_destroy(struct dp_group *group);

/* True on a thread that is running a job; set by the engine alone. */
bool *dp_group_in_job(void);

#endif
