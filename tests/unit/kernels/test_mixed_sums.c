/*
 * test_mixed_sums.c - operations on bfloats and halves that sum: `cpu` against `ref`, with its own
 * arithmetic for bfloats where the processor has it, and through float32.
 */
#include "tests/support/typed.h"

/* ---- dense layers ---- */

static void check_dense_forward(const struct typed *t, struct dp_stream *s, size_t rows, size_t in,
                                size_t out, enum dp_activation act)
{
    uint16_t *x = random_halves(t, rows * in, 1), *w = random_halves(t, in * out, 2);
    uint16_t *bias = random_halves(t, out, 3);
    uint16_t *expected = halves(rows * out), *y = halves(rows * out);
    const uint16_t *b = act == DP_ACT_RELU ? bias : NULL; /* with both, and without */

    OK(s->ops->dense_prepare(s, rows, in, out,
                             DP_DENSE_FORWARD | (b != NULL ? (unsigned)DP_DENSE_BIAS : 0u)));
    OK(t->ref->ops->dense_forward(t->ref, expected, x, w, b, rows, in, out, act));
    OK(s->ops->dense_forward(s, y, x, w, b, rows, in, out, act));
    check_narrow(t, y, expected, rows * out, 4e-6 * sqrt((double)in));
    dp_free(x);
    dp_free(w);
    dp_free(bias);
    dp_free(expected);
    dp_free(y);
}

static void check_dense_backward(const struct typed *t, struct dp_stream *s, size_t rows, size_t in,
                                 size_t out, float keep)
{
    uint16_t *x = random_halves(t, rows * in, 1), *w = random_halves(t, in * out, 2);
    uint16_t *dy = random_halves(t, rows * out, 3);
    uint16_t *expected = halves(rows * in), *dx = halves(rows * in);
    float *dw_expected = held(in * out, 5, keep), *dw = held(in * out, 5, keep);
    float *db_expected = held(out, 6, keep), *db = held(out, 6, keep);

    OK(s->ops->dense_prepare(s, rows, in, out, DP_DENSE_BACKWARD_DATA | DP_DENSE_BACKWARD_WEIGHTS));
    OK(t->ref->ops->dense_backward_data(t->ref, expected, dy, w, rows, in, out));
    OK(s->ops->dense_backward_data(s, dx, dy, w, rows, in, out));
    check_narrow(t, dx, expected, rows * in, 4e-6 * sqrt((double)out));
    OK(t->ref->ops->dense_backward_weights(t->ref, dw_expected, dy, x, rows, in, out, keep));
    OK(s->ops->dense_backward_weights(s, dw, dy, x, rows, in, out, keep));
    assert_near(dw, dw_expected, in * out, 4e-6 * sqrt((double)rows), 0);
    OK(t->ref->ops->sum_rows(t->ref, db_expected, dy, rows, out, keep));
    OK(s->ops->sum_rows(s, db, dy, rows, out, keep));
    assert_near(db, db_expected, out, 4e-6 * sqrt((double)rows), 0);
    dp_free(x);
    dp_free(w);
    dp_free(dy);
    dp_free(expected);
    dp_free(dx);
    dp_free(dw_expected);
    dp_free(dw);
    dp_free(db_expected);
    dp_free(db);
}

static void check_dense(const struct typed *t)
{
    static const size_t shapes[][3] = {{0, 5, 7},   {1, 1, 1},     {1, 40, 10},   {5, 17, 3},
                                       {33, 64, 1}, {64, 100, 10}, {20, 300, 130}};

    for (size_t k = 0; k < DP_COUNT(shapes); k++) {
        for (int i = 0; i < STREAMS; i++) {
            const size_t *n = shapes[k];
            check_dense_forward(t, t->cpu[i], n[0], n[1], n[2], DP_ACT_NONE);
            check_dense_forward(t, t->cpu[i], n[0], n[1], n[2], DP_ACT_RELU);
            check_dense_backward(t, t->cpu[i], n[0], n[1], n[2], 0);
            check_dense_backward(t, t->cpu[i], n[0], n[1], n[2], 1);
        }
    }
}

static void dense_layers_equal_the_reference_within_a_rounding(void **state)
{
    (void)state;
    each_type(check_dense);
}

/* ---- convolutions ---- */

struct conv_arrays {
    size_t xs, ys, ws;
    uint16_t *x, *w, *b, *y, *y_expected, *dx, *dx_expected;
    float *dw, *dw_expected, *db, *db_expected;
};

static void conv_open(struct conv_arrays *c, const struct typed *t, const struct dp_window *w,
                      size_t rows, float keep)
{
    c->xs = rows * w->in_h * w->in_w * w->in_c;
    c->ys = rows * w->out_h * w->out_w * w->out_c;
    c->ws = dp_window_weights(w);
    c->x = random_halves(t, c->xs, 1);
    c->w = random_halves(t, c->ws, 2);
    c->b = random_halves(t, w->out_c, 3);
    c->y = halves(c->ys);
    c->y_expected = halves(c->ys);
    c->dx = halves(c->xs);
    c->dx_expected = halves(c->xs);
    c->dw = held(c->ws, 5, keep);
    c->dw_expected = held(c->ws, 5, keep);
    c->db = held(w->out_c, 6, keep);
    c->db_expected = held(w->out_c, 6, keep);
}

static void conv_close(struct conv_arrays *c)
{
    void *const all[] = {c->x,           c->w,  c->b,           c->y,  c->y_expected, c->dx,
                         c->dx_expected, c->dw, c->dw_expected, c->db, c->db_expected};

    for (size_t i = 0; i < DP_COUNT(all); i++) {
        dp_free(all[i]);
    }
}

static void check_conv(const struct typed *t, struct dp_stream *s, const struct dp_window *w,
                       size_t rows, float keep)
{
    const double taps = (double)(w->kernel_h * w->kernel_w);
    struct dp_stream *r = t->ref;
    struct conv_arrays c;

    conv_open(&c, t, w, rows, keep);
    OK(s->ops->conv_prepare(s, w, rows,
                            DP_CONV_FORWARD | DP_CONV_BACKWARD_DATA | DP_CONV_BACKWARD_WEIGHTS |
                                DP_CONV_BIAS | DP_CONV_RELU));
    OK(r->ops->conv_forward(r, c.y_expected, c.x, c.w, c.b, w, rows, DP_ACT_RELU));
    OK(s->ops->conv_forward(s, c.y, c.x, c.w, c.b, w, rows, DP_ACT_RELU));
    check_narrow(t, c.y, c.y_expected, c.ys, 4e-6 * sqrt(taps * (double)w->in_c));
    OK(r->ops->conv_backward_data(r, c.dx_expected, c.y_expected, c.w, w, rows));
    OK(s->ops->conv_backward_data(s, c.dx, c.y_expected, c.w, w, rows));
    check_narrow(t, c.dx, c.dx_expected, c.xs, 4e-5 * sqrt(taps * (double)w->out_c));
    OK(r->ops->conv_backward_weights(r, c.dw_expected, c.db_expected, c.y_expected, c.x, w, rows,
                                     keep));
    OK(s->ops->conv_backward_weights(s, c.dw, c.db, c.y_expected, c.x, w, rows, keep));
    assert_near(c.dw, c.dw_expected, c.ws, 4e-5 * sqrt((double)c.ys), 0);
    assert_near(c.db, c.db_expected, w->out_c, 4e-5 * sqrt((double)c.ys), 0);
    conv_close(&c);
}

static void check_convs(const struct typed *t)
{
    static const struct dp_window windows[] = {
        {7, 6, 3, 7, 6, 5, 3, 3, 1, 1, 0},   {8, 8, 1, 4, 4, 16, 5, 5, 2, 2, 0},
        {5, 5, 16, 5, 5, 32, 1, 1, 1, 0, 0}, {5, 5, 16, 5, 5, 16, 3, 3, 1, 1, 16},
        {5, 5, 8, 5, 5, 12, 3, 3, 1, 1, 2},
    };

    for (size_t k = 0; k < DP_COUNT(windows); k++) {
        for (int i = 0; i < STREAMS; i++) {
            check_conv(t, t->cpu[i], &windows[k], 0, 0);
            check_conv(t, t->cpu[i], &windows[k], 3, 0);
            check_conv(t, t->cpu[i], &windows[k], 3, 1);
        }
    }
}

static void convolutions_equal_the_reference_within_a_rounding(void **state)
{
    (void)state;
    each_type(check_convs);
}

/* ---- pools ---- */

static void check_pool(const struct typed *t, const struct dp_window *w, enum dp_pool_kind kind)
{
    const size_t rows = 4, xs = rows * w->in_h * w->in_w * w->in_c;
    const size_t ys = rows * w->out_h * w->out_w * w->out_c;
    uint16_t *x = random_halves(t, xs, 1), *dy = random_halves(t, ys, 2), *y = halves(ys);
    uint16_t *expected = halves(ys), *dx = halves(xs), *dx_expected = halves(xs);
    uint8_t *which = dp_zalloc(ys, 1), *picked = dp_zalloc(ys, 1);
    struct dp_stream *r = t->ref;

    OK(r->ops->pool_forward(r, expected, picked, x, w, rows, kind));
    OK(r->ops->pool_backward(r, dx_expected, dy, picked, w, rows, kind));
    for (int i = 0; i < STREAMS; i++) {
        struct dp_stream *s = t->cpu[i];
        OK(s->ops->pool_prepare(s, w, rows, kind, true));
        OK(s->ops->pool_forward(s, y, which, x, w, rows, kind));
        check_narrow(t, y, expected, ys, kind == DP_POOL_MAX ? 0 : 1e-6);
        OK(s->ops->pool_backward(s, dx, dy, which, w, rows, kind));
        check_narrow(t, dx, dx_expected, xs, 4e-6);
    }
    dp_free(x);
    dp_free(dy);
    dp_free(y);
    dp_free(expected);
    dp_free(dx);
    dp_free(dx_expected);
    dp_free(which);
    dp_free(picked);
}

static void check_pools(const struct typed *t)
{
    static const struct dp_window windows[] = {{8, 8, 5, 4, 4, 5, 2, 2, 2, 0, 0},
                                               {7, 7, 3, 4, 4, 3, 3, 3, 2, 1, 0}};

    for (size_t k = 0; k < DP_COUNT(windows); k++) {
        check_pool(t, &windows[k], DP_POOL_MAX);
        check_pool(t, &windows[k], DP_POOL_AVERAGE);
    }
}

static void pools_equal_the_reference_within_a_rounding(void **state)
{
    (void)state;
    each_type(check_pools);
}

/* ---- batch norm ---- */

struct norm_case {
    struct dp_norm norm;
    size_t count;
    uint16_t *x, *dy;
    float *mean, *var, *gamma, *beta;
};

static void check_norm_stream(const struct typed *t, const struct norm_case *k, struct dp_stream *s,
                              uint16_t *both[2], double *sums[2])
{
    const size_t channels = k->norm.channels;
    struct dp_stream *pair[2] = {t->ref, s};

    for (int i = 0; i < 2; i++) {
        const struct dp_ops *ops = pair[i]->ops;
        OK(ops->norm_moments(pair[i], sums[i], 0, k->x, &k->norm));
        OK(ops->norm_apply(pair[i], both[i], k->x, NULL, k->mean, k->var, k->gamma, k->beta,
                           &k->norm));
    }
    for (size_t c = 0; c < 2 * channels; c++) {
        assert_true(fabs(sums[0][c] - sums[1][c]) < 1e-5 * (double)k->norm.count);
    }
    check_narrow(t, both[1], both[0], k->count, 2e-6);
    for (int i = 0; i < 2; i++) { /* rounded once, after adding */
        OK(pair[i]->ops->norm_apply(pair[i], both[i], k->x, k->dy, k->mean, k->var, k->gamma,
                                    k->beta, &k->norm));
    }
    check_narrow(t, both[1], both[0], k->count, 2e-6);
    for (int i = 0; i < 2; i++) {
        const struct dp_ops *ops = pair[i]->ops;
        OK(ops->norm_backward_sums(pair[i], sums[i], k->dy, k->x, k->mean, k->var, k->gamma,
                                   k->beta, &k->norm, 0));
        OK(ops->norm_backward_apply(pair[i], both[i], k->dy, k->x, k->mean, k->var, k->gamma,
                                    k->beta, sums[0], (double)k->norm.count, &k->norm));
    }
    for (size_t c = 0; c < 2 * channels; c++) {
        assert_true(fabs(sums[0][c] - sums[1][c]) < 1e-5 * (double)k->norm.count);
    }
    check_narrow(t, both[1], both[0], k->count, 1e-5);
}

static void check_norm(const struct typed *t)
{
    struct norm_case k = {.norm = {.count = 500, .channels = 12, .eps = 1e-5f, .act = DP_ACT_RELU},
                          .count = 6000};
    const size_t channels = k.norm.channels;
    uint16_t *both[2] = {halves(k.count), halves(k.count)};
    double *sums[2] = {dp_zalloc(2 * channels, sizeof(double)),
                       dp_zalloc(2 * channels, sizeof(double))};

    k.x = random_halves(t, k.count, 1);
    k.dy = random_halves(t, k.count, 2);
    k.mean = uniform(channels, 3, -0.1f, 0.1f);
    k.var = uniform(channels, 4, 1, 2);
    k.gamma = uniform(channels, 5, 0.5f, 2);
    k.beta = uniform(channels, 6, -1, 1);
    for (int i = 0; i < STREAMS; i++) {
        check_norm_stream(t, &k, t->cpu[i], both, sums);
    }
    void *const all[] = {k.x,    k.dy,    k.mean,  k.var,   k.gamma,
                         k.beta, both[0], both[1], sums[0], sums[1]};
    for (size_t i = 0; i < DP_COUNT(all); i++) {
        dp_free(all[i]);
    }
}

static void batch_norm_equals_the_reference_within_a_rounding(void **state)
{
    (void)state;
    each_type(check_norm);
}

/* ---- the loss ---- */

static void check_loss(const struct typed *t)
{
    enum { ROWS = 50, CLASSES = 10, LOGITS = ROWS * CLASSES };
    uint16_t *x = random_halves(t, LOGITS, 1), *dx = halves(LOGITS);
    uint16_t *expected = halves(LOGITS);
    const float scale = 65536.0f / ROWS; /* as with a scaled loss */
    float result[2][2];
    int32_t labels[ROWS];

    for (int i = 0; i < ROWS; i++) {
        labels[i] = i * 7 % CLASSES;
    }
    OK(t->ref->ops->softmax_loss(t->ref, expected, &result[0][0], &result[0][1], x, labels, ROWS,
                                 CLASSES, &scale, 0));
    for (int i = 0; i < STREAMS; i++) {
        struct dp_stream *s = t->cpu[i];
        OK(s->ops->softmax_loss(s, dx, &result[1][0], &result[1][1], x, labels, ROWS, CLASSES,
                                &scale, 0));
        check_narrow(t, dx, expected, LOGITS, 1e-3);
        assert_near(result[1], result[0], 2, 0, 1e-6);
        OK(s->ops->softmax_loss(s, NULL, &result[1][0], &result[1][1], x, labels, ROWS, CLASSES,
                                &scale, 0));
        assert_near(result[1], result[0], 2, 0, 1e-6);
    }
    dp_free(x);
    dp_free(dx);
    dp_free(expected);
}

static void the_loss_equals_the_reference_within_a_rounding(void **state)
{
    (void)state;
    each_type(check_loss);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_layers_equal_the_reference_within_a_rounding),
        cmocka_unit_test(convolutions_equal_the_reference_within_a_rounding),
        cmocka_unit_test(pools_equal_the_reference_within_a_rounding),
        cmocka_unit_test(batch_norm_equals_the_reference_within_a_rounding),
        cmocka_unit_test(the_loss_equals_the_reference_within_a_rounding),
    };

    return cmocka_run_group_tests(tests, NULL, nothing_is_left);
}
