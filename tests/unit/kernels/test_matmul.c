/*
 * test_matmul.c - matrix products of both libraries, and ours, against plain sums: orders, rows
 * that are longer than the matrix, and what is kept. Which of them a processor gets does not matter
 * here.
 *
 * Numbers are small integers, so that every sum is exact, but for those of all bits.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS, in memory_end.h */
#include "tests/support/arrays.h"

#include <math.h>

#include "kernels/cpu/amx/gemm_amx.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/matmul.h"
#include "tests/support/memory/memory_end.h"

enum { GAP = 3 /* columns beside each matrix in memory */ };

struct sizes {
    size_t m, n, k;
};

static const struct sizes sizes[] = {{1, 1, 1},     {1, 5, 3},    {4, 1, 7},   {5, 3, 1},
                                     {16, 17, 18},  {33, 64, 31}, {70, 65, 9}, {2, 130, 65},
                                     {35, 70, 1060} /* more than tiles take at a time */};

/* [rows, columns + GAP] */
static float *integers(size_t rows, size_t columns, uint32_t seed)
{
    const size_t count = rows * (columns + GAP);
    float *array = zeros(count);

    for (size_t i = 0; i < count; i++) {
        array[i] = (float)(dp_random_u32(seed, DP_RANDOM_TEST, 0, i) % 17) - 8.0f;
    }
    return array;
}

static float at(const float *array, size_t ld, enum dp_order order, size_t row, size_t column)
{
    return order == DP_PLAIN ? array[row * ld + column] : array[column * ld + row];
}

static float element(const struct dp_matmul *p, size_t i, size_t j, float before)
{
    float sum = p->keep == 0 ? 0.0f : before;

    for (size_t x = 0; x < p->k; x++) {
        sum += at(p->a, p->lda, p->order_a, i, x) * at(p->b, p->ldb, p->order_b, x, j);
    }
    return sum;
}

/* Every element of c, and what lies beside it, which stays. */
static void check(const struct dp_matmul *p, const float *before)
{
    for (size_t k = 0; k < p->m * p->ldc; k++) {
        const size_t i = k / p->ldc, j = k % p->ldc;
        assert_true(p->c[k] == (j < p->n ? element(p, i, j, before[k]) : before[k]));
    }
}

static void check_product(void (*multiply)(int, const struct dp_matmul *), const struct sizes *s,
                          unsigned way, int threads)
{
    const enum dp_order order_a = (way & 1) != 0 ? DP_TRANSPOSED : DP_PLAIN;
    const enum dp_order order_b = (way & 2) != 0 ? DP_TRANSPOSED : DP_PLAIN;
    const size_t columns_a = order_a == DP_PLAIN ? s->k : s->m;
    const size_t columns_b = order_b == DP_PLAIN ? s->n : s->k;
    float *a = integers(order_a == DP_PLAIN ? s->m : s->k, columns_a, 1);
    float *b = integers(order_b == DP_PLAIN ? s->k : s->n, columns_b, 2);
    float *c = integers(s->m, s->n, 3);
    const struct dp_matmul product = {.c = c,
                                      .a = a,
                                      .b = b,
                                      .order_a = order_a,
                                      .order_b = order_b,
                                      .m = s->m,
                                      .n = s->n,
                                      .k = s->k,
                                      .lda = columns_a + GAP,
                                      .ldb = columns_b + GAP,
                                      .ldc = s->n + GAP,
                                      .keep = (way & 4) != 0 ? 1.0f : 0.0f};

    for (size_t i = 0; i < s->m && product.keep == 0; i++) {
        for (size_t j = 0; j < s->n; j++) {
            c[i * product.ldc + j] = NAN; /* must not be read */
        }
    }
    float *before = copy_of(c, s->m * product.ldc);
    multiply(threads, &product);
    check(&product, before);
    dp_free(before);
    dp_free(c);
    dp_free(b);
    dp_free(a);
}

static void check_all(void (*multiply)(int, const struct dp_matmul *))
{
    for (size_t i = 0; i < DP_COUNT(sizes); i++) {
        for (unsigned way = 0; way < 8; way++) {
            check_product(multiply, &sizes[i], way, 1);
            check_product(multiply, &sizes[i], way, 2);
        }
    }
}

static void products_of_blas_are_plain_sums(void **state)
{
    (void)state;
    check_all(dp_matmul_blas);
}

static void products_of_onednn_are_plain_sums(void **state)
{
    (void)state;
#if DP_HAVE_ONEDNN
    check_all(dp_matmul_onednn);
#else
    skip();
#endif
}

/* ---- ours ---- */

/* By vectors, and by tiles. */
static const struct own {
    bool (*can)(const struct dp_matmul *product);
    size_t (*bytes)(const struct dp_matmul *product, int threads);
    void (*run)(const struct dp_gemm *gemm, int threads);
} owns[] = {{dp_gemm_can, dp_gemm_bytes, dp_gemm},
            {dp_gemm_amx_can, dp_gemm_amx_bytes, dp_gemm_amx}};
static const struct own *own; /* which is tested */

enum { GUARD = 64 /* floats after the scratch, which stay */ };

static void gemm_in_scratch(int threads, struct dp_gemm *gemm)
{
    const size_t count = own->bytes(&gemm->product, threads) / sizeof(float);
    float *scratch = zeros(count + GUARD);

    for (size_t i = 0; i < count; i++) {
        scratch[i] = NAN; /* must be written before it is read */
    }
    gemm->scratch = scratch;
    own->run(gemm, threads);
    for (size_t i = 0; i < GUARD; i++) {
        assert_true(scratch[count + i] == 0.0f);
    }
    dp_free(scratch);
}

static void multiply_ours(int threads, const struct dp_matmul *product)
{
    struct dp_gemm gemm = {.product = *product};

    if (own->can(product)) {
        gemm_in_scratch(threads, &gemm);
    } else { /* both transposed, which no layer needs */
        dp_matmul_blas(threads, product);
    }
}

/* Runs a check for each of ours that this processor can compute. */
static void each_of_ours(void (*run)(void))
{
    const struct dp_matmul product = {.order_a = DP_PLAIN, .order_b = DP_PLAIN};
    bool any = false;

    for (size_t i = 0; i < DP_COUNT(owns); i++) {
        own = &owns[i];
        if (own->can(&product)) {
            any = true;
            run();
        } else {
            print_message("skipped: %s, which this processor cannot compute\n",
                          i == 0 ? "AVX-512" : "AMX");
        }
    }
    if (!any) {
        skip();
    }
}

static void check_ours(void)
{
    /* More than a block of samples, of all threads and of each; than one of each kind of sums;
     * parts of panels and tiles. Threads divide 192 samples and more. */
    static const struct sizes large[] = {{270, 35, 40}, {790, 13, 20}, {30, 45, 1030},
                                         {20, 33, 300}, {35, 20, 263}, {192, 33, 270},
                                         {191, 48, 16}, {23, 31, 33}};

    check_all(multiply_ours);
    for (size_t i = 0; i < DP_COUNT(large); i++) {
        for (unsigned way = 0; way < 8; way++) {
            check_product(multiply_ours, &large[i], way, 1);
            check_product(multiply_ours, &large[i], way, 3);
        }
    }
}

/* Where memory ends, nothing is read after a matrix, nor written. */
static void check_end(const struct sizes *s, enum dp_order order_a, enum dp_order order_b,
                      int threads)
{
    const size_t counts[3] = {s->m * s->k, s->k * s->n, s->m * s->n};
    struct memory_end ends[3];
    float *array[3];

    for (int i = 0; i < 3; i++) {
        array[i] = memory_end(&ends[i], counts[i] * sizeof(float));
        for (size_t k = 0; k < counts[i]; k++) {
            array[i][k] = (float)(k % 7) - 3.0f;
        }
    }
    const struct dp_matmul product = {.c = array[2],
                                      .a = array[0],
                                      .b = array[1],
                                      .order_a = order_a,
                                      .order_b = order_b,
                                      .m = s->m,
                                      .n = s->n,
                                      .k = s->k,
                                      .lda = order_a == DP_PLAIN ? s->k : s->m,
                                      .ldb = order_b == DP_PLAIN ? s->n : s->k,
                                      .ldc = s->n};
    multiply_ours(threads, &product);
    check(&product, array[2]);
    for (int i = 0; i < 3; i++) {
        memory_end_release(&ends[i]);
    }
}

/* Whole vectors and tiles, and parts of them. */
static void check_ends(void)
{
    static const struct sizes ends[] = {{64, 40, 256}, {63, 39, 250}, {17, 33, 31}, {5, 3, 18}};
    static const enum dp_order orders[][2] = {
        {DP_PLAIN, DP_TRANSPOSED}, {DP_PLAIN, DP_PLAIN}, {DP_TRANSPOSED, DP_PLAIN}};

    for (size_t i = 0; i < DP_COUNT(ends) * DP_COUNT(orders); i++) {
        const enum dp_order *order = orders[i % DP_COUNT(orders)];
        for (int threads = 1; threads <= 3; threads++) {
            check_end(&ends[i / DP_COUNT(orders)], order[0], order[1], threads);
        }
    }
}

static void nothing_after_a_matrix_is_read(void **state)
{
    (void)state;
    each_of_ours(check_ends);
}

static void our_products_are_plain_sums(void **state)
{
    (void)state;
    each_of_ours(check_ours);
}

/* Threads that divide samples share no scratch, and need no more than for their own. */
static void scratch_of_threads_is_that_of_their_samples(void **state)
{
    static const enum dp_order orders[] = {DP_PLAIN, DP_TRANSPOSED};
    (void)state;

    for (size_t i = 0; i < DP_COUNT(orders); i++) {
        struct dp_matmul product = {.order_b = orders[i], .m = 64, .n = 33, .k = 40};
        const size_t alone = dp_gemm_bytes(&product, 1);
        product.m *= 3;
        assert_int_equal(dp_gemm_bytes(&product, 3), 3 * alone);
    }
}

enum { SAMPLES = 133, UNITS = 26, INPUTS = 1500 /* more than a block */ };

/* y = act(x w' + b) of integers. */
static void check_finish(const float *x, const float *w, const float *bias, bool relu, int threads)
{
    float *y = zeros((size_t)SAMPLES * UNITS);
    struct dp_gemm gemm = {.product = {.c = y,
                                       .a = x,
                                       .b = w,
                                       .order_a = DP_PLAIN,
                                       .order_b = DP_TRANSPOSED,
                                       .m = SAMPLES,
                                       .n = UNITS,
                                       .k = INPUTS,
                                       .lda = INPUTS + GAP,
                                       .ldb = INPUTS + GAP,
                                       .ldc = UNITS},
                           .bias = bias,
                           .relu = relu};

    gemm_in_scratch(threads, &gemm);
    for (size_t i = 0; i < SAMPLES; i++) {
        for (size_t j = 0; j < UNITS; j++) {
            const float sum = element(&gemm.product, i, j, 0.0f) + (bias != NULL ? bias[j] : 0.0f);
            assert_true(y[i * UNITS + j] == (relu && sum < 0 ? 0.0f : sum));
        }
    }
    dp_free(y);
}

static void check_finishes(void)
{
    float *x = integers(SAMPLES, INPUTS, 4), *w = integers(UNITS, INPUTS, 5);
    float *bias = integers(1, UNITS, 6);

    for (int threads = 2; threads <= 3; threads++) { /* divide samples; units */
        check_finish(x, w, NULL, false, threads);
        check_finish(x, w, NULL, true, threads);
        check_finish(x, w, bias, false, threads);
        check_finish(x, w, bias, true, threads);
    }
    dp_free(bias);
    dp_free(w);
    dp_free(x);
}

static void bias_and_relu_come_after_the_whole_sum(void **state)
{
    (void)state;
    each_of_ours(check_finishes);
}

static void check_no_number(void)
{
    const float x[2] = {NAN, -1.0f}, w = 1.0f;
    float y[2] = {0.0f, 0.0f};
    struct dp_gemm gemm = {.product = {y, x, &w, DP_PLAIN, DP_TRANSPOSED, 2, 1, 1, 1, 1, 1, 0.0f},
                           .relu = true};

    gemm_in_scratch(1, &gemm);
    assert_true(isnan(y[0]) && y[1] == 0.0f);
}

static void relu_keeps_what_is_no_number(void **state)
{
    (void)state;
    each_of_ours(check_no_number);
}

/* ---- numbers of all bits ---- */

enum { LONG = 700 };

/* Magnitudes differ by 2^16 and more. */
static float *numbers(size_t rows, size_t columns, uint32_t seed)
{
    float *array = uniform(rows * (columns + GAP), seed, -1, 1);

    for (size_t i = 0; i < rows * (columns + GAP); i++) {
        array[i] = ldexpf(array[i], (int)(dp_random_u32(seed, DP_RANDOM_TEST, 1, i) % 17) - 8);
    }
    return array;
}

/* The largest error of c = op(a) op(b), in roundings of the sum of what was added, without
 * signs. */
static double error_of(void (*multiply)(int, const struct dp_matmul *), enum dp_order order_a,
                       enum dp_order order_b, const float *a, const float *b)
{
    enum { M = 40, N = 36 };
    float *c = zeros((size_t)M * N);
    const struct dp_matmul p = {.c = c,
                                .a = a,
                                .b = b,
                                .order_a = order_a,
                                .order_b = order_b,
                                .m = M,
                                .n = N,
                                .k = LONG,
                                .lda = (order_a == DP_PLAIN ? LONG : M) + GAP,
                                .ldb = (order_b == DP_PLAIN ? N : LONG) + GAP,
                                .ldc = N};
    double most = 0;

    multiply(2, &p);
    for (size_t i = 0; i < (size_t)M * N; i++) {
        double sum = 0, whole = 0;
        for (size_t x = 0; x < LONG; x++) {
            const double product =
                (double)at(a, p.lda, order_a, i / N, x) * (double)at(b, p.ldb, order_b, x, i % N);
            sum += product;
            whole += fabs(product);
        }
        most = fmax(most, fabs((double)c[i] - sum) / (whole * 0x1p-24));
    }
    dp_free(c);
    return most;
}

/* One product after the other. */
static void multiply_plainly(int threads, const struct dp_matmul *p)
{
    (void)threads;
    for (size_t i = 0; i < p->m; i++) {
        for (size_t j = 0; j < p->n; j++) {
            p->c[i * p->ldc + j] = element(p, i, j, 0.0f);
        }
    }
}

static void check_errors(void)
{
    static const enum dp_order orders[][2] = {
        {DP_PLAIN, DP_TRANSPOSED}, {DP_PLAIN, DP_PLAIN}, {DP_TRANSPOSED, DP_PLAIN}};
    float *a = numbers(LONG, LONG, 7), *b = numbers(LONG, LONG, 8);

    for (size_t i = 0; i < DP_COUNT(orders); i++) {
        const double ours = error_of(multiply_ours, orders[i][0], orders[i][1], a, b);
        const double plain = error_of(multiply_plainly, orders[i][0], orders[i][1], a, b);
        print_message("%.2f roundings, added one after the other %.2f\n", ours, plain);
        assert_true(ours <= plain);
    }
    dp_free(b);
    dp_free(a);
}

/* Those of three bfloats in place of a float as well. */
static void our_errors_are_no_larger_than_those_of_plain_sums(void **state)
{
    (void)state;
    each_of_ours(check_errors);
}

static void check_infinity(void)
{
    const float x[4] = {INFINITY, 3.0f, -INFINITY, 1e-40f}, w = 2.0f;
    float y[4] = {0};
    struct dp_gemm gemm = {.product = {y, x, &w, DP_PLAIN, DP_TRANSPOSED, 4, 1, 1, 1, 1, 1, 0.0f}};

    gemm_in_scratch(1, &gemm);
    assert_false(isfinite(y[0]) || isfinite(y[2]));
    assert_true(y[1] == 6.0f && fabsf(y[3]) < 1e-37f);
}

static void what_is_infinite_does_not_become_finite(void **state)
{
    (void)state;
    each_of_ours(check_infinity);
}

/* Split into parts of 8 bits, two numbers of a sum share a lane, and the last part of what is very
 * small has more bits than that. */
static void check_tiny(void)
{
    enum { SIDE = 32, HALF = SIDE / 2 };
    float x[SIDE], unit[SIDE * SIDE] = {0}, y[2][SIDE] = {{0}};
    struct dp_matmul p = {y[0], x, unit, DP_PLAIN, DP_PLAIN, 1, SIDE, SIDE, SIDE, SIDE, SIDE, 0.0f};

    for (size_t i = 0; i < SIDE; i++) {
        x[i] = i < HALF ? 1.0f + 0x1p-9f + 0x1p-23f : ldexpf(0xabcdefp-23f, -119);
        unit[i * SIDE + i] = 1.0f;
    }
    multiply_ours(1, &p);
    p = (struct dp_matmul){y[1], unit, x, DP_PLAIN, DP_PLAIN, SIDE, 1, SIDE, SIDE, 1, 1, 0.0f};
    multiply_ours(1, &p);
    for (size_t i = 0; i < SIDE; i++) {
        for (size_t side = 0; side < 2; side++) {
            assert_true(i < HALF ? y[side][i] == x[i] : fabsf(y[side][i]) < 1e-35f);
        }
    }
}

static void tiny_numbers_leave_others_as_they_are(void **state)
{
    (void)state;
    each_of_ours(check_tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_blas_are_plain_sums),
        cmocka_unit_test(products_of_onednn_are_plain_sums),
        cmocka_unit_test(our_products_are_plain_sums),
        cmocka_unit_test(nothing_after_a_matrix_is_read),
        cmocka_unit_test(scratch_of_threads_is_that_of_their_samples),
        cmocka_unit_test(bias_and_relu_come_after_the_whole_sum),
        cmocka_unit_test(relu_keeps_what_is_no_number),
        cmocka_unit_test(our_errors_are_no_larger_than_those_of_plain_sums),
        cmocka_unit_test(what_is_infinite_does_not_become_finite),
        cmocka_unit_test(tiny_numbers_leave_others_as_they_are),
    };

    return cmocka_run_group_tests_name("matmul", tests, NULL, NULL);
}
