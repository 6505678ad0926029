/*
 * test_narrow.c - operations in bf16 and fp16 against `ref` in float32, on inputs that both types
 * hold exactly.
 *
 * Arithmetic is float32 in either, so a narrow output is the reference's, rounded once: it is off
 * by half a unit in its last place, 2^-8 or 2^-11 of its size, and by what the order of additions
 * in float32 makes, 1e-6 for sums of some hundred terms below 1. Outputs in float32 have only that.
 */
#include "kernels/op_path.h"
#include "tests/support/arrays.h"

enum { ROWS = 7, WIDE = 24, OUT = 16, COUNT = 1003, SCRATCH = 1 << 14 };

static const enum dp_type types[] = {DP_TYPE_BF16, DP_TYPE_F16};

/* The oracle, the device, and the type it computes in. */
struct lab {
    struct dp_stream *ref, *s;
    enum dp_type type;
};

/* The same numbers in both widths. */
struct both {
    float *wide;
    uint16_t *narrow;
    size_t count;
};

static struct both both_of(const struct lab *lab, size_t count, uint32_t seed, float low,
                           float high)
{
    struct both b = {uniform(count, seed, low, high), dp_zalloc(count + 1, 2), count};
    const struct dp_ops *ops = lab->ref->ops;

    assert_non_null(b.narrow);
    OK(ops->narrow(lab->ref, b.narrow, b.wide, count, lab->type));
    OK(ops->widen(lab->ref, b.wide, b.narrow, count, lab->type));
    return b;
}

static void both_free(struct both *b)
{
    dp_free(b->wide);
    dp_free(b->narrow);
}

static double unit_of(const struct lab *lab)
{
    return lab->type == DP_TYPE_BF16 ? 1.0 / 256 : 1.0 / 2048;
}

/* The device's result, against that of the reference. Both are released. */
static void check_within(const struct lab *lab, struct both *b, double absolute)
{
    float *found = zeros(b->count);

    OK(lab->ref->ops->widen(lab->ref, found, b->narrow, b->count, lab->type));
    assert_near(found, b->wide, b->count, absolute, unit_of(lab) * 1.01);
    dp_free(found);
    both_free(b);
}

/* In fp16 numbers below 2^-14 have fewer digits: half of the least one is 2^-25. */
static void check(const struct lab *lab, struct both *b)
{
    check_within(lab, b, 1e-6);
}

/* ---- elementwise ---- */

static void check_elementwise(const struct lab *lab, size_t count)
{
    const struct dp_ops *ref = lab->ref->ops, *ops = lab->s->ops;
    struct both a = both_of(lab, count, 1, -2, 2), b = both_of(lab, count, 2, -2, 2), y;

#define COMPARE(name, ...)                                      \
    do {                                                        \
        y = both_of(lab, count, 3, -1, 1);                      \
        OK(ref->name(lab->ref, y.wide, a.wide, __VA_ARGS__));   \
        OK(ops->name(lab->s, y.narrow, a.narrow, __VA_ARGS__)); \
        check(lab, &y);                                         \
    } while (0)
#define COMPARE_TWO(name, ...)                                            \
    do {                                                                  \
        y = both_of(lab, count, 3, -1, 1);                                \
        OK(ref->name(lab->ref, y.wide, a.wide, b.wide, __VA_ARGS__));     \
        OK(ops->name(lab->s, y.narrow, a.narrow, b.narrow, __VA_ARGS__)); \
        check(lab, &y);                                                   \
    } while (0)
    const struct dp_dropout drop = {.seed = 3, .what = DP_RANDOM_DROPOUT, .rate = 0.25f};
    const struct dp_step_params step_params = {.step = 5};
    COMPARE(relu_forward, count);
    COMPARE(gelu_forward, count);
    COMPARE(accumulate, count);
    COMPARE(dropout, count, &drop, 11, &step_params);
    COMPARE_TWO(relu_backward, count);
    COMPARE_TWO(gelu_backward, count);
    COMPARE_TWO(add_forward, count, DP_ACT_NONE);
    COMPARE_TWO(add_forward, count, DP_ACT_RELU);
    both_free(&a);
    both_free(&b);
}

static void check_bytes(const struct lab *lab)
{
    const float scale[3] = {0.01f, 0.02f, 0.03f}, shift[3] = {-1, 0, 1};
    struct both y = both_of(lab, 300, 3, -1, 1);
    uint8_t bytes[300];
    float floats[300];

    for (size_t i = 0; i < 300; i++) {
        bytes[i] = (uint8_t)i;
        floats[i] = (float)i / 7.0f - 20.0f;
    }
    OK(lab->ref->ops->bytes_load(lab->ref, y.wide, bytes, scale, shift, 3, 300));
    OK(lab->s->ops->bytes_load(lab->s, y.narrow, bytes, scale, shift, 3, 300));
    check(lab, &y);
    y = both_of(lab, 300, 3, -1, 1);
    OK(lab->ref->ops->floats_load(lab->ref, y.wide, floats, scale, shift, 3, 300));
    OK(lab->s->ops->floats_load(lab->s, y.narrow, floats, scale, shift, 3, 300));
    check(lab, &y);
}

/* ---- layers ---- */

static void check_dense(const struct lab *lab, size_t in, size_t out)
{
    const struct dp_ops *ref = lab->ref->ops, *ops = lab->s->ops;
    struct both x = both_of(lab, ROWS * in, 1, -1, 1), w = both_of(lab, in * out, 2, -0.3f, 0.3f);
    struct both b = both_of(lab, out, 3, -1, 1), dy = both_of(lab, ROWS * out, 4, -1, 1);
    struct both y = both_of(lab, ROWS * out, 5, -1, 1), dx = both_of(lab, ROWS * in, 6, -1, 1);
    float *dw[2] = {zeros(in * out), zeros(in * out)}, *db[2] = {zeros(out), zeros(out)};
    char path[DP_OP_PATH_BYTES] = "";

    OK(ops->dense_prepare(lab->s, ROWS, in, out, 31));
    lab->s->path = path;
    OK(ref->dense_forward(lab->ref, y.wide, x.wide, w.wide, b.wide, ROWS, in, out, DP_ACT_RELU));
    OK(ops->dense_forward(lab->s, y.narrow, x.narrow, w.narrow, b.narrow, ROWS, in, out,
                          DP_ACT_RELU));
    lab->s->path = NULL;
    if (DP_HAVE_ONEDNN && strcmp(lab->s->device->plugin.name, "cpu") == 0) {
        assert_true(strlen(path) > 0); /* what computes is known */
    }
    OK(ref->dense_backward_data(lab->ref, dx.wide, dy.wide, w.wide, ROWS, in, out));
    OK(ops->dense_backward_data(lab->s, dx.narrow, dy.narrow, w.narrow, ROWS, in, out));
    OK(ref->dense_backward_weights(lab->ref, dw[0], dy.wide, x.wide, ROWS, in, out, 0));
    OK(ops->dense_backward_weights(lab->s, dw[1], dy.narrow, x.narrow, ROWS, in, out, 0));
    OK(ref->sum_rows(lab->ref, db[0], dy.wide, ROWS, out, 0));
    OK(ops->sum_rows(lab->s, db[1], dy.narrow, ROWS, out, 0));
    assert_near(dw[1], dw[0], in * out, 2e-6, 0);
    assert_near(db[1], db[0], out, 2e-6, 0);
    check(lab, &y);
    check(lab, &dx);
    both_free(&x);
    both_free(&w);
    both_free(&b);
    both_free(&dy);
    for (int i = 0; i < 2; i++) {
        dp_free(dw[i]);
        dp_free(db[i]);
    }
}

/* Partial sums of a product over this many numbers are not rounded to the type: y is the sum of
 * float32 ones, 1e-7 of 65536 terms off at most, rounded once. */
static void check_long_dense(const struct lab *lab)
{
    enum { LONG = 65536 };
    const struct dp_ops *ref = lab->ref->ops, *ops = lab->s->ops;
    struct both x = both_of(lab, (size_t)8 * LONG, 1, -1, 1);
    struct both w = both_of(lab, (size_t)LONG * OUT, 2, -0.3f, 0.3f);
    struct both y = both_of(lab, (size_t)8 * OUT, 3, -1, 1);

    if (lab->s->device->reserve != NULL) {
        OK(lab->s->device->reserve(lab->s, SCRATCH + x.count + w.count));
    }
    OK(ops->dense_prepare(lab->s, 8, LONG, OUT, DP_DENSE_FORWARD));
    OK(ref->dense_forward(lab->ref, y.wide, x.wide, w.wide, NULL, 8, LONG, OUT, DP_ACT_NONE));
    OK(ops->dense_forward(lab->s, y.narrow, x.narrow, w.narrow, NULL, 8, LONG, OUT, DP_ACT_NONE));
    check_within(lab, &y, 1e-7 * LONG);
    both_free(&x);
    both_free(&w);
}

static void check_conv(const struct lab *lab, size_t kernel, size_t padding)
{
    const struct dp_ops *ref = lab->ref->ops, *ops = lab->s->ops;
    const size_t side = 6 + 2 * padding - kernel + 1, ws = OUT * kernel * kernel * 8;
    const struct dp_window w = {6, 6, 8, side, side, OUT, kernel, kernel, 1, padding, 0};
    struct both x = both_of(lab, (size_t)ROWS * 288, 1, -1, 1),
                k = both_of(lab, ws, 2, -0.2f, 0.2f);
    struct both b = both_of(lab, OUT, 3, -1, 1), dx = both_of(lab, (size_t)ROWS * 288, 6, -1, 1);
    struct both dy = both_of(lab, ROWS * side * side * OUT, 4, -1, 1);
    struct both y = both_of(lab, ROWS * side * side * OUT, 5, -1, 1);
    float *dw[2] = {zeros(ws), zeros(ws)}, *db[2] = {zeros(OUT), zeros(OUT)};
    /* Where engines are chosen, so is whether these sums are rounded to the type. */
    const double rounded = lab->s->device->find_conv != NULL ? unit_of(lab) : 0;

    OK(ops->conv_prepare(lab->s, &w, ROWS, 15));
    OK(ref->conv_forward(lab->ref, y.wide, x.wide, k.wide, b.wide, &w, ROWS, DP_ACT_NONE));
    OK(ops->conv_forward(lab->s, y.narrow, x.narrow, k.narrow, b.narrow, &w, ROWS, DP_ACT_NONE));
    OK(ref->conv_backward_weights(lab->ref, dw[0], db[0], dy.wide, x.wide, &w, ROWS, 0));
    OK(ops->conv_backward_weights(lab->s, dw[1], db[1], dy.narrow, x.narrow, &w, ROWS, 0));
    assert_near(dw[1], dw[0], ws, 3e-5, rounded); /* 252 products in float32 */
    assert_near(db[1], db[0], OUT, 3e-5, 0);
    check(lab, &y);
    OK(ref->conv_backward_data(lab->ref, dx.wide, dy.wide, k.wide, &w, ROWS));
    OK(ops->conv_backward_data(lab->s, dx.narrow, dy.narrow, k.narrow, &w, ROWS));
    /* Where the kernel is larger, products of 16 numbers below 0.2 are rounded, then gathered. */
    check_within(lab, &dx, kernel == 1 ? 1e-6 : (double)(kernel * kernel) * 3.2 * unit_of(lab));
    both_free(&x);
    both_free(&k);
    both_free(&b);
    both_free(&dy);
    for (int i = 0; i < 2; i++) {
        dp_free(dw[i]);
        dp_free(db[i]);
    }
}

/* `shift` elements lie before x and dy. */
static void check_pool(const struct lab *lab, enum dp_pool_kind kind, size_t channels, size_t shift)
{
    const struct dp_ops *ref = lab->ref->ops, *ops = lab->s->ops;
    const struct dp_window w = {5, 5, channels, 3, 3, channels, 3, 3, 2, 1, 0};
    const size_t xs = (size_t)ROWS * 25 * channels, ys = (size_t)ROWS * 9 * channels;
    struct both x = both_of(lab, xs, 1, -1, 1), dy = both_of(lab, ys, 2, -1, 1);
    struct both y = both_of(lab, ys, 3, -1, 1), dx = both_of(lab, xs, 4, -1, 1);
    uint8_t which[2][ROWS * 9 * WIDE];

    OK(ops->pool_prepare(lab->s, &w, ROWS, kind, true));
    OK(ref->pool_forward(lab->ref, y.wide, which[0], x.wide, &w, ROWS, kind));
    memmove(x.narrow + shift, x.narrow, xs * sizeof(*x.narrow)); /* there is room for one more */
    memmove(dy.narrow + shift, dy.narrow, ys * sizeof(*dy.narrow));
    OK(ops->pool_forward(lab->s, y.narrow, which[1], x.narrow + shift, &w, ROWS, kind));
    OK(ref->pool_backward(lab->ref, dx.wide, dy.wide, which[0], &w, ROWS, kind));
    OK(ops->pool_backward(lab->s, dx.narrow, dy.narrow + shift, which[1], &w, ROWS, kind));
    check(lab, &y);
    check(lab, &dx);
    both_free(&x);
    both_free(&dy);
}

static void check_norm(const struct lab *lab, size_t channels)
{
    const struct dp_ops *ref = lab->ref->ops, *ops = lab->s->ops;
    const struct dp_norm norm = {.count = 50, .channels = channels, .eps = 1e-5f};
    const size_t count = 50 * channels;
    struct both x = both_of(lab, count, 1, -1, 1), dy = both_of(lab, count, 2, -1, 1);
    struct both y = both_of(lab, count, 3, -1, 1), dx = both_of(lab, count, 4, -1, 1);
    struct both sum = both_of(lab, count, 9, -1, 1);
    float *mean = uniform(channels, 5, -0.1f, 0.1f), *var = uniform(channels, 6, 0.2f, 0.5f);
    float *gamma = uniform(channels, 7, 0.5f, 1), *beta = uniform(channels, 8, -1, 1);
    double found[2][2 * WIDE], sums[2][2 * WIDE];

    OK(ref->norm_moments(lab->ref, found[0], 0, x.wide, &norm));
    OK(ops->norm_moments(lab->s, found[1], 0, x.narrow, &norm));
    OK(ref->norm_apply(lab->ref, y.wide, x.wide, NULL, mean, var, gamma, beta, &norm));
    OK(ops->norm_apply(lab->s, y.narrow, x.narrow, NULL, mean, var, gamma, beta, &norm));
    OK(ref->norm_apply(lab->ref, sum.wide, x.wide, dy.wide, mean, var, gamma, beta, &norm));
    OK(ops->norm_apply(lab->s, sum.narrow, x.narrow, dy.narrow, mean, var, gamma, beta, &norm));
    OK(ref->norm_backward_sums(lab->ref, sums[0], dy.wide, x.wide, mean, var, gamma, beta, &norm,
                               0));
    OK(ops->norm_backward_sums(lab->s, sums[1], dy.narrow, x.narrow, mean, var, gamma, beta, &norm,
                               0));
    OK(ref->norm_backward_apply(lab->ref, dx.wide, dy.wide, x.wide, mean, var, gamma, beta, sums[0],
                                50, &norm));
    OK(ops->norm_backward_apply(lab->s, dx.narrow, dy.narrow, x.narrow, mean, var, gamma, beta,
                                sums[0], 50, &norm));
    for (size_t i = 0; i < 2 * channels; i++) {
        assert_true(fabs(found[1][i] - found[0][i]) <= 1e-5);
        assert_true(fabs(sums[1][i] - sums[0][i]) <= 2e-5);
    }
    check(lab, &y);
    check(lab, &sum);
    check(lab, &dx);
    both_free(&x);
    both_free(&dy);
    dp_free(mean);
    dp_free(var);
    dp_free(gamma);
    dp_free(beta);
}

static void check_softmax(const struct lab *lab)
{
    const float scale = 0.25f;
    const int32_t labels[ROWS] = {0, 3, 9, 9, 5, 1, 2};
    struct both x = both_of(lab, (size_t)ROWS * 10, 1, -3, 3),
                dx = both_of(lab, (size_t)ROWS * 10, 2, -1, 1);
    float loss[2], correct[2];

    OK(lab->ref->ops->softmax_loss(lab->ref, dx.wide, &loss[0], &correct[0], x.wide, labels, ROWS,
                                   10, &scale, 0));
    OK(lab->s->ops->softmax_loss(lab->s, dx.narrow, &loss[1], &correct[1], x.narrow, labels, ROWS,
                                 10, &scale, 0));
    assert_true(fabs((double)loss[1] - (double)loss[0]) <= 2e-6 && correct[1] == correct[0]);
    check(lab, &dx);
    both_free(&x);
}

static void check_output_loss(const struct lab *lab)
{
    const float scale = 0.25f;
    const int32_t targets[ROWS] = {0, 3, 9, 9, 5, 1, 2};

    for (int i = 0; i < 2; i++) {
        const struct dp_output_loss how = {i == 0 ? DP_LOSS_SIGMOID : DP_LOSS_SQUARE, ROWS, 10,
                                           DP_TARGET_CLASSES, 0};
        struct both x = both_of(lab, (size_t)ROWS * 10, 1, -3, 3),
                    dx = both_of(lab, (size_t)ROWS * 10, 2, -1, 1);
        float loss[2], score[2], top[2];
        OK(lab->ref->ops->output_loss(lab->ref, &how, dx.wide, &loss[0], &score[0], x.wide, targets,
                                      &scale, 0));
        OK(lab->s->ops->output_loss(lab->s, &how, dx.narrow, &loss[1], &score[1], x.narrow, targets,
                                    &scale, 0));
        assert_true(fabs((double)loss[1] - (double)loss[0]) <= 1e-5);
        assert_true(fabs((double)score[1] - (double)score[0]) <= 1e-5);
        check(lab, &dx);
        OK(lab->ref->ops->count_top(lab->ref, &top[0], x.wide, targets, ROWS, 10, 5, 0));
        OK(lab->s->ops->count_top(lab->s, &top[1], x.narrow, targets, ROWS, 10, 5, 0));
        assert_true(top[1] == top[0]);
        both_free(&x);
    }
}

/* Weights are the master's, rounded, in one pass. */
static void check_sgd(const struct lab *lab)
{
    const struct dp_step_params step_params = {.lr = 0.1f, .factor = 1};
    struct both w = both_of(lab, COUNT, 1, -1, 1);
    float *grad = uniform(COUNT, 2, -1, 1), *momentum[2] = {zeros(COUNT), zeros(COUNT)};
    float *master = copy_of(w.wide, COUNT);
    struct dp_update u = {.master = w.wide,
                          .weights = w.wide,
                          .grad = grad,
                          .slots = {momentum[0], NULL},
                          .count = COUNT,
                          .step_params = &step_params};

    OK(lab->ref->ops->sgd(lab->ref, &u, 0.9f, false, 0.01f));
    u.master = master;
    u.weights = w.narrow;
    u.slots[0] = momentum[1];
    OK(lab->s->ops->sgd(lab->s, &u, 0.9f, false, 0.01f));
    assert_near(master, w.wide, COUNT, 1e-7, 1e-7);
    check(lab, &w);
    dp_free(grad);
    dp_free(master);
    dp_free(momentum[0]);
    dp_free(momentum[1]);
}

static void on_types(void (*test)(const struct lab *lab))
{
    for (size_t i = 0; i < DP_COUNT(types); i++) {
        struct lab lab = {stream_on("ref", 1), stream_on(tested_device(), 1), types[i]};
        dp_stream_set_type(lab.s, types[i]);
        if (lab.s->device->reserve != NULL) {
            OK(lab.s->device->reserve(lab.s, SCRATCH));
        }
        test(&lab);
        stream_close(lab.ref);
        stream_close(lab.s);
        assert_int_equal(blocks_left(), 0);
    }
}

/* Packs of elements and what is left of them, at addresses for packs and at others. */
static void check_casts(const struct lab *lab, size_t count, size_t at)
{
    const struct dp_ops *ref = lab->ref->ops, *ops = lab->s->ops;
    const size_t all = count + 4;
    float *x = uniform(all, 1, -1, 1), *wide[2] = {zeros(all), zeros(all)};
    uint16_t *narrow[2] = {dp_zalloc(all, 2), dp_zalloc(all, 2)};

    assert_true(narrow[0] != NULL && narrow[1] != NULL);
    OK(ref->narrow(lab->ref, narrow[0] + at, x + at, count, lab->type));
    OK(ops->narrow(lab->s, narrow[1] + at, x + at, count, lab->type));
    assert_memory_equal(narrow[1], narrow[0], all * 2); /* nothing is written around it */
    OK(ref->widen(lab->ref, wide[0] + at, narrow[0] + at, count, lab->type));
    OK(ops->widen(lab->s, wide[1] + at, narrow[0] + at, count, lab->type));
    assert_same_bits(wide[1], wide[0], all);
    for (int i = 0; i < 2; i++) {
        dp_free(wide[i]);
        dp_free(narrow[i]);
    }
    dp_free(x);
}

static void test_elements(const struct lab *lab)
{
    for (size_t i = 0; i < 30; i++) {
        check_casts(lab, i < 27 ? i / 3 : 4099, i % 3);
    }
    check_elementwise(lab, COUNT);
    check_elementwise(lab, 0);
    check_elementwise(lab, 64);
    check_bytes(lab);
    check_sgd(lab);
}

static void test_layers(const struct lab *lab)
{
    check_dense(lab, WIDE, OUT);
    check_dense(lab, 13, 5);
    check_long_dense(lab);
    check_conv(lab, 1, 0);
    check_conv(lab, 3, 1);
    for (size_t i = 0; i < 4; i++) { /* whole packs of 16 bytes, or not */
        const size_t channels = i == 0 ? 8 : i == 1 ? 12 : WIDE;
        check_pool(lab, DP_POOL_MAX, channels, i == 3);
        check_pool(lab, DP_POOL_AVERAGE, channels, i == 3);
    }
    check_norm(lab, WIDE);
    check_norm(lab, 3);
    check_softmax(lab);
    check_output_loss(lab);
}

static void elements_are_those_of_float32_rounded_once(void **state)
{
    (void)state;
    on_types(test_elements);
}

static void layers_are_those_of_float32_rounded_once(void **state)
{
    (void)state;
    on_types(test_layers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_those_of_float32_rounded_once),
        cmocka_unit_test(layers_are_those_of_float32_rounded_once),
    };

    return run_reached_tests(tests, NULL, NULL);
}
