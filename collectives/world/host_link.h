/*
 * host_link.h - detects that a host is silent, or that a rank that is alone on its host has died
 * without a report: it has no local peer to report it (local_peers.h), and MPI does not report it
 * to ranks that wait.
 *
 * The first rank of each host has a TCP connection to the first rank of the next host, which
 * carries nothing but a farewell, the news that a host is silent, or makes progress
 * (host_progress.h), or rows of a table when the job hangs (hang_gather.h). The kernel closes it
 * when the process ends, however it ends: without a farewell that is a death. TCP probes the other
 * host each second, also during an outage of the network. The caller decides how long to wait for a
 * host that does not answer. Who has given it up sends that to the host that watches it, and so on
 * round: mpirun may be on another host than the one that noticed. Where no connection can be made
 * (a firewall, no IPv4), or something between the hosts breaks it, no rank is watched, and nothing
 * else changes.
 *
 *      h1: 0         h2: 1         h3: 2, 3
 *          |  <-------  |  <---------  |       rank 1 watches rank 0, rank 2 watches rank 1, rank 0
 *          |  ---------------------->  |       watches rank 2, whose death rank 3 would report
 */
#ifndef DP_COLLECTIVES_WORLD_HOST_LINK_H
#define DP_COLLECTIVES_WORLD_HOST_LINK_H

#include "collectives/core/group.h"

struct dp_host_link {
    int watched;   /* the rank at the other end of `theirs`, or that is lost; -1: none */
    char host[64]; /* its host */
    bool alone;    /* the only rank of its host */
    int theirs;    /* socket; -1: none */
    int mine;      /* socket to the rank that watches this one; -1: none */
    bool died;     /* the watched rank died without a farewell */
    int quiet_s;   /* seconds since the last answer of its host, at the last check */
    bool warned;   /* a warning about that was logged */
    int silent_s;  /* above 0: given up after this many seconds */
    bool told;     /* by another host, which also reports it */
    bool talks;    /* rows go over the connections: the job ends, and nobody is lost any more; set
                    * by hang_gather.c */
};

/* The first byte of what is sent; a farewell has no more, nor has progress, which is any higher
 * byte, too (host_progress.h). */
enum { DP_HOST_LINK_FAREWELL, DP_HOST_LINK_ROW, DP_HOST_LINK_LOSS, DP_HOST_LINK_PROGRESS };

/* Watches no rank. */
void dp_host_link_init(struct dp_host_link *line);

/* Connects the ranks of a group of several nodes, after dp_host_link_init(). Takes at most one to
 * two seconds. Collective. Errors: DP_ERR_NOMEM, those of the transport. */
DP_CHECKED dp_status dp_host_link_open(struct dp_group *group, struct dp_host_link *line);

/* Whether the watched rank has died without a farewell, its host has been silent for outage_s
 * seconds (above 0), or another host has sent that of a third; silent_s is then set, and watched
 * and host are those that are lost. Logs a warning after five seconds of silence and another
 * when the silence ends. Local. */
bool dp_host_link_lost(struct dp_host_link *line, int outage_s);

/* Sends a farewell to the rank that watches this one: this rank ends by itself. Local. */
void dp_host_link_leave(const struct dp_host_link *line);

/* Sends a farewell and closes the connections. Local. */
void dp_host_link_close(struct dp_host_link *line);

#endif
