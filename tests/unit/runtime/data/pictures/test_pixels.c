/* test_pixels.c - how large a picture may be, and the grey of a colour. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/data/pictures/pixels.h"

/* Exactly as PIL's convert("L"). */
static void grey_is_rounded_to_the_nearest(void **state)
{
    enum { LEVELS = 64, STEP = 4, COLOURS = LEVELS * LEVELS };
    static uint8_t pixels[COLOURS * 3];
    (void)state;

    for (size_t red = 0; red < 256; red += 5) {
        struct dp_picture picture = {LEVELS, LEVELS, 3, pixels, 0};
        for (size_t i = 0; i < COLOURS; i++) {
            pixels[3 * i] = (uint8_t)red;
            pixels[3 * i + 1] = (uint8_t)(i / LEVELS * STEP + i % STEP);
            pixels[3 * i + 2] = (uint8_t)(i % LEVELS * STEP + red % STEP);
        }
        dp_picture_make_grey(&picture);
        assert_int_equal(picture.channels, 1);
        for (size_t i = 0; i < COLOURS; i++) {
            const size_t green = i / LEVELS * STEP + i % STEP;
            const size_t blue = i % LEVELS * STEP + red % STEP;
            assert_int_equal(pixels[i], (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16);
        }
    }
}

static void sizes_have_limits_that_may_be_reached(void **state)
{
    static const struct {
        unsigned width, height;
        const char *words; /* NULL: it is taken */
    } sizes[] = {
        {1, 1, NULL},
        {16384, 1, NULL},
        {1, 16384, NULL},
        {16384, 4096, NULL},
        {4096, 16384, NULL},
        {0, 1, "has no pixels"},
        {1, 0, "has no pixels"},
        {16385, 1, "is 16385 x 1 pixels; at most 16384 x 16384 are taken, and 67 million in all"},
        {1, 16385, "is 1 x 16385 pixels; "},
        {16384, 4097, "is 16384 x 4097 pixels; "},
        {65536, 65536, "is 65536 x 65536 pixels; "}, /* 2^32 in all */
    };
    struct dp_problem problem;
    (void)state;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        assert_int_equal(dp_picture_check_size(sizes[i].width, sizes[i].height, &problem),
                         sizes[i].words == NULL ? DP_OK : DP_ERR_DATA);
        assert_true(sizes[i].words == NULL || strstr(problem.text, sizes[i].words) != NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grey_is_rounded_to_the_nearest),
        cmocka_unit_test(sizes_have_limits_that_may_be_reached),
    };

    return cmocka_run_group_tests_name("pixels", tests, NULL, NULL);
}
