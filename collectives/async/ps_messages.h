/*
 * ps_messages.h - messages between trainers and servers that do not wait for each other. A trainer
 * sends a part of its gradient to each server, and gets that server's part of the weights.
 *
 *      message   | head | part: chunks of all buckets, one after the other | extra |
 *
 * The chunks are those that sharding `ps` gives to the server, in the order of its optimizer state
 * (dp_bucket.owned_at). Each rank has one box for each rank it writes to: a trainer for each
 * server, a server for each trainer. The caller defines the head and the extra numbers, which the
 * first server gets with every gradient.
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
    size_t count; /* elements of the part */
    struct dp_transfer transfer;
    enum { DP_PS_BOX_OURS, DP_PS_BOX_COMING, DP_PS_BOX_GOING } state;
};

struct dp_ps_messages {
    struct dp_group *group;            /* borrowed */
    const struct dp_bucket_plan *plan; /* borrowed */
    int servers;                       /* their number; servers are the last ranks */
    size_t head_bytes, extra;          /* extra: elements */
    size_t width;                      /* bytes of a weight; gradients are float32 */
    struct dp_ps_messages_box *boxes;  /* owned; [peers] */
    int peers, turn;                   /* turn: the box to check first */
};

/* The caller has set group, plan, servers, head_bytes, extra and width. Local. Errors:
 * DP_ERR_NOMEM; DP_ERR_CONFIG (a part is too long for one message). On error nothing is left
 * allocated. */
DP_CHECKED dp_status dp_ps_messages_open(struct dp_ps_messages *messages);
void dp_ps_messages_close(struct dp_ps_messages *messages);

/* The contents of the box of peer `i`. Local. */
void *dp_ps_messages_head(const struct dp_ps_messages *messages, int i);
float *dp_ps_messages_part(const struct dp_ps_messages *messages, int i);
float *dp_ps_messages_extra(const struct dp_ps_messages *messages, int i);

/* Copies the chunks between the part in box `i` and an array in flat order, whose elements have
 * `width` bytes. Local. */
void dp_ps_messages_pack(const struct dp_ps_messages *messages, int i, void *array, size_t width);
void dp_ps_messages_unpack(const struct dp_ps_messages *messages, int i, void *array, size_t width);

/* Trainer: sends all boxes. If `answered`, also waits for the answer of each server. */
DP_CHECKED dp_status dp_ps_messages_swap(struct dp_ps_messages *messages, bool answered);

/* Server: starts to receive from all trainers. */
DP_CHECKED dp_status dp_ps_messages_begin(struct dp_ps_messages *messages);

/* Server: sleeps until a trainer's message has come, and sets *i to that trainer. The caller owns
 * its box until it answers; without an answer, nothing more is received from that trainer. */
DP_CHECKED dp_status dp_ps_messages_next(struct dp_ps_messages *messages, int *i);

/* Server: sends head and part of box `i`. Its next message is received when this one has been
 * sent. */
DP_CHECKED dp_status dp_ps_messages_answer(struct dp_ps_messages *messages, int i);

#endif
