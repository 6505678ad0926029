/*
 * ssp_clock.h - the progress of trainers that run at their own pace, and which of them must wait.
 *
 * A trainer's clock is the number of its gradients that a server has applied. None may be more than
 * `bound` ahead of the slowest: such a trainer gets no weights until the others have caught up. So
 * the weights of step s hold all gradients of steps before s - bound, and perhaps later ones.
 *
 * Source: Ho et al., "More effective distributed ML via a stale synchronous parallel parameter
 * server", NIPS 2013, section 3.
 */
#ifndef DP_COLLECTIVES_ASYNC_SSP_CLOCK_H
#define DP_COLLECTIVES_ASYNC_SSP_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum dp_ssp_state {
    DP_SSP_COMPUTES, /* has weights; its next gradient has not arrived */
    DP_SSP_WAITS,    /* its gradient was applied, and it needs new weights */
    DP_SSP_ENDED     /* its last gradient has arrived */
};

struct dp_ssp_trainer {
    uint64_t step; /* gradients applied, from the start of training */
    uint64_t seen; /* gradients of all trainers in the weights that it got last */
    enum dp_ssp_state state;
};

struct dp_ssp_clock {
    int count;                        /* trainers */
    uint64_t bound;                   /* steps */
    struct dp_ssp_trainer *ssp_clock; /* owned; [count] */
    uint64_t applied;                 /* gradients so far, of all trainers */
    int ended;                        /* trainers that have ended */
    uint64_t *histogram; /* owned; [bins]: counts gradients by how many of other trainers were
                          * applied since the weights that they were computed with */
    size_t bins;
};

/* The largest such number, plus 1. */
size_t dp_ssp_clock_bins(int count, uint64_t bound);

/* On error nothing is left allocated. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_ssp_clock_open(struct dp_ssp_clock *ssp_clock, int count, uint64_t bound);
void dp_ssp_clock_close(struct dp_ssp_clock *clock);

/* Starts: all trainers have done `step` steps and hold the same weights. */
void dp_ssp_clock_begin(struct dp_ssp_clock *clock, uint64_t step);

/* Records that the gradient of trainer `i` was applied; `last`: it needs no more weights. */
void dp_ssp_clock_apply(struct dp_ssp_clock *clock, int i, bool last);

/* Whether trainer `i` waits and may get weights. */
bool dp_ssp_clock_may_go(const struct dp_ssp_clock *ssp_clock, int i);

/* Records that it gets them. */
void dp_ssp_clock_go(struct dp_ssp_clock *clock, int i);

/* The number of steps that all trainers have done. */
uint64_t dp_ssp_clock_slowest(const struct dp_ssp_clock *clock);

/* The first step after which all trainers can end, if each learns of it with the next weights it
 * gets. A trainer that computes now gets none before its next gradient. */
uint64_t dp_ssp_clock_soonest(const struct dp_ssp_clock *clock);

#endif
