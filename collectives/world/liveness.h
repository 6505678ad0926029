/*
 * liveness.h - which ranks live, as far as this rank can know. The kernel reports on processes of
 * its own host (local_peers.h), a TCP connection on other hosts (host_link.h).
 *
 * Used only over MPI: ranks that are threads of one process cannot die one by one.
 */
#ifndef DP_COLLECTIVES_WORLD_LIVENESS_H
#define DP_COLLECTIVES_WORLD_LIVENESS_H

#include "collectives/core/group.h"
#include "collectives/world/hang_gather.h"
#include "collectives/world/last_watch.h"
#include "collectives/world/one_speaker.h"
#include "collectives/world/watchdog.h"

struct dp_liveness;

/* A rank that is lost. */
struct dp_loss {
    int rank;         /* -1: none */
    bool reports;     /* whether this rank is the one to report it */
    const char *host; /* its host; borrowed; NULL: this host */
    int silent_s;     /* above 0: its host has been silent for this many seconds, so whether the
                       * rank has died is unknown */
};

/* Starts to watch the ranks of a group, and prepares the calling thread for dp_stacks_print().
 * Collective. group: borrowed. Errors: DP_ERR_NOMEM, those of
 * messages. */
DP_CHECKED dp_status dp_liveness_create(struct dp_group *group, struct dp_liveness **out);

/* How many seconds another host may be silent; DP_OUTAGE_S until this is called. Callable from any
 * thread. */
enum { DP_OUTAGE_S = 30 };
void dp_liveness_allow_outage(struct dp_liveness *liveness, int seconds);

/* A watchdog of this host's ranks, as far as their processes are visible. Owned by the caller; to
 * be destroyed before liveness. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_liveness_watchdog(const struct dp_liveness *liveness, const char *host,
                                          struct dp_watchdog **out);

/* What gathers the rows of all hosts, whose names are borrowed; NULL: this rank has no connection
 * to another host. Owned by the caller; to be destroyed before liveness. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_liveness_gather(struct dp_liveness *liveness,
                                        const struct dp_host_names *names,
                                        struct dp_hang_gather **out);

/* Waits until all ranks have called this; those of this host may also have said farewell. At most
 * until the group's waits end. Meanwhile each is watched by the others. From then on what is
 * returned watches the ranks without the memory that they share. NULL: some of this host cannot be
 * seen, or waits have ended; nobody does. timeout_s: of train.hang_timeout_s; 0: none.
 * Collective where there are several hosts. */
struct dp_last_watch *dp_liveness_meet(const struct dp_liveness *liveness, const char *host,
                                       double timeout_s);

/* Which rank of this host reports what several find at the same time; of liveness. NULL: this rank
 * cannot reach it, and reports it itself. */
struct dp_one_speaker *dp_liveness_speaker(const struct dp_liveness *liveness);

/* Where this rank publishes what it does; of liveness. */
struct dp_trace_mark *dp_liveness_mark(const struct dp_liveness *liveness);

/* Returns a rank that has died without a report, or whose host has been silent for too long. Local;
 * not on two threads at the same time. */
struct dp_loss dp_liveness_lost(struct dp_liveness *liveness);

/* Called when this rank is about to end, so that no rank reports its death. Local, on any thread.
 * NULL is ignored. */
void dp_liveness_farewell(struct dp_liveness *liveness);

/* Call it before the group is destroyed. Local. NULL is ignored. */
void dp_liveness_destroy(struct dp_liveness *liveness);

#endif
