#include <pthread.h>

#include "base/log.h"
#include "kernels/ref/ops_ref.h"
#include "tests/support/arrays.h"

/* One convolution and all its arrays. Freed by work_close(). */
struct work {
    struct dp_window w;
    size_t rows, xs, ys, ws;
    bool bias, relu, keep;
    float *x, *y, *dx, *dy, *weights, *dw, *b, *db;
};

static struct work work_open(const struct dp_window *w, size_t rows)
{
    struct work k = {.w = *w, .rows = rows};

    k.w.out_h = (w->in_h + 2 * w->padding - w->kernel_h) / w->stride + 1;
    k.w.out_w = (w->in_w + 2 * w->padding - w->kernel_w) / w->stride + 1;
    k.xs = rows * w->in_h * w->in_w * w->in_c;
    k.ys = rows * k.w.out_h * k.w.out_w * w->out_c;
    k.ws = dp_window_weights(w);
    k.x = uniform(k.xs, 1, -1, 1);
    k.dx = zeros(k.xs);
    k.y = zeros(k.ys);
    k.dy = uniform(k.ys, 2, -1, 1);
    k.weights = uniform(k.ws, 3, -1, 1);
    k.dw = zeros(k.ws);
    k.b = uniform(w->out_c, 4, -1, 1);
    k.db = zeros(w->out_c);
    return k;
}

static void work_close(struct work *k)
{
    dp_free(k->x);
    dp_free(k->y);
    dp_free(k->dx);
    dp_free(k->dy);
    dp_free(k->weights);
    dp_free(k->dw);
    dp_free(k->b);
    dp_free(k->db);
}

static dp_status prepare(struct dp_stream *s, const struct work *k)
{
    const unsigned uses = DP_CONV_FORWARD | DP_CONV_BACKWARD_DATA | DP_CONV_BACKWARD_WEIGHTS;

    return s->ops->conv_prepare(s, &k->w, k->rows,
                                uses | (k->bias ? (unsigned)DP_CONV_BIAS : 0u) |
                                    (k->relu ? (unsigned)DP_CONV_RELU : 0u));
}

static dp_status forward(struct dp_stream *s, struct work *k)
{
    return s->ops->conv_forward(s, k->y, k->x, k->weights, k->bias ? k->b : NULL, &k->w, k->rows,
                                k->relu ? DP_ACT_RELU : DP_ACT_NONE);
}

/* All three operations. Outputs hold NaN before, or something to keep. */
static void compute(struct dp_stream *s, struct work *k)
{
    memset(k->y, 0xff, k->ys * sizeof(*k->y));
    memset(k->dx, 0xff, k->xs * sizeof(*k->dx));
    memset(k->dw, 0xff, k->ws * sizeof(*k->dw));
    memset(k->db, 0xff, k->w.out_c * sizeof(*k->db));
    for (size_t i = 0; k->keep && i < k->ws; i++) {
        k->dw[i] = (float)(i % 7) / 4 - 1;
    }
    for (size_t i = 0; k->keep && i < k->w.out_c; i++) {
        k->db[i] = (float)(i % 5) / 2 - 1;
    }
    OK(forward(s, k));
    OK(s->ops->conv_backward_data(s, k->dx, k->dy, k->weights, &k->w, k->rows));
    OK(s->ops->conv_backward_weights(s, k->dw, k->bias ? k->db : NULL, k->dy, k->x, &k->w, k->rows,
                                     k->keep ? 1.0f : 0.0f));
}

static void make_positive(float *data, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        data[i] = fabsf(data[i]);
    }
}

/*
 * A float32 sum of n products, in any order and with or without fused multiply-add, is off by at
 * most n + 1 roundings of 2^-24 times the sum of the products' absolute values, to first order.
 * `scale` holds those sums: what the same operation gives for inputs without signs. One more
 * rounding each are the bias or what is kept, and the result of ref.
 */
static void assert_close(const float *found, const float *wanted, const float *scale, size_t count,
                         size_t terms)
{
    const double rounding = (double)(terms + 4) * 0x1p-24;

    for (size_t i = 0; i < count; i++) {
        const double error = fabs((double)found[i] - (double)wanted[i]);
        if (!(error <= rounding * (double)scale[i])) {
            fail_msg("element %zu of %zu: %.9g, should be %.9g", i, count, (double)found[i],
                     (double)wanted[i]);
        }
    }
}

static void cpu_agrees(struct dp_stream *cpu, struct dp_stream *ref, const struct dp_window *w,
                       size_t rows, bool bias, bool relu, bool keep)
{
    struct work found = work_open(w, rows), wanted = work_open(w, rows);
    struct work scale = work_open(w, rows);
    const size_t taps = w->kernel_h * w->kernel_w;

    found.bias = wanted.bias = scale.bias = bias;
    found.keep = wanted.keep = keep;
    found.relu = wanted.relu = relu;
    OK(prepare(cpu, &found));
    compute(cpu, &found);
    compute(ref, &wanted);

    make_positive(scale.x, scale.xs);
    make_positive(scale.dy, scale.ys);
    make_positive(scale.weights, scale.ws);
    make_positive(scale.b, w->out_c);
    compute(ref, &scale);
    for (size_t i = 0; keep && i < scale.ws; i++) {
        scale.dw[i] += 1; /* what was kept lies in -1..1 */
    }
    for (size_t i = 0; keep && i < w->out_c; i++) {
        scale.db[i] += 1;
    }
    assert_close(found.y, wanted.y, scale.y, found.ys, taps * dp_window_fan(w));
    assert_close(found.dx, wanted.dx, scale.dx, found.xs, taps * w->out_c / dp_window_groups(w));
    assert_close(found.dw, wanted.dw, scale.dw, found.ws, rows * found.w.out_h * found.w.out_w);
    if (bias) {
        assert_close(found.db, wanted.db, scale.db, w->out_c, rows * found.w.out_h * found.w.out_w);
    }
    work_close(&found);
    work_close(&wanted);
    work_close(&scale);
}

/* Every kernel, stride and padding; channels, rows, bias, relu and keep go round beside them, with
 * periods that have no common factor with each other, so that all combinations occur. */
static void cpu_computes_what_ref_computes(void **state)
{
    static const size_t channels[] = {1, 16, 3, 17, 32, 16, 64};
    static const size_t images[][2] = {{8, 11}, {7, 7}, {12, 9}};
    static const size_t row_counts[] = {8, 1, 3, 1, 0};
    struct dp_stream *ref = stream_on("ref", 1);
    (void)state;

    for (int threads = 1; threads <= 2; threads++) {
        struct dp_stream *cpu = stream_on(tested_device(), threads);
        size_t n = (size_t)threads;
        for (size_t i = 0; i < (size_t)4 * 2 * 4; i++, n++) {
            const size_t kernel = 1 + 2 * (i % 4);
            const struct dp_window w = {.in_h = images[n % 3][0],
                                        .in_w = images[n % 3][1],
                                        .in_c = channels[n % 7],
                                        .out_c = channels[(n * 3 + 1) % 7],
                                        .kernel_h = kernel,
                                        .kernel_w = n % 8 == 7 ? 1 : kernel,
                                        .stride = 1 + i / 4 % 2,
                                        .padding = i / 8};
            cpu_agrees(cpu, ref, &w, row_counts[n % 5], n % 3 != 0, n % 2 == 0, n / 2 % 2 == 0);
        }
        stream_close(cpu);
    }
    stream_close(ref);
}

/* Grouped and depthwise ones, those that make several channels of each, strided ones, and one whose
 * sums over pixels device cuda makes in slices. */
static void cpu_computes_groups_as_ref_does(void **state)
{
    static const struct dp_window windows[] = {
        {7, 8, 4, 0, 0, 6, 3, 3, 1, 1, 2},    {9, 8, 32, 0, 0, 32, 3, 3, 1, 1, 32},
        {8, 9, 16, 0, 0, 16, 3, 3, 2, 1, 16}, {5, 6, 6, 0, 0, 12, 5, 5, 1, 2, 6},
        {6, 7, 12, 0, 0, 8, 1, 1, 1, 0, 4},   {5, 6, 34, 0, 0, 68, 2, 3, 3, 0, 34},
        {6, 7, 32, 0, 0, 64, 3, 3, 2, 1, 2},  {28, 29, 2, 0, 0, 2, 3, 3, 1, 1, 2},
    };
    static const size_t rows[] = {3, 2, 1, 0};
    struct dp_stream *ref = stream_on("ref", 1), *cpu = stream_on(tested_device(), 2);
    (void)state;

    for (size_t i = 0; i < 2 * DP_COUNT(windows); i++) {
        const size_t count = i % DP_COUNT(windows) == 7 ? 3 : rows[(i + i / 4) % 4];
        cpu_agrees(cpu, ref, &windows[i % DP_COUNT(windows)], count, i % 3 != 0, i % 2 == 0,
                   i / 2 % 2 == 0);
    }
    stream_close(cpu);
    stream_close(ref);
}

static void ref_gives_results_known_by_hand(void **state)
{
    /* A padded image of 1..9, and the difference along the diagonal. */
    const struct dp_window diagonal = {3, 3, 1, 2, 2, 1, 2, 2, 2, 1, 0};
    const float image[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, k[] = {1, 0, 0, -1};
    /* Channels of one pixel: a matrix product; a kernel that is not square. */
    const struct dp_window pixel = {1, 1, 2, 1, 1, 3, 1, 1, 1, 0, 0};
    const float two[] = {1, 2}, matrix[] = {1, 2, 3, 4, 5, 6}, bias[] = {10, -20, 30};
    const struct dp_window wide = {2, 3, 1, 2, 2, 1, 1, 2, 1, 0, 0};
    const float pair[] = {1, 10};
    /* Two groups of two channels into one each, and two channels into two each. */
    const struct dp_window halves = {1, 1, 4, 1, 1, 2, 1, 1, 1, 0, 2};
    const struct dp_window depth = {1, 1, 2, 1, 1, 4, 1, 1, 1, 0, 2};
    const float four[] = {1, 10, 100, 1000};
    struct dp_stream s = {.ops = &dp_ref_ops, .threads = 1};
    float y[4];
    (void)state;

    OK(dp_ref_conv_forward(&s, y, image, k, NULL, &diagonal, 1, DP_ACT_NONE));
    assert_memory_equal(y, ((const float[]){-1, -3, -7, -4}), sizeof(y));
    OK(dp_ref_conv_forward(&s, y, two, matrix, bias, &pixel, 1, DP_ACT_RELU));
    assert_memory_equal(y, ((const float[]){15, 0, 47}), 3 * sizeof(*y));
    OK(dp_ref_conv_forward(&s, y, image, pair, NULL, &wide, 1, DP_ACT_NONE));
    assert_memory_equal(y, ((const float[]){21, 32, 54, 65}), sizeof(y));
    OK(dp_ref_conv_forward(&s, y, four, matrix, NULL, &halves, 1, DP_ACT_NONE));
    assert_memory_equal(y, ((const float[]){21, 4300}), 2 * sizeof(*y));
    OK(dp_ref_conv_forward(&s, y, four, matrix, NULL, &depth, 1, DP_ACT_NONE));
    assert_memory_equal(y, ((const float[]){1, 2, 30, 40}), sizeof(y));
}

/* The loss is the sum of y * dy. It is linear in each of x, weights and bias, so a difference over
 * a wide interval has no error but rounding: each y, which lies within 32, to float32. */
static double loss(struct dp_stream *s, struct work *k)
{
    double sum = 0;

    OK(forward(s, k));
    for (size_t i = 0; i < k->ys; i++) {
        sum += (double)k->y[i] * (double)k->dy[i];
    }
    return sum;
}

static void gradient_is_slope(struct dp_stream *s, struct work *k, float *values,
                              const float *gradient, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float before = values[i];
        double slope;
        values[i] = before + 4;
        slope = loss(s, k);
        values[i] = before - 4;
        slope = (slope - loss(s, k)) / (double)(before + 4 - values[i]);
        values[i] = before;
        assert_true(fabs(slope - (double)gradient[i]) <= (double)k->ys * 32 * 0x1p-24);
    }
}

static void gradients_of_ref_are_slopes(void **state)
{
    static const struct dp_window windows[] = {
        {.in_h = 4, .in_w = 5, .in_c = 2, .out_c = 3, .kernel_h = 3, .kernel_w = 2, .stride = 1},
        {.in_h = 5,
         .in_w = 4,
         .in_c = 3,
         .out_c = 2,
         .kernel_h = 3,
         .kernel_w = 3,
         .stride = 2,
         .padding = 1},
        {3, 6, 1, 0, 0, 2, 1, 1, 2, 2, 0},
        {4, 3, 4, 0, 0, 6, 2, 3, 1, 1, 2},
    };
    struct dp_stream *s = stream_on("ref", 1);
    (void)state;

    for (size_t i = 0; i < DP_COUNT(windows); i++) {
        struct work k = work_open(&windows[i], 2);
        k.bias = true;
        compute(s, &k);
        gradient_is_slope(s, &k, k.x, k.dx, k.xs);
        gradient_is_slope(s, &k, k.weights, k.dw, k.ws);
        gradient_is_slope(s, &k, k.b, k.db, k.w.out_c);
        work_close(&k);
    }
    stream_close(s);
}

static const struct dp_window usual = {.in_h = 14,
                                       .in_w = 14,
                                       .in_c = 16,
                                       .out_c = 32,
                                       .kernel_h = 3,
                                       .kernel_w = 3,
                                       .stride = 1,
                                       .padding = 1};

static void *compute_often(void *arg)
{
    struct work *k = arg;
    struct dp_stream *s = stream_on(tested_device(), 1);

    OK(prepare(s, k));
    for (int i = 0; i < 5; i++) {
        compute(s, k);
    }
    stream_close(s);
    return NULL;
}

static void parallel_streams_give_the_same_bits(void **state)
{
    struct work k[3];
    pthread_t threads[2];
    (void)state;

    for (int i = 0; i < 3; i++) {
        k[i] = work_open(&usual, 4);
        k[i].bias = k[i].keep = true;
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, compute_often, &k[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    (void)compute_often(&k[2]);
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(k[i].y, k[2].y, k[2].ys * sizeof(float));
        assert_memory_equal(k[i].dx, k[2].dx, k[2].xs * sizeof(float));
        assert_memory_equal(k[i].dw, k[2].dw, k[2].ws * sizeof(float));
        assert_memory_equal(k[i].db, k[2].db, k[2].w.out_c * sizeof(float));
    }
    for (int i = 0; i < 3; i++) {
        work_close(&k[i]);
    }
}

/* A layer's row counts are prepared one after the other and used in any order, between those of
 * other layers, while the scratch memory has moved to grow. */
static void prepared_row_counts_are_used_in_any_order(void **state)
{
    static const size_t counts[] = {3, 8, 1, 8, 3};
    struct dp_stream *cpu = stream_on(tested_device(), 1), *ref = stream_on("ref", 1);
    struct dp_window big = usual;
    (void)state;

    big.out_c = 64;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < DP_COUNT(counts); i++) {
            cpu_agrees(cpu, ref, i % 2 == 0 ? &usual : &big, counts[i], true, false, pass == 0);
        }
    }
    stream_close(ref);
    stream_close(cpu);
}

static void preparing_twice_costs_nothing(void **state)
{
    struct dp_stream *s = stream_on(tested_device(), 1);
    struct work k = work_open(&usual, 2);
    size_t live;
    (void)state;

    OK(prepare(s, &k));
    live = dp_mem_live();
    OK(prepare(s, &k));
    assert_int_equal(dp_mem_live(), live);
    work_close(&k);
    stream_close(s);
}

static void an_unprepared_row_count_is_an_error(void **state)
{
    struct dp_stream *s = stream_on(tested_device(), 1);
    struct work k = work_open(&usual, 3);
    (void)state;

    if (s->ops->conv_forward == dp_ref_conv_forward) {
        work_close(&k);
        stream_close(s);
        skip(); /* built without oneDNN: nothing needs to be prepared */
    }
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(forward(s, &k), DP_ERR_INTERNAL);
    OK(prepare(s, &k));
    k.rows = 2;
    assert_int_equal(forward(s, &k), DP_ERR_INTERNAL);
    dp_log_set_level(DP_LOG_INFO);
    k.rows = 3;
    OK(forward(s, &k));
    work_close(&k);
    stream_close(s);
}

static void a_nan_survives_relu(void **state)
{
    const char *const devices[] = {"ref", tested_device()};
    (void)state;

    for (int i = 0; i < 2; i++) {
        struct dp_stream *s = stream_on(devices[i], 1);
        struct work k = work_open(&usual, 1);
        k.relu = true;
        k.weights[0] = NAN;
        OK(prepare(s, &k));
        OK(forward(s, &k));
        assert_true(isnan(k.y[k.ys - usual.out_c])); /* the last pixel of channel 0 */
        assert_false(isnan(k.y[k.ys - 1]));
        work_close(&k);
        stream_close(s);
    }
}

static void windows_that_do_not_fit_are_refused(void **state)
{
    const char *const devices[] = {"ref", tested_device()};
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int i = 0; i < 2; i++) {
        struct dp_stream *s = stream_on(devices[i], 1);
        struct dp_window w = {4, 4, 1, 4, 4, 1, 3, 3, 1, 1, 0};
        OK(s->ops->conv_prepare(s, &w, 1, DP_CONV_FORWARD));
        w.out_w = 5;
        assert_int_equal(s->ops->conv_prepare(s, &w, 1, DP_CONV_FORWARD), DP_ERR_ARG);
        w = (struct dp_window){2, 2, 1, 1, 1, 1, 3, 3, 1, 0, 0};
        assert_int_equal(s->ops->conv_prepare(s, &w, 1, DP_CONV_FORWARD), DP_ERR_ARG);
        w = (struct dp_window){4, 4, 1, 4, 4, 1, 1, 1, 0, 0, 0};
        assert_int_equal(s->ops->conv_prepare(s, &w, 1, DP_CONV_FORWARD), DP_ERR_ARG);
        w = (struct dp_window){4, 4, 0, 4, 4, 1, 1, 1, 1, 0, 0};
        assert_int_equal(s->ops->conv_prepare(s, &w, 1, DP_CONV_FORWARD), DP_ERR_ARG);
        w = (struct dp_window){4, 4, 3, 4, 4, 4, 1, 1, 1, 0, 2};
        assert_int_equal(s->ops->conv_prepare(s, &w, 1, DP_CONV_FORWARD), DP_ERR_ARG);
        w = (struct dp_window){4, 4, 4, 4, 4, 3, 1, 1, 1, 0, 2};
        assert_int_equal(s->ops->conv_prepare(s, &w, 1, DP_CONV_FORWARD), DP_ERR_ARG);
        stream_close(s);
    }
    dp_log_set_level(DP_LOG_INFO);
}

static void preparing_survives_every_failed_allocation(void **state)
{
    struct work k = work_open(&usual, 2);
    const size_t live = dp_mem_live();
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_stream *s = stream_on(tested_device(), 1);
        dp_mem_fail_nth(nth);
        status = prepare(s, &k);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        OK(prepare(s, &k)); /* what failed can be tried again */
        compute(s, &k);
        stream_close(s);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_log_set_level(DP_LOG_INFO);
    work_close(&k);
}

static void a_stream_needs_a_thread_and_memory(void **state)
{
    const char *const devices[] = {"ref", tested_device()};
    const struct dp_device *device = NULL;
    struct dp_stream *s = NULL;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int i = 0; i < 2; i++) {
        OK(dp_device_find(devices[i], &device));
        assert_int_equal(device->stream_create(device, 0, &s), DP_ERR_ARG);
        dp_mem_fail_nth(1);
        assert_int_equal(device->stream_create(device, 1, &s), DP_ERR_NOMEM);
        dp_mem_fail_nth(0);
        assert_null(s);
        device->stream_destroy(NULL);
    }
    dp_log_set_level(DP_LOG_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ref_gives_results_known_by_hand),
        cmocka_unit_test(gradients_of_ref_are_slopes),
        cmocka_unit_test(cpu_computes_what_ref_computes),
        cmocka_unit_test(cpu_computes_groups_as_ref_does),
        cmocka_unit_test(prepared_row_counts_are_used_in_any_order),
        cmocka_unit_test(parallel_streams_give_the_same_bits),
        cmocka_unit_test(preparing_twice_costs_nothing),
        cmocka_unit_test(an_unprepared_row_count_is_an_error),
        cmocka_unit_test(a_nan_survives_relu),
        cmocka_unit_test(windows_that_do_not_fit_are_refused),
        cmocka_unit_test(preparing_survives_every_failed_allocation),
        cmocka_unit_test(a_stream_needs_a_thread_and_memory),
    };
    return run_reached_tests(tests, NULL, NULL);
}
