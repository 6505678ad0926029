/*
 * worker.h - a thread that does one thing at a time, while others continue.
 *
 * An `idle` worker is nicer than other threads of its process by DP_WORKER_NICE. Where training
 * fills all cores, it works mostly while training waits for other ranks; beside one busy thread it
 * gets a tenth of a core. Where the process has CAP_SYS_NICE, only a run in progress is nicer. It
 * is no SCHED_IDLE, which gets a few thousandths: a process that is killed ends when its last
 * thread does, and mpirun, which waits for that, ended jobs on a busy machine up to half a minute
 * late.
 *
 * Threads of another shape have their own loops. The engine's jobs are in a queue, and a thread
 * that waits may run them; the loader is not started, but fills slots ahead; the failure detector
 * wakes by the clock.
 */
#ifndef DP_BASE_SYSTEM_WORKER_H
#define DP_BASE_SYSTEM_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct dp_worker;

enum { DP_WORKER_NICE = 10 };

struct dp_worker_config {
    const char *name, *task; /* as in dp_thread_start() */
    bool idle;
    dp_status (*run)(void *context); /* called each time the worker is started */
    void *context;
};

/* Starts the thread, which sleeps until there is work. Errors: DP_ERR_NOMEM (also when no thread
 * can be started). */
DP_CHECKED dp_status dp_worker_create(const struct dp_worker_config *config,
                                      struct dp_worker **out);

/* Starts a run; the previous one must have ended: call dp_worker_wait() first. What it reads must
 * not change until the next wait. One thread calls this and the next functions. */
void dp_worker_start(struct dp_worker *worker);

/* Whether a run is in progress. */
bool dp_worker_busy(struct dp_worker *worker);

/* Waits until no run is in progress. Returns the status of the last run; DP_OK before the first. */
DP_CHECKED dp_status dp_worker_wait(struct dp_worker *worker);

/* Duration of the last run, and its CPU time. Call them after dp_worker_wait(). */
uint64_t dp_worker_ns(const struct dp_worker *worker);
uint64_t dp_worker_core_ns(const struct dp_worker *worker);

/* Waits for the run in progress, and ends the thread. NULL is allowed. */
void dp_worker_destroy(struct dp_worker *worker);

#endif
