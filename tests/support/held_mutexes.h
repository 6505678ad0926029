/*
 * held_mutexes.h - for one file of a test: a mutex that a thread unlocks without having locked it
 * ends the program. No sum shows that, unless two threads meet.
 */
#ifndef DP_TESTS_SUPPORT_HELD_MUTEXES_H
#define DP_TESTS_SUPPORT_HELD_MUTEXES_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { HELD_MOST = 16 };

static _Thread_local const pthread_mutex_t *held[HELD_MOST];

/* libc's own, which the linker does not take where these are. */
static int held_call(const char *name, pthread_mutex_t *mutex)
{
    void *symbol = dlsym(RTLD_NEXT, name);
    int (*call)(pthread_mutex_t * mutex);

    if (symbol == NULL) {
        abort();
    }
    memcpy(&call, &symbol, sizeof(call));
    return call(mutex);
}

/* Puts `to` in the place of `from`. */
static void held_replace(const pthread_mutex_t *from, const pthread_mutex_t *to)
{
    int i = 0;

    while (i < HELD_MOST && held[i] != from) {
        i++;
    }
    if (i == HELD_MOST) {
        abort();
    }
    held[i] = to;
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    const int result = held_call("pthread_mutex_lock", mutex);

    held_replace(NULL, mutex);
    return result;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    held_replace(mutex, NULL);
    return held_call("pthread_mutex_unlock", mutex);
}

#endif
