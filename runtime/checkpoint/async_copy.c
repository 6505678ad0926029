#include "runtime/checkpoint/async_copy.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "base/system/worker.h"
#include "base/trace.h"
#include "base/trace_ring.h"
#include "kernels/cpu/parallel.h"

/* Size of a piece: small enough that waiting for another thread's last piece is short, and large
 * enough that taking it costs almost nothing. */
enum { PIECE = 128 << 10 };

struct span {
    char *to;
    const char *from;
    size_t bytes;
};

struct dp_async_copy {
    struct dp_worker *worker;
    pthread_mutex_t mutex;
    struct span *spans; /* owned; [at, count) has not been taken yet */
    int at, count, most;
    int taken; /* pieces being copied */
    int threads;
    bool begun;            /* for the owner only */
    atomic_ullong *copied; /* borrowed */
    uint64_t finish_ns;
};

/* Called with the mutex held, when a copy starts and after each piece: all is done once. */
static void tell_end(struct dp_async_copy *c)
{
    if (c->at == c->count && c->taken == 0) {
        (void)atomic_fetch_add_explicit(c->copied, 1, memory_order_release);
    }
}

/* False: no piece is left. */
static bool take(struct dp_async_copy *c, size_t bytes, struct span *piece)
{
    bool more;

    (void)pthread_mutex_lock(&c->mutex);
    more = c->at < c->count;
    if (more) {
        struct span *s = &c->spans[c->at];
        *piece = (struct span){s->to, s->from, s->bytes < bytes ? s->bytes : bytes};
        *s = (struct span){s->to + piece->bytes, s->from + piece->bytes, s->bytes - piece->bytes};
        c->at += s->bytes == 0;
        c->taken++;
    }
    (void)pthread_mutex_unlock(&c->mutex);
    return more;
}

static void give_back(struct dp_async_copy *c)
{
    (void)pthread_mutex_lock(&c->mutex);
    c->taken--;
    tell_end(c);
    (void)pthread_mutex_unlock(&c->mutex);
}

static void copy_range(void *arg, size_t begin, size_t end)
{
    const struct span *s = arg;

    memcpy(s->to + begin, s->from + begin, end - begin);
}

static void copy(struct dp_async_copy *c, int threads)
{
    struct span piece;

    while (take(c, (size_t)threads * PIECE, &piece)) {
        dp_parallel(threads, piece.bytes, DP_MEM_ALIGN, copy_range, &piece);
        give_back(c);
    }
}

static dp_status copy_beside(void *context)
{
    dp_trace_set_lane(DP_LANE_CHECKPOINT, 1);
    DP_SPAN(DP_PHASE_CHECKPOINT, 0);

    copy(context, 1);
    return DP_OK;
}

dp_status dp_async_copy_create(int most, int threads, struct dp_async_copy **out)
{
    struct dp_async_copy *c = dp_zalloc(1, sizeof(*c));
    struct span *spans = dp_zalloc((size_t)most, sizeof(*spans));
    dp_status status = c != NULL && spans != NULL ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "async copy");

    if (status == DP_OK) {
        *c = (struct dp_async_copy){.spans = spans, .most = most, .threads = threads};
        const struct dp_worker_config config = {.name = "dp-copy",
                                                .task = "copies what checkpoints hold",
                                                .idle = true,
                                                .run = copy_beside,
                                                .context = c};
        status = dp_worker_create(&config, &c->worker);
    }
    if (status != DP_OK) {
        dp_free(spans);
        dp_free(c);
        return status;
    }
    /* With default attributes these fail only without memory, which Linux never needs for them. */
    (void)pthread_mutex_init(&c->mutex, NULL);
    *out = c;
    return DP_OK;
}

void dp_async_copy_destroy(struct dp_async_copy *c)
{
    if (c == NULL) {
        return;
    }
    dp_async_copy_finish(c);
    dp_worker_destroy(c->worker);
    (void)pthread_mutex_destroy(&c->mutex);
    dp_free(c->spans);
    dp_free(c);
}

void dp_async_copy_add(struct dp_async_copy *c, void *to, const void *from, size_t bytes)
{
    assert(!c->begun && c->count < c->most);
    if (bytes > 0) {
        c->spans[c->count++] = (struct span){to, from, bytes};
    }
}

void dp_async_copy_start(struct dp_async_copy *c, atomic_ullong *copied)
{
    (void)pthread_mutex_lock(&c->mutex);
    c->copied = copied;
    tell_end(c);
    (void)pthread_mutex_unlock(&c->mutex);
    c->begun = true;
    dp_worker_start(c->worker);
}

void dp_async_copy_finish(struct dp_async_copy *c)
{
    if (c == NULL || !c->begun) {
        return;
    }
    const uint64_t begin_ns = dp_now_ns();

    copy(c, c->threads);
    (void)!dp_worker_wait(c->worker); /* copying does not fail */
    c->begun = false;
    c->at = c->count = 0;
    c->finish_ns = dp_now_ns() - begin_ns;
}

uint64_t dp_async_copy_finish_ns(const struct dp_async_copy *c)
{
    return c->finish_ns;
}
