/*
 * world.h - this process among all: its groups, and the end of all of them.
 */
#ifndef DP_COLLECTIVES_WORLD_WORLD_H
#define DP_COLLECTIVES_WORLD_WORLD_H

#include "collectives/core/group.h"

struct dp_failure_detector;
struct dp_liveness;

/* A group is NULL where this rank is no member. */
struct dp_world {
    struct dp_group *all;   /* start checks, end */
    struct dp_group *train; /* trainers: gradients and weights */
    bool mpi;               /* started by mpirun or srun */
    char host[64];
    char library[64];                     /* "Open MPI v4.1.4", or "no MPI" */
    struct dp_liveness *liveness;         /* owned; of `all`; NULL: alone */
    struct dp_failure_detector *detector; /* owned; NULL: alone */
    atomic_int cancel;
};

/* The rank that mpirun or srun gave this process, known before MPI starts; -1: neither did. */
int dp_world_launch_rank(void);

/*
 * Joins the job. Under mpirun or srun this starts MPI (at most once a process), with settings that
 * matter for speed where the user has none of their own; alone it is a world of one without MPI,
 * which starts faster.
 *
 * Errors: DP_ERR_MPI, DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_world_create(struct dp_world **out);

/* One more group of all ranks, which another engine may own. Collective; given back with
 * dp_group_destroy() before the world is. Errors: DP_ERR_MPI, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_world_group(struct dp_world *world, struct dp_group **out);

/*
 * The worst of what ranks found out alone before they met, on all of them. mpirun ends all ranks as
 * soon as one fails: so what is wrong with a command line ends the job behind this, not before. And
 * of mpirun's several commands each may be another program: the first thing that any does is this.
 *
 *   asked  in   what this rank is about to do: "ddp_train", "ddp_train --check"
 *   tell   out  it is this rank that has to say what is wrong, since rank 0, which speaks for all,
 *               found nothing
 *
 * Collective. Errors: the worst one; DP_ERR_DISAGREE (ranks are about to do different things, which
 * rank 0 has told), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_world_meet(struct dp_world *world, const char *asked, dp_status mine,
                                   bool *tell);

/* How long another host may give no sign of life until the job ends, in seconds, above 0; at first
 * DP_OUTAGE_S. Local. */
void dp_world_allow_outage(struct dp_world *world, int seconds);

/* Leaves the job: collective, and ends MPI. */
void dp_world_destroy(struct dp_world *world);

/*
 * This process was asked from outside to end, and will: those that look after it need not tell that
 * it has died. mpirun ends ranks of its own host two kill timeouts before those of others. Counts
 * for the world that there is or will be, one at a time; on any thread, not in a signal handler.
 */
void dp_world_farewell(void);

/* Ends all ranks with this exit code, when this rank alone knows that the job has failed. Where the
 * cause is that a rank has died, mpirun is left some seconds to end them with its code; where it is
 * that a host has fallen silent, the code is that of DP_ERR_HUNG. Does not return under MPI; alone
 * it does nothing. */
void dp_world_abort(struct dp_world *world, int code);

#endif
