/*
 * test_softmax.c - the loss of `cpu` against `ref`, and the gradient of `ref` against differences
 * of its loss.
 */
#include "tests/support/arrays.h"

struct batch {
    size_t rows, classes;
    float *x;
    int32_t *labels;
    float scale;
};

static struct batch batch_create(size_t rows, size_t classes, float range)
{
    struct batch batch = {rows, classes, uniform(rows * classes, 1, -range, range),
                          dp_zalloc(rows, sizeof(int32_t)), 1.0f / (float)(rows + 1)};

    for (size_t r = 0; r < rows; r++) {
        batch.labels[r] = (int32_t)(dp_random_u32(2, DP_RANDOM_TEST, 0, r) % classes);
    }
    return batch;
}

static void batch_destroy(struct batch *batch)
{
    dp_free(batch->x);
    dp_free(batch->labels);
}

struct result {
    float *dx, loss, correct;
};

/* dx may be NULL, or x itself. */
static void run(struct dp_stream *s, const struct batch *b, struct result *result, float keep)
{
    result->loss = keep == 0 ? NAN : 0.5f;
    result->correct = keep == 0 ? NAN : 7.0f;
    OK(s->ops->softmax_loss(s, result->dx, &result->loss, &result->correct, b->x, b->labels,
                            b->rows, b->classes, &b->scale, keep));
}

/* Exponentials are good to 1.5 units of the last place (1e-7) and their sum to a few more; log
 * and the sum over rows are double. Logits up to 20 are rounded to 1e-6 when the largest one is
 * subtracted, as everywhere. */
static void check(const struct streams *streams, size_t rows, size_t classes, float keep)
{
    struct batch b = batch_create(rows, classes, 10);
    struct result expected = {.dx = held(rows * classes, 3, 0)};

    run(streams->ref, &b, &expected, keep);
    for (int i = 0; i < 2; i++) {
        struct result own = {.dx = held(rows * classes, 3, 0)}, none = {0}, in_place;
        float *x = b.x;
        run(streams->tested[i], &b, &own, keep);
        assert_near(&own.loss, &expected.loss, 1, 1e-6, 1e-6);
        assert_near(own.dx, expected.dx, rows * classes, 3e-6 * (double)b.scale, 0);
        assert_true(own.correct == expected.correct);
        run(streams->tested[i], &b, &none, keep); /* no gradient wanted */
        assert_true(none.loss == own.loss && none.correct == own.correct);
        b.x = copy_of(x, rows * classes);
        in_place.dx = b.x;
        run(streams->tested[i], &b, &in_place, keep);
        assert_same_bits(in_place.dx, own.dx, rows * classes);
        assert_true(in_place.loss == own.loss && in_place.correct == own.correct);
        dp_free(b.x);
        b.x = x;
        dp_free(own.dx);
    }
    dp_free(expected.dx);
    batch_destroy(&b);
}

static void loss_and_gradient_equal_the_reference(void **state)
{
    static const size_t all_rows[] = {0, 1, 3, 128}, all_classes[] = {1, 2, 10, 15, 16, 17, 1000};

    for (size_t r = 0; r < DP_COUNT(all_rows); r++) {
        for (size_t c = 0; c < DP_COUNT(all_classes); c++) {
            check(*state, all_rows[r], all_classes[c], 0);
            check(*state, all_rows[r], all_classes[c], 1);
        }
    }
}

static void the_first_of_equal_logits_is_the_answer(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};
    float x[4] = {1, 5, 5, 2}, scale = 1;

    for (size_t k = 0; k < DP_COUNT(both); k++) {
        for (int32_t label = 0; label < 4; label++) {
            float loss, correct;
            OK(both[k]->ops->softmax_loss(both[k], NULL, &loss, &correct, x, &label, 1, 4, &scale,
                                          0));
            assert_true(correct == (label == 1 ? 1.0f : 0.0f));
        }
    }
}

static void large_logits_neither_overflow_nor_vanish(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};
    float x[3] = {3e38f, -3e38f, 1000}, scale = 1, dx[3], loss, correct;
    const int32_t right = 0, wrong = 2;

    for (size_t k = 0; k < DP_COUNT(both); k++) {
        OK(both[k]->ops->softmax_loss(both[k], dx, &loss, &correct, x, &right, 1, 3, &scale, 0));
        assert_true(loss == 0 && correct == 1 && dx[0] == 0 && fabsf(dx[1]) < 1e-37f);
        OK(both[k]->ops->softmax_loss(both[k], dx, &loss, &correct, x, &wrong, 1, 3, &scale, 0));
        assert_true(loss == 3e38f && correct == 0 && dx[0] == 1 && dx[2] == -1);
    }
}

/* e^200 is no float: only differences from the largest one are. */
static void the_largest_logit_is_found_wherever_it_is(void **state)
{
    enum { CLASSES = 40 };
    const struct streams *streams = *state;
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};

    for (size_t k = 0; k < DP_COUNT(both); k++) {
        for (int32_t at = 0; at < CLASSES; at++) {
            const int32_t other = (at + 1) % CLASSES;
            float x[CLASSES] = {0}, scale = 1, dx[CLASSES], loss, correct;
            x[at] = 200;
            OK(both[k]->ops->softmax_loss(both[k], dx, &loss, &correct, x, &other, 1, CLASSES,
                                          &scale, 0));
            assert_true(loss == 200 && correct == 0 && dx[at] == 1 && dx[other] == -1);
        }
    }
}

static void a_nan_reaches_the_loss(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};
    const int32_t label = 2;

    for (size_t k = 0; k < DP_COUNT(both); k++) {
        for (size_t bad = 0; bad < 20; bad++) {
            float x[20] = {0}, scale = 1, loss, correct;
            x[bad] = NAN;
            OK(both[k]->ops->softmax_loss(both[k], NULL, &loss, &correct, x, &label, 1, 20, &scale,
                                          0));
            assert_true(isnan(loss));
        }
    }
}

/* Differences over 2h = 1/16 err by h^2 / 6 of third derivatives below 1 (2e-4 scale) and by
 * roundings of the loss (1e-7 over h: 4e-6). */
static void gradient_is_the_slope_of_the_loss(void **state)
{
    const struct streams *streams = *state;
    struct batch b = batch_create(3, 5, 2);
    struct result at = {.dx = zeros(15)}, ends[2] = {{0}, {0}};
    const float h = 1.0f / 32;

    run(streams->ref, &b, &at, 0);
    for (size_t i = 0; i < 15; i++) {
        const float old = b.x[i];
        b.x[i] = old + h;
        run(streams->ref, &b, &ends[1], 0);
        b.x[i] = old - h;
        run(streams->ref, &b, &ends[0], 0);
        b.x[i] = old;
        assert_true(fabs(((double)ends[1].loss - (double)ends[0].loss) / (2 * (double)h) -
                         (double)at.dx[i]) < 6e-5);
    }
    dp_free(at.dx);
    batch_destroy(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_and_gradient_equal_the_reference),
        cmocka_unit_test(the_first_of_equal_logits_is_the_answer),
        cmocka_unit_test(large_logits_neither_overflow_nor_vanish),
        cmocka_unit_test(the_largest_logit_is_found_wherever_it_is),
        cmocka_unit_test(a_nan_reaches_the_loss),
        cmocka_unit_test(gradient_is_the_slope_of_the_loss),
    };

    return run_reached_tests(tests, streams_open, streams_close);
}
