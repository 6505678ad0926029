/*
 * test_cudnn.c - engines of convolutions: which one is chosen, and what only cuDNN does; test_conv
 * tests every engine. On the host the library is that of tests/cuda_on_host, and DP_HOST_CUDNN says
 * whether it is found.
 */
#include "base/log.h"
#include "tests/support/conv_work.h"
#include "tests/support/stderr_text.h"

#if DP_HAVE_CUDA
#include "kernels/cuda/cudnn/cudnn_api.h"
#endif

/* Checked by the compiler where NVIDIA's headers are used and cuDNN's are among them. */
#if DP_HAVE_CUDA && !defined(DP_TESTS_CUDA_ON_HOST_CUDA_RUNTIME_H) && defined(__has_include)
#if __has_include(<cudnn_backend.h>)
#include <cudnn_backend.h>

#define X(name, value)                                                                      \
    _Static_assert((int)CUDNN_##name == (int)DP_CUDNN_##name, "CUDNN_" #name " is another " \
                                                              "number");
DP_CUDNN_NUMBERS(X)
#undef X
#endif
#endif

static const struct dp_device *device_of_test(void)
{
    const struct dp_device *device = NULL;

    assert_int_equal(dp_device_find(tested_device(), &device), DP_OK);
    return device;
}

/* The version that the library on the host pretends to be; "" elsewhere. */
static const char *host(void)
{
    const char *text = getenv("DP_HOST_CUDNN");

    return text != NULL ? text : "";
}

static bool is_host(const char *value)
{
    return strcmp(host(), value) == 0;
}

/* ---- which engine ---- */

static void auto_takes_cudnn_where_it_works_and_says_why_not(void **state)
{
    const struct dp_device *device = device_of_test();
    const char *text = "?";
    (void)state;

    OK(dp_device_find_conv(device, DP_CONV_AUTO, &text));
    if (device->find_conv == NULL) {
        assert_null(text);
    } else if (is_host("off")) {
        assert_string_equal(text, "cublas (no libcudnn.so.9 or .8 in LD_LIBRARY_PATH)");
    } else if (is_host("lacking")) {
        assert_string_equal(text,
                            "cublas (libcudnn.so.9 does not open: libneeded.so.1: cannot open "
                            "shared object file)");
    } else if (is_host("broken")) {
        assert_string_equal(text,
                            "cublas (cuDNN 91900 does not start: CUDNN_STATUS_NOT_INITIALIZED)");
    } else if (is_host("8")) {
        assert_string_equal(text, "cudnn 8.9.7");
    } else if (is_host("9") || is_host("hungry") || is_host("failing")) {
        assert_string_equal(text, "cudnn 9.19.0");
    } else {
        assert_true(strncmp(text, "cudnn ", 6) == 0 || strncmp(text, "cublas (", 8) == 0);
    }
}

static void a_requested_engine_is_used_or_reported_missing(void **state)
{
    const struct dp_device *device = device_of_test();
    const char *text = NULL, *found = NULL, *line = NULL;
    dp_status status;
    (void)state;

    OK(dp_device_find_conv(device, DP_CONV_AUTO, &found));
    stderr_begin();
    status = dp_device_find_conv(device, DP_CONV_CUDNN, &text);
    stderr_end();
    if (found != NULL && strncmp(found, "cudnn", 5) == 0) {
        assert_int_equal(status, DP_OK);
        assert_string_equal(text, found);
        OK(dp_device_find_conv(device, DP_CONV_CUBLAS, &text));
        assert_string_equal(text, "cublas");
        return;
    }
    assert_int_equal(status, DP_ERR_UNAVAILABLE);
    line = device->find_conv == NULL ? "leave device.conv at auto" : "device.conv: cudnn: ";
    assert_non_null(strstr(stderr_text, line));
    assert_ptr_equal(strchr(stderr_text, '\n'), stderr_text + strlen(stderr_text) - 1);
}

/* ---- results ---- */

/* Gradients of weights are float32; cuDNN may make them of narrow numbers, rounded once: where that
 * is faster, and in the library on the host where channels are odd. */
static void check_engine(enum dp_conv_engine engine, enum dp_type type, const struct dp_window *w,
                         size_t n)
{
    struct dp_stream *ref = typed_stream("ref", type), *s = typed_stream(tested_device(), type);
    struct work wanted = work_open(ref, w, 1 + n % 3), found = work_open(ref, w, 1 + n % 3);
    const size_t pixels = found.rows * found.w.out_h * found.w.out_w;
    const bool any = getenv("DP_HOST_CUDNN") == NULL || w->in_c % 8 != 0 || w->out_c % 8 != 0;
    const bool rounded = engine != DP_CONV_CUBLAS && any;
    const double step = !rounded ? 0 : type == DP_TYPE_BF16 ? 0x1p-8 : 0x1p-11;

    s->conv = engine;
    wanted.bias = found.bias = n % 2 == 0;
    wanted.relu = found.relu = n % 3 != 0;
    wanted.keep = found.keep = n / 2 % 2 == 0 ? 1.0f : 0.0f;
    OK(prepare(s, &found));
    compute(s, &found);
    compute(ref, &wanted);
    assert_typed(ref, found.y, wanted.y, found.ys,
                 near_sum(w->kernel_h * w->kernel_w * w->in_c) +
                     rounding_before_bias(ref, &wanted));
    assert_typed(ref, found.dx, wanted.dx, found.xs,
                 near_sum(w->kernel_h * w->kernel_w * w->out_c));
    assert_near(found.dw, wanted.dw, found.ws, near_sum(pixels) + step, step);
    if (found.bias) {
        assert_near(found.db, wanted.db, w->out_c, near_sum(pixels), 0);
    }
    work_close(&found);
    work_close(&wanted);
    stream_close(s);
    stream_close(ref);
}

static const struct dp_window windows[] = {
    {.in_h = 6,
     .in_w = 5,
     .in_c = 8,
     .out_c = 16,
     .kernel_h = 3,
     .kernel_w = 3,
     .stride = 1,
     .padding = 1},
    {.in_h = 7, .in_w = 7, .in_c = 1, .out_c = 6, .kernel_h = 5, .kernel_w = 5, .stride = 1},
    {.in_h = 8, .in_w = 8, .in_c = 16, .out_c = 8, .kernel_h = 1, .kernel_w = 1, .stride = 1},
    {.in_h = 9,
     .in_w = 6,
     .in_c = 3,
     .out_c = 8,
     .kernel_h = 3,
     .kernel_w = 2,
     .stride = 2,
     .padding = 1},
    {.in_h = 4,
     .in_w = 4,
     .in_c = 17,
     .out_c = 8,
     .kernel_h = 3,
     .kernel_w = 3,
     .stride = 1,
     .padding = 1},
    {.in_h = 6,
     .in_w = 5,
     .in_c = 16,
     .out_c = 16,
     .kernel_h = 3,
     .kernel_w = 3,
     .stride = 2,
     .padding = 1,
     .groups = 16},
    {.in_h = 5,
     .in_w = 5,
     .in_c = 8,
     .out_c = 24,
     .kernel_h = 3,
     .kernel_w = 2,
     .stride = 1,
     .groups = 2},
};

static void narrow_types_equal_the_reference_on_every_engine(void **state)
{
    static const enum dp_type types[] = {DP_TYPE_BF16, DP_TYPE_F16};
    static const enum dp_conv_engine engines[] = {DP_CONV_AUTO, DP_CONV_CUBLAS};
    (void)state;

    if (device_of_test()->find_conv == NULL) {
        skip(); /* test_mixed is about processors */
    }
    for (size_t n = 0; n < 6 * DP_COUNT(windows); n++) {
        for (size_t i = 0; i < 4; i++) {
            check_engine(engines[i / 2], types[i % 2], &windows[n % DP_COUNT(windows)], n);
        }
    }
}

/* The library on the host has nothing for 17 channels. */
static void without_a_cudnn_plan_cublas_computes_or_it_is_refused(void **state)
{
    struct dp_stream *ref = typed_stream("ref", DP_TYPE_F32), *s;
    struct work k = work_open(ref, &windows[4], 2);
    (void)state;

    if (!is_host("9") && !is_host("8")) {
        work_close(&k);
        stream_close(ref);
        skip();
    }
    check_engine(DP_CONV_AUTO, DP_TYPE_F32, &windows[4], 0);
    s = typed_stream(tested_device(), DP_TYPE_F32);
    s->conv = DP_CONV_CUDNN;
    stderr_begin();
    assert_int_equal(prepare(s, &k), DP_ERR_UNAVAILABLE);
    stderr_end();
    assert_non_null(strstr(stderr_text, "device.conv: cudnn has no convolution 4x4x17 -> 4x4x8"));
    stream_close(s);
    work_close(&k);
    stream_close(ref);
}

/* One warning, however many fail; of float32 none is taken without being run. */
static void after_a_cudnn_failure_cublas_computes_or_it_is_refused(void **state)
{
    struct dp_stream *ref = typed_stream("ref", DP_TYPE_BF16), *s;
    struct work k = work_open(ref, &windows[0], 1);
    (void)state;

    if (!is_host("failing")) {
        work_close(&k);
        stream_close(ref);
        skip();
    }
    stderr_begin();
    check_engine(DP_CONV_AUTO, DP_TYPE_BF16, &windows[0], 0);
    stderr_end();
    assert_non_null(strstr(stderr_text, "warning: cuDNN fails at a convolution 6x5x8 -> 6x5x16 by "
                                        "3x3 of 1 row: CUDNN_STATUS_BAD_PARAM; it is computed by "
                                        "cublas from here on\n"));
    assert_ptr_equal(strchr(stderr_text, '\n'), strrchr(stderr_text, '\n'));
    s = typed_stream(tested_device(), DP_TYPE_BF16);
    s->conv = DP_CONV_CUDNN;
    OK(prepare(s, &k));
    stderr_begin();
    assert_int_equal(s->ops->conv_backward_data(s, k.dx, k.dy, k.weights, &k.w, k.rows),
                     DP_ERR_UNAVAILABLE);
    stderr_end();
    assert_non_null(strstr(stderr_text, "device.conv: cudnn fails at a convolution 6x5x8 -> "));
    assert_ptr_equal(strchr(stderr_text, '\n'), strrchr(stderr_text, '\n'));
    stream_close(s);
    work_close(&k);
    stream_close(ref);
}

/* Two factors lose at most 2^-10 each, of products below 1. */
static void tf32_rounds_factors_and_fp32_does_not(void **state)
{
    struct dp_stream *ref = typed_stream("ref", DP_TYPE_F32);
    const size_t terms = (size_t)3 * 3 * windows[0].in_c;
    (void)state;

    if (device_of_test()->find_conv == NULL) {
        stream_close(ref);
        skip();
    }
    for (int tf32 = 0; tf32 < 2; tf32++) {
        struct dp_stream *s = typed_stream(tested_device(), DP_TYPE_F32);
        struct work found = work_open(ref, &windows[0], 2), wanted = work_open(ref, &windows[0], 2);
        double most = 0;
        s->tf32 = tf32 != 0;
        OK(prepare(s, &found));
        compute(s, &found);
        compute(ref, &wanted);
        for (size_t i = 0; i < found.ys; i++) {
            most = fmax(most, fabs((double)((float *)found.y)[i] - (double)((float *)wanted.y)[i]));
        }
        assert_true(s->tf32 ? most > near_sum(terms) && most < (double)terms * 2 * 0x1p-10
                            : most <= near_sum(terms));
        work_close(&found);
        work_close(&wanted);
        stream_close(s);
    }
    stream_close(ref);
}

static void a_rectifier_does_not_lose_a_nan(void **state)
{
    struct dp_stream *ref = typed_stream("ref", DP_TYPE_BF16), *s;
    struct work k = work_open(ref, &windows[0], 1);
    float *y = zeros(k.ys);
    (void)state;

    if (device_of_test()->find_conv != NULL) {
        s = typed_stream(tested_device(), DP_TYPE_BF16);
        k.bias = k.relu = true;
        memset(k.x, 0xff, sizeof(uint16_t));
        OK(prepare(s, &k));
        compute(s, &k);
        OK(ref->ops->widen(ref, y, k.y, k.ys, DP_TYPE_BF16));
        assert_true(isnan(y[0]) && !isnan(y[k.ys - 1]));
        stream_close(s);
    }
    dp_free(y);
    work_close(&k);
    stream_close(ref);
}

/* Of the engines on the host for bf16 one can be made to need too much memory, and one fails when
 * it runs: neither is chosen, neither is an error, and memory of trials is released. */
static void trials_leave_the_workspace_of_the_chosen_engine(void **state)
{
    const struct dp_device *device = device_of_test();
    (void)state;

    if (!is_host("9") && !is_host("hungry")) {
        skip();
    }
    for (int measures = 0; measures < 2; measures++) {
        struct dp_stream *s = typed_stream(tested_device(), DP_TYPE_BF16);
        struct work k = work_open(s, &windows[0], 50);
        struct dp_algo_choices *algo_choices = NULL;
        struct dp_device_room before, after;
        size_t more;
        if (measures != 0) {
            OK(dp_algo_choices_create("here", &algo_choices));
            s->algo_choices = algo_choices;
        }
        device->room(&before);
        OK(s->ops->conv_prepare(s, &k.w, k.rows, DP_CONV_FORWARD));
        device->room(&after);
        more = after.used[DP_MEM_WORKSPACE] - before.used[DP_MEM_WORKSPACE];
        assert_int_equal(more, 4096);
        assert_int_equal(after.used[DP_MEM_TRIAL], 0);
        assert_in_range(after.peak - before.peak, 0, more);
        OK(s->ops->conv_forward(s, k.y, k.x, k.weights, NULL, &k.w, k.rows, DP_ACT_NONE));
        work_close(&k);
        stream_close(s);
        dp_algo_choices_destroy(algo_choices);
    }
}

static void preparing_survives_every_failed_allocation(void **state)
{
    struct dp_stream *ref = typed_stream("ref", DP_TYPE_F32);
    struct dp_stream *s = typed_stream(tested_device(), DP_TYPE_F32);
    struct work k = work_open(ref, &windows[0], 2);
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        dp_mem_fail_nth(nth);
        status = prepare(s, &k);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_in_range(nth, 1, 100);
    }
    dp_log_set_level(DP_LOG_INFO);
    compute(s, &k);
    stream_close(s);
    work_close(&k);
    stream_close(ref);
}

static int nothing_is_left(void **state)
{
    (void)state;
    return (int)blocks_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_takes_cudnn_where_it_works_and_says_why_not),
        cmocka_unit_test(a_requested_engine_is_used_or_reported_missing),
        cmocka_unit_test(narrow_types_equal_the_reference_on_every_engine),
        cmocka_unit_test(without_a_cudnn_plan_cublas_computes_or_it_is_refused),
        cmocka_unit_test(after_a_cudnn_failure_cublas_computes_or_it_is_refused),
        cmocka_unit_test(tf32_rounds_factors_and_fp32_does_not),
        cmocka_unit_test(a_rectifier_does_not_lose_a_nan),
        cmocka_unit_test(trials_leave_the_workspace_of_the_chosen_engine),
        cmocka_unit_test(preparing_survives_every_failed_allocation),
    };

    return run_reached_tests(tests, NULL, nothing_is_left);
}
