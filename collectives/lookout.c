#include "collectives/lookout.h"

#include <pthread.h>
#include <time.h>

#include "base/mem.h"

enum { SECOND_NS = 1000000000, LOOK_EVERY_NS = 100000000 };

struct dp_lookout {
    const struct dp_group *group; /* borrowed */
    pthread_t thread;
    pthread_mutex_t mutex; /* of stop */
    pthread_cond_t stopped;
    bool stop;
};

/* Sleeps until it is time to look, or to stop. Called with the mutex held. */
static void sleep_a_while(struct dp_lookout *lookout)
{
    struct timespec end;

    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += LOOK_EVERY_NS;
    if (end.tv_nsec >= SECOND_NS) {
        end.tv_nsec -= SECOND_NS;
        end.tv_sec++;
    }
    (void)pthread_cond_timedwait(&lookout->stopped, &lookout->mutex, &end);
}

static void *look_out(void *arg)
{
    struct dp_lookout *lookout = arg;

    (void)pthread_mutex_lock(&lookout->mutex);
    while (!lookout->stop) {
        (void)dp_group_all_live(lookout->group); /* which tells */
        sleep_a_while(lookout);
    }
    (void)pthread_mutex_unlock(&lookout->mutex);
    return NULL;
}

static void release(struct dp_lookout *lookout)
{
    (void)pthread_cond_destroy(&lookout->stopped);
    (void)pthread_mutex_destroy(&lookout->mutex);
    dp_free(lookout);
}

dp_status dp_lookout_create(const struct dp_group *group, struct dp_lookout **out)
{
    struct dp_lookout *lookout = dp_zalloc(1, sizeof(*lookout));
    pthread_condattr_t clock;

    if (lookout == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "lookout");
    }
    lookout->group = group;
    (void)pthread_mutex_init(&lookout->mutex, NULL);
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&lookout->stopped, &clock);
    (void)pthread_condattr_destroy(&clock);
    if (pthread_create(&lookout->thread, NULL, look_out, lookout) != 0) {
        release(lookout);
        return DP_FAIL(DP_ERR_INTERNAL, "cannot start the thread that looks after other ranks");
    }
    *out = lookout;
    return DP_OK;
}

void dp_lookout_destroy(struct dp_lookout *lookout)
{
    if (lookout == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&lookout->mutex);
    lookout->stop = true;
    (void)pthread_cond_signal(&lookout->stopped);
    (void)pthread_mutex_unlock(&lookout->mutex);
    (void)pthread_join(lookout->thread, NULL);
    release(lookout);
}
