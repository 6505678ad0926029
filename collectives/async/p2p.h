/*
 * p2p.h - messages from one rank to another that go on beside the training: weights to a rank that
 * evaluates, batches from ranks that read them.
 *
 * A message is posted by whoever has it, and moves in dp_p2p_poll(), which alone calls the group:
 * on a rank that trains, the engine calls it between its jobs (dp_engine_set_errand); a rank
 * without an engine calls it itself, or waits. Between two ranks, messages in one direction arrive
 * in the order in which both have posted them.
 */
#ifndef DP_COLLECTIVES_ASYNC_P2P_H
#define DP_COLLECTIVES_ASYNC_P2P_H

#include <pthread.h>

#include "collectives/core/group.h"

/* Zeroed: none. It lives until it is done, and so does its data. */
struct dp_p2p_message {
    struct dp_slice data;
    int peer;
    bool sends; /* or receives */
    enum { DP_P2P_DONE, DP_P2P_POSTED, DP_P2P_MOVING } state;
    struct dp_transfer transfer;
    struct dp_p2p_message *next;
};

struct dp_p2p {
    struct dp_group *group;       /* borrowed; carries nothing else */
    void (*poke)(void *context);  /* asks for dp_p2p_poll(); NULL: this rank has no engine */
    void *context;                /* borrowed */
    pthread_mutex_t mutex;        /* protects what follows, and the state of messages */
    pthread_cond_t moved;         /* some message is done */
    struct dp_p2p_message *first; /* of those under way, in the order posted */
};

/* `poke`: see above. */
void dp_p2p_open(struct dp_p2p *p2p, struct dp_group *group, void (*poke)(void *context),
                 void *context);
void dp_p2p_close(struct dp_p2p *p2p);

/* Posts a message of at most DP_MESSAGE_MAX bytes, whose length both ranks know; the one before it
 * in `message` is done. At most DP_TRANSFERS_MAX are under way between two ranks in a direction. */
void dp_p2p_send(struct dp_p2p *p2p, struct dp_p2p_message *message, int to, void *data,
                 size_t bytes);
void dp_p2p_receive(struct dp_p2p *p2p, struct dp_p2p_message *message, int from, void *data,
                    size_t bytes);

/* Moves what is posted, without waiting; *more: something is under way. Called by one thread at a
 * time. Errors: those of the group. */
DP_CHECKED dp_status dp_p2p_poll(struct dp_p2p *p2p, bool *more);

/* Whether a message is done; one that was never posted is. */
bool dp_p2p_done(struct dp_p2p *p2p, const struct dp_p2p_message *message);

/* Returns when it is done; or, of the second, when so much time has passed. Errors:
 * DP_ERR_CANCELLED (the job ends), those of the group. */
DP_CHECKED dp_status dp_p2p_wait(struct dp_p2p *p2p, const struct dp_p2p_message *message);
DP_CHECKED dp_status dp_p2p_wait_for(struct dp_p2p *p2p, const struct dp_p2p_message *message,
                                     uint64_t most_ns);

#endif
