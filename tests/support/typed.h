/*
 * typed.h - for tests of operations on narrow types: streams of a type, and arrays of 16 bits.
 *
 * An operation with one float32 operation per element is rounded in the same way everywhere: equal
 * to the bit. Sums have another order, and two float32 numbers that differ in their last digits may
 * round to neighbours: 1 step of the type, 2^-7 of a bfloat and 2^-10 of a half, besides the
 * tolerance that the float32 operations are tested with (test_ops.c).
 */
#ifndef DP_TESTS_SUPPORT_TYPED_H
#define DP_TESTS_SUPPORT_TYPED_H

#include "tests/support/arrays.h"

#include "kernels/cpu/mixed.h"
#include "kernels/cpu/op_table_cpu.h"

enum { STREAMS = 3, ROOM = 1 << 20 };

static const enum dp_type types[] = {DP_TYPE_BF16, DP_TYPE_F16};

/* Streams of one type: the oracle, and those that are tested. */
struct typed {
    enum dp_type type;
    struct dp_stream *ref, *cpu[STREAMS];
};

static inline void open_typed(struct typed *t, enum dp_type type)
{
    t->type = type;
    t->ref = stream_on("ref", 1);
    dp_stream_set_type(t->ref, type);
    for (int i = 0; i < STREAMS; i++) {
        t->cpu[i] = stream_on("cpu", i == 1 ? 2 : 1);
        dp_stream_set_type(t->cpu[i], type);
        OK(t->cpu[i]->device->reserve(t->cpu[i], ROOM));
    }
}

/* The first two streams have the arithmetic of their type where the processor has it, whether it is
 * faster or not; the last one goes through float32, and converts whole arrays. */
static inline void use_both(struct typed *t)
{
    static struct dp_ops own, plain;

    own = plain = dp_cpu_ops;
    dp_mixed_ops(&own, t->type, dp_cpu_has_bf16());
    dp_mixed_ops(&plain, DP_TYPE_F16, false);
    for (int i = 0; i < STREAMS; i++) {
        t->cpu[i]->ops = i < STREAMS - 1 ? &own : &plain;
    }
}

static inline void close_typed(struct typed *t)
{
    stream_close(t->ref);
    for (int i = 0; i < STREAMS; i++) {
        stream_close(t->cpu[i]);
    }
}

static inline void each_type(void (*check)(const struct typed *t))
{
    for (size_t i = 0; i < DP_COUNT(types); i++) {
        struct typed t;
        open_typed(&t, types[i]);
        use_both(&t);
        check(&t);
        close_typed(&t);
    }
}

/* ---- arrays ---- */

static inline uint16_t *halves(size_t count)
{
    uint16_t *array = dp_zalloc(count, sizeof(*array));

    assert_non_null(array);
    return array;
}

static inline uint16_t *random_halves(const struct typed *t, size_t count, uint32_t seed)
{
    float *wide = uniform(count, seed, -2, 2);
    uint16_t *array = halves(count);

    OK(t->ref->ops->narrow(t->ref, array, wide, count, t->type));
    dp_free(wide);
    return array;
}

static inline float *wide_of(const struct typed *t, const uint16_t *x, size_t count)
{
    float *wide = zeros(count);

    OK(t->ref->ops->widen(t->ref, wide, x, count, t->type));
    return wide;
}

/* Equal but for a rounding; `error` is what float32 sums may be off before it. */
static inline void check_narrow(const struct typed *t, const uint16_t *y, const uint16_t *expected,
                                size_t count, double error)
{
    const double step = t->type == DP_TYPE_BF16 ? 1.0 / 128 : 1.0 / 1024;
    float *a = wide_of(t, y, count), *b = wide_of(t, expected, count);

    assert_near(a, b, count, error + (t->type == DP_TYPE_F16 ? 6e-8 : 0), step);
    dp_free(a);
    dp_free(b);
}

static inline void check_bits(const uint16_t *y, const uint16_t *expected, size_t count)
{
    assert_memory_equal(y, expected, count * sizeof(*y));
}

static inline int nothing_is_left(void **state)
{
    (void)state;
    return (int)dp_mem_live();
}

#endif
