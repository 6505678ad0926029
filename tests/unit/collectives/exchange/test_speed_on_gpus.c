/*
 * test_speed_on_gpus.c - how fast a strategy on GPUs sums is timed to the end of its work, in
 * memory of its own; functions are in the place of GPUs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "collectives/exchange/exchange.h"
#include "collectives/exchange/exchange_speed.h"
#include "collectives/gpu/gpu_peers.h"
#include "collectives/strategies/strategy.h"
#include "tests/support/local_world.h"

/* Less than the least bytes that are timed, and more. */
enum { RANKS = 2, SMALL = 2 * DP_BLOCK, LARGE = 4 * DP_BLOCK, LEAST_BYTES = 1024, ASKS = 3 };

static const struct dp_device *ref;
static struct dp_device far; /* the same, in other memory than the host's */

/* What this rank does while it measures. */
static _Thread_local struct {
    struct dp_gpu_peers peers;
    bool on, no_room;
    void *memory;
    size_t bytes, sum_bytes;
    int sums, polls, records, asks, events, released;
    int wrong; /* arguments */
} rank;

/* ---- in the place of gpu_peers.c ---- */

dp_status dp_gpu_peers_create(struct dp_group *group, const struct dp_device *device)
{
    rank.peers.device = device;
    group->gpus = &rank.peers;
    return DP_OK;
}

dp_status dp_gpu_peers_object(struct dp_group *group, const char *mine,
                              char why_not[DP_GPU_PEERS_WHY])
{
    (void)group, (void)mine;
    why_not[0] = '\0';
    return DP_OK;
}

void *dp_gpu_peers_memory(struct dp_group *group, const struct dp_device *device,
                          enum dp_purpose purpose, size_t bytes)
{
    void *memory = rank.on && rank.no_room ? NULL : device->alloc(purpose, bytes);

    (void)group;
    if (rank.on) {
        rank.wrong += purpose != DP_MEM_TRIAL;
        rank.bytes = bytes;
        rank.memory = memory;
    }
    return memory;
}

void dp_gpu_peers_release(struct dp_group *group, const struct dp_device *device, void *memory)
{
    (void)group;
    rank.released += rank.on && memory == rank.memory;
    device->release(memory);
}

void *dp_gpu_peers_peer(const struct dp_group *group, const void *mine, int peer)
{
    (void)group, (void)mine, (void)peer;
    return NULL;
}

/* ---- events: a sum is done when it has been asked for some times ---- */

static dp_status create_event(struct dp_event **out)
{
    rank.events += rank.on;
    return ref->event_create(out);
}

static void destroy_event(struct dp_event *event)
{
    rank.events -= rank.on;
    ref->event_destroy(event);
}

static dp_status record(struct dp_event *event, struct dp_stream *stream)
{
    (void)event;
    rank.records += rank.on && stream == rank.peers.stream;
    return DP_OK;
}

static dp_status query(const struct dp_event *event, bool *done)
{
    (void)event;
    rank.asks += rank.on;
    *done = !rank.on || rank.asks % ASKS == 0;
    return DP_OK;
}

/* ---- a strategy that sums nothing ---- */

static bool supports(const struct dp_group *group, const char **why_not)
{
    (void)group, (void)why_not;
    return true;
}

static dp_status open(void *state, struct dp_group *group, size_t max_count)
{
    (void)state, (void)group;
    rank.wrong += rank.on && max_count != rank.bytes / sizeof(float);
    return DP_OK;
}

static dp_status sum(void *state, struct dp_slice data, enum dp_keep keep)
{
    (void)state;
    rank.wrong += keep != DP_KEEP_ALL || data.data != rank.memory;
    rank.wrong += *(float *)data.data != 0.0f; /* the host does not write there */
    rank.sum_bytes = dp_slice_bytes(data);
    rank.sums++;
    return DP_OK;
}

static dp_status gather(void *state, struct dp_slice data)
{
    (void)state, (void)data;
    return DP_OK;
}

static dp_status poll(void *state)
{
    (void)state;
    rank.polls += rank.on;
    return DP_OK;
}

static void close(void *state)
{
    (void)state;
}

static const struct dp_strategy on_gpus = {
    .plugin = {.name = "on_gpus", .help = "for this test", .state_bytes = 8},
    .on_gpus = true,
    .supports = supports,
    .open = open,
    .sum = sum,
    .gather = gather,
    .poll = poll,
    .close = close,
};

/* ---- what is measured ---- */

/* Where there is time for one turn of one size. */
static size_t check_speed(struct dp_exchange *e)
{
    const double bytes = (double)(LARGE + SMALL) * sizeof(float);
    struct dp_exchange_speed found = {.bytes = -1.0};
    size_t wrong;

    rank.on = true;
    wrong = dp_exchange_measure_speed(e, 1e-12, &found) != DP_OK;
    rank.on = false;
    wrong += rank.bytes != (size_t)bytes || rank.events != (rank.no_room ? -1 : 0);
    wrong += rank.released != 1 || rank.sums != (rank.no_room ? 0 : 1);
    wrong += rank.records != rank.sums || rank.asks != ASKS * rank.sums || rank.polls != rank.asks;
    if (rank.no_room) {
        return wrong + (found.bytes != 0.0 || found.step_s != 0.0 || found.by[0] != '\0');
    }
    wrong += rank.sum_bytes != LEAST_BYTES || found.bytes != bytes;
    return wrong + (strcmp(found.by, "on_gpus") != 0);
}

static size_t measures(struct dp_group *group, const void *no_room)
{
    const struct dp_tensor tensors[] = {{.begin = 0}, {.begin = LARGE}};
    const struct dp_exchange_config config = {.strategy = "on_gpus",
                                              .bucket_bytes = DP_BLOCK * sizeof(float),
                                              .first_bucket_bytes = DP_BLOCK * sizeof(float),
                                              .run = DP_RUN_AT_WAIT,
                                              .device = &far,
                                              .threads = 1};
    struct dp_flat flat = {.tensors = tensors,
                           .tensor_count = 2,
                           .trained = LARGE + SMALL,
                           .total = LARGE + SMALL + DP_BLOCK,
                           .owned = LARGE + SMALL};
    struct dp_exchange *e = NULL;
    size_t wrong;

    memset(&rank, 0, sizeof(rank));
    rank.no_room = no_room != NULL;
    if (far.stream_create(&far, 1, &rank.peers.stream) != DP_OK) {
        return 1;
    }
    wrong = dp_gpu_peers_create(group, &far) != DP_OK;
    wrong += dp_exchange_create(group, &config, &flat, &e) != DP_OK || check_speed(e) > 0;
    dp_exchange_destroy(e);
    group->gpus = NULL;
    far.stream_destroy(rank.peers.stream);
    return wrong + (size_t)rank.wrong;
}

static void sums_on_gpus_are_timed_until_they_are_there(void **state)
{
    const size_t live = dp_mem_live();
    (void)state;

    assert_int_equal(on_local_ranks(RANKS, measures, NULL), 0);
    assert_int_equal(dp_mem_live(), live);
}

static void nothing_is_measured_where_gpus_have_no_room(void **state)
{
    const size_t live = dp_mem_live();
    (void)state;

    assert_int_equal(on_local_ranks(RANKS, measures, &live), 0);
    assert_int_equal(dp_mem_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_on_gpus_are_timed_until_they_are_there),
        cmocka_unit_test(nothing_is_measured_where_gpus_have_no_room),
    };

    if (dp_device_find("ref", &ref) != DP_OK ||
        dp_plugin_add(&dp_strategies, &on_gpus.plugin) != DP_OK) {
        return 1;
    }
    far = *ref;
    far.host_memory = false;
    far.event_create = create_event;
    far.event_destroy = destroy_event;
    far.event_record = record;
    far.event_query = query;
    return cmocka_run_group_tests_name("speed_on_gpus", tests, NULL, NULL);
}
