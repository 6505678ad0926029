#include "collectives/async/p2p.h"

#include "base/system/thread.h"
#include "base/trace.h"
#include "collectives/core/backoff.h"

/* A wait looks so often whether the job ends. */
enum { LOOK_NS = 20000000 };

void dp_p2p_open(struct dp_p2p *p, struct dp_group *group, void (*poke)(void *context),
                 void *context)
{
    *p = (struct dp_p2p){.group = group, .poke = poke, .context = context};
    (void)pthread_mutex_init(&p->mutex, NULL);
    dp_cond_init(&p->moved);
}

void dp_p2p_close(struct dp_p2p *p)
{
    if (p->group != NULL) {
        (void)pthread_cond_destroy(&p->moved);
        (void)pthread_mutex_destroy(&p->mutex);
        p->group = NULL;
    }
}

static void post(struct dp_p2p *p, struct dp_p2p_message *message)
{
    struct dp_p2p_message **last;

    message->state = DP_P2P_POSTED;
    message->next = NULL;
    (void)pthread_mutex_lock(&p->mutex);
    for (last = &p->first; *last != NULL; last = &(*last)->next) {
    }
    *last = message;
    (void)pthread_mutex_unlock(&p->mutex);
    if (p->poke != NULL) {
        p->poke(p->context);
    }
}

void dp_p2p_send(struct dp_p2p *p, struct dp_p2p_message *message, int to, void *data, size_t bytes)
{
    message->data = (struct dp_slice){data, bytes, 1};
    message->peer = to;
    message->sends = true;
    post(p, message);
}

void dp_p2p_receive(struct dp_p2p *p, struct dp_p2p_message *message, int from, void *data,
                    size_t bytes)
{
    message->data = (struct dp_slice){data, bytes, 1};
    message->peer = from;
    message->sends = false;
    post(p, message);
}

static dp_status move(struct dp_p2p *p, struct dp_p2p_message *m, bool *done)
{
    const struct dp_slice none = {NULL, 0, 1};

    if (m->state == DP_P2P_POSTED) {
        DP_TRY(dp_group_start(p->group, m->sends ? m->peer : -1, m->sends ? m->data : none,
                              m->sends ? -1 : m->peer, m->sends ? none : m->data, &m->transfer));
        m->state = DP_P2P_MOVING;
    }
    return dp_group_test(p->group, &m->transfer, done);
}

/* The mutex is held while messages move: nothing here waits. */
dp_status dp_p2p_poll(struct dp_p2p *p, bool *more)
{
    struct dp_p2p_message **at = &p->first;
    dp_status status = DP_OK;

    (void)pthread_mutex_lock(&p->mutex);
    while (*at != NULL && status == DP_OK) {
        struct dp_p2p_message *m = *at;
        bool done = false;
        status = move(p, m, &done);
        if (done) {
            *at = m->next;
            m->state = DP_P2P_DONE;
            (void)pthread_cond_broadcast(&p->moved);
        } else {
            at = &m->next;
        }
    }
    *more = p->first != NULL;
    (void)pthread_mutex_unlock(&p->mutex);
    return status;
}

bool dp_p2p_done(struct dp_p2p *p, const struct dp_p2p_message *message)
{
    bool done;

    (void)pthread_mutex_lock(&p->mutex);
    done = message->state == DP_P2P_DONE;
    (void)pthread_mutex_unlock(&p->mutex);
    return done;
}

/* While the engine's thread moves it. */
static dp_status await(struct dp_p2p *p, const struct dp_p2p_message *message, uint64_t end_ns)
{
    dp_status status = DP_OK;
    uint64_t now = dp_now_ns();

    (void)pthread_mutex_lock(&p->mutex);
    while (message->state != DP_P2P_DONE && now < end_ns && status == DP_OK) {
        const uint64_t next = now + LOOK_NS;
        dp_cond_wait_until(&p->moved, &p->mutex, next < end_ns ? next : end_ns);
        status = atomic_load(p->group->cancel) != 0 ? DP_ERR_CANCELLED : DP_OK;
        now = dp_now_ns();
    }
    (void)pthread_mutex_unlock(&p->mutex);
    return status;
}

dp_status dp_p2p_wait_for(struct dp_p2p *p, const struct dp_p2p_message *message, uint64_t most_ns)
{
    DP_SPAN(DP_PHASE_WAIT, message->peer);
    struct dp_backoff backoff = {.cancel = p->group->cancel, .spin_ns = 0};
    const uint64_t now = dp_now_ns();
    bool more;

    if (p->poke != NULL) {
        return await(p, message, most_ns < UINT64_MAX - now ? now + most_ns : UINT64_MAX);
    }
    DP_TRY(dp_p2p_poll(p, &more));
    while (!dp_p2p_done(p, message) && backoff.waited_ns < most_ns) {
        if (!dp_backoff_wait(&backoff)) {
            return DP_ERR_CANCELLED;
        }
        DP_TRY(dp_p2p_poll(p, &more));
    }
    return DP_OK;
}

dp_status dp_p2p_wait(struct dp_p2p *p, const struct dp_p2p_message *message)
{
    return dp_p2p_wait_for(p, message, UINT64_MAX);
}
