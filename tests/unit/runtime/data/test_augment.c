/* test_augment.c - data.augment: every augmentation is a function of seed, epoch and row, and does
 * what its name says. */
#include "tests/support/arrays.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/data/augment/augment.h"

enum { SIDE = 8, CHANNELS = 3, COUNT = SIDE * SIDE * CHANNELS, ROWS = 40 };

static const struct dp_sample_shape bytes_shape = {SIDE, SIDE, CHANNELS, COUNT, DP_ELEMENT_BYTE};
static const struct dp_sample_shape float_shape = {SIDE, SIDE, CHANNELS, COUNT, DP_ELEMENT_FLOAT};
static const struct dp_sample_shape flat_shape = {0, 0, 0, COUNT, DP_ELEMENT_BYTE};

static uint8_t picture[COUNT]; /* no value is 0 */

static int make_picture(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        picture[i] = (uint8_t)(1 + (i * 37) % 251);
    }
    return 0;
}

static struct dp_augment *augment_of(const char *text, const struct dp_sample_shape *shape)
{
    struct dp_augment *augment = NULL;
    char problem[256] = "";

    if (dp_augment_create(text, shape, 7, &augment, problem, sizeof(problem)) != DP_OK) {
        fail_msg("%s: %s", text, problem);
    }
    return augment;
}

static void every_augmentation_depends_on_epoch_and_row_alone(void **state)
{
    const struct dp_plugin *plugin;
    uint8_t first[ROWS][COUNT], second[COUNT], other[COUNT];
    (void)state;

    for (int i = 0; (plugin = dp_plugin_at(&dp_augmentations, i)) != NULL; i++) {
        struct dp_augment *a = augment_of(plugin->name, &bytes_shape);
        struct dp_augment *b = augment_of(plugin->name, &bytes_shape);
        int same_rows = 0, same_epochs = 0;

        if (dp_augment_mixes(a)) { /* test_mixup */
            dp_augment_destroy(a);
            dp_augment_destroy(b);
            continue;
        }
        for (uint64_t row = 0; row < ROWS; row++) {
            dp_augment_sample(a, 3, row, picture, first[row]);
            dp_augment_sample(a, 4, row, picture, other);
            same_rows += row > 0 && memcmp(first[row], first[row - 1], COUNT) == 0;
            same_epochs += memcmp(first[row], other, COUNT) == 0;
        }
        for (uint64_t row = ROWS; row-- > 0;) {
            dp_augment_sample(b, 3, row, picture, second);
            assert_memory_equal(second, first[row], COUNT);
        }
        assert_true(same_rows < 3 * ROWS / 4 && same_epochs < 3 * ROWS / 4);
        dp_augment_destroy(a);
        dp_augment_destroy(b);
    }
    assert_int_equal(dp_mem_live(), 0);
}

static void floats_are_treated_as_bytes_are(void **state)
{
    static const char *const texts[] = {"flip", "random_crop:padding=3", "cutout:size=5",
                                        "random_crop;flip;cutout"};
    float in[COUNT], out[COUNT];
    uint8_t expected[COUNT];
    (void)state;

    for (int i = 0; i < COUNT; i++) {
        in[i] = picture[i];
    }
    for (size_t i = 0; i < DP_COUNT(texts); i++) {
        struct dp_augment *a = augment_of(texts[i], &bytes_shape);
        struct dp_augment *b = augment_of(texts[i], &float_shape);

        for (uint64_t row = 0; row < ROWS; row++) {
            dp_augment_sample(a, 0, row, picture, expected);
            dp_augment_sample(b, 0, row, (const uint8_t *)in, (uint8_t *)out);
            for (int k = 0; k < COUNT; k++) {
                assert_true(out[k] == (float)expected[k]);
            }
        }
        dp_augment_destroy(a);
        dp_augment_destroy(b);
    }
}

/* Of stages that mirror, or do not: the last one has what all before it have made. */
static void any_number_of_stages_follow_each_other(void **state)
{
    uint8_t out[COUNT], mirrored[COUNT];
    static const char text[] = "flip;flip;flip;flip;flip;flip";
    const size_t most = sizeof(text) / sizeof("flip;");
    (void)state;

    for (int i = 0; i < SIDE * SIDE; i++) {
        const int x = i % SIDE;
        memcpy(mirrored + (size_t)i * CHANNELS, picture + (size_t)(i + SIDE - 1 - 2 * x) * CHANNELS,
               CHANNELS);
    }
    for (size_t stages = 1; stages <= most; stages++) {
        struct dp_augment *a = augment_of(text + (most - stages) * strlen("flip;"), &bytes_shape);

        for (uint64_t row = 0; row < ROWS; row++) {
            dp_augment_sample(a, 0, row, picture, out);
            assert_true(memcmp(out, picture, COUNT) == 0 || memcmp(out, mirrored, COUNT) == 0);
        }
        dp_augment_destroy(a);
    }
}

static const uint8_t *pixel(const uint8_t *from, int y, int x)
{
    return from + ((size_t)y * SIDE + (size_t)x) * CHANNELS;
}

static void flip_changes_left_and_right(void **state)
{
    static const char *const texts[] = {"flip:p=1", "flip:p=0"};
    uint8_t out[COUNT];
    (void)state;

    for (size_t i = 0; i < DP_COUNT(texts); i++) {
        struct dp_augment *a = augment_of(texts[i], &bytes_shape);

        dp_augment_sample(a, 0, 5, picture, out);
        for (int y = 0; y < SIDE; y++) {
            for (int x = 0; x < SIDE; x++) {
                assert_memory_equal(pixel(out, y, x), pixel(picture, y, i == 0 ? SIDE - 1 - x : x),
                                    CHANNELS);
            }
        }
        dp_augment_destroy(a);
    }
}

/* A part that is decoded mirrored is what flip would have made of it. */
static void a_flip_after_a_part_is_said_with_the_part(void **state)
{
    struct dp_augment *a =
        augment_of("random_resized_crop:scale=1;flip;cutout:size=1", &bytes_shape);
    struct dp_augment *flip = augment_of("cutout:size=1;flip", &bytes_shape);
    static uint8_t out[COUNT];
    struct dp_part part;
    int mirrored = 0;
    bool more = false;
    (void)state;

    assert_true(dp_augment_takes_part(a, &more) && more);
    for (uint64_t row = 0; row < 64; row++) {
        dp_augment_part(a, 3, row, SIDE, SIDE, &part);
        dp_augment_sample(flip, 3, row, picture, out); /* its second stage, too */
        int as_it_was = 0;
        for (int y = 0; y < SIDE; y++) {
            as_it_was += memcmp(pixel(out, y, 0), pixel(picture, y, 0), CHANNELS) == 0;
        }
        assert_int_equal(part.mirrored, as_it_was < SIDE - 1);
        mirrored += part.mirrored;
    }
    assert_true(mirrored > 16 && mirrored < 48);
    dp_augment_destroy(a);
    dp_augment_destroy(flip);
    a = augment_of("random_resized_crop;flip", &bytes_shape);
    assert_true(dp_augment_takes_part(a, &more) && !more);
    dp_augment_destroy(a);
    a = augment_of("random_resized_crop", &bytes_shape);
    assert_true(dp_augment_takes_part(a, &more) && !more);
    dp_augment_destroy(a);
    a = augment_of("random_resized_crop;cutout:size=1", &bytes_shape); /* which is left to do */
    assert_true(dp_augment_takes_part(a, &more) && more);
    dp_augment_destroy(a);
}

/* Which rows of epoch 3 the last one of `text` mirrors: bit r of row r. */
static uint32_t mirrored_rows(const char *text)
{
    struct dp_augment *a = augment_of(text, &bytes_shape);
    uint32_t rows = 0;

    for (uint64_t row = 0; row < 32; row++) {
        struct dp_part part;
        dp_augment_part(a, 3, row, SIDE, SIDE, &part);
        rows |= (uint32_t)part.mirrored << row;
    }
    dp_augment_destroy(a);
    return rows;
}

/* A change here changes what every old run trained on: its checkpoints could not be resumed to the
 * same bits. The numbers come from a second implementation, written in Python. */
static void choices_never_change(void **state)
{
    static const uint32_t first = 0xf81562c6, second = 0xb681a5b1; /* number of the stage: 0, 1 */
    struct dp_augment *a = augment_of("flip", &bytes_shape);
    uint8_t out[COUNT];
    (void)state;

    for (uint64_t row = 0; row < 32; row++) {
        dp_augment_sample(a, 3, row, picture, out);
        assert_int_equal(memcmp(out, picture, COUNT) != 0, first >> row & 1);
    }
    dp_augment_destroy(a);
    assert_int_equal(mirrored_rows("random_resized_crop;flip"), second);
}

/* All of the area is wanted: no part fits but one of the picture's own proportions, rounded to a
 * pixel less. Then the largest one in the middle is taken whose proportions are within the bounds,
 * 3:4 and 4:3. */
static void what_fits_nowhere_is_the_largest_part_in_the_middle(void **state)
{
    static const struct {
        int height, width, rounded;
        struct dp_part part;
    } cases[] = {
        {30, 90, 0, {.top = 0, .left = 25, .height = 30, .width = 40}},
        {90, 30, 0, {.top = 25, .left = 0, .height = 40, .width = 30}},
        {330, 300, 1, {.top = 0, .left = 0, .height = 330, .width = 300}},
        {300, 330, 1, {.top = 0, .left = 0, .height = 300, .width = 330}},
    };
    struct dp_augment *a = augment_of("random_resized_crop:scale=1", &bytes_shape);
    (void)state;

    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        const struct dp_part *expected = &cases[i].part;
        const int less = cases[i].rounded;
        for (uint64_t row = 0; row < ROWS; row++) {
            struct dp_part part = {0};
            dp_augment_part(a, 0, row, cases[i].height, cases[i].width, &part);
            assert_in_range(part.height, expected->height - less, expected->height);
            assert_in_range(part.width, expected->width - less, expected->width);
            assert_in_range(part.top, expected->top, expected->top + less);
            assert_in_range(part.left, expected->left, expected->left + less);
        }
    }
    dp_augment_destroy(a);
}

/* Whether `out` is the picture moved by (down, right), black outside. */
static bool is_moved(const uint8_t *out, int down, int right)
{
    static const uint8_t black[CHANNELS];

    for (int y = 0; y < SIDE; y++) {
        for (int x = 0; x < SIDE; x++) {
            const int fy = y + down, fx = x + right;
            const bool inside = fy >= 0 && fy < SIDE && fx >= 0 && fx < SIDE;
            const uint8_t *expected = inside ? pixel(picture, fy, fx) : black;
            if (memcmp(pixel(out, y, x), expected, CHANNELS) != 0) {
                return false;
            }
        }
    }
    return true;
}

static void random_crop_moves_by_up_to_padding_each_as_often(void **state)
{
    enum { PADDING = 1, PLACES = 9, TIMES = 4500 };
    struct dp_augment *a = augment_of("random_crop:padding=1", &bytes_shape);
    int counts[PLACES] = {0};
    uint8_t out[COUNT];
    (void)state;

    for (uint64_t row = 0; row < TIMES; row++) {
        bool found = false;
        dp_augment_sample(a, 0, row, picture, out);
        for (int place = 0; place < PLACES && !found; place++) {
            found = is_moved(out, place / 3 - PADDING, place % 3 - PADDING);
            counts[place] += found;
        }
        assert_true(found);
    }
    for (int place = 0; place < PLACES; place++) {
        /* 500 are expected, with a standard deviation of 21: six of them. */
        assert_in_range(counts[place], 500 - 126, 500 + 126);
    }
    dp_augment_destroy(a);
}

/* The least rectangle that holds all black pixels, and how many these are. */
struct hole {
    int top, bottom, left, right, black;
};

/* Other pixels must be as they were. */
static struct hole find_hole(const uint8_t *out)
{
    struct hole hole = {.top = SIDE, .bottom = -1, .left = SIDE, .right = -1};

    for (int at = 0; at < SIDE * SIDE; at++) {
        const int y = at / SIDE, x = at % SIDE;

        if (pixel(out, y, x)[0] != 0) {
            assert_memory_equal(pixel(out, y, x), pixel(picture, y, x), CHANNELS);
            continue;
        }
        hole.black++;
        hole.top = y < hole.top ? y : hole.top;
        hole.bottom = y > hole.bottom ? y : hole.bottom;
        hole.left = x < hole.left ? x : hole.left;
        hole.right = x > hole.right ? x : hole.right;
    }
    return hole;
}

static void cutout_blackens_a_square_that_may_be_cut_at_the_edge(void **state)
{
    struct dp_augment *a = augment_of("cutout:size=3", &bytes_shape);
    int whole = 0;
    (void)state;

    for (uint64_t row = 0; row < 200; row++) {
        uint8_t out[COUNT];

        dp_augment_sample(a, 0, row, picture, out);
        const struct hole hole = find_hole(out);
        const int height = hole.bottom - hole.top + 1, width = hole.right - hole.left + 1;
        assert_int_equal(hole.black, height * width);
        assert_in_range(height, 2, 3);
        assert_in_range(width, 2, 3);
        whole += hole.black == 9;
    }
    assert_in_range(whole, 1, 199);
    dp_augment_destroy(a);
}

/* The first channel of a pixel. */
static float first_of(const float *from, int y, int x)
{
    return from[((size_t)y * SIDE + (size_t)x) * CHANNELS];
}

static void random_resized_crop_scales_linearly(void **state)
{
    struct dp_augment *whole = augment_of("random_resized_crop:scale=1", &bytes_shape);
    struct dp_augment *part = augment_of("random_resized_crop:size=8", &bytes_shape);
    struct dp_augment *floats = augment_of("random_resized_crop", &float_shape);
    uint8_t out[COUNT], even[COUNT];
    float slope[COUNT], scaled[COUNT];
    (void)state;

    memset(even, 99, sizeof(even));
    for (int i = 0; i < COUNT; i++) {
        slope[i] = (float)(i / CHANNELS % SIDE);
    }
    for (uint64_t row = 0; row < ROWS; row++) {
        dp_augment_sample(whole, 0, row, picture, out);
        assert_memory_equal(out, picture, COUNT); /* nothing else of a square has all of its area */
        dp_augment_sample(part, 0, row, even, out);
        assert_memory_equal(out, even, COUNT);
        /* What is linear stays linear between the middles of the first and the last pixel. */
        memset(scaled, 0xff, sizeof(scaled)); /* no numbers */
        dp_augment_sample(floats, 0, row, (const uint8_t *)slope, (uint8_t *)scaled);
        const float step = first_of(scaled, 0, 4) - first_of(scaled, 0, 3);
        assert_true(step >= 0.0f && step <= 1.0f);
        for (int x = 1; x < SIDE; x++) {
            const float rise = first_of(scaled, 0, x) - first_of(scaled, 0, x - 1);
            assert_true(rise >= -1e-5f && rise <= step + 1e-5f);
            assert_true(first_of(scaled, SIDE - 1, x) == first_of(scaled, 0, x));
        }
    }
    dp_augment_destroy(whole);
    dp_augment_destroy(part);
    dp_augment_destroy(floats);
}

static void color_jitter_has_three_parts(void **state)
{
    static const char *const none = "color_jitter:brightness=0,contrast=0,saturation=0";
    struct dp_augment *a = augment_of(none, &bytes_shape);
    struct dp_augment *gray = augment_of("color_jitter:brightness=0,contrast=0", &bytes_shape);
    struct dp_augment *bright = augment_of("color_jitter:contrast=0,saturation=0", &bytes_shape);
    uint8_t out[COUNT], even[COUNT];
    (void)state;

    memset(even, 100, sizeof(even));
    dp_augment_sample(a, 0, 0, picture, out);
    assert_memory_equal(out, picture, COUNT);
    dp_augment_sample(gray, 0, 0, even, out); /* gray has no color to change */
    assert_memory_equal(out, even, COUNT);
    for (uint64_t row = 0; row < ROWS; row++) {
        dp_augment_sample(bright, 0, row, even, out);
        assert_in_range(out[0], 60, 140);
        for (int i = 1; i < COUNT; i++) {
            assert_int_equal(out[i], out[0]);
        }
    }
    dp_augment_destroy(a);
    dp_augment_destroy(gray);
    dp_augment_destroy(bright);
}

/* Gray above, lighter gray below: both become as much darker or lighter, by up to 0.4. */
static void contrast_spreads_around_the_mean(void **state)
{
    struct dp_augment *a = augment_of("color_jitter:brightness=0,saturation=0", &bytes_shape);
    uint8_t halves[COUNT], out[COUNT], least = 255, most = 0;
    (void)state;

    memset(halves, 100, COUNT / 2);
    memset(halves + COUNT / 2, 140, COUNT / 2);
    for (uint64_t row = 0; row < ROWS; row++) {
        dp_augment_sample(a, 0, row, halves, out);
        assert_in_range(out[0] + out[COUNT - 1], 239, 241);
        least = out[0] < least ? out[0] : least;
        most = out[0] > most ? out[0] : most;
    }
    assert_in_range(least, 92, 95);
    assert_in_range(most, 105, 108);
    dp_augment_destroy(a);
}

static void what_cannot_be_is_refused_with_its_reason(void **state)
{
    static const struct {
        const char *text;
        const struct dp_sample_shape *shape;
        const char *problem;
    } cases[] = {
        {"flap", &bytes_shape, "unknown augmentation 'flap' (did you mean 'flip'?)"},
        {"flip;", &bytes_shape, "unknown augmentation ''"},
        {"cutout:size=0", &bytes_shape, "cutout: size: expected an integer from 1 to 4096"},
        {"random_crop:padding=8", &bytes_shape, "random_crop: padding must be less than"},
        {"random_resized_crop:size=7", &bytes_shape, "random_resized_crop: size must be the"},
        {"color_jitter", &float_shape, "color_jitter: only of bytes"},
        {"flip", &flat_shape, "flip: samples are no pictures"},
        {"flip;flip;flip;flip;flip;flip;flip;flip;flip;flip;flip;flip;flip;flip;flip;flip;flip",
         &bytes_shape, "more than 16 augmentations"},
    };
    (void)state;

    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        struct dp_augment *augment = NULL;
        char problem[256] = "";
        assert_int_equal(
            dp_augment_create(cases[i].text, cases[i].shape, 1, &augment, problem, sizeof(problem)),
            DP_ERR_CONFIG);
        assert_null(augment);
        assert_ptr_equal(strstr(problem, cases[i].problem), problem);
        assert_int_equal(dp_mem_live(), 0);
    }
}

static void nothing_is_left_when_memory_runs_out(void **state)
{
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_augment *augment = NULL;
        char problem[256] = "";
        (void)dp_mem_fail_nth(nth);
        status =
            dp_augment_create("flip;cutout", &bytes_shape, 1, &augment, problem, sizeof(problem));
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true(status == DP_OK || strstr(problem, "memory") != NULL);
        dp_augment_destroy(augment);
        assert_int_equal(dp_mem_live(), 0);
        assert_in_range(nth, 1, 50);
    }
    (void)dp_mem_fail_nth(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_augmentation_depends_on_epoch_and_row_alone),
        cmocka_unit_test(floats_are_treated_as_bytes_are),
        cmocka_unit_test(any_number_of_stages_follow_each_other),
        cmocka_unit_test(flip_changes_left_and_right),
        cmocka_unit_test(a_flip_after_a_part_is_said_with_the_part),
        cmocka_unit_test(choices_never_change),
        cmocka_unit_test(what_fits_nowhere_is_the_largest_part_in_the_middle),
        cmocka_unit_test(random_crop_moves_by_up_to_padding_each_as_often),
        cmocka_unit_test(cutout_blackens_a_square_that_may_be_cut_at_the_edge),
        cmocka_unit_test(random_resized_crop_scales_linearly),
        cmocka_unit_test(color_jitter_has_three_parts),
        cmocka_unit_test(contrast_spreads_around_the_mean),
        cmocka_unit_test(what_cannot_be_is_refused_with_its_reason),
        cmocka_unit_test(nothing_is_left_when_memory_runs_out),
    };

    return cmocka_run_group_tests_name("augment", tests, make_picture, NULL);
}
