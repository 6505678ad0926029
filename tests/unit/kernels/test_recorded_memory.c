/*
 * test_recorded_memory.c - memory of a recording stays allocated until its replay. Only
 * tests/cuda_on_host can make an engine of convolutions fail, so elsewhere all tests are skipped.
 */
#include "base/log.h"
#include "tests/support/arrays.h"

enum { ROWS = 2, LARGER = 8 * ROWS, OTHERS = 4 };

static const struct dp_window window = {.in_h = 6,
                                        .in_w = 6,
                                        .in_c = 8,
                                        .out_h = 6,
                                        .out_w = 6,
                                        .out_c = 8,
                                        .kernel_h = 3,
                                        .kernel_w = 3,
                                        .stride = 1,
                                        .padding = 1};

static size_t count_in(size_t rows)
{
    return rows * window.in_h * window.in_w * window.in_c;
}

static size_t count_out(size_t rows)
{
    return rows * window.out_h * window.out_w * window.out_c;
}

static void be(const char *cudnn)
{
    assert_int_equal(setenv("DP_HOST_CUDNN", cudnn, 1), 0);
}

/* Allocates memory, which would be what was released just before. */
static void take_all(struct dp_stream *s, void *others[OTHERS], size_t bytes)
{
    float *ones = uniform(bytes / sizeof(float), 7, 1, 1);

    for (int i = 0; i < OTHERS; i++) {
        others[i] = s->device->alloc(DP_MEM_OTHER, bytes);
        assert_non_null(others[i]);
        OK(dp_device_write(s, others[i], ones, bytes));
    }
    dp_free(ones);
}

static void give_all(struct dp_stream *s, void *others[OTHERS], size_t bytes)
{
    float *found = zeros(bytes / sizeof(float));

    for (int i = 0; i < OTHERS; i++) {
        OK(dp_device_read(s, found, others[i], bytes));
        for (size_t k = 0; k < bytes / sizeof(float); k++) {
            assert_true(found[k] == 1.0f);
        }
        s->device->release(others[i]);
    }
    dp_free(found);
}

/* The convolution of `rows`, prepared by that engine. */
static void convolve(struct dp_stream *s, enum dp_conv_engine engine, float *y, float *x, float *w,
                     size_t rows)
{
    s->conv = engine;
    OK(s->ops->conv_prepare(s, &window, rows, DP_CONV_FORWARD));
    OK(s->ops->conv_forward(s, y, x, w, NULL, &window, rows, DP_ACT_NONE));
}

/* cuBLAS writes windows into scratch memory, which has to grow when a larger convolution of cuDNN's
 * fails, in the middle of training. */
static void a_failing_engine_frees_no_memory_of_a_recording(void **state)
{
    struct dp_stream *s = stream_on(tested_device_or("ref"), 1);
    const size_t columns = sizeof(float) * ROWS * 36 * 72; /* of the smaller one, as float32 */
    float *x = uniform(count_in(LARGER), 1, -1, 1), *w = uniform((size_t)8 * 72, 2, -1, 1);
    float *y = zeros(count_out(LARGER)), *expected = zeros(count_out(ROWS));
    struct dp_recording *recording = NULL;
    struct dp_device_room before, after;
    const char *why_not;
    void *others[OTHERS];
    (void)state;

    convolve(s, DP_CONV_CUBLAS, expected, x, w, ROWS);
    OK(s->device->recording_create(&recording));
    assert_int_equal(s->device->record_begin(s), DP_OK);
    assert_int_equal(s->ops->conv_forward(s, y, x, w, NULL, &window, ROWS, DP_ACT_NONE), DP_OK);
    assert_int_equal(s->device->record_end(s, recording, &why_not), DP_OK);
    s->conv = DP_CONV_AUTO;
    OK(s->ops->conv_prepare(s, &window, LARGER, DP_CONV_FORWARD));
    be("failing");
    dp_log_set_level(DP_LOG_NONE);
    s->device->room(&before);
    OK(s->ops->conv_forward(s, y, x, w, NULL, &window, LARGER, DP_ACT_NONE));
    s->device->room(&after);
    dp_log_set_level(DP_LOG_INFO);
    be("9");
    assert_true(after.used[DP_MEM_WORKSPACE] - before.used[DP_MEM_WORKSPACE] > columns);
    assert_near(y, expected, count_out(ROWS), 1e-5, 0);
    take_all(s, others, columns);
    memset(y, 0xff, count_out(ROWS) * sizeof(*y));
    OK(s->device->replay(recording, s));
    assert_same_bits(y, expected, count_out(ROWS));
    give_all(s, others, columns);
    s->device->recording_destroy(recording);
    stream_close(s);
    dp_free(expected);
    dp_free(y);
    dp_free(w);
    dp_free(x);
}

/* Without a recording memory that is too small is released at once. */
static void without_a_recording_scratch_memory_is_released_when_it_grows(void **state)
{
    struct dp_stream *s = stream_on(tested_device_or("ref"), 1);
    float *x = uniform(count_in(LARGER), 1, -1, 1), *w = uniform((size_t)8 * 72, 2, -1, 1);
    float *y = zeros(count_out(LARGER));
    struct dp_device_room small, large;
    (void)state;

    convolve(s, DP_CONV_CUBLAS, y, x, w, ROWS);
    s->device->room(&small);
    convolve(s, DP_CONV_CUBLAS, y, x, w, LARGER);
    s->device->room(&large);
    assert_int_equal(large.used[DP_MEM_WORKSPACE] - small.used[DP_MEM_WORKSPACE],
                     (LARGER - ROWS) * (size_t)36 * 72 * sizeof(float));
    stream_close(s);
    dp_free(y);
    dp_free(w);
    dp_free(x);
}

static int nothing_is_left(void **state)
{
    (void)state;
    return (int)blocks_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failing_engine_frees_no_memory_of_a_recording),
        cmocka_unit_test(without_a_recording_scratch_memory_is_released_when_it_grows),
    };

    if (!libraries_on_host()) {
        printf("skipped: libraries cannot be made to fail here\n");
        return 77;
    }
    return run_reached_tests(tests, NULL, nothing_is_left);
}
