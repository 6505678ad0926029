/*
 * host_link.h - whether a host has fallen silent, and whether a rank that is alone on its host has
 * died without a word: nobody there could tell (local_peers.h), and MPI says nothing to those who
 * wait.
 *
 * The first rank of each host has a TCP connection to the first rank of the next host, over which
 * nothing goes but a farewell. The kernel closes it when the process ends, however it ends: that is
 * a death. TCP asks the other host for a sign of life each second, and goes on asking through an
 * outage of the network: a host that gives none is waited for as long as the caller allows. Where
 * no connection can be made (a firewall, no IPv4), or something on the way breaks it, nobody is
 * watched, and nothing else changes.
 *
 *      h1: 0         h2: 1         h3: 2, 3
 *          |  <-------  |  <---------  |       rank 1 watches rank 0, rank 2 watches rank 1, rank 0
 *          |  ---------------------->  |       watches rank 2, of whose death 3 would tell
 */
#ifndef DP_COLLECTIVES_WORLD_HOST_LINK_H
#define DP_COLLECTIVES_WORLD_HOST_LINK_H

#include "collectives/core/group.h"

struct dp_host_link {
    int watched;   /* the rank at the other end of `theirs`; -1: nobody */
    char host[64]; /* where it lives */
    bool alone;    /* there is no other rank */
    int theirs;    /* socket; -1: none */
    int mine;      /* socket to the rank that watches this one; -1: none */
    bool died;     /* the watched rank, without a farewell */
    int quiet_s;   /* since the last sign of life of its host, when last looked */
    bool warned;   /* of that */
    int silent_s;  /* above 0: given up after so many seconds */
};

/* Watches nobody. */
void dp_host_link_init(struct dp_host_link *line);

/* Connects the ranks of a group of several nodes, after dp_host_link_init(); at most a second or
 * two. Collective. Errors: DP_ERR_NOMEM, those of the transport. */
DP_CHECKED dp_status dp_host_link_open(struct dp_group *group, struct dp_host_link *line);

/* Whether the watched rank has died without a farewell, or its host has given no sign of life for
 * outage_s seconds (above 0), which silent_s then says. Warns once of a silence of five seconds and
 * says when it ends. Local. */
bool dp_host_link_lost(struct dp_host_link *line, int outage_s);

/* This rank ends by itself: a farewell to the one that watches it. Local. */
void dp_host_link_leave(const struct dp_host_link *line);

/* The same, and closes the connections. Local. */
void dp_host_link_close(struct dp_host_link *line);

#endif
