/*
 * test_output_loss.c - losses of each output by itself: devices against `ref`, `ref` against the
 * formulas and against differences of its loss; and answers among the best.
 */
#include "tests/support/arrays.h"

static const enum dp_loss_kind kinds[] = {DP_LOSS_SIGMOID, DP_LOSS_SQUARE};

struct batch {
    enum dp_loss_kind kind;
    size_t rows, outputs;
    float *x;
    int32_t *targets;
    float scale;
};

static int32_t bits_of(float number)
{
    int32_t bits;

    memcpy(&bits, &number, sizeof(bits));
    return bits;
}

/* Of one output a target is a number, a share of 1 for DP_LOSS_SIGMOID. */
static struct batch batch_create(enum dp_loss_kind kind, size_t rows, size_t outputs, float range)
{
    struct batch batch = {kind,
                          rows,
                          outputs,
                          uniform(rows * outputs, 1, -range, range),
                          dp_zalloc(rows, sizeof(int32_t)),
                          1.0f / (float)(rows + 1)};

    for (size_t r = 0; r < rows; r++) {
        const uint32_t number = dp_random_u32(2, DP_RANDOM_TEST, 0, r);
        const float share = (float)(number >> 8) / (float)(1 << 24);
        batch.targets[r] = outputs > 1               ? (int32_t)(number % outputs)
                           : kind == DP_LOSS_SIGMOID ? bits_of(r % 3 == 0 ? share : (float)(r % 2))
                                                     : bits_of(20 * share - 10);
    }
    return batch;
}

static void batch_destroy(struct batch *batch)
{
    dp_free(batch->x);
    dp_free(batch->targets);
}

struct result {
    float *dx, loss, score;
};

/* dx may be NULL, or x itself. */
static void run(struct dp_stream *s, const struct batch *b, struct result *result, float keep)
{
    result->loss = keep == 0 ? NAN : 0.5f;
    result->score = keep == 0 ? NAN : 7.0f;
    OK(s->ops->output_loss(s, &(struct dp_output_loss){b->kind, b->rows, b->outputs}, result->dx,
                           &result->loss, &result->score, b->x, b->targets, &b->scale, keep));
}

/* Each term is good to a few units of the last place of float32; sums over rows are double. */
static void check(const struct streams *streams, enum dp_loss_kind kind, size_t rows,
                  size_t outputs, float keep)
{
    struct batch b = batch_create(kind, rows, outputs, 10);
    const size_t count = rows * outputs;
    struct result expected = {.dx = held(count, 3, 0)};
    const double slope = 40.0 * (double)b.scale / (double)outputs; /* the largest */

    run(streams->ref, &b, &expected, keep);
    for (int i = 0; i < 2; i++) {
        struct result own = {.dx = held(count, 3, 0)}, none = {0}, in_place;
        float *x = b.x;
        run(streams->tested[i], &b, &own, keep);
        assert_near(&own.loss, &expected.loss, 1, 1e-6, 1e-6);
        assert_near(&own.score, &expected.score, 1, 1e-6, 1e-6);
        assert_near(own.dx, expected.dx, count, 2e-7 * slope, 0);
        run(streams->tested[i], &b, &none, keep); /* no gradient wanted */
        assert_true(none.loss == own.loss && none.score == own.score);
        b.x = copy_of(x, count);
        in_place.dx = b.x;
        run(streams->tested[i], &b, &in_place, keep);
        assert_same_bits(in_place.dx, own.dx, count);
        assert_true(in_place.loss == own.loss && in_place.score == own.score);
        dp_free(b.x);
        b.x = x;
        dp_free(own.dx);
    }
    dp_free(expected.dx);
    batch_destroy(&b);
}

static void loss_and_gradient_equal_the_reference(void **state)
{
    static const size_t all_rows[] = {0, 1, 3, 128}, all_outputs[] = {1, 2, 10, 17, 1000};

    for (size_t k = 0; k < DP_COUNT(kinds); k++) {
        for (size_t r = 0; r < DP_COUNT(all_rows); r++) {
            for (size_t c = 0; c < DP_COUNT(all_outputs); c++) {
                check(*state, kinds[k], all_rows[r], all_outputs[c], 0);
                check(*state, kinds[k], all_rows[r], all_outputs[c], 1);
            }
        }
    }
}

/* More outputs than factors fit into one logarithm. */
static void very_many_outputs_are_summed(void **state)
{
    check(*state, DP_LOSS_SIGMOID, 2, 20000, 0);
}

/* PyTorch 2: torch.nn.BCEWithLogitsLoss() and MSELoss() of x = [[0.5, -2, 3]] with the one-hot
 * target of class 1, and of [[0.5], [-2]] with targets [[0.25], [1]]; in float64. */
static void losses_are_pytorchs(void **state)
{
    static const struct {
        enum dp_loss_kind kind;
        size_t rows, outputs;
        float x[3], targets[2]; /* of several outputs: the class */
        double loss, dx[3];
    } cases[] = {
        {DP_LOSS_SIGMOID,
         1,
         3,
         {0.5f, -2, 3},
         {1, 0},
         2.049864115599,
         {0.207486443734, -0.293599025993, 0.317524708941}},
        {DP_LOSS_SIGMOID,
         2,
         1,
         {0.5f, -2},
         {0.25f, 1},
         1.488002497612,
         {0.186229665601, -0.440398538989}},
        {DP_LOSS_SQUARE, 1, 3, {0.5f, -2, 3}, {1, 0}, 6.083333333333, {0.333333333333, -2, 2}},
        {DP_LOSS_SQUARE, 2, 1, {0.5f, -2}, {0.25f, 1}, 4.53125, {0.25, -3}},
    };
    const struct streams *streams = *state;
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};

    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        for (size_t k = 0; k < DP_COUNT(both); k++) {
            const float scale = 1.0f / (float)cases[i].rows;
            float x[3], dx[3], loss, score;
            int32_t targets[2];
            memcpy(x, cases[i].x, sizeof(x));
            for (size_t r = 0; r < cases[i].rows; r++) {
                targets[r] = cases[i].outputs == 1 ? bits_of(cases[i].targets[r])
                                                   : (int32_t)cases[i].targets[r];
            }
            OK(both[k]->ops->output_loss(
                both[k], &(struct dp_output_loss){cases[i].kind, cases[i].rows, cases[i].outputs},
                dx, &loss, &score, x, targets, &scale, 0));
            assert_true(fabs((double)loss - cases[i].loss) < 1e-6);
            for (size_t c = 0; c < cases[i].rows * cases[i].outputs; c++) {
                assert_true(fabs((double)dx[c] - cases[i].dx[c]) < 1e-6);
            }
        }
    }
}

static void the_score_is_answers_or_distance(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};
    float x[4] = {1, 5, 5, 2}, scale = 1, loss, score;
    const int32_t shares[] = {bits_of(1), bits_of(0.4f), bits_of(0.6f), bits_of(0)};

    for (size_t k = 0; k < DP_COUNT(both); k++) {
        for (int32_t target = 0; target < 4; target++) {
            OK(both[k]->ops->output_loss(both[k], &(struct dp_output_loss){DP_LOSS_SQUARE, 1, 4},
                                         NULL, &loss, &score, x, &target, &scale, 0));
            assert_true(score == (target == 1 ? 1.0f : 0.0f)); /* the first of equals */
        }
        OK(both[k]->ops->output_loss(both[k], &(struct dp_output_loss){DP_LOSS_SIGMOID, 4, 1}, NULL,
                                     &loss, &score, x, shares, &scale, 0));
        assert_true(score == 2.0f);
        OK(both[k]->ops->output_loss(both[k], &(struct dp_output_loss){DP_LOSS_SQUARE, 4, 1}, NULL,
                                     &loss, &score, x, shares, &scale, 0));
        assert_true(fabsf(score - 11.0f) < 1e-5f);
    }
}

static void large_outputs_neither_overflow_nor_vanish(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};
    float x[2] = {1e6f, -1e6f}, scale = 1, dx[2], loss, score;
    const int32_t ones[] = {bits_of(1), bits_of(1)},
                  near[] = {bits_of(1e6f - 0.5f), bits_of(-1e6f)};

    for (size_t k = 0; k < DP_COUNT(both); k++) {
        OK(both[k]->ops->output_loss(both[k], &(struct dp_output_loss){DP_LOSS_SIGMOID, 2, 1}, dx,
                                     &loss, &score, x, ones, &scale, 0));
        assert_true(loss == 1e6f && dx[0] == 0 && dx[1] == -1 && score == 1);
        OK(both[k]->ops->output_loss(both[k], &(struct dp_output_loss){DP_LOSS_SQUARE, 2, 1}, dx,
                                     &loss, &score, x, near, &scale, 0));
        assert_true(loss == 0.25f && dx[0] == 1 && dx[1] == 0 && score == 0.5f);
    }
}

static void a_nan_reaches_the_loss(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};
    const int32_t target = 2;

    for (size_t k = 0; k < DP_COUNT(both) * DP_COUNT(kinds); k++) {
        struct dp_stream *s = both[k / 2];
        for (size_t bad = 0; bad < 20; bad++) {
            float x[20] = {0}, scale = 1, loss, score;
            x[bad] = NAN;
            OK(s->ops->output_loss(s, &(struct dp_output_loss){kinds[k % 2], 1, 20}, NULL, &loss,
                                   &score, x, &target, &scale, 0));
            assert_true(isnan(loss));
        }
    }
}

/* Differences over 2h = 1/16 err by h^2 / 6 of third derivatives below 1 (2e-4 scale) and by
 * roundings of the loss (1e-7 over h: 4e-6, of losses up to 25). */
static void gradient_is_the_slope_of_the_loss(void **state)
{
    const struct streams *streams = *state;
    const float h = 1.0f / 32;

    for (size_t k = 0; k < 2 * DP_COUNT(kinds); k++) {
        const size_t rows = k < 2 ? 3 : 15, outputs = k < 2 ? 5 : 1;
        struct batch b = batch_create(kinds[k % 2], rows, outputs, 2);
        struct result at = {.dx = zeros(15)}, ends[2] = {{0}, {0}};
        run(streams->ref, &b, &at, 0);
        for (size_t i = 0; i < 15; i++) {
            const float old = b.x[i];
            b.x[i] = old + h;
            run(streams->ref, &b, &ends[1], 0);
            b.x[i] = old - h;
            run(streams->ref, &b, &ends[0], 0);
            b.x[i] = old;
            assert_true(fabs(((double)ends[1].loss - (double)ends[0].loss) / (2 * (double)h) -
                             (double)at.dx[i]) < 2e-4);
        }
        dp_free(at.dx);
        batch_destroy(&b);
    }
}

/* ---- the best k ---- */

static float top(struct dp_stream *s, const float *x, int32_t label, size_t classes, size_t k)
{
    float count = NAN;

    OK(s->ops->count_top(s, &count, x, &label, 1, classes, k, 0));
    return count;
}

static void the_best_k_are_counted_and_the_first_of_equals_before_others(void **state)
{
    const float x[6] = {4, 9, 4, -1, 4, 7};
    static const size_t place[6] = {2, 0, 3, 5, 4, 1}; /* how many come before it */
    const float odd[3] = {NAN, 1, 2};
    const struct streams *streams = *state;
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};

    for (size_t i = 0; i < DP_COUNT(both); i++) {
        for (int32_t label = 0; label < 6; label++) {
            for (size_t k = 1; k <= 6; k++) {
                assert_true(top(both[i], x, label, 6, k) == (place[label] < k ? 1.0f : 0.0f));
            }
        }
        assert_true(top(both[i], odd, 0, 3, 3) == 0.0f);
        assert_true(top(both[i], odd, 2, 3, 1) == 1.0f);
    }
}

static void many_rows_are_counted_as_by_the_reference(void **state)
{
    const struct streams *streams = *state;

    for (size_t rows = 0; rows <= 6000; rows = 2 * rows + 1) {
        struct batch b = batch_create(DP_LOSS_SQUARE, rows, 37, 3);
        float expected = 3.0f, own = 3.0f;
        OK(streams->ref->ops->count_top(streams->ref, &expected, b.x, b.targets, rows, 37, 5, 1));
        OK(streams->tested[0]->ops->count_top(streams->tested[0], &own, b.x, b.targets, rows, 37, 5,
                                              1));
        assert_true(own == expected && own >= 3.0f && own <= 3.0f + (float)rows);
        batch_destroy(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_and_gradient_equal_the_reference),
        cmocka_unit_test(very_many_outputs_are_summed),
        cmocka_unit_test(losses_are_pytorchs),
        cmocka_unit_test(the_score_is_answers_or_distance),
        cmocka_unit_test(large_outputs_neither_overflow_nor_vanish),
        cmocka_unit_test(a_nan_reaches_the_loss),
        cmocka_unit_test(gradient_is_the_slope_of_the_loss),
        cmocka_unit_test(the_best_k_are_counted_and_the_first_of_equals_before_others),
        cmocka_unit_test(many_rows_are_counted_as_by_the_reference),
    };

    return run_reached_tests(tests, streams_open, streams_close);
}
