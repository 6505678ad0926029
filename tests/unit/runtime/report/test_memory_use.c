/* test_memory_use.c - memory by purpose, when it was most, and what leaks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/report/resources/memory_use.h"

static const int64_t MEGABYTE = 1 << 20;

/* Steps, after each of which activations have grown by `grows` bytes and, where it is not 0, every
 * `often` steps a snapshot is there for one step. */
static struct dp_memory_use looked(int steps, int64_t grows, int often)
{
    struct dp_memory_use use = {0};
    int64_t bytes[DP_MEMORY_USE_COUNT] = {[DP_MEMORY_WEIGHTS] = 5 * MEGABYTE};

    for (int i = 1; i <= steps; i++) {
        bytes[DP_MEMORY_ACTIVATIONS] += grows;
        bytes[DP_MEMORY_OTHER] = often > 0 && i % often == 0 ? 50 * MEGABYTE : 0;
        dp_memory_use_look(&use, (uint64_t)i, true, bytes, 0, (i < 70 ? i : 70) * MEGABYTE);
    }
    return use;
}

static void the_peak_has_its_step(void **state)
{
    const struct dp_memory_use use = looked(100, 0, 0);
    (void)state;

    assert_int_equal(use.peak, 70 * MEGABYTE);
    assert_int_equal(use.peak_step, 70);
    assert_int_equal(use.now[DP_MEMORY_WEIGHTS], 5 * MEGABYTE);
}

static void what_grows_is_named(void **state)
{
    (void)state;

    for (int steps = 24; steps < 100000; steps *= 7) {
        const struct dp_memory_use use = looked(steps, MEGABYTE / 8, 5);
        const struct dp_memory_leak leak = dp_memory_use_leak(&use);
        assert_int_equal(leak.kind, DP_MEMORY_ACTIVATIONS);
        assert_string_equal(dp_memory_use_key(leak.kind), "activations");
        assert_int_equal(leak.bytes_per_step, MEGABYTE / 8);
    }
}

static void memory_that_comes_and_goes_is_no_leak(void **state)
{
    struct dp_memory_use use = looked(10000, 0, 7);
    (void)state;

    assert_int_equal(dp_memory_use_leak(&use).kind, -1);
    use = looked(10000, 16, 0); /* less than a megabyte in all */
    assert_int_equal(dp_memory_use_leak(&use).kind, -1);
    use = looked(4, MEGABYTE, 0); /* too early to say */
    assert_int_equal(dp_memory_use_leak(&use).kind, -1);
}

/* As a first evaluation or checkpoint does. */
static void what_is_taken_once_is_no_leak(void **state)
{
    struct dp_memory_use use = {0};
    int64_t bytes[DP_MEMORY_USE_COUNT] = {0};
    (void)state;

    for (uint64_t i = 1; i <= 1000; i++) {
        bytes[DP_MEMORY_OTHER] = i < 300 ? 0 : i < 600 ? 90 * MEGABYTE : 95 * MEGABYTE;
        /* The first steps allocate, and do not count. */
        bytes[DP_MEMORY_GRADIENTS] = (int64_t)(i < 30 ? i : 30) * MEGABYTE;
        dp_memory_use_look(&use, i, i >= 30, bytes, 0, 0);
    }
    assert_int_equal(dp_memory_use_leak(&use).kind, -1);
}

/* As buffers do that each keep the largest picture they have met. */
static void what_slows_down_is_no_leak(void **state)
{
    struct dp_memory_use use = {0};
    int64_t bytes[DP_MEMORY_USE_COUNT] = {0};
    (void)state;

    for (uint64_t i = 1; i <= 10000; i++) {
        bytes[DP_MEMORY_INPUT] = (int64_t)(log((double)i) * 10.0 * (double)MEGABYTE);
        dp_memory_use_look(&use, i, true, bytes, 0, 0);
        assert_int_equal(dp_memory_use_leak(&use).kind, -1);
    }
}

/* As blocks of records that are kept do, until they are as many as may be. */
static void what_grows_to_a_limit_of_its_own_is_no_leak(void **state)
{
    (void)state;

    for (int leaks = 0; leaks < 2; leaks++) {
        struct dp_memory_use use = {0};
        int64_t bytes[DP_MEMORY_USE_COUNT] = {0};
        for (uint64_t i = 1; i <= 100; i++) {
            const int64_t kept = (int64_t)i * MEGABYTE;
            bytes[DP_MEMORY_INPUT] = kept + (leaks ? kept / 8 : 0);
            dp_memory_use_look(&use, i, true, bytes, kept, 0);
            assert_int_equal(use.now[DP_MEMORY_INPUT], bytes[DP_MEMORY_INPUT]);
        }
        assert_int_equal(dp_memory_use_leak(&use).kind, leaks ? DP_MEMORY_INPUT : -1);
    }
}

static void purposes_are_put_together(void **state)
{
    const size_t counted[DP_MEM_PURPOSE_COUNT] = {
        [DP_MEM_WEIGHTS] = 1,     [DP_MEM_RESIDUALS] = 2, [DP_MEM_COMM] = 4,
        [DP_MEM_WORKSPACE] = 8,   [DP_MEM_LIBRARY] = 16,  [DP_MEM_CHECKPOINT] = 32,
        [DP_MEM_OTHER] = 64,      [DP_MEM_DATA] = 128,    [DP_MEM_TRIAL] = 256,
        [DP_MEM_GRADIENTS] = 512, [DP_MEM_KEPT] = 1024};
    int64_t out[DP_MEMORY_USE_COUNT], sum = 0;
    (void)state;

    dp_memory_group(counted, out);
    assert_int_equal(out[DP_MEMORY_COMMUNICATION], 6);
    assert_int_equal(out[DP_MEMORY_LIBRARY], 280);
    assert_int_equal(out[DP_MEMORY_OTHER], 96);
    for (int i = 0; i < DP_MEMORY_USE_COUNT; i++) {
        sum += out[i];
    }
    assert_int_equal(out[DP_MEMORY_INPUT], 1152);
    assert_int_equal(sum, 2047);
}

static void what_nothing_explains_is_left(void **state)
{
    struct dp_memory_parts parts = {.resident = 200, .code = 20, .anonymous = 100, .heap = 90};
    struct dp_memory_parts own;
    int64_t unexplained;
    (void)state;

    assert_int_equal(dp_memory_libraries(&parts, 30, 30, &unexplained), 80);
    assert_int_equal(unexplained, 10);
    /* 25 of the 60 that others have allocated for us are shared. */
    parts.shared = 25;
    assert_int_equal(dp_memory_libraries(&parts, 30, 90, &unexplained), 45);
    assert_int_equal(unexplained, 10);
    parts.heap = 500; /* most of it was never touched, or was given back */
    assert_int_equal(dp_memory_libraries(&parts, 30, 90, &unexplained), 55);
    assert_int_equal(unexplained, 0);
    dp_memory_parts_read(&own);
    assert_true(own.resident > 0 && own.code > 0 && own.code + own.anonymous <= own.resident);
}

/* The heap knows what base/mem has taken of it. */
static void our_part_of_the_heap_is_known(void **state)
{
    const size_t before = dp_mem_heap();
    void *block = dp_mem_arena(DP_MEM_WEIGHTS, MEGABYTE);
    (void)state;

    assert_non_null(block);
    assert_true(dp_mem_heap() - before >= MEGABYTE && dp_mem_heap() - before < MEGABYTE + 4096);
    dp_free(block);
    assert_int_equal(dp_mem_heap(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_peak_has_its_step),
        cmocka_unit_test(what_grows_is_named),
        cmocka_unit_test(memory_that_comes_and_goes_is_no_leak),
        cmocka_unit_test(what_is_taken_once_is_no_leak),
        cmocka_unit_test(what_slows_down_is_no_leak),
        cmocka_unit_test(what_grows_to_a_limit_of_its_own_is_no_leak),
        cmocka_unit_test(purposes_are_put_together),
        cmocka_unit_test(what_nothing_explains_is_left),
        cmocka_unit_test(our_part_of_the_heap_is_known),
    };
    return cmocka_run_group_tests_name("memory use", tests, NULL, NULL);
}
