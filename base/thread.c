#define _GNU_SOURCE /* pthread_setname_np */

#include "base/thread.h"

#include <string.h>

dp_status dp_thread_start(pthread_t *thread, void *(*body)(void *), void *argument,
                          const char *name, const char *task)
{
    const int problem = pthread_create(thread, NULL, body, argument);

    if (problem != 0) {
        return DP_FAIL(DP_ERR_NOMEM,
                       "cannot start the thread that %s: %s (is ulimit -u or -v too small?)", task,
                       strerror(problem));
    }
    (void)pthread_setname_np(*thread, name);
    return DP_OK;
}
