#include "runtime/trainer/compute/lane_sync.h"

#include <pthread.h>
#include <stdint.h>

#include "base/mem.h"

struct dp_lane_sync {
    pthread_mutex_t mutex; /* protects the following members */
    pthread_cond_t changed;
    int members, permits; /* number of free permits */
    int arrived;
    uint64_t round; /* number of finished sums */
    bool broken;    /* a member failed */
    float **arrays; /* owned; [members] */
    struct dp_lane_sync_sum sum;
    dp_status status; /* of the last sum */
};

dp_status dp_lane_sync_create(int members, int permits, struct dp_lane_sync_sum sum,
                              struct dp_lane_sync **out)
{
    struct dp_lane_sync *l = dp_zalloc(1, sizeof(*l));

    if (l == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "synchronisation of %d lanes", members);
    }
    (void)pthread_mutex_init(&l->mutex, NULL);
    (void)pthread_cond_init(&l->changed, NULL);
    l->members = members;
    l->permits = permits;
    l->sum = sum;
    l->arrays = dp_zalloc((size_t)members, sizeof(*l->arrays));
    if (l->arrays == NULL) {
        dp_lane_sync_destroy(l);
        return DP_FAIL(DP_ERR_NOMEM, "synchronisation of %d lanes", members);
    }
    *out = l;
    return DP_OK;
}

void dp_lane_sync_destroy(struct dp_lane_sync *l)
{
    if (l == NULL) {
        return;
    }
    (void)pthread_cond_destroy(&l->changed);
    (void)pthread_mutex_destroy(&l->mutex);
    dp_free(l->arrays);
    dp_free(l);
}

static void take_permit(struct dp_lane_sync *l)
{
    while (l->permits == 0) {
        (void)pthread_cond_wait(&l->changed, &l->mutex);
    }
    l->permits--;
}

static void give_permit(struct dp_lane_sync *l)
{
    l->permits++;
    (void)pthread_cond_broadcast(&l->changed);
}

void dp_lane_sync_enter(struct dp_lane_sync *l)
{
    (void)pthread_mutex_lock(&l->mutex);
    take_permit(l);
    (void)pthread_mutex_unlock(&l->mutex);
}

void dp_lane_sync_leave(struct dp_lane_sync *l, bool failed)
{
    (void)pthread_mutex_lock(&l->mutex);
    l->broken = l->broken || failed;
    give_permit(l);
    (void)pthread_mutex_unlock(&l->mutex);
}

/* The first member waits for the others and sums. If a member has failed there is no sum. */
static void hold(struct dp_lane_sync *l, size_t count)
{
    while (l->arrived < l->members && !l->broken) {
        (void)pthread_cond_wait(&l->changed, &l->mutex);
    }
    if (l->broken) {
        return;
    }
    l->status = l->sum.sum(l->sum.context, l->arrays, count);
    l->arrived = 0;
    l->round++;
    (void)pthread_cond_broadcast(&l->changed);
}

dp_status dp_lane_sync_reduce(struct dp_lane_sync *l, int index, float *array, size_t count)
{
    dp_status status;

    (void)pthread_mutex_lock(&l->mutex);
    const uint64_t round = l->round;
    l->arrays[index] = array;
    l->arrived++;
    give_permit(l);
    if (index == 0) {
        hold(l, count);
    }
    while (l->round == round && !l->broken) {
        (void)pthread_cond_wait(&l->changed, &l->mutex);
    }
    status = l->round == round ? DP_ERR_CANCELLED : l->status;
    take_permit(l);
    (void)pthread_mutex_unlock(&l->mutex);
    return status;
}
