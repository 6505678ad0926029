/*
 * test_fold_pieces.c - a batch whose folded images would be large is folded and convolved in
 * pieces. tests/cuda_on_host/costs.h makes folding the fastest; on a GPU it is whatever was
 * measured.
 */
#include "tests/support/conv_work.h"

#if DP_HAVE_CUDA
#include "kernels/cuda/cudnn/fold.h"
#endif

/* 16.5 KiB an image when it is folded, so of pieces of 1 MiB two of 32 rows. */
enum { ROWS = 64, IN_H = 70, IN_W = 64, OUT_H = 24, OUT_W = 22, OUT_C = 8, TAPS = 3 * 2 };
enum { IMAGE = IN_H * IN_W, RESULT = OUT_H * OUT_W * OUT_C, WEIGHTS = OUT_C * TAPS };

static const struct dp_window window = {.in_h = IN_H,
                                        .in_w = IN_W,
                                        .in_c = 1,
                                        .out_h = OUT_H,
                                        .out_w = OUT_W,
                                        .out_c = OUT_C,
                                        .kernel_h = 3,
                                        .kernel_w = 2,
                                        .stride = 3,
                                        .padding = 1};

/* The first two numbers of the only choice whose key ends so: its form, and the type of weights or
 * of their gradient. */
static void how(const struct dp_algo_choices *choices, const char *end, long *form, long *type)
{
    struct dp_algo_choice choice;
    size_t at = 0;
    char *rest;

    *form = *type = -1;
    while (dp_algo_choices_next(choices, &at, &choice)) {
        if (strcmp(choice.name + strlen(choice.name) - strlen(end), end) == 0) {
            assert_int_equal(*form, -1);
            *form = strtol(choice.value, &rest, 10);
            *type = strtol(rest, NULL, 10);
        }
    }
}

static struct dp_stream *open_stream(struct dp_algo_choices **choices, const char *slow)
{
    struct dp_stream *s = typed_stream(tested_device(), DP_TYPE_BF16);

    OK(dp_algo_choices_create("here", choices));
    s->algo_choices = *choices;
    assert_int_equal(setenv("DP_HOST_SLOW", slow, 1), 0);
    return s;
}

static void close_stream(struct dp_stream *s, struct dp_algo_choices *choices)
{
    assert_int_equal(unsetenv("DP_HOST_SLOW"), 0);
    stream_close(s);
    dp_algo_choices_destroy(choices);
}

/* ---- results ---- */

/* Memory of the device for a batch of samples of `count` elements, which differ. Seed 0: of NaN. */
static void *batch_of(struct dp_stream *s, struct dp_stream *ref, size_t count, uint32_t seed)
{
    char *batch = s->device->alloc(DP_MEM_OTHER, ROWS * count * sizeof(uint16_t));

    assert_non_null(batch);
    for (uint32_t row = 0; row < ROWS; row++) {
        void *sample = numbers(ref, count, seed + row);
        if (seed == 0) {
            memset(sample, 0xff, count * sizeof(uint16_t));
        }
        OK(s->device->upload(s, batch + row * count * sizeof(uint16_t), sample,
                             count * sizeof(uint16_t)));
        OK(s->device->synchronize(s));
        dp_free(sample);
    }
    return batch;
}

/* What a convolution gives: y on the device, and the gradient of weights, set and added to. */
struct result {
    char *y;
    float *set, *added;
};

static struct result compute_batch(struct dp_stream *s, struct dp_stream *ref)
{
    const unsigned uses = DP_CONV_FORWARD | DP_CONV_BACKWARD_WEIGHTS | DP_CONV_BIAS | DP_CONV_RELU;
    void *x = batch_of(s, ref, IMAGE, 100), *dy = batch_of(s, ref, RESULT, 200);
    void *weights = numbers(ref, WEIGHTS, 1), *bias = numbers(ref, OUT_C, 2);
    const struct result r = {batch_of(s, ref, RESULT, 0), uniform(WEIGHTS, 3, -9, 9),
                             uniform(WEIGHTS, 3, -9, 9)};

    OK(s->ops->conv_prepare(s, &window, ROWS, uses));
    OK(s->ops->conv_forward(s, r.y, x, weights, bias, &window, ROWS, DP_ACT_RELU));
    OK(s->ops->conv_backward_weights(s, r.set, NULL, dy, x, &window, ROWS, 0.0f));
    OK(s->ops->conv_backward_weights(s, r.added, NULL, dy, x, &window, ROWS, 1.0f));
    OK(s->device->synchronize(s));
    s->device->release(x);
    s->device->release(dy);
    dp_free(weights);
    dp_free(bias);
    return r;
}

static void result_close(const struct dp_stream *s, const struct result *r)
{
    s->device->release(r->y);
    dp_free(r->set);
    dp_free(r->added);
}

static double largest(const float *values, size_t count)
{
    double most = 0;

    for (size_t i = 0; i < count; i++) {
        most = fmax(most, fabs((double)values[i]));
    }
    return most;
}

/* Where cuDNN chose otherwise y may be rounded before the bias is added. Gradients of pieces in a
 * narrow type are rounded once each, by what a piece is large: about as much as the largest sum. */
static void assert_same(struct dp_stream *s, struct dp_stream *ref, const struct result *found,
                        const struct result *wanted, enum dp_type gradient)
{
    const double step = libraries_on_host() && gradient == DP_TYPE_F32 ? 0 : 0x1p-8;
    const size_t bytes = RESULT * sizeof(uint16_t), pixels = (size_t)ROWS * OUT_H * OUT_W;

    for (size_t row = 0; row < ROWS; row++) {
        void *a = zeros(RESULT), *b = zeros(RESULT);
        OK(s->device->download(s, a, found->y + row * bytes, bytes));
        OK(s->device->download(s, b, wanted->y + row * bytes, bytes));
        OK(s->device->synchronize(s));
        assert_typed(ref, a, b, RESULT, near_sum(TAPS) + TAPS * 0x1p-9);
        dp_free(a);
        dp_free(b);
    }
    const double rounding = step * largest(wanted->set, WEIGHTS);
    assert_near(found->set, wanted->set, WEIGHTS, near_sum(pixels) + rounding, step);
    assert_near(found->added, wanted->added, WEIGHTS, near_sum(pixels) + rounding, step);
}

static void set_bytes(size_t bytes)
{
#if DP_HAVE_CUDA
    dp_cuda_fold_bytes = bytes;
#else
    (void)bytes;
#endif
}

/* slow: so that gradients of weights are of `gradient`. */
static void assert_pieces_equal_the_whole(const char *slow, enum dp_type gradient)
{
    struct dp_stream *ref = typed_stream("ref", DP_TYPE_BF16), *plain, *s;
    struct dp_algo_choices *choices;
    struct result wanted, found;
    long form, type;

    set_bytes(1 << 20);
    plain = typed_stream(tested_device(), DP_TYPE_BF16);
    plain->conv = DP_CONV_CUBLAS;
    wanted = compute_batch(plain, ref);
    s = open_stream(&choices, slow);
    found = compute_batch(s, ref);
    if (libraries_on_host()) {
        how(choices, " bias relu or folded by 32 rows", &form, &type);
        assert_in_range(form, 4, 6);
        how(choices, " bf16 or folded by 32 rows", &form, &type);
        assert_int_equal(form, 4);
        assert_int_equal(type, gradient);
    }
    assert_same(s, ref, &found, &wanted, gradient);
    result_close(s, &found);
    result_close(plain, &wanted);
    close_stream(s, choices);
    stream_close(plain);
    stream_close(ref);
}

static void pieces_equal_the_convolution_of_the_whole_batch(void **state)
{
    (void)state;
    assert_pieces_equal_the_whole("few", DP_TYPE_F32);
}

static void so_they_do_where_each_rounds_its_gradient(void **state)
{
    (void)state;
    assert_pieces_equal_the_whole("few,wide", DP_TYPE_BF16);
}

/* ---- the rows of a piece ---- */

static void pieces_divide_the_rows_and_are_neither_large_nor_short(void **state)
{
#if DP_HAVE_CUDA
    /* The first convolution of resnet50: 413 KiB a folded image, so 79 are small enough. */
    static const struct dp_window first = {.in_h = 224,
                                           .in_w = 224,
                                           .in_c = 3,
                                           .out_h = 112,
                                           .out_w = 112,
                                           .out_c = 64,
                                           .kernel_h = 7,
                                           .kernel_w = 7,
                                           .stride = 2,
                                           .padding = 3};
    static const size_t rows[][2] = {{1, 1},     {62, 62},   {79, 79},   {80, 40},
                                     {250, 50},  {254, 127}, {256, 64},  {257, 257},
                                     {1024, 64}, {1580, 79}, {2000, 50}, {3007, 97}};

    set_bytes(DP_FOLD_BYTES);
    for (size_t i = 0; i < DP_COUNT(rows); i++) {
        assert_int_equal(dp_cuda_fold_rows(&first, rows[i][0]), rows[i][1]);
    }
#endif
    (void)state;
}

static int nothing_is_left(void **state)
{
    (void)state;
    return (int)blocks_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_equal_the_convolution_of_the_whole_batch),
        cmocka_unit_test(so_they_do_where_each_rounds_its_gradient),
        cmocka_unit_test(pieces_divide_the_rows_and_are_neither_large_nor_short),
    };
    const struct dp_device *device = NULL;

    if (dp_device_find(tested_device_or("ref"), &device) != DP_OK || device->find_conv == NULL) {
        puts("skipped: it is about the engines of a GPU");
        return 77;
    }
    return run_reached_tests(tests, NULL, nothing_is_left);
}
