/*
 * last_watch.h - finds out that MPI_Finalize does not return, where all ranks of the job are on
 * this host: one of them is stopped, say. The failure detector has ended by then, and so has the
 * memory by which ranks show what they do; processes can still be seen. Each rank has come
 * to dp_liveness_meet(), so that none is at work on anything else.
 *
 * After the limit the first rank that runs prints the table of a hang (hang_table.h), and all end
 * this process with the code of DP_ERR_HUNG. Time in which this process did not run does not count,
 * as in watchdog.h.
 */
#ifndef DP_COLLECTIVES_WORLD_LAST_WATCH_H
#define DP_COLLECTIVES_WORLD_LAST_WATCH_H

#include "collectives/world/watchdog.h"

struct dp_last_watch_config {
    const struct dp_watchdog_rank *ranks; /* [count], all of the job; their numbers and processes
                                           * are copied, nothing else is looked at */
    int count;
    int self;
    const char *host; /* its name; copied */
    double timeout_s; /* of train.hang_timeout_s, of which at least 10 count; 0: 60 */
    void (*look)(int64_t process, struct dp_process_doing *out); /* dp_process_look() */
    void (*end)(int code);                                       /* does not return */
};

struct dp_last_watch;

/* Starts a thread. NULL where there is no memory or no thread for it: then nobody watches. */
struct dp_last_watch *dp_last_watch_begin(const struct dp_last_watch_config *config);

/* Ends the thread. NULL is ignored. */
void dp_last_watch_end(struct dp_last_watch *watch);

#endif
