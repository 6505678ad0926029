/*
 * lifeline.h - whether a rank that is alone on its host has died without a word: nobody there could
 * tell (mates.h), and MPI says nothing to those who wait for it.
 *
 * Each such rank has a TCP connection to the first rank of the next host, over which nothing goes
 * but a farewell. The kernel closes it when the process ends, however it ends; a host that falls
 * silent is found by TCP's own probes. Where no connection can be made (a firewall, no IPv4) nobody
 * is watched, and nothing else changes.
 *
 *      h1: 0         h2: 1         h3: 2, 3
 *          |  <-------  |  <---------  |       rank 1 watches rank 0, rank 2 watches rank 1;
 *                                              2 and 3 are mates
 */
#ifndef DP_COLLECTIVES_LIFELINE_H
#define DP_COLLECTIVES_LIFELINE_H

#include "collectives/group.h"

struct dp_lifeline {
    int watched;   /* the rank at the other end of `theirs`; -1: nobody */
    char host[64]; /* where it lives */
    int theirs;    /* socket; -1: none */
    int mine;      /* socket to the rank that watches this one; -1: none */
    bool gone;     /* the watched rank, without a farewell */
};

/* Watches nobody. */
void dp_lifeline_init(struct dp_lifeline *line);

/* Connects the ranks of a group of several nodes, after dp_lifeline_init(); at most a second or
 * two. Collective. Errors: DP_ERR_NOMEM, those of the transport. */
DP_CHECKED dp_status dp_lifeline_open(struct dp_group *group, struct dp_lifeline *line);

/* Whether the watched rank has died without a farewell. Local. */
bool dp_lifeline_lost(struct dp_lifeline *line);

/* This rank ends by itself: a farewell to the one that watches it. Local. */
void dp_lifeline_leave(const struct dp_lifeline *line);

/* The same, and closes the connections. Local. */
void dp_lifeline_close(struct dp_lifeline *line);

#endif
