/*
 * test_dense_amx.c - the products of a dense layer by AMX are the sums that they should be: of
 * small integers exactly, since float32 rounds none of these sums, and rounded once where the
 * result is bfloat16; of other numbers within the rounding of float32.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS, in memory_end.h */
#include "tests/support/arrays.h"

#include "kernels/cpu/amx/amx.h"
#include "kernels/cpu/amx/dense_amx.h"
#include "kernels/cpu/bfloat.h"
#include "tests/support/memory/guarded.h"
#include "tests/support/memory/memory_end.h"

enum { ODD = 3 /* bfloats or floats before an array: unaligned */ };

struct shape {
    size_t rows, in, out;
};

static const struct shape shapes[] = {
    {1, 1, 1},     {2, 3, 5},     {31, 33, 34},   {32, 32, 32},   {33, 64, 31},
    {64, 128, 96}, {5, 129, 130}, {40, 300, 17},  {7, 16, 260},   {70, 31, 257},
    {256, 40, 33}, {257, 35, 70}, {520, 37, 129}, {100, 784, 48}, {128, 96, 160},
};

static const unsigned uses[] = {DP_DENSE_FORWARD, DP_DENSE_BACKWARD_DATA,
                                DP_DENSE_BACKWARD_WEIGHTS};

/* ---- arrays ---- */

/* Integers from -7 to 7, or numbers between -1 and 1, as bfloats, and ODD of them before. */
static uint16_t *numbers(size_t count, uint32_t seed, bool integers)
{
    uint16_t *x = dp_mem_arena(DP_MEM_OTHER, (count + ODD) * sizeof(*x));

    assert_non_null(x);
    for (size_t i = 0; i < count + ODD; i++) {
        const uint32_t random = dp_random_u32(seed, DP_RANDOM_TEST, 0, i);
        x[i] =
            dp_bfloat_of(integers ? (float)(random % 15) - 7.0f : (float)random * 0x1p-31f - 1.0f);
    }
    return x;
}

/* ---- a product ---- */

struct work {
    struct dp_dense_amx call;
    uint16_t *a, *b, *bias; /* as allocated */
    size_t count, bytes;    /* of c */
    char *c;
};

static bool is_narrow(const struct work *w)
{
    return w->call.key.use != DP_DENSE_BACKWARD_WEIGHTS;
}

static struct work work_of(const struct shape *s, unsigned use, bool integers)
{
    const size_t x = s->rows * s->in, y = s->rows * s->out, w = s->in * s->out;
    struct work work = {.call = {.key = {s->rows, s->in, s->out, use, DP_TYPE_BF16}}};

    work.a = numbers(use == DP_DENSE_FORWARD ? x : y, 1, integers);
    work.b = numbers(use == DP_DENSE_BACKWARD_WEIGHTS ? x : w, 2, integers);
    work.bias = numbers(s->out, 3, integers);
    work.count = use == DP_DENSE_FORWARD ? y : use == DP_DENSE_BACKWARD_DATA ? x : w;
    work.bytes = (work.count + ODD) * (is_narrow(&work) ? sizeof(uint16_t) : sizeof(float));
    work.c = guarded(work.bytes);
    work.call.a = work.a + ODD;
    work.call.b = work.b + ODD;
    work.call.c = is_narrow(&work) ? (void *)((uint16_t *)(void *)work.c + ODD)
                                   : (void *)((float *)(void *)work.c + ODD);
    return work;
}

/* In scratch that is full of what is no number. */
static void run(struct work *w, int threads)
{
    const size_t bytes = dp_dense_amx_bytes(&w->call.key, threads);
    char *scratch = guarded(bytes);

    memset(scratch, 0xff, bytes);
    w->call.scratch = scratch;
    dp_dense_amx(&w->call, threads);
    release_guarded(scratch, bytes);
}

static void work_free(struct work *w)
{
    release_guarded(w->c, w->bytes);
    dp_free(w->a);
    dp_free(w->b);
    dp_free(w->bias);
}

static float result(const struct work *w, size_t i)
{
    return is_narrow(w) ? dp_of_bfloat(((const uint16_t *)w->call.c)[i])
                        : ((const float *)w->call.c)[i];
}

/* The sum that element i is, and the sum of its products' magnitudes. */
static double sum_of(const struct work *w, size_t i, double *magnitude)
{
    const struct dp_dense_key *key = &w->call.key;
    const struct dp_matmul p = dp_dense_product(key, NULL, NULL, NULL, 0.0f);
    const size_t row = i / p.n, column = i % p.n;
    double sum = 0.0;

    *magnitude = 0.0;
    for (size_t k = 0; k < p.k; k++) {
        const size_t at_a = p.order_a == DP_PLAIN ? row * p.lda + k : k * p.lda + row;
        const size_t at_b = p.order_b == DP_PLAIN ? k * p.ldb + column : column * p.ldb + k;
        const double product =
            (double)dp_of_bfloat(w->call.a[at_a]) * (double)dp_of_bfloat(w->call.b[at_b]);
        sum += product;
        *magnitude += fabs(product);
    }
    return sum;
}

/* ---- tests ---- */

/* Exactly, with what comes after the sum. */
static void check(struct work *w, int threads, float before)
{
    size_t wrong = 0;

    for (size_t i = 0; !is_narrow(w) && i < w->count; i++) {
        ((float *)w->call.c)[i] = w->call.adds ? before : NAN;
    }
    run(w, threads);
    for (size_t i = 0; i < w->count; i++) {
        double magnitude;
        float sum = (float)sum_of(w, i, &magnitude) + (w->call.adds ? before : 0.0f);
        sum += w->call.bias != NULL ? dp_of_bfloat(w->call.bias[i % w->call.key.out]) : 0.0f;
        sum = w->call.relu && sum < 0 ? 0.0f : sum;
        wrong += result(w, i) != (is_narrow(w) ? dp_of_bfloat(dp_bfloat_of(sum)) : sum);
    }
    assert_int_equal(wrong, 0);
}

static void products_are_the_exact_sums(void **state)
{
    (void)state;

    for (size_t i = 0; i < DP_COUNT(shapes); i++) {
        for (size_t u = 0; u < DP_COUNT(uses); u++) {
            struct work w = work_of(&shapes[i], uses[u], true);
            print_message("shape %zu, use %u\n", i, uses[u]);
            check(&w, 1, 0.0f);
            check(&w, 3, 0.0f);
            w.call.adds = uses[u] == DP_DENSE_BACKWARD_WEIGHTS;
            check(&w, 2, 5.0f);
            work_free(&w);
        }
    }
}

static void bias_and_relu_come_before_rounding(void **state)
{
    (void)state;

    for (size_t i = 0; i < DP_COUNT(shapes); i++) {
        struct work w = work_of(&shapes[i], DP_DENSE_FORWARD, true);
        w.call.relu = true;
        check(&w, 1, 0.0f);
        w.call.bias = w.bias + ODD;
        check(&w, 2, 0.0f);
        w.call.relu = false;
        check(&w, 1, 0.0f);
        work_free(&w);
    }
}

static void relu_keeps_what_is_no_number(void **state)
{
    const struct shape shape = {2, 1, 1};
    struct work w = work_of(&shape, DP_DENSE_FORWARD, true);
    (void)state;

    w.a[ODD] = dp_bfloat_of(NAN);
    w.a[ODD + 1] = dp_bfloat_of(-1.0f);
    w.b[ODD] = dp_bfloat_of(1.0f);
    w.call.relu = true;
    run(&w, 1);
    assert_true(isnan(result(&w, 0)) && result(&w, 1) == 0.0f);
    work_free(&w);
}

static void nothing_after_the_scratch_is_read(void **state)
{
    (void)state;

    for (size_t i = 0; i < DP_COUNT(shapes) * DP_COUNT(uses); i++) {
        struct work w = work_of(&shapes[i / DP_COUNT(uses)], uses[i % DP_COUNT(uses)], true);
        struct memory_end end;
        w.call.scratch = memory_end(&end, dp_dense_amx_bytes(&w.call.key, 2));
        dp_dense_amx(&w.call, 2);
        memory_end_release(&end);
        work_free(&w);
    }
}

/* Each addition rounds by half of 2^-23 at most, each result by 2^-8. */
static void other_sums_are_off_by_rounding_only(void **state)
{
    static const struct shape some[] = {{128, 300, 65}, {300, 70, 40}, {37, 1000, 50}};
    (void)state;

    for (size_t i = 0; i < DP_COUNT(some) * DP_COUNT(uses); i++) {
        struct work w = work_of(&some[i / DP_COUNT(uses)], uses[i % DP_COUNT(uses)], false);
        const struct dp_matmul p = dp_dense_product(&w.call.key, NULL, NULL, NULL, 0.0f);
        size_t wrong = 0;
        run(&w, 1);
        for (size_t k = 0; k < w.count; k++) {
            double magnitude;
            const double sum = sum_of(&w, k, &magnitude);
            const double bound = 0x1p-24 * (double)p.k * magnitude;
            const double narrow = is_narrow(&w) ? 0x1p-8 * fabs(sum) : 0.0;
            wrong += !(fabs((double)result(&w, k) - sum) <= bound + narrow);
        }
        assert_int_equal(wrong, 0);
        work_free(&w);
    }
}

/* A rank's rows are some of the batch. Also of threads. */
static void bits_do_not_depend_on_other_rows(void **state)
{
    static const struct shape all = {300, 200, 150};
    static const size_t fewer[] = {1, 33, 128, 299};
    (void)state;

    for (size_t u = 0; u < 2; u++) {
        struct work whole = work_of(&all, uses[u], false);
        run(&whole, 1);
        for (size_t i = 0; i < DP_COUNT(fewer); i++) {
            const size_t width = whole.count / all.rows;
            const struct shape part = {fewer[i], all.in, all.out};
            struct work w = work_of(&part, uses[u], false);
            const size_t skipped = all.rows - fewer[i];
            w.call.a = whole.call.a + skipped * (uses[u] == DP_DENSE_FORWARD ? all.in : all.out);
            run(&w, 2);
            assert_memory_equal(w.call.c, (uint16_t *)whole.call.c + skipped * width,
                                w.count * sizeof(uint16_t));
            work_free(&w);
        }
        work_free(&whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_the_exact_sums),
        cmocka_unit_test(bias_and_relu_come_before_rounding),
        cmocka_unit_test(relu_keeps_what_is_no_number),
        cmocka_unit_test(nothing_after_the_scratch_is_read),
        cmocka_unit_test(other_sums_are_off_by_rounding_only),
        cmocka_unit_test(bits_do_not_depend_on_other_rows),
    };

    if (!dp_amx_has()) {
        puts("skipped: this processor has no AMX, or a virtual machine hides it");
        return 77;
    }
    return cmocka_run_group_tests_name("dense_amx", tests, NULL, NULL);
}
