/*
 * group.h - some ranks that communicate: who they are, messages between them, shared memory.
 *
 * A group is made by a transport (transport.h). All functions but those marked local are
 * collective: every rank of the group calls them in the same order. Once an engine owns the group
 * they may be called from its jobs only (debug builds check it of beginning a message, testing one,
 * and memory).
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
    DP_TRANSFERS_MAX = 32,    /* messages that may be under way from one rank to another */
    DP_PIECES = 16            /* that a transport may cut a message into */
};

/* Messages under way, one in each direction at most; see dp_group_start(). */
struct dp_transfer {
    int to, from;                           /* -1: nobody */
    size_t far_bytes;                       /* the most of a direction, if between nodes; else 0 */
    uint64_t out[DP_PIECES], in[DP_PIECES]; /* the transport's own */
};

/* See dp_group_node_memory(). */
struct dp_node_memory {
    void *data;   /* what everybody of the node uses */
    void *handle; /* owned; this rank's share of it */
    bool writer;
};

struct dp_group {
    int rank, size;
    const struct dp_transport *transport;
    void *link;                /* the transport's own */
    struct dp_stream *stream;  /* borrowed; sums run here. Set before a strategy is opened */
    struct dp_gpu_peers *gpus; /* owned; where ranks compute on GPUs: gpu_peers.h. Else NULL */
    void (*destroy_gpus)(struct dp_group *group); /* of `gpus`; called by dp_group_destroy() */
    const struct dp_group *parent; /* borrowed; the group that this one is a part of, or NULL */
    const int *node_of;            /* [size]: number of the node each rank lives on */
    int nodes, local_size;         /* nodes of the group; ranks on this node */
    atomic_int *cancel;            /* not 0: every wait of this process gives up */
    uint64_t spin_ns;              /* of waits: see backoff.h */
    bool apart;          /* some memory, the gradients or later, is not shared: no room, or a
                                 group of some ranks of a node */
    bool ordered;        /* its sums must keep the order of the tree over ranks: lanes */
    bool guarded;        /* an engine owns it: calls come from jobs only */
    uint64_t wire_bytes; /* sent by this rank, and read from peers' memory, so far; what MPI
                                 and NCCL send by themselves is estimated (dp_slice_passes) */
};

/* Part `i` of `parts`, cut at multiples of DP_BLOCK elements. Parts of one slice cover it, in
 * order; some may be empty. Local. */
struct dp_slice dp_slice_chunk(struct dp_slice slice, int parts, int i);

/* Parts [first, first + span) of them, as one slice; span is 1 or more. Local. */
struct dp_slice dp_slice_chunks(struct dp_slice slice, int parts, int first, int span);

/* Elements of the longest of `parts` chunks of `count` elements, or a few more. Local. */
size_t dp_chunk_longest(size_t count, int parts);

/* Segment `i` of a slice that is cut every `count` elements; empty after the last one. Local. */
struct dp_slice dp_slice_segment(struct dp_slice slice, size_t count, size_t i);

static inline size_t dp_slice_bytes(struct dp_slice slice)
{
    return slice.count * slice.width;
}

/* What a library sends that does not say so: an estimate, of `times` a bandwidth-optimal pass of
 * (p-1)/p of the slice, in whole elements. Local. */
static inline uint64_t dp_slice_passes(struct dp_slice slice, int ranks, int times)
{
    const size_t parts = (size_t)times * ((size_t)ranks - 1) * slice.count;

    return (parts + (size_t)ranks - 1) / (size_t)ranks * slice.width;
}

/* KiB of the segments that suit most: inside a node eight under way stay in a core's second cache
 * (1 MiB; ring, rhd and doubling from 4 MB up 10 % faster than with 256), over a network several MB
 * must be under way, or each turn of waiting for a core stalls it. */
enum { DP_SEGMENT_NODE_KB = 96, DP_SEGMENT_WIRE_KB = 1024 };

/* Bytes of the segments in which a strategy sends: asked_kb KiB, or where that is 0 what suits it
 * inside a node, or between nodes. Local. */
size_t dp_group_segment(const struct dp_group *group, int asked_kb, int node_kb, int wire_kb);

/* Sends `out` to one rank while receiving `in` from another; -1: nobody. Returns when both are
 * done. Lengths must match on both sides, and may be of any size. */
DP_CHECKED dp_status dp_group_exchange(struct dp_group *group, int to, struct dp_slice out,
                                       int from, struct dp_slice in);

/*
 * The same in two halves, so that a rank can compute while bytes are on their way: start returns at
 * once, finish when both directions are done. Until then `out` must not change and `in` not be
 * read. Messages from one rank to another arrive in the order in which they were started, on both
 * sides; at most DP_TRANSFERS_MAX of them, of at most DP_MESSAGE_MAX bytes each, are under way.
 * finish of a zeroed transfer with to and from -1 does nothing; so does a second finish.
 *
 * After an error nothing of the group may be waited for any more: see dp_group_leave().
 */
DP_CHECKED dp_status dp_group_start(struct dp_group *group, int to, struct dp_slice out, int from,
                                    struct dp_slice in, struct dp_transfer *transfer);
DP_CHECKED dp_status dp_group_finish(struct dp_group *group, struct dp_transfer *transfer);

/* Whether both directions are done, without waiting; if so, it is finished. Whoever waits for one
 * of several transfers tests them in turns, with dp_backoff_wait() between. */
DP_CHECKED dp_status dp_group_test(struct dp_group *group, struct dp_transfer *transfer,
                                   bool *done);

/* sum += in; float32. Local. */
DP_CHECKED dp_status dp_group_add(struct dp_group *group, struct dp_slice sum, struct dp_slice in);

/* Returns when every rank has called it. Dissemination: Hensgen, Finkel and Manber 1988. */
DP_CHECKED dp_status dp_group_barrier(struct dp_group *group);

/* `data` of `root` to all, along a binomial tree. */
DP_CHECKED dp_status dp_group_broadcast(struct dp_group *group, void *data, size_t bytes, int root);

/* Gives rank 0's text, or the status that kept it from having one, to all ranks. *text: on others
 * NULL, then owned by the caller (dp_free). Collective. Errors: rank 0's; DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_group_broadcast_text(struct dp_group *group, char **text, dp_status status);

/* all [size * bytes]: `mine` of every rank, in order of ranks. */
DP_CHECKED dp_status dp_group_allgather(struct dp_group *group, const void *mine, size_t bytes,
                                        void *all);

/*
 * Zeroed memory, aligned to DP_MEM_ALIGN, that the other ranks of this node can read and write;
 * private memory, with one warning, where that is not to be had on some node: group->apart is then
 * set, on all ranks. Counted under `purpose`. Collective. NULL on all ranks when one of them can
 * have none.
 */
void *dp_group_memory(struct dp_group *group, enum dp_purpose purpose, size_t bytes);
void dp_group_release(struct dp_group *group, void *memory);

/* The place in rank `peer`'s memory that corresponds to `mine`, which points into something that
 * dp_group_memory() gave; NULL when it cannot be reached from here. Local. */
void *dp_group_peer(const struct dp_group *group, const void *mine, int peer);

/* Why group->apart is set, for people. A static text. Local. */
const char *dp_group_why_apart(const struct dp_group *group);

/* Whether all ranks live on this node and reach each other's places in `mine`, of
 * dp_group_memory(); the same on all of them. Local. */
bool dp_group_reaches(const struct dp_group *group, const void *mine);

/*
 * One piece of zeroed memory for all ranks of this node. memory->writer says whether this rank is
 * the one to fill it in: one rank of each node, or every rank where there is no shared memory: each
 * has a copy of its own then, and dp_group_reaches() of the handle is false.
 *
 * Collective. Released by dp_group_release_node(), collective too. Errors: DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_group_node_memory(struct dp_group *group, enum dp_purpose purpose,
                                          size_t bytes, struct dp_node_memory *memory);
void dp_group_release_node(struct dp_group *group, struct dp_node_memory *memory);

/* The worst of all ranks' statuses, on all ranks: so that they leave together. Collective. */
DP_CHECKED dp_status dp_group_agree(struct dp_group *group, dp_status mine);

/* Whether all ranks live on one node. Local. */
static inline bool dp_group_one_node(const struct dp_group *group)
{
    return group->nodes == 1;
}

/* The first rank of a node. Local. */
int dp_group_leader(const struct dp_group *group, int node);

/* Whether all nodes have equally many ranks. Local, and the same on all ranks. */
bool dp_group_even(const struct dp_group *group);

/*
 * Creating something collective failed on this rank with `status`. If that may have befallen it
 * alone, the others may wait for it in the next collective, so nothing here waits for them any
 * more: all waits of this process end, and memory is released without them. The caller ends the
 * job. What all ranks refuse alike changes nothing. Local.
 */
void dp_group_leave(struct dp_group *group, dp_status status);

void dp_group_destroy(struct dp_group *group);

/* True on a thread that runs a job or a post just now; set by the engine alone. */
bool *dp_group_in_job(void);

#endif
