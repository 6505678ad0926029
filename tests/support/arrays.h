/*
 * arrays.h - for tests of operations: arrays of seeded numbers, comparisons, and the streams that
 * are compared with each other.
 */
#ifndef DP_TESTS_SUPPORT_ARRAYS_H
#define DP_TESTS_SUPPORT_ARRAYS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "kernels/algo_choices.h"
#include "kernels/device.h"
#include "tests/support/reach.h"
#include "tests/support/tested_device.h"

#define DP_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The device that is tested, with one and with two threads, the second one measuring what it may
 * choose; and the oracle. */
struct streams {
    struct dp_stream *ref, *tested[2];
};

static inline struct dp_stream *stream_on(const char *name, int threads)
{
    const struct dp_device *device = NULL;
    struct dp_stream *stream = NULL;

    assert_int_equal(dp_device_find(name, &device), DP_OK);
    assert_int_equal(device->stream_create(device, threads, &stream), DP_OK);
    if (getenv("DP_TEST_CONV") != NULL) {
        assert_string_equal(getenv("DP_TEST_CONV"), "cublas"); /* not the one that auto takes */
        stream->conv = DP_CONV_CUBLAS;
    }
    stream_watch(stream);
    return stream;
}

static inline void stream_close(struct dp_stream *stream)
{
    stream_forget(stream);
    stream->device->stream_destroy(stream);
}

static inline int streams_open(void **state)
{
    static struct streams streams;

    streams.ref = stream_on("ref", 1);
    streams.tested[0] = stream_on(tested_device(), 1);
    streams.tested[1] = stream_on(tested_device(), 2);
    assert_int_equal(dp_algo_choices_create("here", &streams.tested[1]->algo_choices), DP_OK);
    *state = &streams;
    return 0;
}

static inline int streams_close(void **state)
{
    struct streams *streams = *state;

    stream_close(streams->ref);
    for (size_t i = 0; i < DP_COUNT(streams->tested); i++) {
        struct dp_algo_choices *algo_choices = streams->tested[i]->algo_choices;
        stream_close(streams->tested[i]);
        dp_algo_choices_destroy(algo_choices);
    }
    return (int)blocks_left(); /* every test has released its arrays */
}

/* Zeroed; released with dp_free(). */
static inline float *zeros(size_t count)
{
    float *array = dp_mem_arena(DP_MEM_OTHER, count * sizeof(float));

    assert_non_null(array);
    return array;
}

/* Uniform in [low, high); the same for the same seed and index. */
static inline float *uniform(size_t count, uint32_t seed, float low, float high)
{
    float *array = zeros(count);

    for (size_t i = 0; i < count; i++) {
        array[i] = low + (high - low) * dp_random_unit(dp_random_u32(seed, DP_RANDOM_TEST, 0, i));
    }
    return array;
}

static inline float *copy_of(const float *array, size_t count)
{
    float *copy = zeros(count);

    memcpy(copy, array, count * sizeof(float));
    return copy;
}

/* The content of an output before: NaN if it must not be read (keep 0), else numbers. */
static inline float *held(size_t count, uint32_t seed, float keep)
{
    float *array = uniform(count, seed, -1, 1);

    for (size_t i = 0; i < count && keep == 0; i++) {
        array[i] = NAN;
    }
    return array;
}

/* |a - b| <= absolute + relative |b| everywhere; NaN fails. */
#define assert_near(a, b, count, absolute, relative) \
    near_at((a), (b), (count), (absolute), (relative), __FILE__, __LINE__)

static inline void near_at(const float *a, const float *b, size_t count, double absolute,
                           double relative, const char *file, int line)
{
    for (size_t i = 0; i < count; i++) {
        const double distance = fabs((double)a[i] - (double)b[i]);
        if (!(distance <= absolute + relative * fabs((double)b[i]))) {
            print_error("element %zu of %zu: %.9g, expected %.9g\n", i, count, (double)a[i],
                        (double)b[i]);
            _fail(file, line);
        }
    }
}

#define assert_same_bits(a, b, count) same_bits_at((a), (b), (count), __FILE__, __LINE__)

static inline void same_bits_at(const float *a, const float *b, size_t count, const char *file,
                                int line)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits[2];
        memcpy(&bits[0], &a[i], sizeof(float));
        memcpy(&bits[1], &b[i], sizeof(float));
        if (bits[0] != bits[1]) {
            print_error("element %zu of %zu: %.9g and %.9g\n", i, count, (double)a[i],
                        (double)b[i]);
            _fail(file, line);
        }
    }
}

/* Asserts that the call succeeds, and waits for what it queued. */
#define OK(call)                         \
    do {                                 \
        assert_int_equal((call), DP_OK); \
        wait_for_streams();              \
    } while (0)

#endif
