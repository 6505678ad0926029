/*
 * test_few_rows.c - products with few samples: bit for bit those of oneDNN 2.6, where ranks crowd,
 * and left to oneDNN elsewhere.
 */
#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "base/system/crowd.h"
#include "kernels/cpu/gemm/few_rows.h"
#include "kernels/device.h"
#include "tests/support/arrays.h"

#if DP_HAVE_ONEDNN

enum { CROWD = 16, MOST = 15, KINDS = 4 };

/* The three products of a layer, and what adds gradients of weights to those before. */
static const struct {
    unsigned use;
    float keep;
} kinds[KINDS] = {{DP_DENSE_FORWARD, 0.0f},
                  {DP_DENSE_BACKWARD_DATA, 0.0f},
                  {DP_DENSE_BACKWARD_WEIGHTS, 0.0f},
                  {DP_DENSE_BACKWARD_WEIGHTS, 1.0f}};

static void fill(float *to, size_t count, uint32_t step)
{
    for (size_t i = 0; i < count; i++) {
        to[i] = (float)dp_random_u32(1, DP_RANDOM_SYNTHETIC, step, i) / 2147483648.0f - 1.0f;
    }
}

static bool has_oneDNN_2_6(void)
{
    const struct dp_device *cpu;
    char machine[256];

    assert_int_equal(dp_device_find("cpu", &cpu), DP_OK);
    cpu->machine(machine, sizeof(machine));
    return strstr(machine, "oneDNN 2.6") != NULL;
}

/* Whether it is computed here; then it must have oneDNN's bits. */
static bool compare(const struct dp_dense_key *key, float keep)
{
    struct dp_matmul p = dp_dense_product(key, NULL, NULL, NULL, keep);
    const size_t a = p.m * p.k, b = p.k * p.n, c = p.m * p.n;
    float *memory = dp_zalloc(a + b + 2 * c, sizeof(*memory));
    bool own;

    assert_non_null(memory);
    fill(memory, a + b + c, (uint32_t)key->rows);
    memcpy(memory + a + b + c, memory + a + b, c * sizeof(*memory));
    p.a = memory;
    p.b = memory + a;
    p.c = memory + a + b;
    own = dp_few_rows(1, &p);
    if (own) {
        p.c = memory + a + b + c;
        dp_matmul_onednn(1, &p);
        if (memcmp(memory + a + b, p.c, c * sizeof(*memory)) != 0) {
            fail_msg("%zu rows of %zu -> %zu, use %u, differ", key->rows, key->in, key->out,
                     key->use);
        }
    }
    dp_free(memory);
    return own;
}

/* All sizes with these many rows. */
static void compare_sizes(size_t rows)
{
    static const size_t in[] = {2, 17, 100, 384, 784}, out[] = {3, 10, 64, 383, 385, 770, 1025};
    enum { INS = sizeof(in) / sizeof(in[0]), OUTS = sizeof(out) / sizeof(out[0]) };

    for (size_t i = 0; i < (size_t)INS * OUTS; i++) {
        for (int k = 0; k < KINDS; k++) {
            const struct dp_dense_key key = {rows, in[i / OUTS], out[i % OUTS], kinds[k].use,
                                             DP_TYPE_F32};
            assert_true(compare(&key, kinds[k].keep));
        }
    }
}

static void few_rows_have_the_bits_of_oneDNN(void **state)
{
    static const size_t rows[] = {2, 3, 4, 5, 8, 11, MOST};
    (void)state;

    dp_crowd_set(CROWD, 1);
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        compare_sizes(rows[r]);
    }
}

static void a_part_of_a_matrix_has_the_bits_of_the_whole(void **state)
{
    enum { ROWS = 3, IN = 40, OUT = 50, BEGIN = 17 };
    float x[ROWS * IN] = {0}, w[OUT * IN] = {0}, whole[ROWS * OUT], parts[ROWS * OUT];
    const struct dp_dense_key key = {ROWS, IN, OUT, DP_DENSE_FORWARD, DP_TYPE_F32};
    struct dp_matmul p = dp_dense_product(&key, whole, x, w, 0.0f);
    (void)state;

    dp_crowd_set(CROWD, 1);
    fill(x, sizeof(x) / sizeof(*x), 1);
    fill(w, sizeof(w) / sizeof(*w), 2);
    assert_true(dp_few_rows(1, &p));
    p.c = parts;
    p.n = BEGIN;
    assert_true(dp_few_rows(1, &p));
    p.c = parts + BEGIN;
    p.b = w + (size_t)BEGIN * IN;
    p.n = OUT - BEGIN;
    assert_true(dp_few_rows(1, &p));
    assert_memory_equal(parts, whole, sizeof(whole));
}

static void others_are_left_to_oneDNN(void **state)
{
    struct dp_dense_key key = {4, 64, 64, DP_DENSE_FORWARD, DP_TYPE_F32};
    struct dp_matmul p;
    (void)state;

    dp_crowd_set(CROWD, 1);
    for (int k = 0; k < KINDS; k++) {
        key.use = kinds[k].use;
        key.rows = 4;
        assert_true(compare(&key, kinds[k].keep));
        key.rows = 1;
        assert_false(compare(&key, kinds[k].keep));
        key.rows = MOST + 1;
        assert_false(compare(&key, kinds[k].keep));
    }
    key = (struct dp_dense_key){4, 64, 64, DP_DENSE_FORWARD, DP_TYPE_F32};
    assert_false(compare(&key, 1.0f));
    key.out = 1;
    assert_false(compare(&key, 0.0f));
    p = dp_dense_product(&key, NULL, NULL, NULL, 0.0f);
    assert_false(dp_few_rows(2, &p));
}

static void ranks_with_cores_leave_all_to_oneDNN(void **state)
{
    const struct dp_dense_key key = {4, 64, 64, DP_DENSE_FORWARD, DP_TYPE_F32};
    (void)state;

    dp_crowd_set(DP_CROWD, 1);
    assert_true(compare(&key, 0.0f));
    dp_crowd_set(2 * DP_CROWD - 1, 2);
    assert_false(compare(&key, 0.0f));
    dp_crowd_set(2, 2);
    assert_false(compare(&key, 0.0f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_rows_have_the_bits_of_oneDNN),
        cmocka_unit_test(a_part_of_a_matrix_has_the_bits_of_the_whole),
        cmocka_unit_test(others_are_left_to_oneDNN),
        cmocka_unit_test(ranks_with_cores_leave_all_to_oneDNN),
    };

    if (!__builtin_cpu_supports("avx512dq") || !has_oneDNN_2_6()) {
        printf("skipped: no AVX-512, or oneDNN is not 2.6\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    printf("skipped: built without oneDNN\n");
    return 77;
}

#endif
