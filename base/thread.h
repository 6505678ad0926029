/*
 * thread.h - starting threads, where a system may refuse them.
 */
#ifndef DP_BASE_THREAD_H
#define DP_BASE_THREAD_H

#include <pthread.h>

#include "base/status.h"

/* Runs body(argument) on a thread of its own, whose name (at most 15 bytes) lists of threads show:
 * `top -H`, debuggers, /proc. `task` says in an error message what for: "cannot
 * start the thread that ...". Errors: DP_ERR_NOMEM: the process or its user may have no more
 * threads, or no more memory for their stacks. */
DP_CHECKED dp_status dp_thread_start(pthread_t *thread, void *(*body)(void *), void *argument,
                                     const char *name, const char *task);

/* Whether so many threads more can be started now, all at once, for a library that ends the process
 * where they cannot. Errors: as above. */
DP_CHECKED dp_status dp_thread_try(int count, const char *task);

#endif
