/*
 * failure_detector.h - whether all ranks live: a thread asks it, some times a second. So it is told
 * who has died also while this rank computes, or is inside of a call that does not look
 * (MPI_Allreduce): mpirun, which ends the job, names nobody, and leaves ranks a second.
 *
 * A rank of its node tells who died, or one of the next host if it was alone, and all waits of a
 * process that knows of it end. That comes half a second after it was first seen, since ranks that
 * mpirun ends together do not end at one time.
 *
 * Where a host has fallen silent nobody has died, as far as anybody knows, and mpirun ends nothing.
 * So the rank that found it ends the job: by itself, or after three seconds by its failure
 * detector.
 *
 * Where Open MPI writes to a rank that has died, SIGPIPE would end this process before it could
 * tell; ignored, Open MPI (4.1, TCP) prints lines of its own and then tries for ever. So while
 * there is a failure detector the thread that writes stands still for six seconds, within which the
 * failure detector tells and mpirun ends the job; where nobody does, the next write ends this
 * process. SIGPIPE that comes of stdout or stderr is none of a failure detector's: it does what it
 * would without one.
 */
#ifndef DP_COLLECTIVES_WORLD_FAILURE_DETECTOR_H
#define DP_COLLECTIVES_WORLD_FAILURE_DETECTOR_H

#include "collectives/core/group.h"
#include "collectives/world/liveness.h"

struct dp_failure_detector;

/* What it asks and does; all borrowed. */
struct dp_failure_detector_config {
    atomic_int *cancel;                    /* ends all waits of this process */
    struct dp_loss (*lost)(void *context); /* who is lost: dp_liveness_lost() */
    void *context;
    void (*abort)(int code); /* ends all ranks of the job, and does not return */
};

/* At most one in a process, since it handles SIGPIPE. Errors: DP_ERR_NOMEM (also: no thread). */
DP_CHECKED dp_status dp_failure_detector_create(const struct dp_failure_detector_config *config,
                                                struct dp_failure_detector **out);

/* For a rank that is about to end the job because another one has died, as the failure detector
 * has found: does not return before whoever started the ranks had time to end this one. So the
 * job's exit code says how the dead rank ended: on a busy machine its local peers know of it
 * before mpirun does, whose wait() may take seconds, and mpirun returns the first code that it
 * hears of. Returns at once where nobody has died, as far as anybody knows, and for NULL. */
void dp_failure_detector_stand_by(const struct dp_failure_detector *detector);

/* Whether a host has fallen silent, so that the job ends: nobody knows then how its ranks ended.
 * false for NULL. */
bool dp_failure_detector_silent(const struct dp_failure_detector *detector);

/* NULL is ignored. SIGPIPE does what it did before. */
void dp_failure_detector_destroy(struct dp_failure_detector *detector);

#endif
