/*
 * test_device.c - what every device must do besides its operations: memory, copies to and from the
 * host, the order of streams, events; and finding a device.
 */
#include <stdlib.h>

#include "base/log.h"
#include "base/trace.h"
#include "kernels/stream_trace.h"
#include "tests/support/arrays.h"

enum { COUNT = 5000, ROUNDS = 40 };

/* Calls the test for each device that this machine has. */
static void on_each(void (*test)(const struct dp_device *device, struct dp_stream *streams[2]))
{
    const struct dp_plugin *plugin;
    const char *why_not;

    for (int i = 0; (plugin = dp_plugin_at(&dp_devices, i)) != NULL; i++) {
        const struct dp_device *device = (const struct dp_device *)plugin;
        const size_t live = dp_mem_live();
        struct dp_stream *streams[2];
        if (!device->available(&why_not)) {
            continue;
        }
        OK(device->stream_create(device, 1, &streams[0]));
        OK(device->stream_create(device, 2, &streams[1]));
        test(device, streams);
        device->stream_destroy(streams[1]);
        device->stream_destroy(streams[0]);
        device->stream_destroy(NULL);
        assert_int_equal(dp_mem_live(), live);
    }
}

static void check_memory(const struct dp_device *device, struct dp_stream *streams[2])
{
    const size_t before = dp_mem_bytes(DP_MEM_WEIGHTS), bytes = COUNT * sizeof(float);
    float *there = device->alloc(DP_MEM_WEIGHTS, bytes);
    float *here = device->alloc_host(DP_MEM_WEIGHTS, bytes), *none = zeros(COUNT);
    void *nothing = device->alloc(DP_MEM_WEIGHTS, 0);

    assert_non_null(there);
    assert_non_null(here);
    assert_non_null(nothing);
    assert_int_equal((uintptr_t)there % DP_MEM_ALIGN, 0);
    assert_int_equal((uintptr_t)here % DP_MEM_ALIGN, 0);
    assert_int_equal(dp_mem_bytes(DP_MEM_WEIGHTS), before + 2 * bytes);
    assert_same_bits(here, none, COUNT);
    here[7] = 1;
    OK(dp_device_read(streams[0], here, there, bytes));
    assert_same_bits(here, none, COUNT);
    device->release(nothing);
    device->release_host(here);
    device->release(there);
    device->release(NULL);
    device->release_host(NULL);
    assert_int_equal(dp_mem_bytes(DP_MEM_WEIGHTS), before);
    dp_free(none);
}

static void memory_is_zeroed_aligned_and_counted(void **state)
{
    (void)state;
    on_each(check_memory);
}

static void check_copies(const struct dp_device *device, struct dp_stream *streams[2])
{
    const size_t bytes = COUNT * sizeof(float);
    float *there = device->alloc(DP_MEM_OTHER, bytes), *x = uniform(COUNT, 1, -1, 1);
    float *pinned = device->alloc_host(DP_MEM_OTHER, bytes), *y = zeros(COUNT);

    device->pin(y, bytes);
    OK(device->upload(streams[0], there, x, bytes));
    OK(streams[0]->ops->add(streams[0], there, there, COUNT));
    OK(device->download(streams[0], pinned, there, bytes));
    OK(device->download(streams[0], y, there + 1, bytes - sizeof(float)));
    OK(device->upload(streams[0], there, x, 0));
    OK(device->synchronize(streams[0]));
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(pinned[i] == 2 * x[i]);
        assert_true(y[i] == (i + 1 < COUNT ? 2 * x[i + 1] : 0));
    }
    device->unpin(y);
    device->unpin(x); /* was not pinned */
    device->release_host(pinned);
    device->release(there);
    dp_free(x);
    dp_free(y);
}

static void copies_run_in_the_order_of_their_stream(void **state)
{
    (void)state;
    on_each(check_copies);
}

/* Two streams take turns: each doubles what the other one made. */
static void check_order(const struct dp_device *device, struct dp_stream *streams[2])
{
    const size_t bytes = COUNT * sizeof(float);
    float *there = device->alloc(DP_MEM_OTHER, bytes), *x = uniform(COUNT, 1, 1, 2);
    float *y = zeros(COUNT);

    OK(device->upload(streams[0], there, x, bytes));
    for (int i = 0; i < ROUNDS; i++) {
        struct dp_stream *earlier = streams[i % 2], *later = streams[(i + 1) % 2];
        OK(device->order(later, earlier));
        OK(device->order(later, later));
        OK(later->ops->scale(later, there, there, 2.0f, COUNT));
    }
    OK(device->download(streams[ROUNDS % 2], y, there, bytes));
    OK(device->synchronize(streams[ROUNDS % 2]));
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(y[i] == ldexpf(x[i], ROUNDS));
    }
    device->release(there);
    dp_free(x);
    dp_free(y);
}

static void a_stream_waits_for_what_another_one_has_queued(void **state)
{
    (void)state;
    on_each(check_order);
}

static void check_events(const struct dp_device *device, struct dp_stream *streams[2])
{
    const size_t bytes = COUNT * sizeof(float);
    float *there = device->alloc(DP_MEM_OTHER, bytes), *x = uniform(COUNT, 1, -1, 1);
    float *y = zeros(COUNT);
    struct dp_event *event = NULL;
    bool done = false;

    OK(device->event_create(&event));
    OK(device->event_query(event, &done));
    assert_true(done); /* it was never recorded */
    for (int i = 0; i < ROUNDS; i++) {
        x[0] = (float)i;
        OK(device->upload(streams[0], there, x, bytes));
        OK(device->download(streams[0], y, there, bytes));
        OK(device->event_record(event, streams[0]));
        for (done = false; !done;) {
            OK(device->event_query(event, &done));
        }
        assert_same_bits(y, x, COUNT);
    }
    device->event_destroy(event);
    device->event_destroy(NULL);
    device->release(there);
    dp_free(x);
    dp_free(y);
}

static void an_event_occurs_when_all_earlier_work_is_done(void **state)
{
    (void)state;
    on_each(check_events);
}

static void check_failed_allocations(const struct dp_device *device, struct dp_stream *streams[2])
{
    const size_t live = dp_mem_live();
    dp_status status = DP_ERR_NOMEM;

    (void)streams;
    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_stream *stream = NULL;
        dp_mem_fail_nth(nth);
        status = device->stream_create(device, 2, &stream);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((stream != NULL) == (status == DP_OK));
        device->stream_destroy(stream);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_mem_fail_nth(1);
    assert_null(device->alloc(DP_MEM_OTHER, 64));
    dp_mem_fail_nth(1);
    assert_null(device->alloc_host(DP_MEM_OTHER, 64));
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
}

static void creating_survives_every_failed_allocation(void **state)
{
    (void)state;
    on_each(check_failed_allocations);
}

/* The device on the host refuses to zero this many bytes. */
static void check_failed_zeroing(const struct dp_device *device, struct dp_stream *streams[2])
{
    struct dp_device_room before, after;

    (void)streams;
    if (device->room == NULL) {
        return;
    }
    device->room(&before);
    if (strstr(before.name, "(the host)") == NULL) {
        return; /* a GPU runs what is queued */
    }
    assert_int_equal(setenv("DP_CUDA_MEMSET", "4242", 1), 0);
    dp_log_set_level(DP_LOG_NONE);
    assert_null(device->alloc(DP_MEM_OTHER, 4242));
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(unsetenv("DP_CUDA_MEMSET"), 0);
    device->room(&after);
    assert_int_equal(after.left, before.left);
}

static void memory_that_cannot_be_zeroed_is_given_back(void **state)
{
    (void)state;
    on_each(check_failed_zeroing);
}

static void a_missing_device_says_why(void **state)
{
    const struct dp_plugin *plugin = dp_plugin_find(&dp_devices, "cuda", 4);
    const struct dp_device *device = NULL;
    const char *why_not = NULL;
    (void)state;

    assert_true(dp_device_left_out("cuda") == (plugin == NULL));
    assert_false(dp_device_left_out("cpu"));
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(dp_device_find("cuba", &device), DP_ERR_CONFIG);
    if (plugin == NULL) {
        assert_int_equal(dp_device_find("cuda", &device), DP_ERR_UNAVAILABLE);
    } else if (!((const struct dp_device *)plugin)->available(&why_not)) {
        assert_non_null(why_not);
        assert_int_equal(dp_device_find("cuda", &device), DP_ERR_UNAVAILABLE);
    }
    dp_log_set_level(DP_LOG_INFO);
    assert_null(device);
    OK(dp_device_find("auto", &device));
}

/* Clocks are compared to half of a round trip to a GPU, or of a time in which this process had no
 * core, in eight attempts; the clock of a simulated GPU runs at twice the speed of the host's. */
enum { CLOCKS_NS = 5000000, TRACE_NS = 40000000, SPANS = 4, ROOM = SPANS - 1 };

static void queue_span(struct dp_stream *s, float *memory, int arg)
{
    DP_STREAM_SPAN(s, DP_WORK_SUM, arg);
    OK(s->ops->zero(s, memory, COUNT * sizeof(float)));
}

/* A span is there when what it queues is done, whichever stream does it. */
static void check_spans(const struct dp_device *device, struct dp_stream *streams[2])
{
    float *memory = device->alloc(DP_MEM_WEIGHTS, COUNT * sizeof(float));
    uint64_t begins[SPANS], ends[SPANS], lost, most;
    struct dp_stream_trace *trace = NULL;
    struct dp_trace_ring *ring = NULL;
    size_t count;

    if (device->timed_event_create == NULL) {
        device->release(memory);
        return;
    }
    OK(dp_trace_ring_create((size_t)SPANS, &ring));
    OK(dp_stream_trace_create(device, ROOM, &trace));
    queue_span(streams[0], memory, 7);
    OK(dp_stream_trace_begin(trace, streams[0]));
    queue_span(streams[0], memory, 7); /* nothing is recorded */
    dp_trace_record(ring);
    queue_span(streams[0], memory, 7); /* nor of a stream without a lane */
    dp_stream_set_lane(streams[0], DP_LANE_GPU_COMPUTE, 0);
    dp_stream_set_lane(streams[1], DP_LANE_GPU_COPY, 2);
    for (int i = 0; i < SPANS; i++) {
        begins[i] = dp_now_ns();
        queue_span(streams[i % 2], memory, i);
        OK(device->synchronize(streams[i % 2]));
        ends[i] = dp_now_ns();
        while (dp_now_ns() - ends[i] < TRACE_NS / SPANS) {
        }
    }
    dp_trace_record(NULL);
    OK(dp_stream_trace_end(trace, streams[0], ring, &lost));
    queue_span(streams[0], memory, 7);
    const struct dp_trace_event *events = dp_trace_ring_events(ring, &count, &most);
    assert_int_equal(lost, SPANS - ROOM);
    assert_int_equal(count, ROOM);
    for (int i = 0; i < ROOM; i++) {
        assert_int_equal(events[i].kind, DP_TRACE_WORK);
        assert_int_equal(events[i].what, DP_WORK_SUM);
        assert_int_equal(events[i].arg, i);
        assert_int_equal(events[i].lane, i % 2 == 0 ? DP_LANE_GPU_COMPUTE : DP_LANE_GPU_COPY);
        assert_int_equal(events[i].index, i % 2 == 0 ? 0 : 2);
        assert_true(events[i].begin_ns + CLOCKS_NS >= begins[i]);
        assert_true(events[i].end_ns >= events[i].begin_ns);
        assert_true(events[i].end_ns <= ends[i] + CLOCKS_NS);
    }
    dp_stream_trace_destroy(trace);
    dp_trace_ring_destroy(ring);
    device->release(memory);
}

static void note_part(void *arg, int i, int count)
{
    int *calls = arg;

    calls[i] += count;
}

/* Two threads. */
static void check_threads(const struct dp_device *device, struct dp_stream *streams[2])
{
    int calls[2] = {0, 0};

    assert_null(streams[0]->singles);
    assert_true((device->parallel == NULL) == (streams[1]->singles == NULL));
    if (device->parallel == NULL) {
        return;
    }
    device->parallel(2, note_part, calls);
    assert_int_equal(calls[0], 2);
    assert_int_equal(calls[1], 2);
    dp_stream_set_type(streams[1], DP_TYPE_BF16);
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(streams[1]->singles[i]->device, device);
        assert_int_equal(streams[1]->singles[i]->threads, 1);
        assert_int_equal(streams[1]->singles[i]->type, DP_TYPE_BF16);
        assert_null(streams[1]->singles[i]->singles);
    }
}

static void threads_of_a_stream_have_streams_like_it(void **state)
{
    (void)state;
    on_each(check_threads);
}

static void spans_of_streams_have_times_of_the_hosts_clock(void **state)
{
    (void)state;
    assert_int_equal(setenv("DP_CUDA_CLOCK", "2", 1), 0);
    on_each(check_spans);
    assert_int_equal(unsetenv("DP_CUDA_CLOCK"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_aligned_and_counted),
        cmocka_unit_test(copies_run_in_the_order_of_their_stream),
        cmocka_unit_test(a_stream_waits_for_what_another_one_has_queued),
        cmocka_unit_test(an_event_occurs_when_all_earlier_work_is_done),
        cmocka_unit_test(threads_of_a_stream_have_streams_like_it),
        cmocka_unit_test(spans_of_streams_have_times_of_the_hosts_clock),
        cmocka_unit_test(creating_survives_every_failed_allocation),
        cmocka_unit_test(memory_that_cannot_be_zeroed_is_given_back),
        cmocka_unit_test(a_missing_device_says_why),
    };

    return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
