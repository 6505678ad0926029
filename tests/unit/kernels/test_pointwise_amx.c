/*
 * test_pointwise_amx.c - convolutions of 1 x 1 by tiles are those of the definition but for
 * rounding, and closer to them than float32 sums of one product after the other. Their bits depend
 * neither on threads nor on other images.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS, in memory_end.h */
#include "tests/support/arrays.h"

#include "kernels/cpu/amx/amx.h"
#include "kernels/cpu/amx/pointwise_amx.h"
#include "kernels/ref/window.h"
#include "tests/support/guarded.h"
#include "tests/support/memory_end.h"

static const struct shape {
    size_t rows, height, width, in_c, out_c;
} shapes[] = {
    {3, 7, 7, 64, 96},     /* images that end within blocks of 32 pixels, as does the last one */
    {2, 4, 4, 32, 32},     /* one block of everything */
    {1, 5, 4, 96, 32},     /* fewer pixels than a block has */
    {5, 13, 17, 96, 64},   /* 35 blocks of pixels: parts of 12, 12 and 11 are summed */
    {2, 15, 16, 288, 288}, /* 15 blocks: 8 and 7, for their channels */
    {1, 6, 6, 2048, 96},   /* 3 blocks of weights: 2 and 1 for the result */
    {1, 3, 11, 64, 4160},  /* 130: 44, 44 and 42 for the result, 1 and 1 for the gradient of x */
};

enum { X, Y, WEIGHTS, ARRAYS };

static const struct use {
    const char *name;
    unsigned use;
    int result;
} uses[] = {{"the result", DP_CONV_FORWARD, Y},
            {"the gradient of x", DP_CONV_BACKWARD_DATA, X},
            {"the gradient of weights", DP_CONV_BACKWARD_WEIGHTS, WEIGHTS}};

static struct dp_window window_of(const struct shape *s)
{
    return (struct dp_window){
        .in_h = s->height,
        .in_w = s->width,
        .in_c = s->in_c,
        .out_h = s->height,
        .out_w = s->width,
        .out_c = s->out_c,
        .kernel_h = 1,
        .kernel_w = 1,
        .stride = 1,
        .groups = 1,
    };
}

/* Numbers from -1 to 1 behind which memory ends, and copies of them: they must stay. */
struct work {
    struct dp_window w;
    size_t rows, counts[ARRAYS];
    float *arrays[ARRAYS], *before[ARRAYS];
    struct memory_end ends[ARRAYS];
};

static struct work work_open(const struct shape *s)
{
    struct work k = {.w = window_of(s), .rows = s->rows};

    k.counts[X] = k.rows * dp_window_in(&k.w);
    k.counts[Y] = k.rows * dp_window_out(&k.w);
    k.counts[WEIGHTS] = dp_window_weights(&k.w);
    for (int i = 0; i < ARRAYS; i++) {
        k.before[i] = uniform(k.counts[i], (uint32_t)i, -1, 1);
        k.arrays[i] = memory_end(&k.ends[i], k.counts[i] * sizeof(float));
        memcpy(k.arrays[i], k.before[i], k.counts[i] * sizeof(float));
    }
    return k;
}

static void work_close(struct work *k)
{
    for (int i = 0; i < ARRAYS; i++) {
        assert_memory_equal(k->arrays[i], k->before[i], k->counts[i] * sizeof(float));
        memory_end_release(&k->ends[i]);
        dp_free(k->before[i]);
    }
}

/* ---- what is computed ---- */

/* Into `result`, in scratch of just the size that is asked for, in which there is no number. */
static void run(const struct work *k, const struct use *use, int threads, float *result, bool adds)
{
    const size_t bytes = dp_pointwise_amx_bytes(&k->w, k->rows, use->use, threads);
    const struct dp_pointwise_amx call = {
        .w = &k->w,
        .rows = k->rows,
        .use = use->use,
        .x = use->result == X ? result : k->arrays[X],
        .y = use->result == Y ? result : k->arrays[Y],
        .weights = use->result == WEIGHTS ? result : k->arrays[WEIGHTS],
        .adds = adds,
        .scratch = guarded(bytes),
    };

    assert_true(dp_pointwise_amx_can(&k->w));
    memset(call.scratch, 0xff, bytes);
    dp_pointwise_amx(&call, threads);
    release_guarded(call.scratch, bytes);
}

/* Between guards: released by release(). */
static float *result_of(const struct work *k, const struct use *use, int threads)
{
    const size_t count = k->counts[use->result];
    float *result = (float *)(void *)guarded(count * sizeof(float));

    for (size_t i = 0; i < count; i++) {
        result[i] = NAN;
    }
    run(k, use, threads, result, false);
    return result;
}

static void release(float *result, const struct work *k, const struct use *use)
{
    release_guarded((char *)result, k->counts[use->result] * sizeof(float));
}

/* ---- what it should be ---- */

/* The products of which a number is the sum. */
struct products {
    const float *a, *b;
    size_t count, step_a, step_b;
};

static struct products products_of(const struct work *k, const struct use *use, size_t i)
{
    const size_t in = k->w.in_c, out = k->w.out_c;
    const float *x = k->arrays[X], *y = k->arrays[Y], *weights = k->arrays[WEIGHTS];

    switch (use->result) {
    case Y:
        return (struct products){x + i / out * in, weights + i % out * in, in, 1, 1};
    case X:
        return (struct products){y + i / in * out, weights + i % in, out, 1, in};
    default:
        return (struct products){y + i / in, x + i % in, k->counts[X] / in, out, in};
    }
}

/* Errors of sums: the largest one, in roundings of the sum of what was added, without signs; and
 * the mean of squares. */
struct errors {
    double most, squares;
};

static void add_error(struct errors *errors, double error, double whole)
{
    errors->most =
        fmax(errors->most, isnan(error) ? (double)INFINITY : fabs(error) / (whole * 0x1p-24));
    errors->squares += error * error;
}

/* Measured are 3.8 roundings at most, and of the roots 0.42 to 0.55, or 0.72 where few pixels are
 * summed: a block of one more pixel takes as many roundings as one of 32. */
static const double most_roundings = 6, share_of_plain = 0.8;

static void check_errors(const struct work *k, const struct use *use, const float *result)
{
    struct errors ours = {0, 0}, plain = {0, 0};
    double share;

    for (size_t i = 0; i < k->counts[use->result]; i++) {
        const struct products p = products_of(k, use, i);
        double sum = 0, whole = 0;
        float plain_sum = 0;
        for (size_t t = 0; t < p.count; t++) {
            const float a = p.a[t * p.step_a], b = p.b[t * p.step_b];
            sum += (double)a * (double)b;
            whole += fabs((double)a * (double)b);
            plain_sum += a * b;
        }
        add_error(&ours, (double)result[i] - sum, whole);
        add_error(&plain, (double)plain_sum - sum, whole);
    }
    share = sqrt(ours.squares / plain.squares);
    if (!(ours.most <= most_roundings && share <= share_of_plain)) {
        fail_msg("%s of %zu x %zux%zux%zu to %zu: off by %.2f roundings, by %.2f of plain sums",
                 use->name, k->rows, k->w.in_h, k->w.in_w, k->w.in_c, k->w.out_c, ours.most, share);
    }
}

/* ---- tests ---- */

static void each_work_and_use(void (*check)(const struct work *k, const struct use *use))
{
    for (size_t i = 0; i < DP_COUNT(shapes); i++) {
        struct work k = work_open(&shapes[i]);
        for (size_t u = 0; u < DP_COUNT(uses); u++) {
            check(&k, &uses[u]);
        }
        work_close(&k);
    }
}

static void check_definition(const struct work *k, const struct use *use)
{
    float *result = result_of(k, use, 1);

    check_errors(k, use, result);
    release(result, k, use);
}

static void errors_are_smaller_than_those_of_plain_sums(void **state)
{
    (void)state;
    each_work_and_use(check_definition);
}

static void check_threads(const struct work *k, const struct use *use)
{
    float *alone = result_of(k, use, 1);

    for (int threads = 2; threads <= 3; threads++) {
        float *shared = result_of(k, use, threads);
        assert_same_bits(shared, alone, k->counts[use->result]);
        release(shared, k, use);
    }
    release(alone, k, use);
}

static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    each_work_and_use(check_threads);
}

/* One of the images, at the place of all of them. */
static struct work image_of(const struct work *k, size_t image)
{
    struct work one = *k;

    one.rows = 1;
    for (int i = X; i <= Y; i++) {
        one.counts[i] /= k->rows;
        one.arrays[i] += image * one.counts[i];
    }
    return one;
}

static void check_images(const struct work *k, const struct use *use)
{
    float *all;

    if (use->result == WEIGHTS) {
        return;
    }
    all = result_of(k, use, 2);
    for (size_t i = 0; i < k->rows; i++) {
        const struct work image = image_of(k, i);
        float *one = result_of(&image, use, 1);
        assert_same_bits(one, all + i * image.counts[use->result], image.counts[use->result]);
        release(one, &image, use);
    }
    release(all, k, use);
}

static void an_image_does_not_depend_on_others(void **state)
{
    (void)state;
    each_work_and_use(check_images);
}

/* Memory ends behind what is added to. */
static void check_sum(const struct work *k, const struct use *use)
{
    const size_t count = k->counts[use->result];
    float *gradient, *before, *sum;
    struct memory_end end;

    if (use->result != WEIGHTS) {
        return;
    }
    gradient = result_of(k, use, 1);
    before = uniform(count, ARRAYS, -8, 8);
    sum = memory_end(&end, count * sizeof(float));
    memcpy(sum, before, count * sizeof(float));
    run(k, use, 2, sum, true);
    for (size_t i = 0; i < count; i++) {
        const double expected = (double)before[i] + (double)gradient[i];
        const double whole = fabs((double)before[i]) + fabs((double)gradient[i]);
        assert_true(fabs((double)sum[i] - expected) <= whole * 0x1p-23);
    }
    memory_end_release(&end);
    dp_free(before);
    release(gradient, k, use);
}

static void gradients_are_added_where_that_is_wanted(void **state)
{
    (void)state;
    each_work_and_use(check_sum);
}

/* Memory ends behind all arrays. */
static void check_end(const struct work *k, const struct use *use)
{
    const size_t bytes = k->counts[use->result] * sizeof(float);
    float *result = result_of(k, use, 1), *last;
    struct memory_end end;

    last = memory_end(&end, bytes);
    run(k, use, 3, last, false);
    assert_same_bits(last, result, k->counts[use->result]);
    memory_end_release(&end);
    release(result, k, use);
}

static void nothing_behind_an_array_is_touched(void **state)
{
    (void)state;
    each_work_and_use(check_end);
}

#if DP_AMX_CODE

/* Libraries believe that nobody else changes the shapes of tiles. */
DP_AMX static void check_shapes(const struct work *k, const struct use *use)
{
    struct dp_amx_shape before = {.palette = 1, .row_bytes = {32}, .rows = {5}}, after;

    _tile_loadconfig(&before);
    release(result_of(k, use, 1), k, use);
    _tile_storeconfig(&after);
    _tile_release();
    assert_memory_equal(&after, &before, sizeof(after));
}

#endif

static void tiles_are_shaped_as_before(void **state)
{
    (void)state;
#if DP_AMX_CODE
    each_work_and_use(check_shapes);
#endif
}

/* What is kept of them is a part of the pixels, however many there are; or one block. */
static void scratch_does_not_grow_with_pixels(void **state)
{
    static const struct shape small = {2, 16, 16, 64, 96}, large = {1, 4, 8, 4160, 4128};
    (void)state;

    for (size_t u = 0; u < DP_COUNT(uses); u++) {
        const struct dp_window w = window_of(&small), many = window_of(&large);
        const unsigned use = uses[u].use;
        assert_int_equal(dp_pointwise_amx_bytes(&w, 200, use, 2),
                         dp_pointwise_amx_bytes(&w, small.rows, use, 2));
        assert_int_equal(dp_pointwise_amx_bytes(&many, 100, use, 2),
                         dp_pointwise_amx_bytes(&many, large.rows, use, 2));
    }
}

static void other_convolutions_are_left_to_others(void **state)
{
    const struct dp_window good = window_of(&shapes[0]);
    struct dp_window others[8];
    (void)state;

    for (size_t i = 0; i < DP_COUNT(others); i++) {
        others[i] = good;
        assert_true(dp_pointwise_amx_can(&others[i]));
    }
    others[0].kernel_h = 3;
    others[1].kernel_w = 3;
    others[2].stride = 2;
    others[3].padding = 1;
    others[4].groups = 2;
    others[5].in_c += 16;
    others[6].out_c += 16;
    others[7].in_c = others[7].out_c = 1;
    for (size_t i = 0; i < DP_COUNT(others); i++) {
        assert_false(dp_pointwise_amx_can(&others[i]));
    }
    others[4].groups = 0; /* one */
    assert_true(dp_pointwise_amx_can(&others[4]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_smaller_than_those_of_plain_sums),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(an_image_does_not_depend_on_others),
        cmocka_unit_test(gradients_are_added_where_that_is_wanted),
        cmocka_unit_test(nothing_behind_an_array_is_touched),
        cmocka_unit_test(tiles_are_shaped_as_before),
        cmocka_unit_test(scratch_does_not_grow_with_pixels),
        cmocka_unit_test(other_convolutions_are_left_to_others),
    };

    if (!dp_amx_has()) {
        puts("skipped: this processor has no AMX, or a virtual machine hides it");
        return 77;
    }
    return cmocka_run_group_tests_name("pointwise_amx", tests, NULL, NULL);
}
