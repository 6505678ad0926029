/*
 * test_largest.c - the largest numbers, on device cpu: whatever its threads, where memory ends, and
 * what the stack had.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "tests/support/arrays.h"

#include <sys/mman.h>

/* Many are equal; to take k of them some of these are left. */
static void fill(float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        x[i] = i % 5 == 0 ? -2.0f : i % 7 == 1 ? 3.0f : (float)(i * 7919 % 1500) / 1000;
    }
}

/* Takes k of x, which is changed, and compares with the reference. */
static void check(struct dp_stream *s, float *x, size_t k, size_t count)
{
    struct dp_stream *ref = stream_on("ref", 1);
    uint32_t *expected = dp_zalloc(k, sizeof(*expected)), *index = dp_zalloc(k, sizeof(*index));
    float *wanted = zeros(k), *value = zeros(k), *left = copy_of(x, count);

    assert_int_equal(ref->ops->take_largest(ref, expected, wanted, left, k, count), DP_OK);
    assert_int_equal(s->ops->take_largest(s, index, value, x, k, count), DP_OK);
    assert_memory_equal(index, expected, k * sizeof(*index));
    assert_same_bits(value, wanted, k);
    assert_same_bits(x, left, count);
    stream_close(ref);
    dp_free(left);
    dp_free(value);
    dp_free(wanted);
    dp_free(index);
    dp_free(expected);
}

static void any_number_of_threads_takes_the_same(void **state)
{
    static const int threads[] = {3, 8, 9, 20};
    enum { COUNT = 40000 };
    (void)state;

    for (size_t t = 0; t < DP_COUNT(threads); t++) {
        struct dp_stream *s = stream_on("cpu", threads[t]);
        for (size_t k = 1; k < COUNT; k += 4999) {
            float *x = zeros(COUNT);
            fill(x, COUNT);
            check(s, x, k, COUNT);
            dp_free(x);
        }
        stream_close(s);
    }
}

static void nothing_after_the_numbers_is_read(void **state)
{
    static const size_t counts[] = {16, 20, 1000, 1024, 40000};
    enum { BYTES = 1 << 18 };
    char *memory =
        mmap(NULL, 2 * (size_t)BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)state;

    assert_true(memory != MAP_FAILED);
    assert_int_equal(mprotect(memory + BYTES, BYTES, PROT_NONE), 0);
    for (int threads = 1; threads <= 2; threads++) {
        struct dp_stream *s = stream_on("cpu", threads);
        for (size_t n = 0; n < DP_COUNT(counts); n++) {
            float *x = (float *)(void *)(memory + BYTES) - counts[n];
            fill(x, counts[n]);
            check(s, x, counts[n] / 3, counts[n]);
        }
        stream_close(s);
    }
    assert_int_equal(munmap(memory, 2 * (size_t)BYTES), 0);
}

/* Writes over more of the stack than the operation has. */
static void spoil_stack(void)
{
    volatile char had[1 << 18];

    for (size_t i = 0; i < sizeof(had); i++) {
        had[i] = 0x55;
    }
}

static void it_does_not_matter_what_the_stack_had(void **state)
{
    static const uint32_t wanted[] = {1, 8, 22, 29};
    void (*volatile spoil)(void) = spoil_stack;
    struct dp_stream *s = stream_on("cpu", 1);
    float x[64], value[4];
    uint32_t index[4];
    (void)state;

    fill(x, DP_COUNT(x));
    spoil();
    assert_int_equal(s->ops->take_largest(s, index, value, x, 4, DP_COUNT(x)), DP_OK);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(index[i], wanted[i]);
        assert_true(value[i] == 3.0f);
    }
    stream_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_threads_takes_the_same),
        cmocka_unit_test(nothing_after_the_numbers_is_read),
        cmocka_unit_test(it_does_not_matter_what_the_stack_had),
    };

    return run_reached_tests(tests, NULL, NULL);
}
