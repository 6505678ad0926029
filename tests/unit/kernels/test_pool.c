#include "base/log.h"
#include "tests/support/arrays.h"

/* One pool and all its arrays. Freed by work_close(). */
struct work {
    struct dp_window w;
    size_t rows, xs, ys;
    float *x, *y, *dx, *dy;
    uint8_t *which;
};

/* Small integers: many values are equal, and sums are exact in any order. */
static float *integers(size_t count, uint32_t what, int values)
{
    const int half = values / 2;
    float *data = dp_zalloc(count, sizeof(*data));

    assert_non_null(data);
    for (size_t i = 0; i < count; i++) {
        const int value = (int)(dp_random_u32(9, DP_RANDOM_TEST, what, i) >> 8) % values;
        data[i] = (float)(value - half);
    }
    return data;
}

static struct work work_open(const struct dp_window *w, size_t rows)
{
    struct work k = {.w = *w, .rows = rows};

    k.w.out_c = w->in_c;
    k.w.out_h = (w->in_h + 2 * w->padding - w->kernel_h) / w->stride + 1;
    k.w.out_w = (w->in_w + 2 * w->padding - w->kernel_w) / w->stride + 1;
    k.xs = rows * w->in_h * w->in_w * w->in_c;
    k.ys = rows * k.w.out_h * k.w.out_w * w->in_c;
    k.x = integers(k.xs, 1, 5);
    k.dy = integers(k.ys, 2, 101);
    k.dx = integers(k.xs, 3, 2);
    k.y = integers(k.ys, 4, 2);
    k.which = dp_zalloc(k.ys, 1);
    assert_non_null(k.which);
    return k;
}

static void work_close(struct work *k)
{
    dp_free(k->x);
    dp_free(k->y);
    dp_free(k->dx);
    dp_free(k->dy);
    dp_free(k->which);
}

static void compute(struct dp_stream *s, struct work *k, enum dp_pool_kind kind)
{
    uint8_t *which = kind == DP_POOL_MAX ? k->which : NULL;

    memset(k->y, 0xff, k->ys * sizeof(*k->y));
    memset(k->dx, 0xff, k->xs * sizeof(*k->dx));
    OK(s->ops->pool_prepare(s, &k->w, k->rows, kind, true));
    OK(s->ops->pool_forward(s, k->y, which, k->x, &k->w, k->rows, kind));
    OK(s->ops->pool_backward(s, k->dx, k->dy, which, &k->w, k->rows, kind));
}

/* Everything is exact but the gradient of an average: at most 9 parts of at most 50, each rounded,
 * as is each of their sums, where ref rounds once. */
static void cpu_agrees(struct dp_stream *cpu, struct dp_stream *ref, const struct dp_window *w,
                       size_t rows)
{
    struct work found = work_open(w, rows), wanted = work_open(w, rows);

    compute(cpu, &found, DP_POOL_MAX);
    compute(ref, &wanted, DP_POOL_MAX);
    assert_memory_equal(found.y, wanted.y, found.ys * sizeof(float));
    for (size_t i = 0; i < found.xs; i++) {
        assert_true(found.dx[i] == wanted.dx[i]);
    }
    memset(found.y, 0xff, found.ys * sizeof(float));
    OK(cpu->ops->pool_forward(cpu, found.y, NULL, found.x, &found.w, rows, DP_POOL_MAX));
    assert_memory_equal(found.y, wanted.y, found.ys * sizeof(float));

    compute(cpu, &found, DP_POOL_AVERAGE);
    compute(ref, &wanted, DP_POOL_AVERAGE);
    for (size_t i = 0; i < found.ys; i++) {
        assert_true(found.y[i] == wanted.y[i]);
    }
    for (size_t i = 0; i < found.xs; i++) {
        assert_true(fabsf(found.dx[i] - wanted.dx[i]) <= (9 + 9 + 1) * 0x1p-24f * 9 * 50);
    }
    work_close(&found);
    work_close(&wanted);
}

static void cpu_computes_what_ref_computes(void **state)
{
    static const size_t channels[] = {1, 3, 16, 17, 32, 64, 100};
    static const size_t row_counts[] = {8, 3, 1, 0};
    struct dp_stream *ref = stream_on("ref", 1);
    (void)state;

    for (int threads = 1; threads <= 2; threads++) {
        struct dp_stream *cpu = stream_on(tested_device(), threads);
        for (size_t n = 0; n < 120; n++) {
            struct dp_window w = {.in_h = 6 + n % 3,
                                  .in_w = 7 + n % 5,
                                  .in_c = channels[n % 7],
                                  .kernel_h = 1 + n / 3 % 3,
                                  .kernel_w = n % 4 == 3 ? 2 : 1 + n / 3 % 3,
                                  .stride = 1 + n / 9 % 3};
            w.padding = w.kernel_h > 1 && w.kernel_w > 1 ? n / 2 % 2 : 0;
            cpu_agrees(cpu, ref, &w, row_counts[n % 4]);
        }
        /* Large enough to be shared by threads. */
        cpu_agrees(
            cpu, ref,
            &(struct dp_window){
                .in_h = 28, .in_w = 28, .in_c = 32, .kernel_h = 2, .kernel_w = 2, .stride = 2},
            5);
        cpu_agrees(cpu, ref,
                   &(struct dp_window){.in_h = 14,
                                       .in_w = 15,
                                       .in_c = 48,
                                       .kernel_h = 3,
                                       .kernel_w = 3,
                                       .stride = 2,
                                       .padding = 1},
                   7);
        cpu_agrees(cpu, ref,
                   &(struct dp_window){.in_h = 9,
                                       .in_w = 8,
                                       .in_c = 16,
                                       .kernel_h = 4,
                                       .kernel_w = 4,
                                       .stride = 2,
                                       .padding = 2},
                   3);
        stream_close(cpu);
    }
    stream_close(ref);
}

/* Runs `check` on each device. */
static void on_each_device(void (*check)(struct dp_stream *s))
{
    const char *const devices[] = {"ref", tested_device()};

    for (int i = 0; i < 2; i++) {
        struct dp_stream *s = stream_on(devices[i], 1);
        check(s);
        stream_close(s);
    }
}

static void check_known(struct dp_stream *s)
{
    const struct dp_window w = {3, 3, 1, 2, 2, 1, 2, 2, 2, 1, 0};
    const float x[] = {-1, 2, 3, 4, 5, -6, 7, 8, 9}, dy[] = {4, 8, 12, 16};
    float y[4], dx[9];
    uint8_t which[4];

    OK(s->ops->pool_forward(s, y, which, x, &w, 1, DP_POOL_MAX));
    assert_memory_equal(y, ((const float[]){-1, 3, 7, 9}), sizeof(y));
    OK(s->ops->pool_backward(s, dx, dy, which, &w, 1, DP_POOL_MAX));
    assert_memory_equal(dx, ((const float[]){4, 0, 8, 0, 0, 0, 12, 0, 16}), sizeof(dx));

    OK(s->ops->pool_forward(s, y, NULL, x, &w, 1, DP_POOL_AVERAGE));
    assert_memory_equal(y, ((const float[]){-0.25f, 1.25f, 2.75f, 4}), sizeof(y));
    OK(s->ops->pool_backward(s, dx, dy, NULL, &w, 1, DP_POOL_AVERAGE));
    assert_memory_equal(dx, ((const float[]){1, 2, 2, 3, 4, 4, 3, 4, 4}), sizeof(dx));
}

static void results_known_by_hand(void **state)
{
    (void)state;
    on_each_device(check_known);
}

/* Windows overlap; all values are equal, among them minus infinity, so each picks its first. */
static void check_ties(struct dp_stream *s)
{
    const struct dp_window w = {2, 3, 1, 1, 2, 1, 2, 2, 1, 0, 0};
    const float dy[] = {3, 5}, wanted[] = {3, 5, 0, 0, 0, 0};
    const float equal[] = {0, -2, -INFINITY};
    float x[6], y[2], dx[6];
    uint8_t which[2];

    for (int n = 0; n < 3; n++) {
        for (int i = 0; i < 6; i++) {
            x[i] = equal[n];
        }
        OK(s->ops->pool_forward(s, y, which, x, &w, 1, DP_POOL_MAX));
        assert_true(y[0] == equal[n] && y[1] == equal[n]);
        OK(s->ops->pool_backward(s, dx, dy, which, &w, 1, DP_POOL_MAX));
        assert_memory_equal(dx, wanted, sizeof(wanted));
    }
}

static void the_first_of_equal_values_is_the_maximum(void **state)
{
    (void)state;
    on_each_device(check_ties);
}

static void check_nan(struct dp_stream *s)
{
    const struct dp_window w = {2, 2, 32, 1, 1, 32, 2, 2, 2, 0, 0};

    for (size_t at = 0; at < (size_t)4 * 32; at++) {
        float x[4 * 32] = {1, 2, 3}, y[32];
        x[at] = NAN;
        OK(s->ops->pool_forward(s, y, NULL, x, &w, 1, DP_POOL_MAX));
        for (size_t c = 0; c < 32; c++) {
            assert_int_equal(isnan(y[c]) != 0, c == at % 32);
        }
    }
}

static void a_nan_is_never_lost(void **state)
{
    (void)state;
    on_each_device(check_nan);
}

/* Windows of equal values, zeros of both signs and several NaN: the bits that ref finds, where it
 * finds them. */
static void a_maximum_keeps_its_bits(void **state)
{
    static const uint32_t kinds[] = {0,          0x80000000, 0x3f800000, 0x7f800000,
                                     0xff800000, 0x7fc00000, 0xffc00001, 0x3f800001};
    static const size_t channels[] = {1, 7, 8, 16, 33, 64};
    struct dp_stream *ref = stream_on("ref", 1), *cpu = stream_on(tested_device(), 1);
    (void)state;

    for (size_t n = 0; n < 2 * DP_COUNT(channels); n++) {
        struct dp_window w = {.in_h = 7, .in_w = 5, .kernel_h = 2, .kernel_w = 2, .stride = 2};
        struct work found, wanted;
        w.in_c = channels[n / 2];
        if (n % 2 == 1) { /* cut at each border: of the last one 2 by 2 are left */
            w.padding = 1;
            w.kernel_h = w.kernel_w = 3;
        }
        found = work_open(&w, 9);
        wanted = work_open(&w, 9);
        for (size_t i = 0; i < found.xs; i++) {
            const uint32_t random = dp_random_u32(9, DP_RANDOM_TEST, 5, i) >> 8;
            memcpy(&found.x[i], &kinds[random % DP_COUNT(kinds)], sizeof(*kinds));
        }
        memcpy(wanted.x, found.x, found.xs * sizeof(float));
        compute(cpu, &found, DP_POOL_MAX);
        compute(ref, &wanted, DP_POOL_MAX);
        assert_memory_equal(found.y, wanted.y, found.ys * sizeof(float));
        assert_memory_equal(found.which, wanted.which, found.ys);
        work_close(&found);
        work_close(&wanted);
    }
    stream_close(ref);
    stream_close(cpu);
}

static void check_refusals(struct dp_stream *s)
{
    struct dp_window w = {16, 16, 2, 2, 1, 2, 15, 16, 1, 0, 0}; /* 240 elements */
    float x = 1, y = 1;

    dp_log_set_level(DP_LOG_NONE);
    OK(s->ops->pool_prepare(s, &w, 1, DP_POOL_MAX, true));
    w.out_h = 3; /* not what the formula gives */
    assert_int_equal(s->ops->pool_prepare(s, &w, 1, DP_POOL_MAX, true), DP_ERR_ARG);
    w = (struct dp_window){16, 16, 2, 1, 1, 2, 16, 16, 1, 0, 0}; /* 256 elements */
    assert_int_equal(s->ops->pool_prepare(s, &w, 1, DP_POOL_MAX, true), DP_ERR_ARG);
    OK(s->ops->pool_prepare(s, &w, 1, DP_POOL_AVERAGE, true));
    w = (struct dp_window){4, 4, 2, 2, 2, 1, 2, 2, 2, 0, 0}; /* loses a channel */
    assert_int_equal(s->ops->pool_prepare(s, &w, 1, DP_POOL_MAX, true), DP_ERR_ARG);
    w = (struct dp_window){4, 4, 2, 4, 4, 2, 2, 2, 2, 2, 0}; /* windows of padding alone */
    assert_int_equal(s->ops->pool_prepare(s, &w, 1, DP_POOL_AVERAGE, true), DP_ERR_ARG);
    w = (struct dp_window){1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0};
    assert_int_equal(s->ops->pool_backward(s, &x, &y, NULL, &w, 1, DP_POOL_MAX), DP_ERR_ARG);
    dp_log_set_level(DP_LOG_INFO);
}

static void windows_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    on_each_device(check_refusals);
}

static double loss(struct dp_stream *s, struct work *k, enum dp_pool_kind kind)
{
    double sum = 0;

    OK(s->ops->pool_forward(s, k->y, k->which, k->x, &k->w, k->rows, kind));
    for (size_t i = 0; i < k->ys; i++) {
        sum += (double)k->y[i] * (double)k->dy[i];
    }
    return sum;
}

/* Values that all differ by 1 or more, moved by 1/4: the maximum stays where it is, so that the
 * loss is linear and every number here is exact, but for divisions by 9. */
static void gradients_of_ref_are_slopes(void **state)
{
    static const struct dp_window w = {
        .in_h = 5, .in_w = 6, .in_c = 2, .kernel_h = 3, .kernel_w = 3, .stride = 2, .padding = 1};
    struct dp_stream *s = stream_on("ref", 1);
    struct work k = work_open(&w, 2);
    (void)state;

    for (size_t i = 0; i < k.xs; i++) {
        k.x[i] = (float)(i * 77 % k.xs); /* 77 and 120 have no common factor */
    }
    for (int kind = DP_POOL_MAX; kind <= DP_POOL_AVERAGE; kind++) {
        compute(s, &k, (enum dp_pool_kind)kind);
        for (size_t i = 0; i < k.xs; i++) {
            double slope;
            k.x[i] += 0.25f;
            slope = loss(s, &k, (enum dp_pool_kind)kind);
            k.x[i] -= 0.5f;
            slope = (slope - loss(s, &k, (enum dp_pool_kind)kind)) * 2;
            k.x[i] += 0.25f;
            assert_true(fabs(slope - (double)k.dx[i]) < (kind == DP_POOL_MAX ? 1e-9 : 1e-2));
        }
    }
    work_close(&k);
    stream_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_known_by_hand),
        cmocka_unit_test(the_first_of_equal_values_is_the_maximum),
        cmocka_unit_test(a_nan_is_never_lost),
        cmocka_unit_test(a_maximum_keeps_its_bits),
        cmocka_unit_test(gradients_of_ref_are_slopes),
        cmocka_unit_test(cpu_computes_what_ref_computes),
        cmocka_unit_test(windows_that_do_not_fit_are_refused),
    };
    return run_reached_tests(tests, NULL, NULL);
}
