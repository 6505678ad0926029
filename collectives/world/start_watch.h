/*
 * start_watch.h - finds out that ranks do not meet: until they have, each waits in MPI_Init without
 * a word for one that is stopped, or whose host hangs, and nothing else watches them.
 *
 * After a minute, or half of the limit, the first rank of each host that has come warns: which
 * ranks of it have not, and what their processes do, or that all have; after the limit it says so
 * again, and ends the job with the code of DP_ERR_HUNG. A host whose ranks have all come has less
 * to say, and leaves the report to others for a while; with the warning, too, unless it has rank 0.
 * Whether a rank has come its process shows by the watch's own thread. While a debugger holds a
 * rank of the host, the host ends nothing.
 */
#ifndef DP_COLLECTIVES_WORLD_START_WATCH_H
#define DP_COLLECTIVES_WORLD_START_WATCH_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/system/job_processes.h"

/* Seconds in all; and after this process was asked to end, when nothing can be saved yet. */
enum { DP_START_LIMIT_S = 300, DP_START_FAREWELL_S = 10 };

struct dp_start_watch_config {
    struct dp_job_processes job; /* borrowed texts */
    int rank, ranks;             /* this one, of so many; ranks 0: not known */
    int here;                    /* of those that many are on this host; 0: not known */
    int local_rank;              /* which of them this one is: looks of ranks are not at once */
    const char *host;            /* borrowed */
    double limit_s;
    const atomic_bool *asked; /* borrowed; that this process was asked to end; NULL: it is not */
    void (*end)(int code);    /* does not return */
};

struct dp_start_watch;

/* Starts a thread that watches this start, as its launcher has described it. Its limit is
 * DP_TRAIN_UNSEEN_TIMEOUT_S of the environment, for no configuration is read yet, or
 * DP_START_LIMIT_S. NULL where there are no other ranks, and no memory or no thread for it: then
 * nobody watches. */
struct dp_start_watch *dp_start_watch_begin(const char *host);

/* This process was asked from outside to end. A rank that waits in MPI_Init could not: MPICH's
 * launcher then waits for the end of its ranks, and answers none. Callable from any thread. */
void dp_start_watch_farewell(void);

/* Ends the thread: ranks have met, or this one has failed. NULL is ignored. */
void dp_start_watch_end(struct dp_start_watch *watch);

/* What that thread does, for tests: NULL where there is no memory; one look at a time, `past_ns`
 * after the start, which returns when the next one is due; without a thread to end. */
struct dp_start_watch *dp_start_watch_create(const struct dp_start_watch_config *config);
uint64_t dp_start_watch_look(struct dp_start_watch *watch, uint64_t past_ns);
void dp_start_watch_destroy(struct dp_start_watch *watch);

#endif
