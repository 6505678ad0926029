/*
 * failure_detector.h - a thread that checks several times a second whether all ranks live. So a
 * dead rank is reported also while this rank computes, or is inside a call that checks no flag
 * (MPI_Allreduce). mpirun, which ends the job, names no rank and leaves ranks a second.
 *
 * A rank of the same node reports who died; a rank of the next host does if the dead rank was alone
 * on its host. All waits of a process that knows of a death end. That happens half a second after
 * it was first seen, since ranks that mpirun ends together do not end at the same time.
 *
 * A host that is silent may still have living ranks, and mpirun ends nothing. So the rank that
 * found it ends the job: by itself, or after three seconds through its failure detector. So it does
 * when ranks live but make no progress (watchdog.h).
 *
 * Where ranks go on without those that die (dp_world_shrink), waits end as soon as a death is seen,
 * nothing is reported here, and no writing thread is held.
 *
 * Where Open MPI writes to a rank that has died, SIGPIPE would end this process before it could
 * report. With SIGPIPE ignored, Open MPI (4.1, TCP) prints lines of its own and retries for ever.
 * So the failure detector holds the writing thread for six seconds, in which it reports the death
 * and mpirun ends the job. Otherwise the next write ends this process. A SIGPIPE from stdout or
 * stderr is handled as it would be without a failure detector.
 */
#ifndef DP_COLLECTIVES_WORLD_FAILURE_DETECTOR_H
#define DP_COLLECTIVES_WORLD_FAILURE_DETECTOR_H

#include "collectives/core/group.h"
#include "collectives/world/hang_gather.h"
#include "collectives/world/liveness.h"
#include "collectives/world/watchdog.h"

struct dp_failure_detector;

/* What it calls and sets; all borrowed. */
struct dp_failure_detector_config {
    atomic_int *cancel;                    /* ends all waits of this process */
    struct dp_loss (*lost)(void *context); /* the rank that is lost: dp_liveness_lost() */
    void *context;
    void (*abort)(int code);       /* ends all ranks of the job, and does not return */
    struct dp_watchdog *watchdog;  /* NULL: none */
    struct dp_hang_gather *gather; /* NULL: no connection to other hosts */
    const atomic_bool *shrinks; /* whether ranks go on without those that die; NULL: they do not */
    int launcher_s; /* how long the launcher, which ends the job after a death, may take to do so on
                     * a busy machine; 0: it may be one that never does */
};

/* At most one in a process, since it handles SIGPIPE. Errors: DP_ERR_NOMEM (also when no thread can
 * be started). */
DP_CHECKED dp_status dp_failure_detector_create(const struct dp_failure_detector_config *config,
                                                struct dp_failure_detector **out);

/* Called by a rank that is about to end the job because the failure detector found a dead rank.
 * Waits long enough for the launcher to end this rank, so that the job's exit code says how the
 * dead rank ended. That is needed because local peers may learn of the death before mpirun, whose
 * wait() may take seconds on a busy machine, and mpirun returns the first code that it receives.
 * Returns immediately if no death is known, and for NULL. */
void dp_failure_detector_stand_by(const struct dp_failure_detector *detector);

/* Whether the job ends without knowing how some of its ranks do: a host is silent, or ranks make no
 * progress. false for NULL. */
bool dp_failure_detector_hung(const struct dp_failure_detector *detector);

/* Whether a rank was seen to be lost. false for NULL. */
bool dp_failure_detector_lost(const struct dp_failure_detector *detector);

/* Whether another host has reported a death, which ends the job. false for NULL. */
bool dp_failure_detector_ends(const struct dp_failure_detector *detector);

/* Ranks are about to go on without one that is lost, and then have another failure detector. From
 * now on this one looks at nothing, but ends the job if it still exists after five minutes. NULL is
 * ignored. */
void dp_failure_detector_expect_end(struct dp_failure_detector *detector);

/* What the rank that reports a hang calls after its report, on the thread of the detector, while
 * any other thread may be stuck: `cause` names the ranks that did not arrive. NULL: nothing. When
 * this returns, an earlier one is not being called, and will not be. */
typedef void dp_hang_hook(void *context, const char *cause);
void dp_failure_detector_on_hang(struct dp_failure_detector *detector, dp_hang_hook *hook,
                                 void *context);

/* The same for a rank, or a host, that is lost: the rank that reports it calls this after that. */
void dp_failure_detector_on_loss(struct dp_failure_detector *detector, dp_hang_hook *hook,
                                 void *context);

/* NULL is ignored. SIGPIPE is handled as before. */
void dp_failure_detector_destroy(struct dp_failure_detector *detector);

#endif
