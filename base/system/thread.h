/*
 * thread.h - starting threads, where a system may refuse them; waiting for a while.
 */
#ifndef DP_BASE_SYSTEM_THREAD_H
#define DP_BASE_SYSTEM_THREAD_H

#include <pthread.h>
#include <stdint.h>

#include "base/status.h"

/* Runs body(argument) on a new thread. `name` (at most 15 bytes) is shown by `top -H`, debuggers,
 * /proc. `task` completes an error message: "cannot start the thread that ...". Errors:
 * DP_ERR_NOMEM: the process or its user may not have more threads, or there is no memory for their
 * stacks. */
DP_CHECKED dp_status dp_thread_start(pthread_t *thread, void *(*body)(void *), void *argument,
                                     const char *name, const char *task);

/* Checks that this many more threads can run now at the same time, for a library that ends the
 * process if they cannot. Errors: as above. */
DP_CHECKED dp_status dp_thread_try(int count, const char *task);

/* Sets how much longer sleeps of the calling thread, and of threads that it starts, may take than
 * asked for, in ns; returns what that was, or 0 if it cannot be set. By default it is 50 us. */
uint64_t dp_thread_slack(uint64_t ns);

/* A condition to wait for until a time of dp_now_ns(); destroyed by pthread_cond_destroy(). */
void dp_cond_init(pthread_cond_t *cond);

/* Waits as pthread_cond_wait(), but no longer than until that time. */
void dp_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t until_ns);

#endif
