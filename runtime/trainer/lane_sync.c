#include "runtime/trainer/lane_sync.h"

#include <pthread.h>
#include <stdint.h>

#include "base/mem.h"

struct dp_lane_sync {
    pthread_mutex_t mutex; /* guards all that follows */
    pthread_cond_t changed;
    int members, permits; /* permits that are free */
    int arrived;
    uint64_t round; /* sums that have ended */
    bool broken;    /* a member failed */
    float **arrays; /* owned; [members] */
    struct dp_lane_sync_sum sum;
    dp_status status; /* of the last sum */
};

dp_status dp_lane_sync_create(int members, int permits, struct dp_lane_sync_sum sum,
                              struct dp_lane_sync **out)
{
    struct dp_lane_sync *m = dp_zalloc(1, sizeof(*m));

    if (m == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "synchronisation of %d lanes", members);
    }
    (void)pthread_mutex_init(&m->mutex, NULL);
    (void)pthread_cond_init(&m->changed, NULL);
    m->members = members;
    m->permits = permits;
    m->sum = sum;
    m->arrays = dp_zalloc((size_t)members, sizeof(*m->arrays));
    if (m->arrays == NULL) {
        dp_lane_sync_destroy(m);
        return DP_FAIL(DP_ERR_NOMEM, "synchronisation of %d lanes", members);
    }
    *out = m;
    return DP_OK;
}

void dp_lane_sync_destroy(struct dp_lane_sync *m)
{
    if (m == NULL) {
        return;
    }
    (void)pthread_cond_destroy(&m->changed);
    (void)pthread_mutex_destroy(&m->mutex);
    dp_free(m->arrays);
    dp_free(m);
}

static void take_permit(struct dp_lane_sync *m)
{
    while (m->permits == 0) {
        (void)pthread_cond_wait(&m->changed, &m->mutex);
    }
    m->permits--;
}

static void give_permit(struct dp_lane_sync *m)
{
    m->permits++;
    (void)pthread_cond_broadcast(&m->changed);
}

void dp_lane_sync_enter(struct dp_lane_sync *m)
{
    (void)pthread_mutex_lock(&m->mutex);
    take_permit(m);
    (void)pthread_mutex_unlock(&m->mutex);
}

void dp_lane_sync_leave(struct dp_lane_sync *m, bool failed)
{
    (void)pthread_mutex_lock(&m->mutex);
    m->broken = m->broken || failed;
    give_permit(m);
    (void)pthread_mutex_unlock(&m->mutex);
}

/* The first member waits for the others and sums; there is no sum without one that failed. */
static void hold(struct dp_lane_sync *m, size_t count)
{
    while (m->arrived < m->members && !m->broken) {
        (void)pthread_cond_wait(&m->changed, &m->mutex);
    }
    if (m->broken) {
        return;
    }
    m->status = m->sum.sum(m->sum.context, m->arrays, count);
    m->arrived = 0;
    m->round++;
    (void)pthread_cond_broadcast(&m->changed);
}

dp_status dp_lane_sync_reduce(struct dp_lane_sync *m, int index, float *array, size_t count)
{
    dp_status status;

    (void)pthread_mutex_lock(&m->mutex);
    const uint64_t round = m->round;
    m->arrays[index] = array;
    m->arrived++;
    give_permit(m);
    if (index == 0) {
        hold(m, count);
    }
    while (m->round == round && !m->broken) {
        (void)pthread_cond_wait(&m->changed, &m->mutex);
    }
    status = m->round == round ? DP_ERR_CANCELLED : m->status;
    take_permit(m);
    (void)pthread_mutex_unlock(&m->mutex);
    return status;
}
