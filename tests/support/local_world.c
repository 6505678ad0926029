#include "tests/support/local_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/core/transport.h"
#include "kernels/device.h"

enum { RANKS_MAX = 64, ALLOCATIONS_MOST = 1000 };

static int room = -1;

struct rank_thread {
    struct dp_local_hub *hub;
    int rank;
    rank_body *body;
    const void *arg;
    size_t wrong;
};

static void *rank_main(void *arg)
{
    struct rank_thread *t = arg;
    const struct dp_device *device = NULL;
    struct dp_stream *stream = NULL;
    struct dp_group *group = NULL;

    t->wrong = 1;
    if (dp_device_find("ref", &device) == DP_OK &&
        device->stream_create(device, 1, &stream) == DP_OK &&
        dp_local_join(t->hub, t->rank, &group) == DP_OK) {
        group->stream = stream;
        t->wrong = t->body(group, t->arg);
    }
    if (t->wrong > 0) {
        dp_local_cancel(t->hub);
    }
    dp_group_destroy(group);
    if (stream != NULL) {
        device->stream_destroy(stream);
    }
    return NULL;
}

void local_world_room(int requests)
{
    room = requests;
}

size_t on_local_ranks(int size, rank_body *body, const void *arg)
{
    return on_local_nodes(size, NULL, body, arg);
}

size_t on_local_nodes(int size, const int *node_of, rank_body *body, const void *arg)
{
    struct rank_thread threads[RANKS_MAX];
    pthread_t ids[RANKS_MAX];
    struct dp_local_hub *hub = NULL;
    size_t wrong = 0;
    int started = 0;

    if (size > RANKS_MAX || dp_local_hub_create(size, &hub) != DP_OK) {
        return 1;
    }
    if (node_of != NULL) {
        dp_local_hub_place(hub, node_of);
    }
    dp_local_hub_crowd(hub, room);
    for (; started < size; started++) {
        threads[started] = (struct rank_thread){hub, started, body, arg, 0};
        if (pthread_create(&ids[started], NULL, rank_main, &threads[started]) != 0) {
            dp_local_cancel(hub);
            wrong++;
            break;
        }
    }
    for (int i = 0; i < started; i++) {
        (void)pthread_join(ids[i], NULL);
        wrong += threads[i].wrong;
    }
    dp_local_hub_destroy(hub);
    return wrong;
}

struct twice {
    rank_body *body;
    const void *arg;
};

static size_t run_twice(struct dp_group *group, const void *arg)
{
    const struct twice *t = arg;
    size_t wrong = t->body(group, t->arg) + (dp_group_barrier(group) != DP_OK);
    const size_t bytes = dp_mem_bytes(DP_MEM_COMM), live = dp_mem_live();

    wrong += dp_group_barrier(group) != DP_OK;
    wrong += t->body(group, t->arg) + (dp_group_barrier(group) != DP_OK);
    wrong += dp_mem_bytes(DP_MEM_COMM) != bytes || dp_mem_live() != live;
    return wrong + (dp_group_barrier(group) != DP_OK); /* until then nobody releases more */
}

size_t on_local_nodes_twice(int size, const int *node_of, rank_body *body, const void *arg)
{
    const struct twice twice = {body, arg};

    return on_local_nodes(size, node_of, run_twice, &twice);
}

static int may_go_unnoticed;

void let_allocations_fail_unnoticed(int most)
{
    may_go_unnoticed = most;
}

void check_failing_allocations(int size, const int *node_of, rank_body *body, const void *arg)
{
    const size_t live = dp_mem_live();
    size_t wrong = 1;
    int unnoticed = 0;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; wrong > 0; nth++) {
        dp_mem_fail_nth(nth);
        wrong = on_local_nodes(size, node_of, body, arg);
        if (dp_mem_fail_nth(0) <= 0 && wrong == 0) {
            wrong = 1; /* the next one */
            unnoticed++;
        }
        if (unnoticed > may_go_unnoticed) {
            dp_log_set_level(DP_LOG_INFO);
            fail_msg("allocation %d failed, and nobody has noticed", nth);
        }
        assert_int_equal(dp_mem_live(), live);
        assert_in_range(nth, 1, ALLOCATIONS_MOST);
    }
    dp_log_set_level(DP_LOG_INFO);
}
