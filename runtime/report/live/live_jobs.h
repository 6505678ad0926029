/*
 * live_jobs.h - the ranks that run on this host and show themselves (base/system/live.h), by job.
 */
#ifndef DP_RUNTIME_REPORT_LIVE_LIVE_JOBS_H
#define DP_RUNTIME_REPORT_LIVE_LIVE_JOBS_H

#include "base/status.h"
#include "base/system/live.h"

struct dp_live_rank {
    int64_t process; /* as this host counts them */
    struct dp_live live;
    uint64_t cpu_ns, at_ns; /* processor time that it had used at that time (dp_now_ns()) */
    double cores;           /* that it kept busy since the look before; NaN: there was none */
    uint64_t still_ns;      /* since when it has opened and closed no span */
};

/* Zeros: none yet. Ranks of one job stand together, in order. */
struct dp_live_jobs {
    struct dp_live_rank *ranks; /* owned, [count] */
    int count;
};

/*
 * Looks again.
 *
 *   folder  absolute: only ranks of the run in it; NULL: all
 *
 * Errors: DP_ERR_NOMEM; the ranks are those of the look before.
 */
DP_CHECKED dp_status dp_live_jobs_look(struct dp_live_jobs *jobs, const char *folder);

void dp_live_jobs_release(struct dp_live_jobs *jobs);

#endif
