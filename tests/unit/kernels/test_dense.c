/*
 * test_dense.c - dense layers and column sums of `cpu` against `ref`, and the gradients of `ref`
 * against differences of its forward.
 *
 * Tolerance: a sum of n products of numbers below 1 errs by roundings of partial sums of size
 * sqrt(n) / 3, each 6e-8 of them, n times in random directions, in at least 8 lanes:
 * 6e-8 n / 3 / sqrt(8) at most; 1e-7 (n + 4) leaves room for BLAS's order of additions.
 */
#include <pthread.h>

#include "tests/support/arrays.h"

struct shape {
    size_t rows, in, out;
};

static const struct shape shapes[] = {{0, 3, 5},    {1, 1, 1},     {3, 0, 5},     {3, 5, 1},
                                      {15, 16, 17}, {16, 17, 15},  {63, 64, 3},   {65, 10, 63},
                                      {1, 1000, 7}, {128, 64, 10}, {130, 65, 130}};

static double near_sum(size_t terms)
{
    return 1e-7 * ((double)terms + 4);
}

/* For every operation on arrays of this shape. */
static dp_status prepare(struct dp_stream *s, size_t rows, size_t in, size_t out, bool bias,
                         enum dp_activation act)
{
    const unsigned uses = DP_DENSE_FORWARD | DP_DENSE_BACKWARD_DATA | DP_DENSE_BACKWARD_WEIGHTS |
                          (bias ? (unsigned)DP_DENSE_BIAS : 0) |
                          (act == DP_ACT_RELU ? (unsigned)DP_DENSE_RELU : 0);

    return s->ops->dense_prepare(s, rows, in, out, uses);
}

/* In two parts, the second one first. */
static void check_forward_parts(struct dp_stream *s, const struct shape *n, const float *x,
                                const float *w, const float *b, const float *expected,
                                enum dp_activation act)
{
    float *y = held(n->rows * n->out, 4, 0);
    const size_t cut = n->out / 3;

    OK(s->ops->dense_forward_part(s, y, x, w, b, n->rows, n->in, n->out,
                                  (struct dp_range){cut, n->out - cut}, act));
    OK(s->ops->dense_forward_part(s, y, x, w, b, n->rows, n->in, n->out, (struct dp_range){0, cut},
                                  act));
    assert_near(y, expected, n->rows * n->out, near_sum(n->in), 0);
    dp_free(y);
}

static void check_forward(const struct streams *streams, const struct shape *n,
                          enum dp_activation act, bool bias)
{
    float *x = uniform(n->rows * n->in, 1, -1, 1), *w = uniform(n->in * n->out, 2, -1, 1);
    float *b = uniform(n->out, 3, -1, 1), *expected = held(n->rows * n->out, 4, 0);

    OK(streams->ref->ops->dense_forward(streams->ref, expected, x, w, bias ? b : NULL, n->rows,
                                        n->in, n->out, act));
    for (int i = 0; i < 2; i++) {
        struct dp_stream *s = streams->tested[i];
        float *y = held(n->rows * n->out, 4, 0);
        OK(prepare(s, n->rows, n->in, n->out, bias, act));
        OK(s->ops->dense_forward(s, y, x, w, bias ? b : NULL, n->rows, n->in, n->out, act));
        assert_near(y, expected, n->rows * n->out, near_sum(n->in), 0);
        if (s->ops->dense_forward_part != NULL) {
            check_forward_parts(s, n, x, w, bias ? b : NULL, expected, act);
        }
        dp_free(y);
    }
    dp_free(x);
    dp_free(w);
    dp_free(b);
    dp_free(expected);
}

static void forward_equals_the_reference(void **state)
{
    for (size_t i = 0; i < DP_COUNT(shapes); i++) {
        check_forward(*state, &shapes[i], DP_ACT_NONE, false);
        check_forward(*state, &shapes[i], DP_ACT_NONE, true);
        check_forward(*state, &shapes[i], DP_ACT_RELU, false);
        check_forward(*state, &shapes[i], DP_ACT_RELU, true);
    }
}

/* Whether a bias was prepared or not. */
static void check_both(struct dp_stream *s, const struct shape *n, const float *dy, const float *x,
                       const float *dw0, const float *db0, float keep)
{
    for (int bias = 0; bias < 2; bias++) {
        float *dw = held(n->in * n->out, 5, keep), *db = held(n->out, 7, keep);
        OK(prepare(s, n->rows, n->in, n->out, bias != 0, DP_ACT_NONE));
        OK(s->ops->dense_backward_both(s, dw, db, dy, x, n->rows, n->in, n->out, keep));
        assert_near(dw, dw0, n->in * n->out, near_sum(n->rows), 0);
        assert_near(db, db0, n->out, near_sum(n->rows), 0);
        dp_free(dw);
        dp_free(db);
    }
}

static void check_backward(const struct streams *streams, const struct shape *n, float keep)
{
    float *x = uniform(n->rows * n->in, 1, -1, 1), *w = uniform(n->in * n->out, 2, -1, 1);
    float *dy = uniform(n->rows * n->out, 3, -1, 1);
    float *dw0 = held(n->in * n->out, 5, keep), *dx0 = held(n->rows * n->in, 6, 0);
    float *db0 = held(n->out, 7, keep);
    const struct dp_ops *ref = streams->ref->ops;

    OK(ref->dense_backward_data(streams->ref, dx0, dy, w, n->rows, n->in, n->out));
    OK(ref->dense_backward_weights(streams->ref, dw0, dy, x, n->rows, n->in, n->out, keep));
    OK(ref->sum_rows(streams->ref, db0, dy, n->rows, n->out, keep));
    for (int i = 0; i < 2; i++) {
        struct dp_stream *s = streams->tested[i];
        float *dw = held(n->in * n->out, 5, keep), *dx = held(n->rows * n->in, 6, 0);
        float *db = held(n->out, 7, keep);
        OK(prepare(s, n->rows, n->in, n->out, false, DP_ACT_NONE));
        OK(s->ops->dense_backward_data(s, dx, dy, w, n->rows, n->in, n->out));
        OK(s->ops->dense_backward_weights(s, dw, dy, x, n->rows, n->in, n->out, keep));
        OK(s->ops->sum_rows(s, db, dy, n->rows, n->out, keep));
        if (s->ops->dense_backward_both != NULL) {
            check_both(s, n, dy, x, dw0, db0, keep);
        }
        assert_near(dx, dx0, n->rows * n->in, near_sum(n->out), 0);
        assert_near(dw, dw0, n->in * n->out, near_sum(n->rows), 0);
        assert_near(db, db0, n->out, near_sum(n->rows), 0);
        dp_free(dw);
        dp_free(dx);
        dp_free(db);
    }
    dp_free(x);
    dp_free(w);
    dp_free(dy);
    dp_free(dw0);
    dp_free(dx0);
    dp_free(db0);
}

static void backward_equals_the_reference(void **state)
{
    for (size_t i = 0; i < DP_COUNT(shapes); i++) {
        check_backward(*state, &shapes[i], 0);
        check_backward(*state, &shapes[i], 1);
    }
}

/* Of a relu after the layer: in both forms, which the choice names, in place and not. */
static void check_relu(struct dp_stream *s, const struct shape *n, bool in_place, float keep)
{
    const size_t ys = n->rows * n->out, ws = n->in * n->out;
    struct dp_stream *ref = stream_on("ref", 1);
    float *x = uniform(n->rows * n->in, 1, -1, 1), *dy = uniform(ys, 3, -1, 1);
    float *y = uniform(ys, 4, -1, 1), *g0 = zeros(ys), *g = in_place ? copy_of(dy, ys) : zeros(ys);
    float *dw0 = held(ws, 5, keep), *db0 = held(n->out, 7, keep);
    float *dw = held(ws, 5, keep), *db = held(n->out, 7, keep);
    const struct dp_dense_backward b = {in_place ? g : dy, y,     x,      g,   dw, db,
                                        n->rows,           n->in, n->out, keep};

    OK(ref->ops->relu_backward(ref, g0, dy, y, ys));
    OK(ref->ops->dense_backward_weights(ref, dw0, g0, x, n->rows, n->in, n->out, keep));
    OK(ref->ops->sum_rows(ref, db0, g0, n->rows, n->out, keep));
    OK(prepare(s, n->rows, n->in, n->out, true, DP_ACT_RELU));
    OK(s->ops->dense_backward_relu(s, &b));
    assert_near(dw, dw0, ws, near_sum(n->rows), 0);
    assert_near(db, db0, n->out, near_sum(n->rows), 0);
    assert_same_bits(g, g0, ys);
    for (int i = 0; i < 8; i++) {
        dp_free((float *[]){x, dy, y, g0, g, dw0, db0, dw}[i]);
    }
    dp_free(db);
    stream_close(ref);
}

static void a_rectifier_is_undone_in_both_forms(void **state)
{
    static const struct shape some[] = {{0, 3, 5},    {1, 1, 1},      {15, 16, 17},
                                        {65, 10, 64}, {130, 65, 256}, {33, 4, 1000}};
    static const char *const forms[] = {"separate pass", "with the sums"};
    char key[DP_ALGO_CHOICE_KEY];
    (void)state;

    for (size_t i = 0; i < 4 * DP_COUNT(some); i++) {
        const struct shape *n = &some[i / 4];
        struct dp_stream *s = stream_on(tested_device(), 1);
        struct dp_algo_choices *algo_choices = NULL;
        if (s->ops->dense_backward_relu != NULL) {
            (void)snprintf(key, sizeof(key), "relu before product %zux%zux%zu tn fp32 wide", n->out,
                           n->in, n->rows);
            OK(dp_algo_choices_create("here", &algo_choices));
            OK(dp_algo_choices_note(algo_choices, key, forms[i % 2], 0));
            dp_algo_choices_freeze(algo_choices);
            s->algo_choices = algo_choices;
            check_relu(s, n, i / 2 % 2 != 0, i / 2 % 2 != 0 ? 1.0f : 0.0f);
        }
        stream_close(s);
        dp_algo_choices_destroy(algo_choices);
    }
}

static void column_sums_of_every_shape_equal_the_reference(void **state)
{
    static const size_t all_rows[] = {0, 1, 7, 8, 129, 70000};
    static const size_t all_cols[] = {1, 3, 10, 16, 65, 255, 256, 257, 1000};
    const struct streams *streams = *state;

    for (size_t i = 0; i < DP_COUNT(all_rows) * DP_COUNT(all_cols); i++) {
        const size_t rows = all_rows[i / DP_COUNT(all_cols)],
                     cols = all_cols[i % DP_COUNT(all_cols)];
        if (rows * cols > 1200000) {
            continue;
        }
        float *dy = uniform(rows * cols, 1, -1, 1), *expected = held(cols, 2, 1);
        OK(streams->ref->ops->sum_rows(streams->ref, expected, dy, rows, cols, 1));
        for (int k = 0; k < 2; k++) {
            float *db = held(cols, 2, 1);
            OK(streams->tested[k]->ops->sum_rows(streams->tested[k], db, dy, rows, cols, 1));
            /* Sums in blocks, in double over blocks: far better than near_sum(). */
            assert_near(db, expected, cols, 1e-6 + 1e-7 * sqrt((double)rows), 1e-7);
            dp_free(db);
        }
        dp_free(dy);
        dp_free(expected);
    }
}

enum { ROWS = 4, IN = 5, OUT = 3, X = ROWS * IN, W = IN * OUT, Y = ROWS * OUT };

/* sum(dy * forward(x, w, b)). */
static double forward_sum(struct dp_stream *s, float *const v[3], const float *dy)
{
    float y[Y];
    double sum = 0;

    OK(s->ops->dense_forward(s, y, v[0], v[1], v[2], ROWS, IN, OUT, DP_ACT_NONE));
    for (size_t i = 0; i < Y; i++) {
        sum += (double)dy[i] * (double)y[i];
    }
    return sum;
}

/* That sum at v + h and v - h: forward is linear in each argument, so the difference errs by
 * roundings alone: 2^-24 of y, over 2h = 2, times the terms of the sum. */
static void gradients_are_the_slopes_of_forward(void **state)
{
    static const size_t counts[3] = {X, W, OUT};
    const struct streams *streams = *state;
    struct dp_stream *s = streams->ref;
    float *v[3] = {uniform(X, 1, -1, 1), uniform(W, 2, -1, 1), uniform(OUT, 3, -1, 1)};
    float *dy = uniform(Y, 4, -1, 1), *d[3] = {zeros(X), zeros(W), zeros(OUT)};

    OK(s->ops->dense_backward_data(s, d[0], dy, v[1], ROWS, IN, OUT));
    OK(s->ops->dense_backward_weights(s, d[1], dy, v[0], ROWS, IN, OUT, 0));
    OK(s->ops->sum_rows(s, d[2], dy, ROWS, OUT, 0));
    for (int k = 0; k < 3; k++) {
        for (size_t i = 0; i < counts[k]; i++) {
            const float old = v[k][i];
            double above, below;
            v[k][i] = old + 1;
            above = forward_sum(s, v, dy);
            v[k][i] = old - 1;
            below = forward_sum(s, v, dy);
            v[k][i] = old;
            assert_true(fabs((above - below) / 2 - (double)d[k][i]) < 4e-6);
        }
    }
    for (int k = 0; k < 3; k++) {
        dp_free(v[k]);
        dp_free(d[k]);
    }
    dp_free(dy);
}

/* Two factors lose at most 2^-10 each; one bit more than they keep would be lost by 2^-11. */
static void tf32_rounds_factors_if_the_device_can(void **state)
{
    enum { N = 32, NUMBERS = N * N };
    const struct streams *streams = *state;
    struct dp_stream *plain = streams->tested[0], *s = stream_on(tested_device(), 1);
    float *x = uniform(NUMBERS, 1, -1, 1), *w = uniform(NUMBERS, 2, -1, 1);
    float *expected = zeros(NUMBERS), *y = zeros(NUMBERS);
    double most = 0;

    s->tf32 = true;
    OK(prepare(plain, N, N, N, false, DP_ACT_NONE));
    OK(prepare(s, N, N, N, false, DP_ACT_NONE));
    OK(plain->ops->dense_forward(plain, expected, x, w, NULL, N, N, N, DP_ACT_NONE));
    OK(s->ops->dense_forward(s, y, x, w, NULL, N, N, N, DP_ACT_NONE));
    for (size_t i = 0; i < NUMBERS; i++) {
        most = fmax(most, fabs((double)y[i] - (double)expected[i]));
    }
    if (s->device->has_tf32) {
        assert_true(most > near_sum(N) && most < N * 2 * 0x1p-10);
    } else {
        assert_same_bits(y, expected, NUMBERS);
    }
    dp_free(x);
    dp_free(w);
    dp_free(expected);
    dp_free(y);
    stream_close(s);
}

/* Memory of trials is not part of the peak that a run reports. */
static void trials_do_not_raise_peak_memory(void **state)
{
    enum { IN_MANY = 2048, OUT_MANY = 1024 };
    struct dp_stream *s = stream_on(tested_device(), 1);
    struct dp_device_room before, after;
    struct dp_algo_choices *algo_choices;
    (void)state;

    OK(dp_algo_choices_create("here", &algo_choices));
    s->algo_choices = algo_choices;
    if (s->device->room != NULL) {
        s->device->room(&before);
        OK(prepare(s, 1, IN_MANY, OUT_MANY, true, DP_ACT_NONE));
        s->device->room(&after);
        assert_int_equal(after.used[DP_MEM_TRIAL], 0);
        assert_in_range(after.peak - before.peak, 0,
                        after.used[DP_MEM_WORKSPACE] - before.used[DP_MEM_WORKSPACE]);
    }
    stream_close(s);
    dp_algo_choices_destroy(algo_choices);
}

/* Other ranks on the same GPU may need the free memory: then cuBLASLt's first proposal is used. */
static void trials_that_need_much_of_the_free_memory_are_left_out(void **state)
{
    struct dp_stream *s = stream_on(tested_device(), 1);
    struct dp_algo_choices *algo_choices;
    struct dp_device_room room;
    size_t side;
    (void)state;

    OK(dp_algo_choices_create("here", &algo_choices));
    s->algo_choices = algo_choices;
    if (s->device->room != NULL) {
        s->device->room(&room);
        side = (size_t)sqrt((double)room.left / 4.0 / sizeof(float));
        OK(prepare(s, 1, side, side, true, DP_ACT_NONE));
        assert_int_equal(dp_algo_choices_count(algo_choices).used, 0);
        OK(prepare(s, 1, 64, 64, true, DP_ACT_NONE));
        assert_true(dp_algo_choices_count(algo_choices).used > 0);
    }
    stream_close(s);
    dp_algo_choices_destroy(algo_choices);
}

/* ---- parallel streams with one thread each ---- */

enum { LANES = 3, TIMES = 20, SIDE = 96, CELLS = SIDE * SIDE };

struct lane {
    pthread_t thread;
    float *x, *w, *y;
    dp_status status;
};

static void *lane_run(void *arg)
{
    struct lane *lane = arg;
    const struct dp_device *device = NULL;
    struct dp_stream *s = NULL;

    lane->status = dp_device_find(tested_device(), &device);
    if (lane->status == DP_OK) {
        lane->status = device->stream_create(device, 1, &s);
    }
    if (lane->status == DP_OK) {
        lane->status = prepare(s, SIDE, SIDE, SIDE, false, DP_ACT_NONE);
    }
    for (int i = 0; i < TIMES && lane->status == DP_OK; i++) {
        lane->status = s->ops->dense_forward(s, lane->y, lane->x, lane->w, NULL, SIDE, SIDE, SIDE,
                                             DP_ACT_NONE);
    }
    if (s != NULL) {
        device->stream_destroy(s);
    }
    return NULL;
}

static void parallel_lanes_give_the_bits_of_one_alone(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *s = streams->tested[0];
    struct lane lanes[LANES];
    float *alone = zeros(CELLS);

    for (int i = 0; i < LANES; i++) {
        lanes[i] = (struct lane){.x = uniform(CELLS, (uint32_t)i, -1, 1),
                                 .w = uniform(CELLS, 50, -1, 1),
                                 .y = zeros(CELLS)};
        assert_int_equal(pthread_create(&lanes[i].thread, NULL, lane_run, &lanes[i]), 0);
    }
    for (int i = 0; i < LANES; i++) {
        assert_int_equal(pthread_join(lanes[i].thread, NULL), 0);
        OK(lanes[i].status);
    }
    OK(prepare(s, SIDE, SIDE, SIDE, false, DP_ACT_NONE));
    for (int i = 0; i < LANES; i++) {
        OK(s->ops->dense_forward(s, alone, lanes[i].x, lanes[i].w, NULL, SIDE, SIDE, SIDE,
                                 DP_ACT_NONE));
        assert_same_bits(lanes[i].y, alone, CELLS);
        dp_free(lanes[i].x);
        dp_free(lanes[i].w);
        dp_free(lanes[i].y);
    }
    dp_free(alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_equals_the_reference),
        cmocka_unit_test(backward_equals_the_reference),
        cmocka_unit_test(a_rectifier_is_undone_in_both_forms),
        cmocka_unit_test(column_sums_of_every_shape_equal_the_reference),
        cmocka_unit_test(gradients_are_the_slopes_of_forward),
        cmocka_unit_test(tf32_rounds_factors_if_the_device_can),
        cmocka_unit_test(trials_do_not_raise_peak_memory),
        cmocka_unit_test(trials_that_need_much_of_the_free_memory_are_left_out),
        cmocka_unit_test(parallel_lanes_give_the_bits_of_one_alone),
    };

    return run_reached_tests(tests, streams_open, streams_close);
}
