/*
 * test_activations.c - silu and leaky_relu of both devices against the reference, and the
 * reference against formulas written here once more; columns. Others are in test_ops.c.
 */
#include "tests/support/arrays.h"

static const size_t sizes[] = {0, 1, 15, 16, 17, 1000, 70000};

enum { KINDS = 4 };

/* Operation `kind` of x and, of backward, dy. */
static void apply(struct dp_stream *s, int kind, float *y, const float *dy, const float *x,
                  size_t count)
{
    switch (kind) {
    case 0:
        OK(s->ops->silu_forward(s, y, x, count));
        break;
    case 1:
        OK(s->ops->silu_backward(s, y, dy, x, count));
        break;
    case 2:
        OK(s->ops->leaky_forward(s, y, x, 0.3f, count));
        break;
    default:
        OK(s->ops->leaky_backward(s, y, dy, x, 0.3f, count));
    }
}

static double expected(int kind, double dy, double x)
{
    const double on = 1 / (1 + exp(-x)), slope = x > 0 ? 1 : (double)0.3f;

    switch (kind) {
    case 0:
        return x * on;
    case 1:
        return dy * (on + x * on * (1 - on));
    case 2:
        return slope * x;
    default:
        return slope * dy;
    }
}

/* A handful of roundings, each of 6e-8 of numbers below `most` in magnitude. */
static void check(struct dp_stream *s, int kind, size_t count, float most)
{
    float *x = uniform(count, 1, -most, most), *dy = uniform(count, 2, -1, 1);
    float *y = held(count, 3, 0), *in_place = copy_of(kind % 2 == 0 ? x : dy, count);
    float *wanted = zeros(count);

    for (size_t i = 0; i < count; i++) {
        wanted[i] = (float)expected(kind, (double)dy[i], (double)x[i]);
    }
    apply(s, kind, y, dy, x, count);
    assert_near(y, wanted, count, 6e-7 * fmax(1, kind == 1 ? (double)most : 1), 4e-7);
    apply(s, kind, in_place, in_place, kind % 2 == 0 ? in_place : x, count);
    assert_same_bits(in_place, y, count);
    dp_free(wanted);
    dp_free(in_place);
    dp_free(y);
    dp_free(dy);
    dp_free(x);
}

static void activations_follow_their_formulas(void **state)
{
    const struct streams *streams = *state;

    for (int kind = 0; kind < KINDS; kind++) {
        check(streams->ref, kind, 1000, 2);
        for (size_t n = 0; n < DP_COUNT(sizes); n++) {
            check(streams->tested[0], kind, sizes[n], 2);
            check(streams->tested[1], kind, sizes[n], 40);
        }
    }
}

static void far_from_zero_they_are_their_limits(void **state)
{
    static const float ends[] = {-1000, 1000, -0.0f, 0}, ones[] = {1, 1, 1, 1};
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0]};

    for (size_t k = 0; k < DP_COUNT(all); k++) {
        float *x = copy_of(ends, 4), *dy = copy_of(ones, 4), *y = zeros(4);
        apply(all[k], 0, y, dy, x, 4);
        assert_true(y[0] == 0 && y[1] == 1000 && y[2] == 0 && y[3] == 0);
        apply(all[k], 1, y, dy, x, 4);
        assert_true(y[0] == 0 && y[1] == 1 && y[2] == 0.5f && y[3] == 0.5f);
        dp_free(y);
        dp_free(dy);
        dp_free(x);
    }
}

/* Rows of a type: what is put beside each other is taken again, and the rest is 0. */
static void check_columns(struct dp_stream *s, size_t rows, struct dp_columns c)
{
    const size_t e = dp_type_bytes(s->type);
    float *x = uniform(rows * c.count, 1, -1, 1), *back = held(rows * c.count, 2, 0);
    float *y = held(rows * c.width, 3, 0);
    static const char nothing[64];

    OK(s->ops->put_columns(s, y, x, rows, &c));
    OK(s->ops->take_columns(s, back, y, rows, &c));
    assert_memory_equal(back, x, rows * c.count * e);
    for (size_t i = 0; i < rows; i++) {
        const char *row = (const char *)y + i * c.width * e;
        assert_memory_equal(row, nothing, c.at * e);
        assert_memory_equal(row + c.at * e, (const char *)x + i * c.count * e, c.count * e);
        assert_memory_equal(row + (c.at + c.count) * e, nothing, (c.width - c.at - c.count) * e);
    }
    dp_free(y);
    dp_free(back);
    dp_free(x);
}

static void columns_are_put_where_they_belong_and_taken_again(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *all[] = {streams->ref, streams->tested[0], streams->tested[1]};
    static const struct dp_columns columns[] = {{0, 3, 3}, {0, 2, 7}, {5, 2, 7}, {3, 4, 16}};

    for (size_t i = 0; i < DP_COUNT(all) * DP_COUNT(columns); i++) {
        check_columns(all[i % DP_COUNT(all)], 0, columns[i / DP_COUNT(all)]);
        check_columns(all[i % DP_COUNT(all)], 501, columns[i / DP_COUNT(all)]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_follow_their_formulas),
        cmocka_unit_test(far_from_zero_they_are_their_limits),
        cmocka_unit_test(columns_are_put_where_they_belong_and_taken_again),
    };

    return run_reached_tests(tests, streams_open, streams_close);
}
