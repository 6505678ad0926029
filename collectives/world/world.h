/*
 * world.h - all ranks of the job: their groups, and how the job ends.
 */
#ifndef DP_COLLECTIVES_WORLD_WORLD_H
#define DP_COLLECTIVES_WORLD_WORLD_H

#include "collectives/core/fabric_mpi.h"
#include "collectives/core/group.h"
#include "collectives/world/launched.h"
#include "collectives/world/roles.h"

struct dp_failure_detector;
struct dp_hang_gather;
struct dp_host_names;
struct dp_liveness;
struct dp_watchdog;

enum { DP_WORLD_LOST_MOST = 64 };

/* A group is NULL where this rank is not a member. */
struct dp_world {
    struct dp_group *all;   /* checks at start, ending */
    struct dp_group *train; /* ranks that train and serve: gradients and weights */
    struct dp_roles roles;  /* of all ranks; at first all train */
    enum dp_role role;      /* of this one */
    bool mpi;               /* started by mpirun or srun */
    bool mpirun;            /* which ends the job if a rank dies: not srun */
    char host[64];
    char library[64];                     /* "Open MPI v4.1.4", or "no MPI" */
    char fabric[DP_FABRIC_BYTES];         /* what messages go by (fabric_mpi.h); "": not known */
    struct dp_host_names *hosts;          /* owned; of all ranks (host_names.h) */
    struct dp_liveness *liveness;         /* owned; of `all`; NULL: alone */
    struct dp_watchdog *watchdog;         /* owned; NULL: alone */
    struct dp_hang_gather *gather;        /* owned; NULL: no connection to another host */
    struct dp_failure_detector *detector; /* owned; NULL: alone */
    int *first_rank_of;  /* owned, [all->size]: the numbers that the ranks had when the job began */
    atomic_bool shrinks; /* see dp_world_allow_shrink() */
    double hang_s;       /* of dp_world_allow_hang() */
    atomic_int cancel;
    bool broken; /* this rank failed where the others may wait for it: only dp_world_abort() helps;
                  * set by whoever finds out */
};

/*
 * Joins the job. Under mpirun or srun this starts MPI (at most once a process), with settings for
 * speed where the user has set none. Alone it makes a world of one rank without MPI, which starts
 * faster. A world of one, although the launcher says that there are more processes, is refused.
 *
 * Errors: DP_ERR_USAGE (that), DP_ERR_MPI, DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_world_create(struct dp_world **out);

/* Makes one more group of all ranks, which another engine may own. Collective. Destroy it with
 * dp_group_destroy() before the world. Errors: DP_ERR_MPI, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_world_group(struct dp_world *world, struct dp_group **out);

/*
 * Gives the ranks their roles, and makes the group `train` of those that share gradients; the ranks
 * keep their numbers in it. dp_world_unite() takes the roles back: all ranks train again. Both are
 * collective. Errors: DP_ERR_MPI, DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_world_divide(struct dp_world *world, const struct dp_roles *roles);
void dp_world_unite(struct dp_world *world);

/*
 * Gives all ranks the worst status that any of them had before this call. mpirun ends all ranks as
 * soon as one fails; so an error in a command line ends the job after this call and not before.
 * mpirun may start a different program for each of several commands, so every program makes this
 * call first.
 *
 *   asked        in   what this rank is about to do: "ddp_train", "ddp_train --check"
 *   must_report  out  whether this rank must report the error: it failed, and rank 0, which
 *                     normally reports for all, did not
 *
 * Collective. Errors: the worst one; DP_ERR_DISAGREE (ranks are about to do different things, as
 * rank 0 has reported), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_world_meet(struct dp_world *world, const char *asked, dp_status mine,
                                   bool *must_report);

/* Sets how long another host may be silent before the job ends, in seconds, above 0; DP_OUTAGE_S by
 * default. Local. */
void dp_world_allow_outage(struct dp_world *world, int seconds);

/* Sets how long a step may take without progress before the job ends as hung, in seconds; 0, as at
 * first: by the slowest step; and how long what cannot be seen may (watchdog.h). Local. */
void dp_world_allow_hang(struct dp_world *world, double seconds, double unseen_s);

/* What the rank that reports a hang calls then, on a thread of its own (failure_detector.h); NULL:
 * nothing. Local. */
void dp_world_on_hang(struct dp_world *world, void (*hook)(void *context, const char *cause),
                      void *context);

/* The same for the rank that reports a lost rank, or host. */
void dp_world_on_loss(struct dp_world *world, void (*hook)(void *context, const char *cause),
                      void *context);

/* Why the job ends with the first rank that dies, whatever is allowed: a static text; NULL: it need
 * not. Local. */
const char *dp_world_why_no_shrink(const struct dp_world *world);

/* Whether a rank that dies ends no more than the waits of the others, which then call
 * dp_world_shrink(); at first not. All ranks choose alike. Local. */
void dp_world_allow_shrink(struct dp_world *world, bool on);

/* After an error: whether a rank is lost, for which the others may still be known to wait. Then all
 * messages of the world have ended on all ranks, and what it had allocated may be released. It
 * takes up to some seconds to find out. Local. */
bool dp_world_lost(struct dp_world *world);

/* How many of so many ranks can share `lanes`, a power of two: the most that divide it. 0 lanes:
 * all ranks. */
static inline int dp_world_fitting(int ranks, int lanes)
{
    int most = lanes > 0 ? lanes : ranks;

    while (most > ranks) {
        most /= 2;
    }
    return most;
}

/* Ranks that were lost, by the numbers that they had when the job began; the first of them. */
struct dp_world_loss {
    int count, left; /* how many; how many ranks live */
    int ranks[DP_WORLD_LOST_MOST];
};

/*
 * After dp_world_lost(): makes the world one of the ranks that live, which keep their order, and
 * get new numbers. Nothing that was made with the old one is left, but dp_world itself. Collective
 * over them. Where that fails, as when another rank dies meanwhile, the job ends with the code of
 * DP_ERR_HUNG, after an error by the rank that reported the first one.
 *
 *   lanes  a power of two: of the ranks so many go on that they divide it, the first ones; 0: all
 *
 * Returns whether this one does; else its world has it alone, and it should leave.
 */
bool dp_world_shrink(struct dp_world *world, int lanes, struct dp_world_loss *loss);

/* Leaves the job: collective, and ends MPI. */
void dp_world_destroy(struct dp_world *world);

/*
 * Announces that this process was asked from outside to end, so that its peers do not report its
 * death. mpirun ends ranks of its own host two kill timeouts before those of others. Applies to the
 * current or next world, of which there is at most one. Callable from any thread, not from a signal
 * handler.
 */
void dp_world_farewell(void);

/* Ends all ranks with this exit code, when only this rank knows that the job has failed. If a rank
 * has died, mpirun gets some seconds to end the others with that rank's code. If a host is silent
 * or ranks make no progress, the code is that of DP_ERR_HUNG. Does not return under MPI; without
 * MPI it does nothing. */
void dp_world_abort(struct dp_world *world, int code);

#endif
