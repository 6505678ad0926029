#include "runtime/run/selftest/thread_ranks.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/system/thread.h"
#include "collectives/core/transport.h"

struct rank_thread {
    struct dp_local_hub *hub;
    const struct dp_device *device;
    dp_rank_body *body;
    void *context;
    int rank;
    pthread_t thread;
    dp_status status;
    struct dp_log_capture capture;
};

static dp_status run_rank(const struct rank_thread *t)
{
    struct dp_group *group = NULL;
    struct dp_stream *stream = NULL;
    dp_status status;

    DP_TRY_GOTO(dp_local_join(t->hub, t->rank, &group), status, done);
    DP_TRY_GOTO(t->device->stream_create(t->device, 1, &stream), status, done);
    group->stream = stream;
    status = t->body(group, t->context);

done:
    if (status != DP_OK) {
        dp_local_cancel(t->hub);
    }
    dp_group_destroy(group);
    t->device->stream_destroy(stream);
    return status;
}

static void *rank_main(void *argument)
{
    struct rank_thread *t = argument;

    dp_log_capture_begin(&t->capture, DP_LOG_WARN);
    t->status = run_rank(t);
    dp_log_capture_end(&t->capture, DP_LOG_DROP);
    return NULL;
}

/* The error that came first is not one of those whose waits were cancelled for it. */
static dp_status worst_of(const struct rank_thread *threads, int count,
                          char problem[DP_LOG_CAPTURE_BYTES])
{
    dp_status worst = DP_OK;

    for (int i = 0; i < count; i++) {
        const dp_status status = threads[i].status;
        if (status != DP_OK && (worst == DP_OK || worst == DP_ERR_CANCELLED)) {
            worst = status;
            (void)snprintf(problem, DP_LOG_CAPTURE_BYTES, "%s",
                           dp_log_captured(&threads[i].capture));
        }
    }
    return worst;
}

dp_status dp_thread_ranks_run(int size, const struct dp_device *device, dp_rank_body *body,
                              void *context, char problem[DP_LOG_CAPTURE_BYTES])
{
    struct rank_thread *threads = dp_zalloc((size_t)size, sizeof(*threads));
    struct dp_local_hub *hub = NULL;
    dp_status status = threads == NULL ? DP_FAIL(DP_ERR_NOMEM, "%d threads", size) : DP_OK;
    int started = 0;

    problem[0] = '\0';
    status = status == DP_OK ? dp_local_hub_create(size, &hub) : status;
    for (; status == DP_OK && threads != NULL && started < size; started++) {
        struct rank_thread *t = &threads[started];
        *t = (struct rank_thread){
            .hub = hub, .device = device, .body = body, .context = context, .rank = started};
        status = dp_thread_start(&t->thread, rank_main, t, "dp-selftest", "is a rank of a test");
        if (status != DP_OK) {
            dp_local_cancel(hub);
            break;
        }
    }
    for (int i = 0; i < started; i++) {
        (void)pthread_join(threads[i].thread, NULL);
    }
    status = status == DP_OK ? worst_of(threads, started, problem) : status;
    dp_local_hub_destroy(hub);
    dp_free(threads);
    return status;
}
