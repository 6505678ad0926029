/* test_channel_statistics.c - mean and standard deviation of channels, of bytes and of float32. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/data/records/statistics.h"

enum { PIXELS = 50, CHANNELS = DP_RECORDS_CHANNELS };

static uint8_t byte_of(size_t i, int c)
{
    return (uint8_t)((i * (size_t)(7 + c) + 31 * (size_t)c) % 256);
}

/* Of numbers like those of byte_of() at channel c, times `scale`: in the way that is in books. The
 * tolerance is that of a thousand roundings of doubles. */
static void check_channel(const struct dp_records_index *index, int at, int c, double scale)
{
    double mean = 0.0, variance = 0.0;

    for (size_t i = 0; i < PIXELS; i++) {
        mean += scale * byte_of(i, c) / PIXELS;
    }
    for (size_t i = 0; i < PIXELS; i++) {
        const double off = scale * byte_of(i, c) - mean;
        variance += off * off / PIXELS;
    }
    assert_true(fabs(index->mean[at] - mean) < 1e-12 * mean);
    assert_true(fabs(index->std[at] - sqrt(variance)) < 1e-12 * mean);
}

/* In two parts, as two threads have them. */
static void bytes_of_each_channel_are_counted(void **state)
{
    enum { FIRST = 20 };
    struct dp_statistics parts[2] = {{.channels = CHANNELS}, {.channels = CHANNELS}};
    struct dp_records_index index = {.channels = 0};
    uint8_t x[PIXELS * CHANNELS];
    (void)state;

    for (size_t i = 0; i < sizeof(x); i++) {
        x[i] = byte_of(i / CHANNELS, (int)(i % CHANNELS));
    }
    dp_statistics_bytes(&parts[0], x, FIRST, CHANNELS);
    for (size_t i = FIRST; i < PIXELS; i += 10) {
        dp_statistics_bytes(&parts[1], x + i * CHANNELS, 10, CHANNELS);
    }
    dp_statistics_merge(&parts[0], &parts[1]);
    dp_statistics_finish(&parts[0], DP_ELEMENT_BYTE, &index);
    assert_int_equal(index.channels, CHANNELS);
    for (int c = 0; c < CHANNELS; c++) {
        check_channel(&index, c, c, 1.0 / 255.0);
    }
}

static void grey_counts_for_each_channel(void **state)
{
    struct dp_statistics s = {.channels = CHANNELS};
    struct dp_records_index index = {.channels = 0};
    uint8_t x[PIXELS];
    (void)state;

    for (size_t i = 0; i < PIXELS; i++) {
        x[i] = byte_of(i, 1);
    }
    dp_statistics_bytes(&s, x, PIXELS, 1);
    dp_statistics_finish(&s, DP_ELEMENT_BYTE, &index);
    for (int c = 0; c < CHANNELS; c++) {
        check_channel(&index, c, 1, 1.0 / 255.0);
    }
}

static void floats_of_each_channel_are_counted(void **state)
{
    struct dp_statistics s = {.channels = CHANNELS};
    struct dp_records_index index = {.channels = 0};
    float x[PIXELS * CHANNELS];
    (void)state;

    for (size_t i = 0; i < sizeof(x) / sizeof(x[0]); i++) {
        x[i] = 0.5f * (float)byte_of(i / CHANNELS, (int)(i % CHANNELS));
    }
    dp_statistics_floats(&s, x, PIXELS / 2);
    dp_statistics_floats(&s, x + (size_t)PIXELS / 2 * CHANNELS, PIXELS - PIXELS / 2);
    dp_statistics_finish(&s, DP_ELEMENT_FLOAT, &index);
    assert_int_equal(index.channels, CHANNELS);
    for (int c = 0; c < CHANNELS; c++) {
        check_channel(&index, c, c, 0.5);
    }
}

/* Pictures of any size have no count yet. */
static void pictures_have_three_channels_and_flat_samples_one(void **state)
{
    static const struct {
        struct dp_sample_shape shape;
        int channels;
    } cases[] = {{{.height = 4, .width = 5, .channels = 3, .count = 60}, 3},
                 {{.height = 4, .width = 5, .channels = 1, .count = 20}, 1},
                 {{.height = 4, .width = 5, .channels = 2, .count = 40}, 2},
                 {{.height = 4, .width = 5, .channels = DP_RECORDS_CHANNELS + 1, .count = 80}, 1},
                 {{.height = 1, .width = 5, .channels = 2, .count = 10}, 2},
                 {{.count = 1}, 1},
                 {{.count = 0}, 3}};
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(dp_statistics_channels(&cases[i].shape), cases[i].channels);
    }
}

static void of_no_sample_there_are_none(void **state)
{
    const struct dp_statistics s = {.channels = CHANNELS};
    struct dp_records_index index = {.channels = 7};
    (void)state;

    dp_statistics_finish(&s, DP_ELEMENT_BYTE, &index);
    assert_int_equal(index.channels, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_each_channel_are_counted),
        cmocka_unit_test(grey_counts_for_each_channel),
        cmocka_unit_test(floats_of_each_channel_are_counted),
        cmocka_unit_test(pictures_have_three_channels_and_flat_samples_one),
        cmocka_unit_test(of_no_sample_there_are_none),
    };

    return cmocka_run_group_tests_name("channel_statistics", tests, NULL, NULL);
}
