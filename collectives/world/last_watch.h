/*
 * last_watch.h - finds out that MPI_Finalize does not return: a rank is stopped, say. The failure
 * detector has ended by then, and so has the memory by which ranks show what they do; processes of
 * this host can still be seen. Each rank of the job has come to dp_liveness_meet(), so that none is
 * at work on anything else.
 *
 * After the limit the first rank that runs prints the table of a hang (hang_table.h), and all end
 * this process with the code of DP_ERR_HUNG. Where no rank of this host is the cause, and there are
 * others, it is theirs to report first. Time in which this process did not run does not count, as
 * in watchdog.h.
 */
#ifndef DP_COLLECTIVES_WORLD_LAST_WATCH_H
#define DP_COLLECTIVES_WORLD_LAST_WATCH_H

#include "collectives/world/watchdog.h"

struct dp_last_watch_config {
    const struct dp_watchdog_rank *ranks; /* [count], of this host; their numbers and processes are
                                           * copied, nothing else is looked at */
    int count;
    int self;
    const char *host; /* its name; copied */
    double timeout_s; /* of train.hang_timeout_s, of which at least 10 count; 0: 60 */
    double others_s;  /* above 0: the job has other hosts, and a cause that cannot be seen from here
                       * is reported so much later */
    void (*look)(int64_t process, struct dp_process_doing *out); /* dp_process_look() */
    void (*end)(int code);                                       /* does not return */
};

struct dp_last_watch;

/* Starts a thread that looks ten times a second. NULL where there is no memory or no thread for it:
 * then nobody watches. */
struct dp_last_watch *dp_last_watch_begin(const struct dp_last_watch_config *config);

/* Ends the thread. NULL is ignored. */
void dp_last_watch_end(struct dp_last_watch *watch);

/* What that thread does, for tests: NULL where there is no memory; one look at a time of
 * dp_now_ns(), which calls `end` where that is due; without a thread to end. */
struct dp_last_watch *dp_last_watch_create(const struct dp_last_watch_config *config);
void dp_last_watch_look(struct dp_last_watch *watch, uint64_t now_ns);
void dp_last_watch_destroy(struct dp_last_watch *watch);

#endif
