/*
 * test_lane_streams.c - lanes on a device that notes which stream waits for which: all that lanes
 * have queued comes before what uses their sum, and a lane that fails is never passed over.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/ref/ops_ref.h"
#include "kernels/stream_trace.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"

/* Of streams; lanes have one each. */
enum { LANES = 4, MOST = 16 };

static struct {
    const struct dp_device *ref;
    struct dp_device device;
    struct dp_ops ops;
    struct dp_stream *streams[MOST];
    atomic_int count;
    atomic_int done[MOST];        /* rows that were loaded on a stream: the first of its work */
    atomic_int known[MOST][MOST]; /* and how many of them a stream waits for */
    atomic_int fails;             /* the lane whose rows cannot be loaded; below 0: none */
    int permits;                  /* lanes that may compute at a time; 0: it is not looked at */
    atomic_int computing;         /* on the way to load rows */
    atomic_int too_many;
} noted;

static int number_of(const struct dp_stream *stream)
{
    int i = 0;

    while (i < noted.count && noted.streams[i] != stream) {
        i++;
    }
    return i;
}

static int lane_of(const struct dp_stream *stream)
{
    return stream->trace_lane == DP_LANE_GPU_COMPUTE ? stream->trace_index - 1 : -1;
}

static dp_status note_stream(const struct dp_device *device, int threads, struct dp_stream **out)
{
    DP_TRY(noted.ref->stream_create(device, threads, out));
    (*out)->ops = &noted.ops;
    noted.streams[noted.count++] = *out;
    return DP_OK;
}

static dp_status note_order(struct dp_stream *later, struct dp_stream *earlier)
{
    const int a = number_of(later), b = number_of(earlier);

    for (int i = 0; i < noted.count; i++) {
        const int known = i == b ? noted.done[b] : noted.known[b][i];
        if (known > noted.known[a][i]) {
            noted.known[a][i] = known;
        }
    }
    return DP_OK;
}

/* Gives others time to compute, too, who may not. */
static void await_too_many(void)
{
    atomic_fetch_add(&noted.computing, 1);
    for (int turn = 0; turn < 2000 && noted.too_many == 0; turn++) {
        if (atomic_load(&noted.computing) > noted.permits) {
            atomic_store(&noted.too_many, 1);
        }
        (void)sched_yield();
    }
    atomic_fetch_sub(&noted.computing, 1);
}

static dp_status note_rows(struct dp_stream *s, void *y, const uint8_t *x, const float *scale,
                           const float *shift, size_t channels, size_t count)
{
    if (noted.fails >= 0 && lane_of(s) == noted.fails) {
        return DP_ERR_UNAVAILABLE;
    }
    if (noted.permits > 0 && lane_of(s) >= 0) {
        await_too_many();
    }
    noted.done[number_of(s)]++;
    return dp_ref_ops.bytes_load(s, y, x, scale, shift, channels, count);
}

static dp_status find_conv(enum dp_conv_engine wanted, const char **text)
{
    (void)wanted;
    (void)text;
    return DP_OK;
}

static void create(struct small_run *run, const char *layers)
{
    static const char *const sets[] = {"train.lanes=4", "device.name=ref", NULL};

    assert_int_equal(small_run_create(run, layers, sets), 0);
    memset(&noted, 0, sizeof(noted));
    noted.fails = -1;
    noted.ops = dp_ref_ops;
    noted.ops.bytes_load = note_rows;
    noted.ref = run->device;
    noted.device = *noted.ref;
    noted.device.stream_create = note_stream;
    noted.device.order = note_order;
    noted.device.find_conv = find_conv;
    run->device = &noted.device;
    run->threads = LANES;
}

/* The sum is used on the stream that computes without lanes. */
static size_t sum_waits(struct dp_group *group, const void *arg)
{
    struct dp_step_report report;
    struct dp_trainer *t = NULL;
    size_t wrong = 0;
    int seen = 0, main;

    if (small_run_trainer(arg, group, 2, &t) != DP_OK) {
        return 1;
    }
    main = number_of(t->compute.stream);
    for (int step = 0; step < 2; step++) {
        wrong += dp_trainer_step(t, &report) != DP_OK;
        for (int i = 0; i < noted.count; i++) {
            wrong += noted.known[main][i] != noted.done[i];
        }
    }
    for (int i = 0; i < noted.count; i++) { /* each lane has two batches, on a row of the trace */
        const int lane = lane_of(noted.streams[i]);
        wrong += noted.done[i] != (lane >= 0 ? 2 : 0);
        seen |= lane >= 0 ? 1 << lane : 0;
    }
    wrong += seen != (1 << LANES) - 1;
    dp_trainer_destroy(t);
    return wrong;
}

static void the_sum_waits_for_all_lanes(void **state)
{
    static const char *const layers[] = {small_dense, small_conv};
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        struct small_run run;
        create(&run, layers[i]);
        assert_int_equal(on_local_ranks(1, sum_waits, &run), 0);
        small_run_destroy(&run);
    }
}

static size_t spans_are_told_apart(struct dp_group *group, const void *arg)
{
    const struct dp_trace_event *events;
    struct dp_trace_ring *ring = NULL;
    struct dp_step_report report;
    struct dp_trainer *t = NULL;
    size_t wrong = 0, count;
    uint64_t lost;
    int seen = 0;

    if (dp_trace_ring_create(10000, &ring) != DP_OK ||
        small_run_trainer(arg, group, 1, &t) != DP_OK) {
        return 1;
    }
    dp_trace_record(ring);
    wrong += dp_trainer_step(t, &report) != DP_OK;
    dp_trace_record(NULL);
    events = dp_trace_ring_events(ring, &count, &lost);
    for (size_t i = 0; i < count; i++) { /* others are of the loader's threads */
        seen |= events[i].lane == DP_LANE_COMPUTE ? 1 << events[i].index : 0;
    }
    wrong += lost != 0 || seen != (1 << LANES) - 2; /* that of the first one was given none */
    dp_trainer_destroy(t);
    dp_trace_ring_destroy(ring);
    return wrong;
}

static void threads_of_lanes_have_rows_of_the_trace(void **state)
{
    struct small_run run;
    (void)state;

    create(&run, small_dense);
    assert_int_equal(on_local_ranks(1, spans_are_told_apart, &run), 0);
    small_run_destroy(&run);
}

static size_t steps_well(struct dp_group *group, const void *arg)
{
    struct dp_step_report report;
    struct dp_trainer *t = NULL;
    size_t wrong = 0;

    if (small_run_trainer(arg, group, 3, &t) != DP_OK) {
        return 1;
    }
    for (int step = 0; step < 3; step++) {
        wrong += dp_trainer_step(t, &report) != DP_OK;
    }
    dp_trainer_destroy(t);
    return wrong;
}

/* Lanes that meet in layers have a thread each, of which as many compute as a rank has. */
static void no_more_lanes_compute_at_a_time_than_there_are_threads(void **state)
{
    struct small_run run;
    (void)state;

    create(&run, small_conv);
    for (int threads = 1; threads < LANES; threads++) {
        run.threads = noted.permits = threads;
        assert_int_equal(on_local_ranks(1, steps_well, &run), 0);
        assert_int_equal(noted.too_many, 0);
        noted.count = 0;
    }
    small_run_destroy(&run);
}

static size_t step_fails(struct dp_group *group, const void *arg)
{
    struct dp_step_report report;
    struct dp_trainer *t = NULL;
    size_t wrong = 0;

    if (small_run_trainer(arg, group, LANES, &t) != DP_OK) {
        return 1;
    }
    for (int lane = 0; lane < LANES; lane++) {
        noted.fails = lane;
        wrong += dp_trainer_step(t, &report) != DP_ERR_UNAVAILABLE;
    }
    dp_trainer_destroy(t);
    return wrong;
}

static void the_error_of_any_lane_is_that_of_the_step(void **state)
{
    static const char *const layers[] = {small_dense, small_conv};
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        struct small_run run;
        create(&run, layers[i]);
        assert_int_equal(on_local_ranks(1, step_fails, &run), 0);
        small_run_destroy(&run);
    }
}

/* How many streams compute otherwise than the configuration says. */
static size_t others(struct dp_group *group, const void *arg)
{
    const struct small_run *run = arg;
    struct dp_trainer *t = NULL;
    size_t wrong = 0;
    int computing = 0;

    if (small_run_trainer(run, group, 1, &t) != DP_OK) {
        return 1;
    }
    for (int i = 0; i < noted.count; i++) {
        const struct dp_stream *s = noted.streams[i];
        if (s->trace_lane != DP_LANE_GPU_COMPUTE) {
            continue;
        }
        computing++;
        wrong += s->tf32 != (run->config->train.precision == DP_PRECISION_TF32);
        wrong += (s->type == DP_TYPE_BF16) != (run->config->train.precision == DP_PRECISION_BF16);
        wrong += s->conv != (enum dp_conv_engine)run->config->device.conv;
    }
    dp_trainer_destroy(t);
    return wrong + (computing != LANES + 1);
}

static void all_streams_compute_as_the_configuration_says(void **state)
{
    static const int precisions[] = {DP_PRECISION_FP32, DP_PRECISION_TF32, DP_PRECISION_BF16};
    (void)state;

    for (size_t i = 0; i < 3; i++) {
        struct small_run run;
        create(&run, small_dense);
        run.config->train.precision = precisions[i];
        run.config->device.conv = i == 1 ? DP_CONV_CUBLAS : DP_CONV_AUTO;
        assert_int_equal(on_local_ranks(1, others, &run), 0);
        small_run_destroy(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sum_waits_for_all_lanes),
        cmocka_unit_test(threads_of_lanes_have_rows_of_the_trace),
        cmocka_unit_test(no_more_lanes_compute_at_a_time_than_there_are_threads),
        cmocka_unit_test(all_streams_compute_as_the_configuration_says),
        cmocka_unit_test(the_error_of_any_lane_is_that_of_the_step),
    };

    return cmocka_run_group_tests_name("lane_streams", tests, NULL, NULL);
}
