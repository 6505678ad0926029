/*
 * test_output_loss.c - losses of each output by itself: devices against `ref`, `ref` against the
 * formulas and against differences of its loss; and answers among the best.
 */
#include "tests/support/arrays.h"

static const enum dp_loss_kind kinds[] = {DP_LOSS_SIGMOID, DP_LOSS_SQUARE};

struct batch {
    struct dp_output_loss how;
    float *x;
    void *targets;
    float scale;
};

/* Every third has one class twice, and shares are also 0 and 1. */
static void put_pair(int32_t *pair, size_t row, size_t outputs)
{
    const float share = (float)(row % 5) / 4.0f;

    pair[0] = (int32_t)(dp_random_u32(2, DP_RANDOM_TEST, 1, row) % outputs);
    pair[1] =
        row % 3 == 0 ? pair[0] : (int32_t)(dp_random_u32(2, DP_RANDOM_TEST, 2, row) % outputs);
    memcpy(&pair[2], &share, sizeof(share));
}

/* Numbers are shares of 1 for DP_LOSS_SIGMOID, some of them 0 or 1. */
static struct batch batch_create(struct dp_output_loss how, float range)
{
    const size_t count = how.rows * how.outputs;
    struct batch batch = {how, uniform(count, 1, -range, range), NULL,
                          1.0f / (float)(how.rows + 1)};
    float *numbers = uniform(count, 2, how.kind == DP_LOSS_SIGMOID ? 0 : -10,
                             how.kind == DP_LOSS_SIGMOID ? 1 : 10);
    int32_t *classes = dp_zalloc(how.rows, sizeof(*classes) * DP_PAIR_WORDS);

    for (size_t i = 0; how.kind == DP_LOSS_SIGMOID && i < count; i++) {
        numbers[i] = i % 3 == 0 ? numbers[i] : (float)(i % 2);
    }
    for (size_t r = 0; r < how.rows; r++) {
        classes[r] = (int32_t)(dp_random_u32(2, DP_RANDOM_TEST, 0, r) % how.outputs);
        if (how.targets == DP_TARGET_PAIRS) {
            put_pair(classes + r * DP_PAIR_WORDS, r, how.outputs);
        }
    }
    batch.targets = how.targets != DP_TARGET_NUMBERS ? (void *)classes : (void *)numbers;
    dp_free(how.targets != DP_TARGET_NUMBERS ? (void *)numbers : (void *)classes);
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
    OK(s->ops->output_loss(s, &b->how, result->dx, &result->loss, &result->score, b->x, b->targets,
                           &b->scale, keep));
}

/* Each term is good to a few units of the last place of float32; sums over rows are double. */
static void check(const struct streams *streams, struct dp_output_loss how, float keep)
{
    struct batch b = batch_create(how, 10);
    const size_t count = how.rows * how.outputs;
    struct result expected = {.dx = held(count, 3, 0)};
    /* 2e-7 of the largest; of softmax 3e-6, as test_softmax explains. */
    const double slope = how.kind == DP_LOSS_SOFTMAX ? 15.0 * (double)b.scale
                                                     : 40.0 * (double)b.scale / (double)how.outputs;

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

    for (size_t c = 0; c < DP_COUNT(all_outputs); c++) {
        struct dp_output_loss how = {DP_LOSS_SOFTMAX, 40, all_outputs[c], DP_TARGET_PAIRS, 0};
        check(*state, how, 0);
        check(*state, how, 1);
        how.smoothing = 0.1f;
        check(*state, how, 0);
        check(*state, how, 1);
        how.targets = DP_TARGET_CLASSES;
        check(*state, how, 0);
        check(*state, how, 1);
    }
    for (size_t k = 0; k < DP_COUNT(kinds); k++) {
        for (size_t r = 0; r < DP_COUNT(all_rows); r++) {
            for (size_t c = 0; c < DP_COUNT(all_outputs); c++) {
                struct dp_output_loss how = {kinds[k], all_rows[r], all_outputs[c],
                                             DP_TARGET_NUMBERS, 0};
                check(*state, how, 0);
                check(*state, how, 1);
                how.targets = DP_TARGET_CLASSES;
                check(*state, how, 0);
                check(*state, how, 1);
                how.targets = DP_TARGET_PAIRS;
                check(*state, how, 0);
                check(*state, how, 1);
            }
        }
    }
}

/* More outputs than factors fit into one logarithm. */
static void very_many_outputs_are_summed(void **state)
{
    check(*state, (struct dp_output_loss){DP_LOSS_SIGMOID, 2, 20000, DP_TARGET_NUMBERS, 0}, 0);
    check(*state, (struct dp_output_loss){DP_LOSS_SIGMOID, 2, 20000, DP_TARGET_CLASSES, 0}, 0);
}

/* The loss of a row whose target is t, in double: as PyTorch's functions compute it. */
static double loss_of_row(enum dp_loss_kind kind, const float *x, size_t outputs, const double *t)
{
    double sum = 0, loss = 0;

    for (size_t c = 0; c < outputs; c++) {
        sum += exp((double)x[c]);
    }
    for (size_t c = 0; c < outputs; c++) {
        const double v = (double)x[c];
        loss += kind == DP_LOSS_SOFTMAX   ? -t[c] * (v - log(sum))
                : kind == DP_LOSS_SIGMOID ? (log1p(exp(v)) - t[c] * v) / (double)outputs
                                          : (v - t[c]) * (v - t[c]) / (double)outputs;
    }
    return loss;
}

/* Of mixup: share loss(class a) + (1 - share) loss(class b), which for both entropies is that of
 * the mixed target; mse is compared with the mixed target itself. The gradient is that of
 * differences. Right is the share of the class that the largest output belongs to. */
static void a_pair_of_classes_is_a_mixed_target(void **state)
{
    static const enum dp_loss_kind all[] = {DP_LOSS_SOFTMAX, DP_LOSS_SIGMOID, DP_LOSS_SQUARE};
    const float x[5] = {0.5f, -2, 3, 1, 0.25f};
    const struct streams *streams = *state;
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};
    const float share = 0.3f, scale = 1;

    for (size_t i = 0; i < 2 * DP_COUNT(all); i++) {
        const struct dp_output_loss how = {all[i / 2], 1, 5, DP_TARGET_PAIRS, 0};
        int32_t pair[DP_PAIR_WORDS] = {1, 2, 0};
        const double s = (double)share, t[3][5] = {{0, 1}, {0, 0, 1}, {0, s, 1 - s}};
        const double mixed = loss_of_row(how.kind, x, 5, t[2]);
        float dx[5], loss, score;
        memcpy(&pair[2], &share, sizeof(share));
        OK(both[i % 2]->ops->output_loss(both[i % 2], &how, dx, &loss, &score, x, pair, &scale, 0));
        assert_true(fabs((double)loss - mixed) < 1e-6);
        if (how.kind != DP_LOSS_SQUARE) {
            const double one = loss_of_row(how.kind, x, 5, t[0]);
            const double other = loss_of_row(how.kind, x, 5, t[1]);
            assert_true(fabs(s * one + (1 - s) * other - mixed) < 1e-12);
            assert_true(fabs((double)score - (1 - s)) < 1e-6); /* x[2] is the largest */
        }
        for (size_t c = 0; c < 5; c++) {
            float up[5], down[5];
            memcpy(up, x, sizeof(x));
            memcpy(down, x, sizeof(x));
            up[c] += 0.0625f; /* exact */
            down[c] -= 0.0625f;
            /* The error is the third derivative times 0.0625^2 / 6. */
            assert_true(
                fabs((loss_of_row(how.kind, up, 5, t[2]) - loss_of_row(how.kind, down, 5, t[2])) /
                         0.125 -
                     (double)dx[c]) < 2e-4);
        }
    }
}

/* PyTorch 2: torch.nn.BCEWithLogitsLoss(), MSELoss() and CrossEntropyLoss(label_smoothing=0.1) of x
 * = [[0.5, -2, 3]] with the one-hot target of class 1, of [[0.5], [-2]] with targets [[0.25], [1]],
 * and of [[0.5, -2], [3, 1]] with [[1, 0.25], [0, 1]]; in float64. */
static void losses_are_pytorchs(void **state)
{
    static const struct {
        struct dp_output_loss how;
        float x[4], targets[4]; /* of classes: the class */
        double loss, dx[4];
    } cases[] = {
        {{DP_LOSS_SIGMOID, 1, 3, DP_TARGET_CLASSES, 0},
         {0.5f, -2, 3},
         {1},
         2.049864115599,
         {0.207486443734, -0.293599025993, 0.317524708941}},
        {{DP_LOSS_SOFTMAX, 1, 3, DP_TARGET_CLASSES, 0.1f},
         {0.5f, -2, 3},
         {1},
         4.835097246364,
         {0.042055414630, -0.927145048061, 0.885089633431}},
        {{DP_LOSS_SIGMOID, 2, 1, DP_TARGET_NUMBERS, 0},
         {0.5f, -2},
         {0.25f, 1},
         1.488002497612,
         {0.186229665601, -0.440398538989}},
        {{DP_LOSS_SIGMOID, 2, 2, DP_TARGET_NUMBERS, 0},
         {0.5f, -2, 3, 1},
         {1, 0.25f, 0, 1},
         1.115713508579,
         {-0.094385167200, -0.032699269494, 0.238143531706, -0.067235355342}},
        {{DP_LOSS_SQUARE, 1, 3, DP_TARGET_CLASSES, 0},
         {0.5f, -2, 3},
         {1},
         6.083333333333,
         {0.333333333333, -2, 2}},
        {{DP_LOSS_SQUARE, 2, 1, DP_TARGET_NUMBERS, 0}, {0.5f, -2}, {0.25f, 1}, 4.53125, {0.25, -3}},
        {{DP_LOSS_SQUARE, 2, 2, DP_TARGET_NUMBERS, 0},
         {0.5f, -2, 3, 1},
         {1, 0.25f, 0, 1},
         3.578125,
         {-0.25, -1.125, 1.5, 0}},
    };
    const struct streams *streams = *state;
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};

    for (size_t i = 0; i < 2 * DP_COUNT(cases); i++) {
        const struct dp_output_loss *how = &cases[i / 2].how;
        const float scale = 1.0f / (float)how->rows;
        const int32_t class = (int32_t)cases[i / 2].targets[0];
        struct dp_stream *s = both[i % 2];
        float x[4], targets[4], dx[4], loss, score;
        memcpy(x, cases[i / 2].x, sizeof(x));
        memcpy(targets, cases[i / 2].targets, sizeof(targets));
        OK(s->ops->output_loss(
            s, how, dx, &loss, &score, x,
            how->targets == DP_TARGET_CLASSES ? (const void *)&class : (const void *)targets,
            &scale, 0));
        assert_true(fabs((double)loss - cases[i / 2].loss) < 1e-6);
        for (size_t c = 0; c < how->rows * how->outputs; c++) {
            assert_true(fabs((double)dx[c] - cases[i / 2].dx[c]) < 1e-6);
        }
    }
}

static float score_of(struct dp_stream *s, struct dp_output_loss how, const float *x,
                      const void *targets)
{
    const float scale = 1;
    float loss, score;

    OK(s->ops->output_loss(s, &how, NULL, &loss, &score, x, targets, &scale, 0));
    return score;
}

static void the_score_is_answers_or_distance(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};
    const float x[4] = {1, 5, 5, 2}, shares[4] = {1, 0.4f, 0.6f, 0};

    for (size_t k = 0; k < DP_COUNT(both); k++) {
        struct dp_stream *s = both[k];
        for (int32_t class = 0; class < 4; class ++) { /* the first of equals */
            const float distance = (1 + 5 + 5 + 2 - x[class] + fabsf(x[class] - 1)) / 4;
            assert_true(
                score_of(s, (struct dp_output_loss){DP_LOSS_SIGMOID, 1, 4, DP_TARGET_CLASSES, 0}, x,
                         &class) == (class == 1 ? 1.0f : 0.0f));
            assert_true(
                score_of(s, (struct dp_output_loss){DP_LOSS_SQUARE, 1, 4, DP_TARGET_CLASSES, 0}, x,
                         &class) == distance);
        }
        for (size_t outputs = 1; outputs <= 4; outputs *= 2) { /* shares 1 and 3 are right */
            const struct dp_output_loss binary = {DP_LOSS_SIGMOID, 4 / outputs, outputs,
                                                  DP_TARGET_NUMBERS, 0};
            const struct dp_output_loss square = {DP_LOSS_SQUARE, 4 / outputs, outputs,
                                                  DP_TARGET_NUMBERS, 0};
            assert_true(score_of(s, binary, x, shares) == 2.0f / (float)outputs);
            assert_true(fabsf(score_of(s, square, x, shares) - 11.0f / (float)outputs) < 1e-5f);
        }
    }
}

static void large_outputs_neither_overflow_nor_vanish(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};
    const float x[2] = {1e6f, -1e6f}, scale = 1, ones[] = {1, 1}, near[] = {1e6f - 0.5f, -1e6f};
    float dx[2], loss, score;

    for (size_t k = 0; k < DP_COUNT(both); k++) {
        OK(both[k]->ops->output_loss(
            both[k], &(struct dp_output_loss){DP_LOSS_SIGMOID, 2, 1, DP_TARGET_NUMBERS, 0}, dx,
            &loss, &score, x, ones, &scale, 0));
        assert_true(loss == 1e6f && dx[0] == 0 && dx[1] == -1 && score == 1);
        OK(both[k]->ops->output_loss(
            both[k], &(struct dp_output_loss){DP_LOSS_SQUARE, 2, 1, DP_TARGET_NUMBERS, 0}, dx,
            &loss, &score, x, near, &scale, 0));
        assert_true(loss == 0.25f && dx[0] == 1 && dx[1] == 0 && score == 0.5f);
    }
}

static void a_nan_reaches_the_loss(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};
    const float numbers[20] = {0};
    const int32_t class = 2;

    for (size_t k = 0; k < 2 * DP_COUNT(both) * DP_COUNT(kinds); k++) {
        const struct dp_output_loss how = {kinds[k % 2], 1, 20,
                                           k % 4 < 2 ? DP_TARGET_CLASSES : DP_TARGET_NUMBERS, 0};
        struct dp_stream *s = both[k / 4];
        for (size_t bad = 0; bad < 20; bad++) {
            float x[20] = {0}, scale = 1, loss, score;
            x[bad] = NAN;
            OK(s->ops->output_loss(
                s, &how, NULL, &loss, &score, x,
                how.targets == DP_TARGET_CLASSES ? (const void *)&class : (const void *)numbers,
                &scale, 0));
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

    for (size_t k = 0; k < 3 * DP_COUNT(kinds); k++) {
        const size_t outputs = k < 4 ? 5 : 1;
        struct batch b =
            batch_create((struct dp_output_loss){kinds[k % 2], 15 / outputs, outputs,
                                                 k < 2 ? DP_TARGET_CLASSES : DP_TARGET_NUMBERS, 0},
                         2);
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
        struct batch b = batch_create(
            (struct dp_output_loss){DP_LOSS_SQUARE, rows, 37, DP_TARGET_CLASSES, 0}, 3);
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
        cmocka_unit_test(a_pair_of_classes_is_a_mixed_target),
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
