/*
 * thread.h - starting threads, where a system may refuse them.
 */
#ifndef DP_BASE_SYSTEM_THREAD_H
#define DP_BASE_SYSTEM_THREAD_H

#include <pthread.h>

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

#endif
