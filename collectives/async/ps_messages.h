/*
 * ps_messages.h - messages between trainers and servers that do not wait for each other: a trainer
 * sends a part of its gradient to each server, and gets that server's part of the weights.
 *
 *      message   | head | part: chunks of all buckets, one behind the other | extra |
 *
 * The chunks are those that sharding `ps` gives to the server, in the order of its optimizer state
 * (dp_bucket.owned_at). Each rank has one box for each rank it writes to: a trainer for each
 * server, a server for each trainer. What goes into the head, and into the extra numbers that the
 * first server gets with every gradient, is up to the caller.
 *
 * Functions that send or receive are for jobs. The group must carry no other messages between
 * dp_ps_messages_begin() and the last message.
 */
#ifndef DP_COLLECTIVES_ASYNC_PS_MESSAGES_H
#define DP_COLLECTIVES_ASYNC_PS_MESSAGES_H

#include "collectives/core/bucket.h"
#include "collectives/core/group.h"

struct dp_ps_messages_box {
    char *memory; /* owned */
    size_t count; /* numbers of the part */
    struct dp_transfer transfer;
    enum { DP_PS_BOX_OURS, DP_PS_BOX_COMING, DP_PS_BOX_GOING } state;
};

struct dp_ps_messages {
    struct dp_group *group;            /* borrowed */
    const struct dp_bucket_plan *plan; /* borrowed */
    int servers;                       /* the last ranks */
    size_t head_bytes, extra;          /* extra: numbers */
    size_t width;                      /* bytes of a weight; those of gradients are float32 */
    struct dp_ps_messages_box *boxes;  /* owned; [peers] */
    int peers, turn;                   /* turn: who is looked at first */
};

/* Members group, plan, servers, head_bytes, extra and width are filled in. Local.
 * Errors: DP_ERR_NOMEM; DP_ERR_CONFIG (a part is too long for one message). Nothing is left. */
DP_CHECKED dp_status dp_ps_messages_open(struct dp_ps_messages *messages);
void dp_ps_messages_close(struct dp_ps_messages *messages);

/* What lies in the box of peer `i`. Local. */
void *dp_ps_messages_head(const struct dp_ps_messages *messages, int i);
float *dp_ps_messages_part(const struct dp_ps_messages *messages, int i);
float *dp_ps_messages_extra(const struct dp_ps_messages *messages, int i);

/* Copies the chunks between the part in box `i` and an array in flat order, of so many bytes a
 * number. Local. */
void dp_ps_messages_pack(const struct dp_ps_messages *messages, int i, void *array, size_t width);
void dp_ps_messages_unpack(const struct dp_ps_messages *messages, int i, void *array, size_t width);

/* Trainer: sends all boxes; with `answered`, then waits for the answer of each server. */
DP_CHECKED dp_status dp_ps_messages_swap(struct dp_ps_messages *messages, bool answered);

/* Server: begins to receive from all trainers. */
DP_CHECKED dp_status dp_ps_messages_begin(struct dp_ps_messages *messages);

/* Server: *i: a trainer whose message has come, whichever is first; sleeps until there is one. Its
 * box is the caller's until the answer; without one, nothing is received from it any more. */
DP_CHECKED dp_status dp_ps_messages_next(struct dp_ps_messages *messages, int *i);

/* Server: sends head and part of box `i`; its next message is received when this one is gone. */
DP_CHECKED dp_status dp_ps_messages_answer(struct dp_ps_messages *messages, int i);

#endif
