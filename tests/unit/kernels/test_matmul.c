/*
 * test_matmul.c - matrix products of both libraries, and ours, against plain sums: orders, rows
 * that are longer than the matrix, and what is kept. Which of them a processor gets does not matter
 * here.
 *
 * Numbers are small integers, so that every sum is exact.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "tests/support/arrays.h"

#include <sys/mman.h>

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/matmul.h"

enum { GAP = 3 /* columns beside each matrix in memory */ };

struct sizes {
    size_t m, n, k;
};

static const struct sizes sizes[] = {{1, 1, 1},    {1, 5, 3},    {4, 1, 7},   {5, 3, 1},
                                     {16, 17, 18}, {33, 64, 31}, {70, 65, 9}, {2, 130, 65}};

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

static float at(const float *array, size_t lines, enum dp_order order, size_t row, size_t column)
{
    return order == DP_PLAIN ? array[row * lines + column] : array[column * lines + row];
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

enum { GUARD = 64 /* floats after the scratch, which stay */ };

static void gemm_in_scratch(int threads, struct dp_gemm *gemm)
{
    const size_t count = dp_gemm_bytes(&gemm->product, threads) / sizeof(float);
    float *scratch = zeros(count + GUARD);

    for (size_t i = 0; i < count; i++) {
        scratch[i] = NAN; /* must be written before it is read */
    }
    gemm->scratch = scratch;
    dp_gemm(gemm, threads);
    for (size_t i = 0; i < GUARD; i++) {
        assert_true(scratch[count + i] == 0.0f);
    }
    dp_free(scratch);
}

static void multiply_ours(int threads, const struct dp_matmul *product)
{
    struct dp_gemm gemm = {.product = *product};

    if (dp_gemm_can(product)) {
        gemm_in_scratch(threads, &gemm);
    } else { /* both transposed, which no layer needs; or no AVX-512 */
        dp_matmul_blas(threads, product);
    }
}

static bool has_ours(void)
{
    const struct dp_matmul product = {.order_a = DP_PLAIN, .order_b = DP_PLAIN};

    return dp_gemm_can(&product);
}

static void our_products_are_plain_sums(void **state)
{
    /* More than a block of samples, of all threads and of each; than one of each kind of sums;
     * parts of panels and tiles. Threads divide 192 samples and more. */
    static const struct sizes large[] = {{270, 35, 40}, {790, 13, 20}, {30, 45, 1030},
                                         {20, 33, 300}, {35, 20, 263}, {192, 33, 270},
                                         {191, 48, 16}, {23, 31, 33}};
    (void)state;

    if (!has_ours()) {
        skip();
    }
    check_all(multiply_ours);
    for (size_t i = 0; i < DP_COUNT(large); i++) {
        for (unsigned way = 0; way < 8; way++) {
            check_product(multiply_ours, &large[i], way, 1);
            check_product(multiply_ours, &large[i], way, 3);
        }
    }
}

/* Where memory ends, nothing is read behind a matrix. */
static void no_row_behind_the_last_one_is_read(void **state)
{
    enum { M = 64, N = 40, K = 256, BYTES = M * K * (int)sizeof(float) };
    char *a =
        mmap(NULL, 2 * (size_t)BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    float *b = zeros((size_t)K * N), *c = zeros((size_t)M * N);
    (void)state;

    assert_true(a != MAP_FAILED);
    assert_int_equal(mprotect(a + BYTES, BYTES, PROT_NONE), 0);
    for (int i = 0; i < K * N; i++) {
        b[i] = (float)(i % 7);
    }
    for (int threads = 1; threads <= 3; threads++) {
        const struct dp_matmul product = {.c = c,
                                          .a = (const float *)(const void *)a,
                                          .b = b,
                                          .order_a = DP_PLAIN,
                                          .order_b = DP_PLAIN,
                                          .m = M,
                                          .n = N,
                                          .k = K,
                                          .lda = K,
                                          .ldb = N,
                                          .ldc = N};
        multiply_ours(threads, &product);
    }
    assert_true(c[M * N - 1] == 0.0f);
    assert_int_equal(munmap(a, 2 * (size_t)BYTES), 0);
    dp_free(b);
    dp_free(c);
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

static void bias_and_relu_come_after_the_whole_sum(void **state)
{
    float *x = integers(SAMPLES, INPUTS, 4), *w = integers(UNITS, INPUTS, 5);
    float *bias = integers(1, UNITS, 6);
    (void)state;

    for (int threads = 2; has_ours() && threads <= 3; threads++) { /* divide samples; units */
        check_finish(x, w, NULL, false, threads);
        check_finish(x, w, NULL, true, threads);
        check_finish(x, w, bias, false, threads);
        check_finish(x, w, bias, true, threads);
    }
    dp_free(bias);
    dp_free(w);
    dp_free(x);
}

static void relu_keeps_what_is_no_number(void **state)
{
    const float x[2] = {NAN, -1.0f}, w = 1.0f;
    float y[2] = {0.0f, 0.0f};
    struct dp_gemm gemm = {.product = {y, x, &w, DP_PLAIN, DP_TRANSPOSED, 2, 1, 1, 1, 1, 1, 0.0f},
                           .relu = true};
    (void)state;

    if (has_ours()) {
        gemm_in_scratch(1, &gemm);
        assert_true(isnan(y[0]) && y[1] == 0.0f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_blas_are_plain_sums),
        cmocka_unit_test(products_of_onednn_are_plain_sums),
        cmocka_unit_test(our_products_are_plain_sums),
        cmocka_unit_test(no_row_behind_the_last_one_is_read),
        cmocka_unit_test(bias_and_relu_come_after_the_whole_sum),
        cmocka_unit_test(relu_keeps_what_is_no_number),
    };

    return cmocka_run_group_tests_name("matmul", tests, NULL, NULL);
}
