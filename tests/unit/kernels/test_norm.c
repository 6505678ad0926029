/*
 * test_norm.c - batch normalisation of `cpu` against `ref`, the gradients of `ref` against
 * differences of its forward, and rows that come a few at a time against all at once.
 *
 * Tolerances: an output is (x - mean) scale + beta in float32 with numbers of size 4, so it errs by
 * a few times 2.4e-7. A gradient sum over n rows errs by roundings within blocks of a few hundred
 * rows: 1e-7 n is 1.7 roundings of each term, all in one direction. The mask of the rectifier may
 * differ from the reference's where the output is a rounding away from 0; inputs are drawn so that
 * the gradient there is small compared with what is allowed, or the case is without rectifier.
 */
#include "tests/support/arrays.h"

struct size {
    size_t count, channels;
};

static const struct size sizes[] = {{1, 1},    {2, 1},    {3, 3},    {17, 16},   {64, 15},
                                    {65, 64},  {33, 65},  {10, 129}, {40, 256},  {7, 257},
                                    {20, 700}, {5, 2048}, {1000, 3}, {4400, 16}, {70000, 1}};

/* Everything an operation may need, for one size. */
struct data {
    struct dp_norm norm;
    size_t total; /* count * channels */
    float *x, *dy, *gamma, *beta, *mean, *var;
};

static struct dp_norm norm_of(struct size size, enum dp_activation act)
{
    return (struct dp_norm){
        .count = size.count, .channels = size.channels, .eps = 1e-5f, .act = act};
}

static struct data data_create(struct size size, enum dp_activation act, float center)
{
    const size_t total = size.count * size.channels, c = size.channels;
    struct data d = {norm_of(size, act),
                     total,
                     uniform(total, 1, -1.7f, 1.7f),
                     uniform(total, 2, -1, 1),
                     uniform(c, 3, 0.5f, 1.5f),
                     uniform(c, 4, -0.5f, 0.5f),
                     uniform(c, 5, -0.2f, 0.2f),
                     uniform(c, 6, 0.5f, 1.5f)};

    for (size_t i = 0; i < total; i++) {
        d.x[i] += center;
    }
    return d;
}

static void data_destroy(struct data *d)
{
    dp_free(d->x);
    dp_free(d->dy);
    dp_free(d->gamma);
    dp_free(d->beta);
    dp_free(d->mean);
    dp_free(d->var);
}

/* Forward of one pass: statistics of x, then the output. */
static void norm_forward(struct dp_stream *s, float *y, float *mean, float *var,
                         const struct data *d)
{
    const size_t c = d->norm.channels;
    double *moments = dp_zalloc(2 * c, sizeof(*moments));

    assert_non_null(moments);
    memset(moments, 0xff, 2 * c * sizeof(*moments)); /* NaN: must not be read */
    OK(s->ops->norm_moments(s, moments, 0, d->x, &d->norm));
    for (size_t i = 0; i < c; i++) {
        mean[i] = (float)moments[i];
        var[i] = d->norm.count > 0 ? (float)(moments[c + i] / (double)d->norm.count) : 0;
    }
    dp_free(moments);
    OK(s->ops->norm_apply(s, y, d->x, NULL, mean, var, d->gamma, d->beta, &d->norm));
}

/* Backward of one pass: sums of the gradient, which are the gradients of beta and gamma, then
 * dx. */
static void norm_backward(struct dp_stream *s, float *dx, double *sums, const float *dy,
                          const struct data *d, float keep)
{
    OK(s->ops->norm_backward_sums(s, sums, dy, d->x, d->mean, d->var, d->gamma, d->beta, &d->norm,
                                  keep));
    OK(s->ops->norm_backward_apply(s, dx, dy, d->x, d->mean, d->var, d->gamma, d->beta, sums,
                                   (double)d->norm.count, &d->norm));
}

/* [2 * channels] doubles: all `value`, or NaN where they must not be read. */
static double *held_sums(size_t channels, double value, float keep)
{
    double *sums = dp_zalloc(2 * channels, sizeof(*sums));

    assert_non_null(sums);
    for (size_t i = 0; i < 2 * channels; i++) {
        sums[i] = keep != 0 ? value : (double)NAN;
    }
    return sums;
}

static void assert_near_sums(const double *found, const double *expected, size_t count,
                             double absolute, double relative)
{
    for (size_t i = 0; i < count; i++) {
        const double allowed = absolute + relative * fabs(expected[i]);
        if (!(fabs(found[i] - expected[i]) <= allowed)) {
            fail_msg("sum %zu is %.9g, not %.9g +- %.2g", i, found[i], expected[i], allowed);
        }
    }
}

static void check_forward(const struct streams *streams, struct size size, enum dp_activation act)
{
    struct data d = data_create(size, act, 0.5f);
    float *y0 = held(d.total, 7, 0), *apply0 = held(d.total, 7, 0);
    float *mean0 = held(size.channels, 8, 0), *var0 = held(size.channels, 9, 0);

    norm_forward(streams->ref, y0, mean0, var0, &d);
    OK(streams->ref->ops->norm_apply(streams->ref, apply0, d.x, NULL, d.mean, d.var, d.gamma,
                                     d.beta, &d.norm));
    for (int i = 0; i < 2; i++) {
        struct dp_stream *s = streams->tested[i];
        float *y = held(d.total, 7, 0), *mean = held(size.channels, 8, 0);
        float *var = held(size.channels, 9, 0);
        norm_forward(s, y, mean, var, &d);
        assert_near(mean, mean0, size.channels, 2e-7, 1e-7);
        assert_near(var, var0, size.channels, 1e-7, 1e-6);
        /* With two rows 1 / sqrt(var) multiplies roundings of x by up to 300 (eps bounds it). */
        assert_near(y, y0, d.total, size.count < 5 ? 1e-4 : 4e-6, 1e-6);
        OK(s->ops->norm_apply(s, y, d.x, NULL, d.mean, d.var, d.gamma, d.beta, &d.norm));
        assert_near(y, apply0, d.total, 1e-6, 0);
        dp_free(y);
        dp_free(mean);
        dp_free(var);
    }
    dp_free(y0);
    dp_free(apply0);
    dp_free(mean0);
    dp_free(var0);
    data_destroy(&d);
}

static void forward_equals_the_reference(void **state)
{
    for (size_t i = 0; i < DP_COUNT(sizes); i++) {
        check_forward(*state, sizes[i], DP_ACT_NONE);
        check_forward(*state, sizes[i], DP_ACT_RELU);
    }
}

/* The bits of both one after the other, also where y is x or what is added. */
static void check_adding(struct dp_stream *s, struct size size, enum dp_activation act)
{
    struct data d = data_create(size, DP_ACT_NONE, 0.5f);
    const struct dp_norm both = norm_of(size, act);
    float *expected = held(d.total, 7, 0), *y = held(d.total, 7, 0);
    float *x = copy_of(d.x, d.total), *add = copy_of(d.dy, d.total);

    OK(s->ops->norm_apply(s, y, d.x, NULL, d.mean, d.var, d.gamma, d.beta, &d.norm));
    OK(s->ops->add_forward(s, expected, y, d.dy, d.total, act));
    OK(s->ops->norm_apply(s, y, d.x, d.dy, d.mean, d.var, d.gamma, d.beta, &both));
    assert_same_bits(y, expected, d.total);
    OK(s->ops->norm_apply(s, x, x, d.dy, d.mean, d.var, d.gamma, d.beta, &both));
    assert_same_bits(x, expected, d.total);
    OK(s->ops->norm_apply(s, add, d.x, add, d.mean, d.var, d.gamma, d.beta, &both));
    assert_same_bits(add, expected, d.total);
    dp_free(expected);
    dp_free(y);
    dp_free(x);
    dp_free(add);
    data_destroy(&d);
}

static void adding_during_the_pass_gives_the_bits_of_adding_afterwards(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0], streams->tested[1]};

    for (size_t i = 0; i < DP_COUNT(sizes) * DP_COUNT(all); i++) {
        check_adding(all[i % 3], sizes[i / 3], DP_ACT_NONE);
        check_adding(all[i % 3], sizes[i / 3], DP_ACT_RELU);
    }
    check_adding(streams->tested[0], (struct size){0, 3}, DP_ACT_RELU);
}

/* 1000 +- 1: a sum of squares in one pass would lose the variance altogether (1e6 in float32 is
 * good to 0.06); a pass that knows the mean does not. x itself is rounded to 3e-5. Given the same
 * mean, x - mean is exact, and so is what follows but for roundings of numbers below 4. */
static void statistics_survive_a_large_mean(void **state)
{
    static const struct size big[] = {{70000, 1}, {4400, 16}, {500, 300}};
    const struct streams *streams = *state;

    for (size_t i = 0; i < DP_COUNT(big); i++) {
        struct data d = data_create(big[i], DP_ACT_NONE, 1000);
        float *y = zeros(d.total), *y0 = zeros(d.total);
        float *mean0 = zeros(big[i].channels), *var0 = zeros(big[i].channels);
        norm_forward(streams->ref, y0, mean0, var0, &d);
        for (int k = 0; k < 2; k++) {
            struct dp_stream *s = streams->tested[k];
            norm_forward(s, y, d.mean, d.var, &d);
            assert_near(d.mean, mean0, big[i].channels, 0, 1.2e-7); /* one rounding */
            assert_near(d.var, var0, big[i].channels, 0, 1e-6);
            OK(s->ops->norm_apply(s, y, d.x, NULL, mean0, var0, d.gamma, d.beta, &d.norm));
            assert_near(y, y0, d.total, 2e-6, 0);
        }
        dp_free(y);
        dp_free(y0);
        dp_free(mean0);
        dp_free(var0);
        data_destroy(&d);
    }
}

/* The mean of what was seen so far is a bad guess when the data drift or jump. */
static void statistics_survive_drift_and_outliers(void **state)
{
    const struct streams *streams = *state;
    const size_t count = 70000;

    for (int kind = 0; kind < 3; kind++) {
        struct data d = data_create((struct size){count, 1}, DP_ACT_NONE, 0);
        float *y = zeros(count), mean0, var0;
        for (size_t i = 0; i < count; i++) {
            d.x[i] += kind == 0 ? (float)i / 100.0f : 0.0f;                    /* sorted */
            d.x[i] += kind == 1 && i < 10 ? 1e4f : 0.0f;                       /* outliers first */
            d.x[i] = kind == 2 ? (i < count / 2 ? 1000.0f : 1001.0f) : d.x[i]; /* two levels */
        }
        norm_forward(streams->ref, y, &mean0, &var0, &d);
        for (int k = 0; k < 2; k++) {
            struct dp_stream *s = streams->tested[k];
            norm_forward(s, y, d.mean, d.var, &d);
            assert_near(d.mean, &mean0, 1, 0, 1e-6);
            assert_near(d.var, &var0, 1, 0, 2e-6);
        }
        dp_free(y);
        data_destroy(&d);
    }
}

static void check_backward(const struct streams *streams, struct size size, enum dp_activation act,
                           float keep)
{
    const size_t c = size.channels;
    const double sums = 1e-7 * (double)size.count + 1e-6;
    struct data d = data_create(size, act, 0);
    float *dx0 = held(d.total, 7, 0);
    double *sums0 = held_sums(c, 0.25, keep);

    norm_backward(streams->ref, dx0, sums0, d.dy, &d, keep);
    for (int i = 0; i < 2; i++) {
        struct dp_stream *s = streams->tested[i];
        float *dx = held(d.total, 7, 0), *in_place = copy_of(d.dy, d.total);
        double *found = held_sums(c, 0.25, keep);
        norm_backward(s, dx, found, d.dy, &d, keep);
        assert_near_sums(found, sums0, c, sums, 1e-6);
        assert_near_sums(found + c, sums0 + c, c, 3 * sums, 1e-6);
        assert_near(dx, dx0, d.total, 4e-6, 1e-6);
        OK(s->ops->norm_backward_apply(s, in_place, in_place, d.x, d.mean, d.var, d.gamma, d.beta,
                                       found, (double)d.norm.count, &d.norm));
        assert_same_bits(in_place, dx, d.total); /* dx may be dy */
        dp_free(dx);
        dp_free(found);
        dp_free(in_place);
    }
    dp_free(dx0);
    dp_free(sums0);
    data_destroy(&d);
}

static void backward_equals_the_reference(void **state)
{
    for (size_t i = 0; i < DP_COUNT(sizes); i++) {
        check_backward(*state, sizes[i], DP_ACT_NONE, 0);
        check_backward(*state, sizes[i], DP_ACT_NONE, 1);
        check_backward(*state, sizes[i], DP_ACT_RELU, 0);
        check_backward(*state, sizes[i], DP_ACT_RELU, 1);
    }
}

/* An output of exactly 0 or the smallest step above it: backward must see what forward wrote. */
static void the_mask_is_what_forward_wrote(void **state)
{
    enum { COUNT = 40000 };
    const struct streams *streams = *state;
    struct data d = data_create((struct size){COUNT, 1}, DP_ACT_RELU, 0);
    float *y = zeros(COUNT);
    double expected = 0, sums[2];

    /* Inputs that crowd around the zero of (x - mean) scale + beta. */
    for (size_t i = 0; i < COUNT; i++) {
        const double zero = (double)d.mean[0] - (double)d.beta[0] / (double)d.gamma[0] *
                                                    sqrt((double)d.var[0] + (double)d.norm.eps);
        d.x[i] = (float)(zero + ((double)i - COUNT / 2.0) * 1e-11);
    }
    for (int k = 0; k < 2; k++) {
        struct dp_stream *s = streams->tested[k];
        size_t open = 0;
        OK(s->ops->norm_apply(s, y, d.x, NULL, d.mean, d.var, d.gamma, d.beta, &d.norm));
        expected = 0;
        for (size_t i = 0; i < COUNT; i++) {
            d.dy[i] = (float)(i % 8); /* small integers: their sum is exact */
            expected += y[i] > 0 ? (double)d.dy[i] : 0;
            open += y[i] > 0;
        }
        assert_in_range(open, 1, COUNT - 1);
        OK(s->ops->norm_backward_sums(s, sums, d.dy, d.x, d.mean, d.var, d.gamma, d.beta, &d.norm,
                                      0));
        assert_true(sums[0] == expected);
    }
    dp_free(y);
    data_destroy(&d);
}

static void without_rows_sums_are_zero_or_unchanged(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0], streams->tested[1]};

    for (size_t k = 0; k < DP_COUNT(all); k++) {
        struct dp_stream *s = all[k];
        struct data d = data_create((struct size){0, 3}, DP_ACT_RELU, 0);
        double sums[6], kept[6] = {1, 2, 3, 4, 5, 6};
        for (int c = 0; c < 6; c++) {
            sums[c] = (double)NAN;
        }
        norm_forward(s, d.x, d.mean, d.var, &d);
        norm_backward(s, d.x, sums, d.dy, &d, 0);
        norm_backward(s, d.x, kept, d.dy, &d, 1);
        for (int c = 0; c < 6; c++) {
            assert_true(d.mean[c % 3] == 0 && d.var[c % 3] == 0);
            assert_true(sums[c] == 0 && kept[c] == (double)(c + 1));
        }
        data_destroy(&d);
    }
}

/* Rows come a few at a time: the parts make the whole. */
static void check_parts(struct dp_stream *s, struct size size, enum dp_activation act)
{
    const size_t c = size.channels;
    struct data d = data_create(size, act, 3);
    double *whole = held_sums(c, 0, 0), *parts = held_sums(c, 0, 0);
    double *sums = held_sums(c, 0, 0), *found = held_sums(c, 0, 0);

    OK(s->ops->norm_moments(s, whole, 0, d.x, &d.norm));
    OK(s->ops->norm_backward_sums(s, sums, d.dy, d.x, d.mean, d.var, d.gamma, d.beta, &d.norm, 0));
    for (size_t at = 0, k = 0; at < size.count; k++) {
        const size_t left = size.count - at, piece = 1 + 7 * k < left ? 1 + 7 * k : left;
        const struct dp_norm part = norm_of((struct size){piece, c}, act);
        const float *x = d.x + at * c, *dy = d.dy + at * c;
        OK(s->ops->norm_moments(s, parts, at, x, &part));
        OK(s->ops->norm_backward_sums(s, found, dy, x, d.mean, d.var, d.gamma, d.beta, &part,
                                      at > 0 ? 1.0f : 0.0f));
        at += piece;
    }
    /* Blocks of rows differ, so float32 roundings within a block do: 1e-7 of a sum of terms of
     * size 4, as above; the mean is 3. */
    assert_near_sums(parts, whole, c, 0, 2e-7);
    assert_near_sums(parts + c, whole + c, c, 0, 2e-6);
    assert_near_sums(found, sums, 2 * c, 4e-7 * (double)size.count + 1e-6, 1e-6);
    dp_free(whole);
    dp_free(parts);
    dp_free(sums);
    dp_free(found);
    data_destroy(&d);
}

static void rows_may_come_a_few_at_a_time(void **state)
{
    static const struct size some[] = {{17, 16}, {65, 64}, {20, 700}, {4400, 16}, {70000, 1}};
    const struct streams *streams = *state;

    for (size_t i = 0; i < DP_COUNT(some); i++) {
        check_parts(streams->ref, some[i], DP_ACT_RELU);
        check_parts(streams->tested[0], some[i], DP_ACT_NONE);
        check_parts(streams->tested[0], some[i], DP_ACT_RELU);
        check_parts(streams->tested[1], some[i], DP_ACT_RELU);
    }
}

/* sum(dy * y) of the reference; statistics are taken anew. */
static double forward_sum(struct dp_stream *s, const struct data *d)
{
    float *y = zeros(d->total);
    double sum = 0;

    norm_forward(s, y, d->mean, d->var, d);
    for (size_t i = 0; i < d->total; i++) {
        sum += (double)d->dy[i] * (double)y[i];
    }
    dp_free(y);
    return sum;
}

/* Differences over 2h = 1/32 err by h^2 / 6 of third derivatives (below 10 for 12 rows with a
 * deviation near 1: 4e-4) and by roundings of 24 outputs (24 * 1e-7 / h = 1.5e-4). */
static void gradients_are_the_slopes_of_forward(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *s = streams->ref;
    struct data d = data_create((struct size){12, 2}, DP_ACT_NONE, 0.5f);
    float *dx = zeros(24), dgamma[2], dbeta[2];
    double sums[4];
    float *const inputs[3] = {d.x, d.gamma, d.beta}, *const slopes[3] = {dx, dgamma, dbeta};
    static const size_t counts[3] = {24, 2, 2};
    const float h = 1.0f / 64;

    (void)forward_sum(s, &d); /* fills mean and var */
    norm_backward(s, dx, sums, d.dy, &d, 0);
    for (int c = 0; c < 2; c++) {
        dbeta[c] = (float)sums[c];
        dgamma[c] = (float)sums[2 + c];
    }
    for (int k = 0; k < 3; k++) {
        for (size_t i = 0; i < counts[k]; i++) {
            const float old = inputs[k][i];
            double above, below;
            inputs[k][i] = old + h;
            above = forward_sum(s, &d);
            inputs[k][i] = old - h;
            below = forward_sum(s, &d);
            inputs[k][i] = old;
            assert_true(fabs((above - below) / (2 * (double)h) - (double)slopes[k][i]) < 6e-4);
        }
    }
    dp_free(dx);
    data_destroy(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_equals_the_reference),
        cmocka_unit_test(adding_during_the_pass_gives_the_bits_of_adding_afterwards),
        cmocka_unit_test(statistics_survive_a_large_mean),
        cmocka_unit_test(statistics_survive_drift_and_outliers),
        cmocka_unit_test(backward_equals_the_reference),
        cmocka_unit_test(the_mask_is_what_forward_wrote),
        cmocka_unit_test(without_rows_sums_are_zero_or_unchanged),
        cmocka_unit_test(rows_may_come_a_few_at_a_time),
        cmocka_unit_test(gradients_are_the_slopes_of_forward),
    };

    return run_reached_tests(tests, streams_open, streams_close);
}
