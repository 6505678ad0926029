/*
 * test_bfloat.c - operations on bfloats that convert in registers have the bits of those that widen
 * their arrays, compute in float32 and round: in place and not, on one thread and on two, for
 * sizes that no vector and no tile divides, and of every kind of number.
 */
#include "tests/support/typed.h"

#include "base/log.h"
#include "kernels/ref/window.h"

enum { ODD = 40003, MOST_CHANNELS = 257 };

/* One of each kind in a row, and random ones after them. */
static uint16_t *numbers(const struct typed *t, size_t count, uint32_t seed)
{
    static const uint16_t kinds[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x0080, 0x7f7f, 0xff7f,
                                     0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x3f80, 0xbf80, 0x3f81};
    uint16_t *x = random_halves(t, count, seed);

    for (size_t i = 0; i < DP_COUNT(kinds) * DP_COUNT(kinds); i++) { /* each beside each */
        x[i] = kinds[seed % 2 == 1 ? i / DP_COUNT(kinds) : i % DP_COUNT(kinds)];
    }
    return x;
}

/* What both ways write. */
struct pair {
    uint16_t *own, *wide;
};

static struct pair pair_of(size_t count)
{
    return (struct pair){halves(count), halves(count)};
}

static void check_pair(const struct pair *pair, size_t count)
{
    check_bits(pair->own, pair->wide, count);
    dp_free(pair->own);
    dp_free(pair->wide);
}

/* Which NaN a sum of two is, compilers choose: all are made the same one. */
static void check_numbers(const struct pair *pair, size_t count)
{
    enum { INFINITE = 0x7f80, ANY_NAN = 0x7fc0 };

    for (size_t i = 0; i < count; i++) {
        pair->own[i] = (pair->own[i] & 0x7fff) > INFINITE ? ANY_NAN : pair->own[i];
        pair->wide[i] = (pair->wide[i] & 0x7fff) > INFINITE ? ANY_NAN : pair->wide[i];
    }
    check_bits(pair->own, pair->wide, count);
}

static void each_bfloat_stream(void (*check)(const struct typed *t, struct dp_stream *s))
{
    struct typed t;

    open_typed(&t, DP_TYPE_BF16);
    for (int i = 0; i < 2; i++) { /* one thread, and two */
        check(&t, t.cpu[i]);
    }
    close_typed(&t);
}

/* ---- each element ---- */

static void check_each(const struct typed *t, struct dp_stream *s)
{
    uint16_t *a = numbers(t, ODD, 1), *b = numbers(t, ODD, 2);
    struct pair y = pair_of(ODD), z = pair_of(ODD);

    OK(dp_cpu_bfloat_relu_forward(s, y.own, a, ODD));
    OK(dp_cpu_mixed_relu_forward(s, y.wide, a, ODD));
    check_bits(y.own, y.wide, ODD);
    OK(dp_cpu_bfloat_relu_backward(s, y.own, a, b, ODD));
    OK(dp_cpu_mixed_relu_backward(s, y.wide, a, b, ODD));
    check_bits(y.own, y.wide, ODD);
    for (int act = DP_ACT_NONE; act <= DP_ACT_RELU; act++) {
        OK(dp_cpu_bfloat_add_forward(s, z.own, a, b, ODD, (enum dp_activation)act));
        OK(dp_cpu_mixed_add_forward(s, z.wide, a, b, ODD, (enum dp_activation)act));
        check_numbers(&z, ODD);
    }
    OK(dp_cpu_bfloat_accumulate(s, y.own, b, ODD));
    OK(dp_cpu_mixed_accumulate(s, y.wide, b, ODD));
    check_numbers(&y, ODD);
    check_pair(&y, ODD);
    check_pair(&z, ODD);
    dp_free(a);
    dp_free(b);
}

static void elements_have_the_bits_of_float32(void **state)
{
    (void)state;
    each_bfloat_stream(check_each);
}

/* ---- sums of columns, and batch norm ---- */

static void check_sums(const struct typed *t, struct dp_stream *s)
{
    uint16_t *x = random_halves(t, ODD, 3);
    static const size_t widths[] = {1, 5, 10, 64, 67, 300};

    for (size_t i = 0; i < DP_COUNT(widths); i++) {
        const size_t width = widths[i], rows = ODD / width;
        float *own = held(width, 4, 1), *wide = held(width, 4, 1);
        OK(dp_cpu_bfloat_sum_rows(s, own, x, rows, width, 1));
        OK(dp_cpu_mixed_sum_rows(s, wide, x, rows, width, 1));
        assert_memory_equal(own, wide, width * sizeof(*own));
        dp_free(own);
        dp_free(wide);
    }
    dp_free(x);
}

static void sums_have_the_bits_of_float32(void **state)
{
    (void)state;
    each_bfloat_stream(check_sums);
}

struct norm_arrays {
    uint16_t *x, *dy;
    size_t all; /* elements of both */
    float *mean, *var, *gamma, *beta;
    struct dp_norm norm;
};

static void check_moments(struct dp_stream *s, const struct norm_arrays *n)
{
    double own[2 * MOST_CHANNELS] = {0}, wide[2 * MOST_CHANNELS] = {0};

    for (size_t before = 0; before <= n->norm.count; before += n->norm.count) {
        OK(dp_cpu_bfloat_norm_moments(s, own, before, n->x, &n->norm));
        OK(dp_cpu_mixed_norm_moments(s, wide, before, n->x, &n->norm));
        assert_memory_equal(own, wide, sizeof(own));
    }
}

static void check_norm_forward(struct dp_stream *s, const struct norm_arrays *n)
{
    struct pair y = pair_of(n->all);

    for (int adds = 0; adds <= 1; adds++) {
        const uint16_t *add = adds == 1 ? n->dy : NULL;
        OK(dp_cpu_bfloat_norm_apply(s, y.own, n->x, add, n->mean, n->var, n->gamma, n->beta,
                                    &n->norm));
        OK(dp_cpu_mixed_norm_apply(s, y.wide, n->x, add, n->mean, n->var, n->gamma, n->beta,
                                   &n->norm));
        check_numbers(&y, n->all);
        memcpy(y.own, n->x, n->all * sizeof(*y.own));
        OK(dp_cpu_bfloat_norm_apply(s, y.own, y.own, add, n->mean, n->var, n->gamma, n->beta,
                                    &n->norm));
        check_numbers(&y, n->all);
    }
    check_pair(&y, n->all);
}

static void check_norm_sums(struct dp_stream *s, const struct norm_arrays *n)
{
    double own[2 * MOST_CHANNELS] = {0}, wide[2 * MOST_CHANNELS] = {0};

    for (int keep = 0; keep <= 1; keep++) {
        OK(dp_cpu_bfloat_norm_backward_sums(s, own, n->dy, n->x, n->mean, n->var, n->gamma, n->beta,
                                            &n->norm, (float)keep));
        OK(dp_cpu_mixed_norm_backward_sums(s, wide, n->dy, n->x, n->mean, n->var, n->gamma, n->beta,
                                           &n->norm, (float)keep));
        assert_memory_equal(own, wide, sizeof(own));
    }
}

static void check_norm_backward(struct dp_stream *s, const struct norm_arrays *n)
{
    const double count = (double)n->norm.count;
    struct pair dx = pair_of(n->all);
    double sums[2 * MOST_CHANNELS];

    for (size_t c = 0; c < DP_COUNT(sums); c++) {
        sums[c] = count * ((double)n->beta[c % n->norm.channels] - 0.25);
    }
    OK(dp_cpu_bfloat_norm_backward_apply(s, dx.own, n->dy, n->x, n->mean, n->var, n->gamma, n->beta,
                                         sums, 2 * count, &n->norm));
    OK(dp_cpu_mixed_norm_backward_apply(s, dx.wide, n->dy, n->x, n->mean, n->var, n->gamma, n->beta,
                                        sums, 2 * count, &n->norm));
    check_numbers(&dx, n->all);
    memcpy(dx.own, n->dy, n->all * sizeof(*dx.own));
    OK(dp_cpu_bfloat_norm_backward_apply(s, dx.own, dx.own, n->x, n->mean, n->var, n->gamma,
                                         n->beta, sums, 2 * count, &n->norm));
    check_numbers(&dx, n->all);
    check_pair(&dx, n->all);
}

static struct norm_arrays norm_arrays_of(const struct typed *t, size_t places, size_t channels)
{
    return (struct norm_arrays){
        .x = random_halves(t, places * channels, 5),
        .dy = random_halves(t, places * channels, 6),
        .all = places * channels,
        .mean = uniform(channels, 7, -1, 1),
        .var = uniform(channels, 8, 0.5f, 2),
        .gamma = uniform(channels, 9, -1, 1),
        .beta = uniform(channels, 10, -1, 1),
        .norm = {.count = places, .channels = channels, .eps = 1e-5f},
    };
}

static void free_norm_arrays(struct norm_arrays *n)
{
    dp_free(n->x);
    dp_free(n->dy);
    dp_free(n->mean);
    dp_free(n->var);
    dp_free(n->gamma);
    dp_free(n->beta);
}

/* Rows side by side: 128, 42, 25 (an odd width) and 10 of them; one row of an odd width; two
 * tiles, of which one is a single column. */
static void check_norm(const struct typed *t, struct dp_stream *s)
{
    static const size_t sizes[][2] = {{7001, 1},  {2003, 3}, {1201, 5},
                                      {3001, 12}, {607, 67}, {203, MOST_CHANNELS}};

    for (size_t i = 0; i < DP_COUNT(sizes); i++) {
        struct norm_arrays n = norm_arrays_of(t, sizes[i][0], sizes[i][1]);
        for (int act = DP_ACT_NONE; act <= DP_ACT_RELU; act++) {
            n.norm.act = (enum dp_activation)act;
            check_moments(s, &n);
            check_norm_forward(s, &n);
            check_norm_sums(s, &n);
            check_norm_backward(s, &n);
        }
        free_norm_arrays(&n);
    }
}

/* Of every kind of number, and factors that are a NaN whose bits are all set: a carry must not make
 * a number of it. */
static void check_norm_of_kinds(const struct typed *t, struct dp_stream *s)
{
    struct norm_arrays n = norm_arrays_of(t, 3001, 5);
    const uint32_t all_bits = 0x7fffffff;

    dp_free(n.x);
    dp_free(n.dy);
    n.x = numbers(t, n.all, 1);
    n.dy = numbers(t, n.all, 2);
    memcpy(&n.mean[1], &all_bits, sizeof(all_bits));
    memcpy(&n.gamma[2], &all_bits, sizeof(all_bits));
    memcpy(&n.beta[3], &all_bits, sizeof(all_bits));
    for (int act = DP_ACT_NONE; act <= DP_ACT_RELU; act++) {
        n.norm.act = (enum dp_activation)act;
        check_norm_forward(s, &n);
        check_norm_backward(s, &n);
    }
    free_norm_arrays(&n);
}

static void batch_norm_of_every_kind_of_number(void **state)
{
    (void)state;
    each_bfloat_stream(check_norm_of_kinds);
}

static void batch_norm_has_the_bits_of_float32(void **state)
{
    (void)state;
    each_bfloat_stream(check_norm);
}

/* ---- pools ---- */

/* Few values, so that windows hold equal ones, zeros of both signs, and several NaN. */
static uint16_t *ties(size_t count, uint32_t seed)
{
    static const uint16_t kinds[] = {0x0000, 0x8000, 0x3f80, 0xbf80, 0x7f80, 0xff80,
                                     0x7fc0, 0xffc0, 0x7f81, 0xff81, 0x7fff, 0xffff,
                                     0x0001, 0x8001, 0x7f7f, 0xff7f};
    uint16_t *x = halves(count);

    for (size_t i = 0; i < count; i++) {
        const uint32_t random = dp_random_u32(9, DP_RANDOM_TEST, seed, i) >> 8;
        x[i] = kinds[random % (i % 2 == 0 ? 4 : DP_COUNT(kinds))];
    }
    return x;
}

static void check_pool(const struct typed *t, struct dp_stream *s, const struct dp_window *w,
                       enum dp_pool_kind kind)
{
    enum { ROWS = 5 };
    const size_t xs = ROWS * dp_window_in(w), ys = ROWS * dp_window_out(w);
    const bool max = kind == DP_POOL_MAX; /* which NaN a sum of two is, compilers choose */
    const bool once = w->stride >= w->kernel_h && w->stride >= w->kernel_w;
    uint16_t *x = max ? ties(xs, 11) : random_halves(t, xs, 11);
    uint16_t *dy = once ? ties(ys, 12) : random_halves(t, ys, 12);
    struct pair y = pair_of(ys), dx = pair_of(xs), which = pair_of(ys); /* bytes: half of it */
    uint8_t *own = (uint8_t *)which.own, *wide = (uint8_t *)which.wide;

    OK(dp_cpu_bfloat_pool_forward(s, y.own, max ? own : NULL, x, w, ROWS, kind));
    OK(dp_cpu_mixed_pool_forward(s, y.wide, max ? wide : NULL, x, w, ROWS, kind));
    OK(dp_cpu_bfloat_pool_backward(s, dx.own, dy, max ? own : NULL, w, ROWS, kind));
    OK(dp_cpu_mixed_pool_backward(s, dx.wide, dy, max ? wide : NULL, w, ROWS, kind));
    check_bits(y.own, y.wide, ys);
    check_pair(&dx, xs);
    check_pair(&which, ys);
    OK(dp_cpu_bfloat_pool_forward(s, y.own, NULL, x, w, ROWS, kind)); /* as in evaluation */
    check_pair(&y, ys);
    dp_free(x);
    dp_free(dy);
}

/* Windows that cover the image once, which need no sums. */
static void check_missing_choice(const struct typed *t, struct dp_stream *s)
{
    const struct dp_window w = {4, 4, 1, 2, 2, 1, 2, 2, 2, 0, 0};
    uint16_t dx[16] = {0}, dy[4] = {0};
    (void)t;

    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(dp_cpu_bfloat_pool_backward(s, dx, dy, NULL, &w, 1, DP_POOL_MAX), DP_ERR_ARG);
    dp_log_set_level(DP_LOG_INFO);
}

static void the_gradient_of_a_maximum_needs_what_forward_kept(void **state)
{
    (void)state;
    each_bfloat_stream(check_missing_choice);
}

static void check_pools(const struct typed *t, struct dp_stream *s)
{
    /* 32 lanes at a time, then 8, then 1. */
    static const size_t channels[] = {1, 7, 8, 16, 31, 32, 33, 41, 64, 100};
    static const struct dp_window windows[] = {
        {8, 8, 0, 4, 4, 0, 2, 2, 2, 0, 0},     /* once */
        {6, 9, 0, 2, 3, 0, 3, 3, 3, 0, 0},     /* once, of another size */
        {9, 9, 0, 4, 4, 0, 3, 3, 2, 0, 0},     /* overlapping: gradients are added */
        {9, 8, 0, 5, 4, 0, 3, 3, 2, 1, 0},     /* cut by the border */
        {6, 6, 0, 4, 4, 0, 2, 2, 2, 1, 0},     /* of 2 by 2, cut by the border */
        {7, 7, 0, 1, 1, 0, 7, 7, 1, 0, 0},     /* global */
        {7, 7, 0, 3, 3, 0, 2, 2, 2, 0, 0},     /* not covered */
        {15, 17, 0, 1, 1, 0, 15, 17, 1, 0, 0}, /* as many elements as a maximum may have */
    };

    for (size_t i = 0; i < DP_COUNT(windows); i++) {
        for (size_t n = 0; n < DP_COUNT(channels); n++) {
            struct dp_window w = windows[i];
            w.in_c = w.out_c = channels[n];
            check_pool(t, s, &w, DP_POOL_MAX);
            check_pool(t, s, &w, DP_POOL_AVERAGE);
        }
    }
}

static void pools_have_the_bits_of_float32(void **state)
{
    (void)state;
    each_bfloat_stream(check_pools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_have_the_bits_of_float32),
        cmocka_unit_test(sums_have_the_bits_of_float32),
        cmocka_unit_test(batch_norm_has_the_bits_of_float32),
        cmocka_unit_test(batch_norm_of_every_kind_of_number),
        cmocka_unit_test(pools_have_the_bits_of_float32),
        cmocka_unit_test(the_gradient_of_a_maximum_needs_what_forward_kept),
    };

    return cmocka_run_group_tests(tests, NULL, nothing_is_left);
}
