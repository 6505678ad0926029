/*
 * test_augment_draws.c - what augmentations draw at random: all of the range that they promise,
 * each number by itself; and what may be asked of them.
 */
#include "tests/support/arrays.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/data/augment/augment.h"

enum { SIDE = 4, ROWS = 400 };

static struct dp_sample_shape shape_of(int channels)
{
    return (struct dp_sample_shape){SIDE, SIDE, channels, (size_t)SIDE * SIDE * (size_t)channels,
                                    DP_ELEMENT_BYTE};
}

static struct dp_augment *augment_of(const char *text, int channels)
{
    const struct dp_sample_shape shape = shape_of(channels);
    struct dp_augment *augment = NULL;
    char problem[256] = "";

    if (dp_augment_create(text, &shape, 7, &augment, problem, sizeof(problem)) != DP_OK) {
        fail_msg("%s: %s", text, problem);
    }
    return augment;
}

/* ---- color_jitter ---- */

/* Half of the pixels have one colour, half another. */
static void fill(uint8_t *picture, const uint8_t *colours, int channels)
{
    for (int p = 0; p < SIDE * SIDE; p++) {
        memcpy(picture + (size_t)p * (size_t)channels, colours + (size_t)(p % 2) * (size_t)channels,
               (size_t)channels);
    }
}

/* By what factor a stage spreads values around `middle`, found by the first channel; all others
 * have to agree, to within rounding. */
static double factor_of(struct dp_augment *a, uint64_t row, const uint8_t *colours,
                        const double *middle)
{
    uint8_t in[SIDE * SIDE * 3], out[SIDE * SIDE * 3];
    double factor;

    fill(in, colours, 3);
    dp_augment_sample(a, 0, row, in, out);
    factor = (out[0] - middle[0]) / (in[0] - middle[0]);
    for (int i = 0; i < SIDE * SIDE * 3; i++) {
        const double m = middle[i / 3 % 2];
        assert_true(fabs(m + (in[i] - m) * factor - out[i]) < 1.5);
    }
    return factor;
}

/* Each is from 0.6 to 1.4, and no two go together. */
static void brightness_contrast_and_saturation_are_drawn_each_by_itself(void **state)
{
    static const uint8_t colours[] = {150, 100, 70, 80, 120, 140};
    const double luma[] = {0.299 * 150 + 0.587 * 100 + 0.114 * 70,
                           0.299 * 80 + 0.587 * 120 + 0.114 * 140};
    const double mean = (luma[0] + luma[1]) / 2, means[] = {mean, mean}, black[] = {0, 0};
    struct dp_augment *a[] = {augment_of("color_jitter:contrast=0,saturation=0", 3),
                              augment_of("color_jitter:brightness=0,saturation=0", 3),
                              augment_of("color_jitter:brightness=0,contrast=0", 3)};
    const double *const middles[] = {black, means, luma};
    double least[3] = {2, 2, 2}, most[3] = {0};
    int alike[3] = {0};
    (void)state;

    for (uint64_t row = 0; row < ROWS; row++) {
        double factor[3];
        for (int k = 0; k < 3; k++) {
            factor[k] = factor_of(a[k], row, colours, middles[k]);
            least[k] = fmin(least[k], factor[k]);
            most[k] = fmax(most[k], factor[k]);
        }
        for (int k = 0; k < 3; k++) {
            alike[k] += fabs(factor[k] - factor[(k + 1) % 3]) < 0.05;
        }
    }
    for (int k = 0; k < 3; k++) {
        assert_true(least[k] > 0.57 && least[k] < 0.63 && most[k] > 1.37 && most[k] < 1.43);
        assert_in_range(alike[k], 1, ROWS / 4);
        dp_augment_destroy(a[k]);
    }
}

static void what_becomes_too_bright_or_too_dark_stays_a_byte(void **state)
{
    static const uint8_t bright[] = {250, 250, 250, 250, 250, 250},
                         ends[] = {0, 0, 0, 255, 255, 255};
    struct dp_augment *a = augment_of("color_jitter:brightness=1,contrast=0,saturation=0", 3);
    struct dp_augment *b = augment_of("color_jitter:brightness=0,contrast=1,saturation=0", 3);
    uint8_t in[SIDE * SIDE * 3], out[SIDE * SIDE * 3];
    int whole = 0, kept = 0;
    (void)state;

    for (uint64_t row = 0; row < ROWS; row++) {
        fill(in, bright, 3);
        dp_augment_sample(a, 0, row, in, out);
        whole += out[0] == 255;
        fill(in, ends, 3);
        dp_augment_sample(b, 0, row, in, out);
        kept += out[0] == 0 && out[3] == 255;
        assert_in_range(out[0] + out[3], 254, 256);
    }
    assert_in_range(whole, ROWS / 3, 2 * ROWS / 3);
    assert_in_range(kept, ROWS / 3, 2 * ROWS / 3);
    dp_augment_destroy(a);
    dp_augment_destroy(b);
}

static void one_channel_has_no_colour_to_change(void **state)
{
    static const uint8_t greys[] = {40, 200};
    struct dp_augment *a = augment_of("color_jitter:brightness=0,contrast=0", 1);
    struct dp_augment *b = augment_of("color_jitter:brightness=0", 1);
    uint8_t in[SIDE * SIDE], out[SIDE * SIDE];
    (void)state;

    fill(in, greys, 1);
    for (uint64_t row = 0; row < ROWS; row++) {
        dp_augment_sample(a, 0, row, in, out);
        assert_memory_equal(out, in, sizeof(in));
        dp_augment_sample(b, 0, row, in, out);
        assert_in_range(out[0] + out[1], 239, 241); /* around their mean */
    }
    dp_augment_destroy(a);
    dp_augment_destroy(b);
}

/* ---- random_resized_crop ---- */

/* Places are spread over all that there is room for, down and to the right each by itself. */
static void parts_have_any_size_and_place_that_is_allowed(void **state)
{
    enum { HEIGHT = 600, WIDTH = 700 };
    struct dp_augment *a = augment_of("random_resized_crop:scale=0.25", 3);
    double area = 0, down = 0, right = 0, least[3] = {1, 1, 1}, most[3] = {0};
    int alike = 0;
    (void)state;

    for (uint64_t row = 0; row < ROWS; row++) {
        struct dp_part p = {0};
        dp_augment_part(a, 1, row, HEIGHT, WIDTH, &p);
        assert_in_range(p.height, 1, HEIGHT);
        assert_in_range(p.width, 1, WIDTH);
        assert_in_range(p.top, 0, HEIGHT - p.height);
        assert_in_range(p.left, 0, WIDTH - p.width);
        const double ratio = (double)p.width / p.height;
        const double share[3] = {(double)p.height * p.width / (HEIGHT * WIDTH),
                                 (p.top + 0.5) / (HEIGHT - p.height + 1),
                                 (p.left + 0.5) / (WIDTH - p.width + 1)};
        assert_true(ratio > 0.745 && ratio < 1.34);
        area += share[0] / ROWS;
        down += share[1] / ROWS;
        right += share[2] / ROWS;
        for (int k = 0; k < 3; k++) {
            least[k] = fmin(least[k], share[k]);
            most[k] = fmax(most[k], share[k]);
        }
        alike += fabs(share[1] - share[2]) < 0.05;
    }
    assert_true(least[0] > 0.24 && least[0] < 0.28 && most[0] > 0.9);
    assert_true(area > 0.5 && area < 0.65);
    assert_true(down > 0.43 && down < 0.57 && right > 0.43 && right < 0.57);
    for (int k = 1; k < 3; k++) {
        assert_true(least[k] < 0.03 && most[k] > 0.97);
    }
    assert_true(alike < ROWS / 4);
    dp_augment_destroy(a);
}

/* ---- options ---- */

static void options_have_limits_that_may_be_reached(void **state)
{
    static const struct {
        const char *good, *bad;
    } cases[] = {
        {"cutout:size=1", "cutout:size=0"},
        {"cutout:size=4096", "cutout:size=4097"},
        {"random_crop:padding=0", "random_crop:padding=-1"},
        {"random_crop:padding=3", "random_crop:padding=4"},
        {"flip:p=0", "flip:p=-0.001"},
        {"flip:p=1", "flip:p=1.001"},
        {"color_jitter:brightness=0", "color_jitter:brightness=-0.001"},
        {"color_jitter:brightness=1", "color_jitter:brightness=1.001"},
        {"color_jitter:contrast=0", "color_jitter:contrast=-0.001"},
        {"color_jitter:contrast=1", "color_jitter:contrast=1.001"},
        {"color_jitter:saturation=0", "color_jitter:saturation=-0.001"},
        {"color_jitter:saturation=1", "color_jitter:saturation=1.001"},
        {"random_resized_crop:scale=0.0001", "random_resized_crop:scale=0.00009"},
        {"random_resized_crop:scale=1", "random_resized_crop:scale=1.001"},
        {"random_resized_crop:size=4", "random_resized_crop:size=3"},
        {"random_resized_crop:size=0", "random_resized_crop:size=-1"},
        {"mixup:alpha=0.01", "mixup:alpha=0.0099"},
        {"mixup:alpha=100", "mixup:alpha=100.1"},
        {"flip", "flip:q=1"},
    };
    const struct dp_sample_shape shape = shape_of(3);
    (void)state;

    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        struct dp_augment *augment = NULL;
        char problem[256] = "";
        dp_augment_destroy(augment_of(cases[i].good, 3));
        if (dp_augment_create(cases[i].bad, &shape, 1, &augment, problem, sizeof(problem)) !=
            DP_ERR_CONFIG) {
            fail_msg("%s is taken", cases[i].bad);
        }
        assert_null(augment);
    }
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(brightness_contrast_and_saturation_are_drawn_each_by_itself),
        cmocka_unit_test(what_becomes_too_bright_or_too_dark_stays_a_byte),
        cmocka_unit_test(one_channel_has_no_colour_to_change),
        cmocka_unit_test(parts_have_any_size_and_place_that_is_allowed),
        cmocka_unit_test(options_have_limits_that_may_be_reached),
    };

    return cmocka_run_group_tests_name("augment_draws", tests, NULL, NULL);
}
