/*
 * test_forms.c - of several forms of a convolution, or of a gradient with sums, the one that is
 * fastest as a whole is chosen and recorded; without measuring it is the library's first one.
 * tests/cuda_on_host/costs.h defines forms and their times, so elsewhere all tests are skipped.
 */
#include "tests/support/arrays.h"

#if DP_CUDA_ON_HOST
#include "tests/cuda_on_host/meter.h"
#endif

/* cuDNN has two lists of plans: first its proposals, then its last resort. */
enum { AT_ONCE = 0, LAST = 2 };

/* The choice of a form, as conv_cuda.h says. */
struct form {
    int fused, weights, mode;
};

enum { NOT_FUSED, FUSED, FUSED_LOSES_NAN };

static void make_host(const char *slow, const char *lacks)
{
    assert_int_equal(setenv("DP_HOST_SLOW", slow, 1), 0);
    assert_int_equal(setenv("DP_HOST_LACKS", lacks, 1), 0);
}

static struct dp_stream *open_stream(bool measures, struct dp_algo_choices **algo_choices)
{
    struct dp_stream *s = stream_on(tested_device_or("ref"), 1);

    *algo_choices = NULL;
    dp_stream_set_type(s, DP_TYPE_BF16);
    if (measures) {
        OK(dp_algo_choices_create("here", algo_choices));
        s->algo_choices = *algo_choices;
    }
    return s;
}

static void close_stream(struct dp_stream *s, struct dp_algo_choices *algo_choices)
{
    stream_close(s);
    dp_algo_choices_destroy(algo_choices);
    make_host("", "");
}

/* The value of the only choice whose key begins so, and its time; NULL: there is none. */
static const char *noted(const struct dp_algo_choices *algo_choices, const char *what, double *ms)
{
    struct dp_algo_choice choice;
    const char *found = NULL;
    size_t at = 0;

    while (dp_algo_choices_next(algo_choices, &at, &choice)) {
        if (strncmp(strchr(choice.name, '\n') + 1, what, strlen(what)) == 0) {
            assert_null(found);
            found = choice.value;
            *ms = choice.ms;
        }
    }
    return found;
}

static struct form form_of(const char *value)
{
    struct form form = {-1, -1, -1};
    char *end;

    assert_non_null(value);
    form.fused = (int)strtol(value, &end, 10);
    form.weights = (int)strtol(end, &end, 10);
    form.mode = (int)strtol(end, &end, 10);
    return form;
}

/* ---- convolutions ---- */

enum { ROWS = 2, SIDE = 5, IN = 8, OUT = 16, KERNEL = 3 };
enum { XS = ROWS * SIDE * SIDE * IN, YS = ROWS * SIDE * SIDE * OUT, WS = OUT * 9 * IN };

static const struct dp_window window = {.in_h = SIDE,
                                        .in_w = SIDE,
                                        .in_c = IN,
                                        .out_h = SIDE,
                                        .out_w = SIDE,
                                        .out_c = OUT,
                                        .kernel_h = KERNEL,
                                        .kernel_w = KERNEL,
                                        .stride = 1,
                                        .padding = 1};

/* The same numbers, rounded, as bfloats; room for float32. */
static void *narrowed(const float *wide, size_t count)
{
    struct dp_stream *ref = stream_on("ref", 1);
    void *array = zeros(count);

    OK(ref->ops->narrow(ref, array, wide, count, DP_TYPE_BF16));
    stream_close(ref);
    return array;
}

static void *numbers(size_t count, uint32_t seed)
{
    float *wide = uniform(count, seed, -1, 1);
    void *array = narrowed(wide, count);

    dp_free(wide);
    return array;
}

static float *widened(const void *array, size_t count)
{
    struct dp_stream *ref = stream_on("ref", 1);
    float *wide = zeros(count);

    OK(ref->ops->widen(ref, wide, array, count, DP_TYPE_BF16));
    stream_close(ref);
    return wide;
}

/* The gradient of weights; *form: of the plan, where it is measured. */
static float *conv_weights(bool measures, struct form *form, double *ms)
{
    void *x = numbers(XS, 1), *dy = numbers(YS, 2);
    struct dp_algo_choices *algo_choices;
    struct dp_stream *s = open_stream(measures, &algo_choices);
    float *dw = zeros(WS);

    OK(s->ops->conv_prepare(s, &window, ROWS, DP_CONV_BACKWARD_WEIGHTS));
    OK(s->ops->conv_backward_weights(s, dw, NULL, dy, x, &window, ROWS, 0));
    if (measures) {
        *form = form_of(noted(algo_choices, "convolution back to weights", ms));
    }
    close_stream(s, algo_choices);
    dp_free(x);
    dp_free(dy);
    return dw;
}

/* Whether all of them are bfloats. */
static bool is_rounded(const float *dw)
{
    size_t rounded = 0;

    for (size_t i = 0; i < WS; i++) {
        uint32_t bits;
        memcpy(&bits, &dw[i], sizeof(bits));
        rounded += (bits & 0xffff) == 0;
    }
    assert_true(rounded == WS || rounded < WS / 8);
    return rounded == WS;
}

/* A simulated host, the form that is fastest there, and the one that comes first. */
static const struct {
    const char *slow, *lacks;
    bool rounds;
    int mode;
    bool first_rounds;
} of_weights[] = {
    {"", "", false, AT_ONCE, false},
    {"wide", "", true, AT_ONCE, false},
    {"last", "", false, AT_ONCE, false},
    {"last", "wide", true, AT_ONCE, true}, /* not a slow one of the last resort */
    {"pass", "wide", false, LAST, true},   /* it is timed, like the operations after a plan */
    {"pass,wide", "", true, AT_ONCE, false},
};

static void gradients_of_weights_are_of_the_fastest_type(void **state)
{
    (void)state;
    float *expected = NULL;
    for (size_t i = 0; i < DP_COUNT(of_weights); i++) {
        struct form form;
        double ms;
        for (int measures = 0; measures < 2; measures++) {
            make_host(of_weights[i].slow, of_weights[i].lacks);
            float *dw = conv_weights(measures != 0, &form, &ms);
            assert_int_equal(is_rounded(dw),
                             measures != 0 ? of_weights[i].rounds : of_weights[i].first_rounds);
            expected = expected == NULL ? copy_of(dw, WS) : expected;
            assert_near(dw, expected, WS, 0, 1.0 / 256);
            dp_free(dw);
        }
        assert_int_equal(form.weights, of_weights[i].rounds ? DP_TYPE_BF16 : DP_TYPE_F32);
        assert_int_equal(form.mode, of_weights[i].mode);
        assert_true(ms > 0);
    }
    dp_free(expected);
}

/* y of an x with a NaN in it. */
static float *conv_forward(bool measures, struct form *form)
{
    float *wide = uniform(XS, 1, -1, 1);
    struct dp_algo_choices *algo_choices;
    struct dp_stream *s = open_stream(measures, &algo_choices);
    void *y = zeros(YS), *weights = numbers(WS, 3), *bias = numbers(OUT, 4), *x;
    float *found;
    double ms;

    wide[0] = NAN;
    x = narrowed(wide, XS);
    OK(s->ops->conv_prepare(s, &window, ROWS, DP_CONV_FORWARD | DP_CONV_BIAS | DP_CONV_RELU));
    OK(s->ops->conv_forward(s, y, x, weights, bias, &window, ROWS, DP_ACT_RELU));
    if (measures) {
        *form = form_of(noted(algo_choices, "convolution ", &ms));
    }
    close_stream(s, algo_choices);
    found = widened(y, YS);
    dp_free(x);
    dp_free(y);
    dp_free(bias);
    dp_free(weights);
    dp_free(wide);
    return found;
}

static const struct {
    const char *slow, *lacks;
    int fused, mode, first;
} of_forward[] = {
    {"", "", FUSED, AT_ONCE, FUSED},
    {"fused", "", NOT_FUSED, AT_ONCE, FUSED},
    {"last", "fused", NOT_FUSED, AT_ONCE, NOT_FUSED},
    {"pass", "fused", FUSED, LAST, NOT_FUSED},
    {"", "nan", FUSED_LOSES_NAN, AT_ONCE, FUSED_LOSES_NAN},
    {"fused", "nan", NOT_FUSED, AT_ONCE, FUSED_LOSES_NAN},
    {"nan", "", NOT_FUSED, AT_ONCE, FUSED}, /* faster, but a NaN need not be lost */
};

/* A rectifier keeps a NaN wherever some fused engine does. */
static void bias_and_rectifier_are_fused_where_that_is_fastest(void **state)
{
    float *expected = NULL;
    (void)state;

    for (size_t i = 0; i < DP_COUNT(of_forward); i++) {
        struct form form = {-1, -1, -1};
        for (int measures = 0; measures < 2; measures++) {
            make_host(of_forward[i].slow, of_forward[i].lacks);
            float *y = conv_forward(measures != 0, &form);
            const int taken = measures != 0 ? of_forward[i].fused : of_forward[i].first;
            assert_int_equal(isnan(y[0]), taken != FUSED_LOSES_NAN);
            expected = expected == NULL ? copy_of(y, YS) : expected;
            /* Not fused it is rounded twice, first to a step of sums below 8. */
            assert_near(y + YS / 2, expected + YS / 2, YS / 2, 8.0 / 512, 1.0 / 128);
            dp_free(y);
        }
        assert_int_equal(form.fused, of_forward[i].fused);
        assert_int_equal(form.mode, of_forward[i].mode);
    }
    dp_free(expected);
}

/* ---- sums of a gradient ---- */

/* Kernels queued so far, where that is counted. */
static int kernels_now(void)
{
#if DP_CUDA_ON_HOST
    struct cuda_on_host_meter meter;

    cuda_on_host_meter_read(&meter);
    return (int)meter.kernels;
#else
    return 0;
#endif
}

static const struct {
    const char *slow, *lacks, *value; /* NULL: there is no choice */
    int kernels;                      /* of a backward, which tell how it is computed */
} of_sums[] = {
    {"", "", "epilogue", 0},
    {"sums", "", "separate pass", 2},
    {"sums,pass", "", "separate pass", 2},
    {"pass", "", "epilogue", 0},
    {"", "sums", NULL, 2}, /* which cuBLASLt says in its own way */
};

static void sums_come_with_the_product_where_that_is_fastest(void **state)
{
    enum { M = 24, N = 40, K = 32 }; /* rows K */
    void *dy = numbers((size_t)K * M, 5), *x = numbers((size_t)K * N, 6);
    float *wide = widened(dy, (size_t)K * M), sums[M] = {0};
    (void)state;

    for (size_t i = 0; i < (size_t)K * M; i++) {
        sums[i % M] += wide[i];
    }
    for (size_t i = 0; i < 2 * DP_COUNT(of_sums); i++) {
        struct dp_algo_choices *algo_choices;
        struct dp_stream *s;
        float *dw = zeros((size_t)M * N), *db = zeros(M);
        const char *value = NULL;
        double ms = 0;
        make_host(of_sums[i / 2].slow, of_sums[i / 2].lacks);
        s = open_stream(i % 2 != 0, &algo_choices);
        OK(s->ops->dense_prepare(s, K, N, M, DP_DENSE_BACKWARD_WEIGHTS | DP_DENSE_BIAS));
        const int before = kernels_now();
        OK(s->ops->dense_backward_both(s, dw, db, dy, x, K, N, M, 0));
        const int kernels = kernels_now() - before;
        assert_near(db, sums, M, 1e-5, 0);
        assert_true(i % 2 == 0 || kernels == of_sums[i / 2].kernels);
        if (i % 2 != 0) {
            value = noted(algo_choices, "sums of product", &ms);
            assert_int_equal(value != NULL, of_sums[i / 2].value != NULL);
        }
        if (value != NULL) {
            assert_string_equal(value, of_sums[i / 2].value);
            assert_true(ms > 0);
        }
        close_stream(s, algo_choices);
        dp_free(dw);
        dp_free(db);
    }
    dp_free(wide);
    dp_free(x);
    dp_free(dy);
}

/* kernels: those of a backward, which tell how it is computed. */
static const struct {
    const char *slow, *lacks, *value;
    int kernels, first_kernels;
} of_masks[] = {
    {"", "", "separate pass", 1, 1},     {"sums", "", "with the sums", 2, 1},
    {"pass", "", "separate pass", 1, 1}, {"sums,pass", "", "with the sums", 2, 1},
    {"", "sums", "with the sums", 2, 3},
};

enum { OUTS = 24, INS = 40, DENSE_ROWS = 32, GS = DENSE_ROWS * OUTS };

/* The kernels of backward of a dense layer with relu, and checks its choice if it measures. */
static int dense_backward(bool measures, const struct dp_dense_backward *b, const char *expected)
{
    struct dp_algo_choices *algo_choices;
    struct dp_stream *s = open_stream(measures, &algo_choices);
    double ms = 0;
    int kernels;

    OK(s->ops->dense_prepare(s, DENSE_ROWS, INS, OUTS,
                             DP_DENSE_BACKWARD_WEIGHTS | DP_DENSE_BIAS | DP_DENSE_RELU));
    kernels = kernels_now();
    OK(s->ops->dense_backward_relu(s, b));
    kernels = kernels_now() - kernels;
    OK(s->device->synchronize(s));
    if (measures) {
        const char *value = noted(algo_choices, "relu before product", &ms);
        assert_non_null(value);
        assert_string_equal(value, expected);
        assert_true(ms > 0);
    }
    close_stream(s, algo_choices);
    return kernels;
}

static void a_rectifier_is_undone_where_that_is_fastest(void **state)
{
    void *dy = numbers(GS, 5), *y = numbers(GS, 7), *x = numbers((size_t)DENSE_ROWS * INS, 6);
    float *wide = widened(dy, GS), *outs = widened(y, GS), sums[OUTS] = {0};
    void *g = zeros(GS);
    float *dw = zeros((size_t)OUTS * INS), *db = zeros(OUTS);
    const struct dp_dense_backward b = {.dy = dy,
                                        .y = y,
                                        .x = x,
                                        .g = g,
                                        .dw = dw,
                                        .db = db,
                                        .rows = DENSE_ROWS,
                                        .in = INS,
                                        .out = OUTS};
    (void)state;

    for (size_t i = 0; i < GS; i++) {
        sums[i % OUTS] += outs[i] > 0 ? wide[i] : 0;
    }
    for (size_t i = 0; i < 2 * DP_COUNT(of_masks); i++) {
        const bool measures = i % 2 != 0;
        make_host(of_masks[i / 2].slow, of_masks[i / 2].lacks);
        assert_int_equal(dense_backward(measures, &b, of_masks[i / 2].value),
                         measures ? of_masks[i / 2].kernels : of_masks[i / 2].first_kernels);
        assert_near(db, sums, OUTS, 1e-5, 0);
        memset(db, 0xff, OUTS * sizeof(*db));
    }
    dp_free(db);
    dp_free(dw);
    dp_free(g);
    dp_free(outs);
    dp_free(wide);
    dp_free(x);
    dp_free(y);
    dp_free(dy);
}

/* A known choice is used even if it is slow now; an invalid one is measured again. */
static void known_sums_are_not_measured_again(void **state)
{
    static const struct {
        const char *known, *value;
    } cases[] = {{"separate pass", "separate pass"},
                 {"epilogue", "epilogue"},
                 {"some other way", "epilogue"}};
    (void)state;

    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        struct dp_algo_choices *algo_choices;
        struct dp_stream *s = open_stream(true, &algo_choices);
        double ms = 0.0;
        OK(dp_algo_choices_note(algo_choices, "sums of product 24x40x32 tn bf16 wide sums",
                                cases[i].known, 0.0));
        OK(s->ops->dense_prepare(s, 32, 40, 24, DP_DENSE_BACKWARD_WEIGHTS | DP_DENSE_BIAS));
        assert_string_equal(noted(algo_choices, "sums of product", &ms), cases[i].value);
        assert_int_equal(ms > 0, i == 2);
        close_stream(s, algo_choices);
    }
}

static int nothing_is_left(void **state)
{
    (void)state;
    return (int)blocks_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_weights_are_of_the_fastest_type),
        cmocka_unit_test(bias_and_rectifier_are_fused_where_that_is_fastest),
        cmocka_unit_test(sums_come_with_the_product_where_that_is_fastest),
        cmocka_unit_test(known_sums_are_not_measured_again),
        cmocka_unit_test(a_rectifier_is_undone_where_that_is_fastest),
    };

    if (!libraries_on_host()) { /* before anything is allocated, which skipping would leak */
        puts("skipped: it wants the CUDA libraries of tests/cuda_on_host");
        return 77;
    }
    return run_reached_tests(tests, NULL, nothing_is_left);
}
