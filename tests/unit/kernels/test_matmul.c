/*
 * test_matmul.c - matrix products of both libraries against plain sums: orders, rows that are
 * longer than the matrix, and what is kept. Which of them a processor gets does not matter here.
 *
 * Numbers are small integers, so that every sum is exact.
 */
#include "tests/support/arrays.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_blas_are_plain_sums),
        cmocka_unit_test(products_of_onednn_are_plain_sums),
    };

    return cmocka_run_group_tests_name("matmul", tests, NULL, NULL);
}
