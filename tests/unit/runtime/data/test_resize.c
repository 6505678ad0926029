/* test_resize.c - pictures of any size become pictures of one size, byte for byte as PIL's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "runtime/data/pictures/resize.h"

enum { ROOM = 256, SIDES = 29 };

static struct dp_resizer resizer;

/* libgcc's, which __builtin_cpu_supports() reads. */
struct cpu_model {
    unsigned vendor, type, subtype, features;
};
/* NOLINTNEXTLINE(bugprone-reserved-identifier) */
extern struct cpu_model __cpu_model __attribute__((weak, visibility("hidden")));

enum { AVX2 = 1 << 10 /* of its features */ };

static int release(void **state)
{
    (void)state;
    dp_resizer_release(&resizer);
    return dp_mem_live() != 0;
}

/* Value (37 x + 91 y + 13 x y + 70 c) mod 256. */
static struct dp_picture sample(int width, int height, int channels, uint8_t *pixels)
{
    size_t at = 0;

    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            for (int c = 0; c < channels; c++) {
                pixels[at++] = (uint8_t)(37 * x + 91 * y + 13 * x * y + 70 * c);
            }
        }
    }
    return (struct dp_picture){height, width, channels, pixels, 0};
}

/* Pillow's Image.resize((width, height), Image.BILINEAR) of that picture, and with
 * box=(2.5, 0, 6.5, 4) where it is cut. It rounds to 22 bits, too. */
static const struct {
    int in_width, channels; /* 4 rows */
    int width, height;
    enum dp_resize how;
    uint8_t expected[48];
} cases[] = {
    {5, 1, 3, 2, DP_RESIZE_BILINEAR, {85, 129, 131, 127, 146, 143}},
    {5, 1, 3, 2, DP_RESIZE_AUTO, {85, 129, 131, 127, 146, 143}},
    {5, 1, 7, 6, DP_RESIZE_BILINEAR, {0,   21,  48, 74,  100, 127, 148, 46,  71,  102, 133,
                                      164, 140, 92, 106, 136, 161, 168, 205, 151, 59,  167,
                                      202, 184, 75, 119, 144, 154, 100, 139, 153, 111, 160,
                                      155, 122, 17, 60,  115, 169, 223, 168, 65}},
    {5, 1, 1, 1, DP_RESIZE_BILINEAR, {129}},
    {5, 1, 2, 5, DP_RESIZE_BILINEAR, {37, 111, 110, 145, 158, 144, 150, 138, 93, 164}},
    {9,
     3,
     3,
     2,
     DP_RESIZE_BILINEAR,
     {109, 124, 144, 136, 150, 134, 131, 141, 120, 141, 142, 144, 146, 143, 135, 128, 148, 154}},
    {9, 3, 2, 2, DP_RESIZE_CROP, {140, 128, 161, 141, 165, 116, 152, 140, 155, 148, 136, 115}},
};

static void pictures_are_scaled_and_cut_as_by_pil(void **state)
{
    uint8_t pixels[ROOM], out[ROOM];
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct dp_picture in = sample(cases[i].in_width, 4, cases[i].channels, pixels);
        const int count = cases[i].width * cases[i].height * cases[i].channels;
        assert_true(dp_resize(&resizer, &in, cases[i].how, cases[i].height, cases[i].width,
                              cases[i].channels, out));
        for (int k = 0; k < count; k++) {
            assert_int_equal(out[k], cases[i].expected[k]);
        }
    }
}

/* Of pictures that are too wide or too high the middle, whatever the shape that is wanted. */
static void the_middle_is_cut_out_in_the_shape_of_the_result(void **state)
{
    static const struct {
        int height, width; /* of the picture */
        int top, left, rows, columns;
    } shapes[] = {{4, 12, 0, 3, 4, 6}, {8, 6, 2, 0, 4, 6}, {2, 9, 0, 3, 2, 3}, {6, 3, 2, 0, 2, 3}};
    (void)state;

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        uint8_t pixels[ROOM], whole[6], expected[6];
        const struct dp_picture in = sample(shapes[i].width, shapes[i].height, 1, pixels);
        const struct dp_stretch rows = {.begin = shapes[i].top, .length = shapes[i].rows};
        const struct dp_stretch columns = {.begin = shapes[i].left, .length = shapes[i].columns};
        assert_true(dp_resize(&resizer, &in, DP_RESIZE_CROP, 2, 3, 1, whole));
        assert_true(dp_resize_part(&resizer, &in, rows, columns, 2, 3, 1, expected));
        assert_memory_equal(whole, expected, sizeof(whole));
    }
}

/* Each row of another shade. */
static void a_part_has_the_rows_from_its_first_one_on(void **state)
{
    enum { SIDE = 16, TOP = 5, HIGH = 6, WIDE = 7 };
    static uint8_t pixels[SIDE][SIDE][3], out[HIGH][WIDE][3];
    const struct dp_picture in = {SIDE, SIDE, 3, &pixels[0][0][0], 0};
    const struct dp_stretch rows = {.begin = TOP, .length = HIGH};
    const struct dp_stretch columns = {.begin = 2, .length = WIDE};
    (void)state;

    for (int y = 0; y < SIDE; y++) {
        memset(pixels[y], 10 * y, sizeof(pixels[y]));
    }
    assert_true(dp_resize_part(&resizer, &in, rows, columns, HIGH, WIDE, 3, &out[0][0][0]));
    for (int y = 0; y < HIGH; y++) {
        assert_memory_equal(out[y], pixels[TOP + y], sizeof(out[y]));
    }
}

static void a_picture_of_that_size_stays_as_it_is(void **state)
{
    uint8_t pixels[ROOM], out[ROOM];
    const struct dp_picture in = sample(9, 4, 3, pixels);
    (void)state;

    assert_true(dp_resize(&resizer, &in, DP_RESIZE_CROP, 4, 9, 3, out));
    assert_memory_equal(out, pixels, sizeof(uint8_t[4][9][3]));
}

static void grey_of_that_size_is_repeated_for_colour(void **state)
{
    uint8_t pixels[ROOM], out[ROOM];
    const struct dp_picture in = sample(5, 4, 1, pixels);
    (void)state;

    assert_true(dp_resize(&resizer, &in, DP_RESIZE_CROP, 4, 5, 3, out));
    for (size_t i = 0; i < 60; i++) {
        assert_int_equal(out[i], pixels[i / 3]);
    }
}

static void grey_is_repeated_for_colour(void **state)
{
    uint8_t pixels[ROOM], grey[ROOM], out[ROOM];
    const struct dp_picture in = sample(5, 4, 1, pixels);
    (void)state;

    assert_true(dp_resize(&resizer, &in, DP_RESIZE_BILINEAR, 3, 7, 1, grey));
    assert_true(dp_resize(&resizer, &in, DP_RESIZE_BILINEAR, 3, 7, 3, out));
    for (size_t i = 0; i < 21; i++) {
        assert_true(out[3 * i] == grey[i] && out[3 * i + 1] == grey[i] &&
                    out[3 * i + 2] == grey[i]);
    }
}

/* Colour has code of its own for some processors, grey has not: each channel must come out as if it
 * were a grey picture. Nothing after the picture is read, which the address sanitizer sees. */
static void each_channel_is_resized_as_grey_is(void **state)
{
    enum { MOST = 24, OUT = 19, WIDE = 64 /* lines end where the pieces do that are added up */ };
    static uint8_t out[OUT * WIDE * 3], grey[OUT * WIDE];
    (void)state;

    for (int width = 1; width <= MOST; width++) {
        const int height = 1 + width * 7 % 11, to = width == MOST ? WIDE : 1 + width * 5 % MOST;
        const size_t count = (size_t)width * (size_t)height;
        uint8_t *pixels = dp_zalloc(count, 3), *one = dp_zalloc(count, 1);
        const struct dp_picture in = {height, width, 3, pixels, 0};
        const struct dp_picture channel = {height, width, 1, one, 0};
        const struct dp_stretch rows = {.begin = 0.25, .length = height - 0.25};
        const struct dp_stretch columns = {.length = width, .backwards = width % 2 == 1};
        assert_true(pixels != NULL && one != NULL);
        for (size_t i = 0; i < 3 * count; i++) {
            pixels[i] = (uint8_t)(i * i * 31 + i * 7 + (size_t)width);
        }
        assert_true(dp_resize_part(&resizer, &in, rows, columns, OUT, to, 3, out));
        for (size_t c = 0; c < 3; c++) {
            for (size_t i = 0; i < count; i++) {
                one[i] = pixels[3 * i + c];
            }
            assert_true(dp_resize_part(&resizer, &channel, rows, columns, OUT, to, 1, grey));
            for (size_t i = 0; i < OUT * (size_t)to; i++) {
                assert_int_equal(out[3 * i + c], grey[i]);
            }
        }
        dp_free(pixels);
        dp_free(one);
    }
}

/* Colours have code of their own where there is AVX2. */
static void processors_without_avx2_get_the_same_bytes(void **state)
{
    static uint8_t pixels[40 * 30 * 3], with[SIDES * SIDES * 3], without[SIDES * SIDES * 3];
    const struct dp_picture in = {30, 40, 3, pixels, 0};
    (void)state;

    if (&__cpu_model == NULL || (__cpu_model.features & AVX2) == 0) {
        skip();
    }
    for (size_t i = 0; i < sizeof(pixels); i++) {
        pixels[i] = (uint8_t)(i * i * 31 + i * 7);
    }
    for (int side = 1; side <= SIDES; side++) {
        const struct dp_stretch rows = {.begin = side / 3.0, .length = 20};
        const struct dp_stretch columns = {
            .begin = 9.25, .length = side, .backwards = side % 2 == 1};
        assert_true(dp_resize_part(&resizer, &in, rows, columns, side, SIDES, 3, with));
        dp_resizer_release(&resizer); /* nothing of it is found again */
        memset(without, 0xa5, sizeof(without));
        __cpu_model.features &= ~(unsigned)AVX2;
        assert_true(dp_resize_part(&resizer, &in, rows, columns, side, SIDES, 3, without));
        __cpu_model.features |= AVX2;
        assert_memory_equal(with, without, (size_t)side * SIDES * 3);
    }
}

static void backwards_is_the_same_mirrored(void **state)
{
    uint8_t pixels[ROOM], out[ROOM], mirrored[ROOM];
    const struct dp_picture in = sample(9, 4, 3, pixels);
    const struct dp_stretch rows = {.length = 4}, forwards = {.begin = 1.5, .length = 6};
    const struct dp_stretch backwards = {.begin = 1.5, .length = 6, .backwards = true};
    (void)state;

    for (int width = 1; width < 14; width++) {
        assert_true(dp_resize_part(&resizer, &in, rows, forwards, 3, width, 3, out));
        assert_true(dp_resize_part(&resizer, &in, rows, backwards, 3, width, 3, mirrored));
        for (int i = 0; i < 3 * width; i++) {
            const int row = i / width, x = i % width;
            assert_memory_equal(mirrored + (size_t)i * 3,
                                out + (size_t)(row * width + width - 1 - x) * 3, 3);
        }
    }
}

/* Whatever the sizes, weights sum to 1: one shade stays that shade, also the brightest. */
static void one_shade_stays_one_shade(void **state)
{
    static uint8_t pixels[40 * 50], out[60 * 60];
    (void)state;

    for (int shade = 0; shade < 256; shade += 51) {
        memset(pixels, shade, sizeof(pixels));
        for (int size = 1; size <= 60; size += 7) {
            const struct dp_picture in = {40, 50, 1, pixels, 0};
            assert_true(dp_resize(&resizer, &in, size % 2 == 0 ? DP_RESIZE_CROP : DP_RESIZE_AUTO,
                                  size, 61 - size, 1, out));
            for (int i = 0; i < size * (61 - size); i++) {
                assert_int_equal(out[i], shade);
            }
        }
    }
}

static void without_memory_it_says_so(void **state)
{
    uint8_t pixels[ROOM], out[ROOM];
    const struct dp_picture in = sample(9, 4, 3, pixels);
    struct dp_resizer other = {0};
    bool done = false;
    (void)state;

    for (int nth = 1; !done; nth++) {
        dp_mem_fail_nth(nth);
        done = dp_resize(&other, &in, DP_RESIZE_CROP, 2, 2, 3, out);
        dp_mem_fail_nth(0);
        assert_true(done || nth <= 6);
        assert_true(!done || nth > 1);
        dp_resizer_release(&other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_are_scaled_and_cut_as_by_pil),
        cmocka_unit_test(the_middle_is_cut_out_in_the_shape_of_the_result),
        cmocka_unit_test(a_part_has_the_rows_from_its_first_one_on),
        cmocka_unit_test(a_picture_of_that_size_stays_as_it_is),
        cmocka_unit_test(grey_of_that_size_is_repeated_for_colour),
        cmocka_unit_test(grey_is_repeated_for_colour),
        cmocka_unit_test(each_channel_is_resized_as_grey_is),
        cmocka_unit_test(processors_without_avx2_get_the_same_bytes),
        cmocka_unit_test(backwards_is_the_same_mirrored),
        cmocka_unit_test(one_shade_stays_one_shade),
        cmocka_unit_test(without_memory_it_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, release) != 0 ||
           dp_mem_live() != 0; /* cmocka counts no failed teardown of a group */
}
