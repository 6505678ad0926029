/*
 * conv_by_tiles.h - tests of convolutions by tiles (kernels/cpu/amx): they are those of the
 * definition but for rounding, bits depend neither on threads nor on other images, and no other
 * memory is touched.
 *
 * Define _GNU_SOURCE before all includes, for memory_end.h. Tests get a struct way as their state.
 */
#ifndef DP_TESTS_SUPPORT_TILES_CONV_BY_TILES_H
#define DP_TESTS_SUPPORT_TILES_CONV_BY_TILES_H

#include "tests/support/arrays.h"

#include "kernels/cpu/amx/amx.h"
#include "kernels/cpu/amx/conv_call.h"
#include "kernels/cpu/float_bits.h"
#include "kernels/ref/window.h"
#include "tests/support/memory/guarded.h"
#include "tests/support/memory/memory_end.h"
#include "tests/support/share_of_cases.h"
#include "tests/support/tiles/conv_shape.h"

enum { X, Y, WEIGHTS, ARRAYS };

/* What is tested, and how far results may be off: see struct errors. */
struct way {
    bool (*can)(const struct dp_window *w);
    size_t (*bytes)(const struct dp_conv_call *call, int threads);
    void (*compute)(const struct dp_conv_call *call, int threads);
    const struct shape *shapes;
    size_t count;
    enum dp_type type;
    double most[ARRAYS], share[ARRAYS];
};

static const struct use {
    const char *name;
    unsigned use;
    int result;
} uses[] = {{"the result", DP_CONV_FORWARD, Y},
            {"the gradient of x", DP_CONV_BACKWARD_DATA, X},
            {"the gradient of weights", DP_CONV_BACKWARD_WEIGHTS, WEIGHTS}};

/* Numbers from -1 to 1, in arrays after which memory ends: they must stay. */
struct work {
    const struct way *way;
    struct dp_window w;
    size_t number, rows, counts[ARRAYS]; /* number: of the shape */
    float *numbers[ARRAYS];
    char *arrays[ARRAYS];
    struct memory_end ends[ARRAYS];
};

/* ---- numbers ---- */

static inline size_t bytes_of(enum dp_type type)
{
    return type == DP_TYPE_F32 ? sizeof(float) : sizeof(uint16_t);
}

static inline float number_at(const char *array, size_t i, enum dp_type type)
{
    uint32_t bits = 0;

    /* A bfloat is the upper half. */
    memcpy((char *)&bits + sizeof(bits) - bytes_of(type), array + i * bytes_of(type),
           bytes_of(type));
    return dp_float_of(bits);
}

/* Numbers of the type, in the array, too. */
static inline float *fill(char *array, size_t count, uint32_t seed, enum dp_type type)
{
    float *numbers = uniform(count, seed, -1, 1);

    for (size_t i = 0; i < count; i++) {
        const char *upper = (const char *)&numbers[i] + sizeof(float) - bytes_of(type);
        memcpy(array + i * bytes_of(type), upper, bytes_of(type));
        numbers[i] = number_at(array, i, type);
    }
    return numbers;
}

static inline struct work work_open(const struct way *way, const struct shape *s)
{
    struct work k = {.way = way, .w = window_of(s), .rows = s->rows};

    k.counts[X] = k.rows * dp_window_in(&k.w);
    k.counts[Y] = k.rows * dp_window_out(&k.w);
    k.counts[WEIGHTS] = dp_window_weights(&k.w);
    for (int i = 0; i < ARRAYS; i++) {
        k.arrays[i] = memory_end(&k.ends[i], k.counts[i] * bytes_of(way->type));
        k.numbers[i] = fill(k.arrays[i], k.counts[i], (uint32_t)i, way->type);
    }
    return k;
}

static inline void work_close(struct work *k)
{
    for (int i = 0; i < ARRAYS; i++) {
        for (size_t j = 0; j < k->counts[i]; j++) {
            assert_true(number_at(k->arrays[i], j, k->way->type) == k->numbers[i][j]);
        }
        memory_end_release(&k->ends[i]);
        dp_free(k->numbers[i]);
    }
}

/* ---- what is computed ---- */

static inline enum dp_type type_of(const struct work *k, const struct use *use)
{
    return use->result == WEIGHTS ? DP_TYPE_F32 : k->way->type;
}

static inline size_t result_bytes(const struct work *k, const struct use *use)
{
    return k->counts[use->result] * bytes_of(type_of(k, use));
}

/* Into `result`, in scratch of just the size that is asked for, in which there is no number. */
static inline void run(const struct work *k, const struct use *use, int threads, void *result,
                       bool adds)
{
    struct dp_conv_call call = {
        .w = &k->w,
        .rows = k->rows,
        .use = use->use,
        .type = k->way->type,
        .x = use->result == X ? result : k->arrays[X],
        .y = use->result == Y ? result : k->arrays[Y],
        .weights = use->result == WEIGHTS ? result : k->arrays[WEIGHTS],
        .adds = adds,
    };
    const size_t bytes = k->way->bytes(&call, threads);

    assert_true(k->way->can(&k->w));
    call.scratch = guarded(bytes);
    memset(call.scratch, 0xff, bytes);
    k->way->compute(&call, threads);
    release_guarded(call.scratch, bytes);
}

/* Between guards, where no number was: released by release(). */
static inline char *result_of(const struct work *k, const struct use *use, int threads)
{
    char *result = guarded(result_bytes(k, use));

    memset(result, 0xff, result_bytes(k, use));
    run(k, use, threads, result, false);
    return result;
}

static inline void release(char *result, const struct work *k, const struct use *use)
{
    release_guarded(result, result_bytes(k, use));
}

static inline void each_work_and_use(void **state,
                                     void (*check)(const struct work *k, const struct use *use))
{
    const struct way *way = *state;

    for (size_t i = 0; i < way->count; i++) {
        struct work k = work_open(way, &way->shapes[i]);
        k.number = i;
        for (size_t u = 0; u < DP_COUNT(uses); u++) {
            check(&k, &uses[u]);
        }
        work_close(&k);
    }
}

/* ---- what it should be ---- */

/* Of each result: the sum, that without signs, and the one in float32. */
struct sums {
    double *exact, *whole;
    float *plain;
};

/* Some products, of one result, or of some after one another: step 0 or 1. */
struct products {
    size_t result, step, step_a;
    const float *a, *b;
};

static inline struct products products_of(const struct work *k, const struct use *use, size_t x,
                                          size_t y, size_t weight)
{
    const float *of_x = k->numbers[X] + x, *of_y = k->numbers[Y] + y;
    const float *weights = k->numbers[WEIGHTS] + weight;

    switch (use->result) {
    case Y:
        return (struct products){y, 0, 1, of_x, weights};
    case X:
        return (struct products){x, 1, 0, of_y, weights};
    default:
        return (struct products){weight, 1, 0, of_y, of_x};
    }
}

static inline void add_products(const struct sums *sums, const struct products *p, size_t count)
{
    for (size_t c = 0; c < count; c++) {
        const size_t at = p->result + c * p->step;
        const float a = p->a[c * p->step_a], b = p->b[c];
        sums->exact[at] += (double)a * (double)b;
        sums->whole[at] += fabs((double)a * (double)b);
        sums->plain[at] += a * b;
    }
}

/* Output i of all images by one kernel position. */
static inline void add_position(const struct work *k, const struct use *use, size_t i, size_t at,
                                const struct sums *sums)
{
    const struct dp_window *w = &k->w;
    const size_t image = i / w->out_w / w->out_h, taps = w->kernel_h * w->kernel_w;
    const size_t y = i / w->out_w % w->out_h * w->stride + at / w->kernel_w - w->padding;
    const size_t x = i % w->out_w * w->stride + at % w->kernel_w - w->padding;

    /* Places before the image are large numbers here. */
    for (size_t o = 0; o < w->out_c && y < w->in_h && x < w->in_w; o++) {
        const struct products p =
            products_of(k, use, ((image * w->in_h + y) * w->in_w + x) * w->in_c, i * w->out_c + o,
                        (o * taps + at) * w->in_c);
        add_products(sums, &p, w->in_c);
    }
}

/* Errors: the largest one, in roundings of the sum of what was added, without signs; and the mean
 * of squares, whose root is a share of that of float32 sums. Those of what becomes a bfloat are
 * what half a step of it does not explain. */
struct errors {
    double most, squares;
};

static inline void add_error(struct errors *errors, double error, double whole)
{
    errors->most = fmax(errors->most, isnan(error) ? (double)INFINITY
                                      : error == 0 ? 0
                                                   : fabs(error) / (whole * 0x1p-24));
    errors->squares += error * error;
}

/* What rounding to a bfloat may not explain. */
static inline double beyond_half_step(double error, double exact)
{
    int exponent;

    (void)frexp(exact, &exponent);
    return isnan(error) ? error : fmax(fabs(error) - ldexp(1, exponent - 9), 0);
}

static inline void check_errors(const struct work *k, const struct use *use, const char *result,
                                const struct sums *sums)
{
    const enum dp_type type = type_of(k, use);
    struct errors ours = {0, 0}, plain = {0, 0};
    double share;

    for (size_t i = 0; i < k->counts[use->result]; i++) {
        const double error = (double)number_at(result, i, type) - sums->exact[i];
        add_error(&ours, type == DP_TYPE_F32 ? error : beyond_half_step(error, sums->exact[i]),
                  sums->whole[i]);
        add_error(&plain, (double)sums->plain[i] - sums->exact[i], sums->whole[i]);
    }
    share = sqrt(ours.squares / plain.squares);
    if (!(ours.most <= k->way->most[use->result] && share <= k->way->share[use->result])) {
        fail_msg("%s of %zu x %zux%zux%zu to %zux%zux%zu: off by %.2f roundings, by %.2f of "
                 "plain sums",
                 use->name, k->rows, k->w.in_h, k->w.in_w, k->w.in_c, k->w.out_h, k->w.out_w,
                 k->w.out_c, ours.most, share);
    }
}

/* ---- tests ---- */

/* The sums take far longer than what is tested, which check_threads() also computes. */
static inline void check_definition(const struct work *k, const struct use *use)
{
    const size_t count = k->counts[use->result];

    if (!in_share(k->number + (size_t)(use - uses))) {
        return;
    }
    struct sums sums = {dp_zalloc(count, sizeof(double)), dp_zalloc(count, sizeof(double)),
                        zeros(count)};
    char *result = result_of(k, use, 1);

    assert_non_null(sums.exact);
    assert_non_null(sums.whole);
    for (size_t i = 0; i < k->rows * k->w.out_h * k->w.out_w; i++) {
        for (size_t at = 0; at < k->w.kernel_h * k->w.kernel_w; at++) {
            add_position(k, use, i, at, &sums);
        }
    }
    check_errors(k, use, result, &sums);
    release(result, k, use);
    dp_free(sums.exact);
    dp_free(sums.whole);
    dp_free(sums.plain);
}

static inline void errors_are_at_most_those_of_plain_sums(void **state)
{
    each_work_and_use(state, check_definition);
}

static inline void check_threads(const struct work *k, const struct use *use)
{
    char *alone = result_of(k, use, 1);

    for (int threads = 2; threads <= 3; threads++) {
        char *shared = result_of(k, use, threads);
        assert_memory_equal(shared, alone, result_bytes(k, use));
        release(shared, k, use);
    }
    release(alone, k, use);
}

static inline void bits_do_not_depend_on_threads(void **state)
{
    each_work_and_use(state, check_threads);
}

/* One of the images, at the place of all of them. */
static inline struct work image_of(const struct work *k, size_t image)
{
    struct work one = *k;

    one.rows = 1;
    for (int i = X; i <= Y; i++) {
        one.counts[i] /= k->rows;
        one.arrays[i] += image * one.counts[i] * bytes_of(k->way->type);
    }
    return one;
}

static inline void check_images(const struct work *k, const struct use *use)
{
    char *all;

    if (use->result == WEIGHTS) {
        return;
    }
    all = result_of(k, use, 2);
    for (size_t i = 0; i < k->rows; i++) {
        const struct work image = image_of(k, i);
        const size_t bytes = result_bytes(&image, use);
        char *one = result_of(&image, use, 1);
        assert_memory_equal(one, all + i * bytes, bytes);
        release(one, &image, use);
    }
    release(all, k, use);
}

static inline void an_image_does_not_depend_on_others(void **state)
{
    each_work_and_use(state, check_images);
}

/* Memory ends after what is added to. */
static inline void check_sum(const struct work *k, const struct use *use)
{
    const size_t count = k->counts[use->result];
    float *before, *sum;
    struct memory_end end;
    char *gradient;

    if (use->result != WEIGHTS) {
        return;
    }
    gradient = result_of(k, use, 1);
    before = uniform(count, ARRAYS, -8, 8);
    sum = memory_end(&end, count * sizeof(float));
    memcpy(sum, before, count * sizeof(float));
    run(k, use, 2, sum, true);
    for (size_t i = 0; i < count; i++) {
        const double a = (double)before[i], b = (double)number_at(gradient, i, DP_TYPE_F32);
        assert_true(fabs((double)sum[i] - (a + b)) <= (fabs(a) + fabs(b)) * 0x1p-23);
    }
    memory_end_release(&end);
    dp_free(before);
    release(gradient, k, use);
}

static inline void gradients_are_added_where_that_is_wanted(void **state)
{
    each_work_and_use(state, check_sum);
}

/* Memory ends after all arrays. */
static inline void check_end(const struct work *k, const struct use *use)
{
    const size_t bytes = result_bytes(k, use);
    char *result = result_of(k, use, 1), *last;
    struct memory_end end;

    last = memory_end(&end, bytes);
    run(k, use, 3, last, false);
    assert_memory_equal(last, result, bytes);
    memory_end_release(&end);
    release(result, k, use);
}

static inline void nothing_after_an_array_is_touched(void **state)
{
    each_work_and_use(state, check_end);
}

#if DP_AMX_CODE

/* Libraries believe that nobody else changes the shapes of tiles. */
DP_AMX static inline void check_shapes(const struct work *k, const struct use *use)
{
    struct dp_amx_shape before = {.palette = 1, .row_bytes = {32}, .rows = {5}}, after;

    _tile_loadconfig(&before);
    release(result_of(k, use, 1), k, use);
    _tile_storeconfig(&after);
    _tile_release();
    assert_memory_equal(&after, &before, sizeof(after));
}

#endif

static inline void tiles_are_shaped_as_before(void **state)
{
    (void)state;
#if DP_AMX_CODE
    each_work_and_use(state, check_shapes);
#endif
}

#endif
