/*
 * mail.h - messages between trainers and servers that do not wait for each other: a trainer sends a
 * part of its gradient to each server, and gets that server's part of the weights.
 *
 *      message   | head | part: chunks of all buckets, one behind the other | extra |
 *
 * The chunks are those that sharing `ps` gives to the server, in the order of its optimizer state
 * (dp_bucket.owned_at). Each rank has one box for each rank it writes to: a trainer for each
 * server, a server for each trainer. What goes into the head, and into the extra numbers that the
 * first server gets with every gradient, is up to the caller.
 *
 * Functions that send or receive are for jobs. The group must carry no other messages between
 * dp_mail_begin() and the last message.
 */
#ifndef DP_COLLECTIVES_MAIL_H
#define DP_COLLECTIVES_MAIL_H

#include "collectives/bucket.h"
#include "collectives/group.h"

struct dp_mail_box {
    char *memory; /* owned */
    size_t count; /* numbers of the part */
    struct dp_transfer transfer;
    enum { DP_BOX_OURS, DP_BOX_COMING, DP_BOX_GOING } state;
};

struct dp_mail {
    struct dp_group *group;            /* borrowed */
    const struct dp_bucket_plan *plan; /* borrowed */
    int servers;                       /* the last ranks */
    size_t head_bytes, extra;          /* extra: numbers */
    size_t width;                      /* bytes of a weight; those of gradients are float32 */
    struct dp_mail_box *boxes;         /* owned; [peers] */
    int peers, turn;                   /* turn: who is looked at first */
};

/* Members group, plan, servers, head_bytes, extra and width are filled in. Local.
 * Errors: DP_ERR_NOMEM; DP_ERR_CONFIG (a part is too long for one message). Nothing is left. */
DP_CHECKED dp_status dp_mail_open(struct dp_mail *mail);
void dp_mail_close(struct dp_mail *mail);

/* What lies in the box of peer `i`. Local. */
void *dp_mail_head(const struct dp_mail *mail, int i);
float *dp_mail_part(const struct dp_mail *mail, int i);
float *dp_mail_extra(const struct dp_mail *mail, int i);

/* Copies the chunks between the part in box `i` and an array in flat order, of so many bytes a
 * number. Local. */
void dp_mail_pack(const struct dp_mail *mail, int i, void *array, size_t width);
void dp_mail_unpack(const struct dp_mail *mail, int i, void *array, size_t width);

/* Trainer: sends all boxes; with `answered`, then waits for the answer of each server. */
DP_CHECKED dp_status dp_mail_swap(struct dp_mail *mail, bool answered);

/* Server: begins to receive from all trainers. */
DP_CHECKED dp_status dp_mail_begin(struct dp_mail *mail);

/* Server: *i: a trainer whose message has come, whichever is first; sleeps until there is one. Its
 * box is the caller's until the answer; without one, nothing is received from it any more. */
DP_CHECKED dp_status dp_mail_next(struct dp_mail *mail, int *i);

/* Server: sends head and part of box `i`; its next message is received when this one is gone. */
DP_CHECKED dp_status dp_mail_answer(struct dp_mail *mail, int i);

#endif
