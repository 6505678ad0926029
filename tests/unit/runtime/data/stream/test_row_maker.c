/*
 * test_row_maker.c - rows of a batch: which part of a picture they show, what they are mixed with,
 * and how many of them are reported as made.
 */
#define _GNU_SOURCE /* syscall() */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "kernels/ops.h"
#include "runtime/data/pictures/resize.h"
#include "runtime/data/stream/row_maker.h"
#include "tests/support/files/picture_files.h"

enum { ROWS = 6, SAMPLE = 3 };

/* So often the clock was looked at, each time a nanosecond later; below 0: it is libc's. */
static long looks = -1;

/* The linker takes this clock, and not libc's. */
int clock_gettime(clockid_t clock_id, struct timespec *tp)
{
    if (looks < 0) {
        return (int)syscall(SYS_clock_gettime, clock_id, tp);
    }
    *tp = (struct timespec){.tv_sec = 1, .tv_nsec = ++looks};
    return 0;
}

static const uint8_t images[ROWS][SAMPLE] = {{1, 2, 3}, {4, 5, 6}};
static const int32_t labels[ROWS] = {7, 8};

static struct dp_augment *augment_of(const char *text, const struct dp_sample_shape *shape)
{
    struct dp_augment *augment = NULL;
    char problem[256] = "";

    if (dp_augment_create(text, shape, 7, &augment, problem, sizeof(problem)) != DP_OK) {
        fail_msg("%s: %s", text, problem);
    }
    return augment;
}

/* Each row is reported in one call alone. */
static void rows_are_reported_once(void **state)
{
    const struct dp_row_maker_config config = {.images = images[0],
                                               .labels = labels,
                                               .count = ROWS,
                                               .sample_bytes = SAMPLE,
                                               .label_words = 1};
    struct dp_row_maker *maker = NULL;
    struct dp_stage_times times;
    uint8_t image[SAMPLE];
    int32_t label;
    size_t skipped = 0;
    (void)state;

    assert_int_equal(dp_row_maker_create(&config, &maker), DP_OK);
    for (size_t rows = ROWS; rows > 0; rows--) {
        for (size_t row = 0; row < rows; row++) {
            assert_int_equal(dp_row_maker_make(maker, 0, row, image, &label, &skipped), DP_OK);
            assert_memory_equal(image, images[row], SAMPLE);
            assert_int_equal(label, labels[row]);
        }
        dp_row_maker_take_times(maker, &times);
        assert_int_equal(times.rows, rows);
        assert_int_equal(times.bytes[DP_STAGE_AUGMENT], rows * SAMPLE);
    }
    dp_row_maker_take_times(maker, &times);
    assert_int_equal(times.rows, 0);
    dp_row_maker_destroy(maker);
    assert_int_equal(dp_mem_live(), 0);
}

/* The class of the row itself, that of the other one, and the share of the first one. */
static void a_pair_has_both_classes_and_the_share_of_the_first(void **state)
{
    static const int32_t classes[ROWS] = {10, 11, 12, 13, 14, 15};
    const struct dp_sample_shape shape = {.count = SAMPLE, .element = DP_ELEMENT_BYTE};
    struct dp_row_maker_config config = {.images = images[0],
                                         .labels = classes,
                                         .count = ROWS,
                                         .sample_bytes = SAMPLE,
                                         .label_words = 1,
                                         .pairs = true};
    struct dp_augment *augment = augment_of("mixup:alpha=1", &shape);
    struct dp_row_maker *maker = NULL;
    (void)state;

    config.augment = augment;
    assert_int_equal(dp_row_maker_create(&config, &maker), DP_OK);
    for (uint64_t row = 0; row < ROWS; row++) {
        const struct dp_mix mix = dp_augment_mix(augment, 3, row, ROWS);
        int32_t pair[DP_PAIR_WORDS + 1] = {-1, -1, -1, -1};
        uint8_t image[SAMPLE];
        size_t skipped = 0;
        float share;
        assert_int_equal(dp_row_maker_make(maker, 3, row, image, pair, &skipped), DP_OK);
        memcpy(&share, &pair[2], sizeof(share));
        assert_int_equal(pair[0], classes[row]);
        assert_int_equal(pair[1], classes[mix.row]);
        assert_true(share == (float)mix.part / DP_MIX_WHOLE);
        assert_int_equal(pair[DP_PAIR_WORDS], -1);
    }
    dp_row_maker_destroy(maker);
    dp_augment_destroy(augment);
    assert_int_equal(dp_mem_live(), 0);
}

/* ---- a source that writes down what is read ---- */

static struct {
    size_t row;
    bool passes;
} reads[2 * ROWS];
static int read_count;

static dp_status noted_open(void *state, const struct dp_source_config *config,
                            struct dp_source_info *info)
{
    (void)state;
    *info = (struct dp_source_info){.count = {ROWS, 1}, .shape = config->input, .classes = 9};
    return DP_OK;
}

static dp_status noted_fetch(void *state, struct dp_fetcher *fetcher, enum dp_set set, size_t row,
                             struct dp_raw *raw)
{
    (void)state;
    (void)set;
    assert_in_range(read_count, 0, 2 * ROWS - 1);
    reads[read_count].row = row;
    reads[read_count++].passes = fetcher->passes;
    *raw = (struct dp_raw){.kind = DP_RAW_ARRAY,
                           .data = images[row],
                           .bytes = SAMPLE,
                           .shape = {.count = SAMPLE, .element = DP_ELEMENT_BYTE},
                           .label = labels[row]};
    return DP_OK;
}

static void noted_name(const void *state, enum dp_set set, size_t row, char *text, size_t size)
{
    (void)state;
    (void)snprintf(text, size, "row %zu of set %d", row, (int)set);
}

static void noted_close(void *state)
{
    (void)state;
}

static const struct dp_source noted = {
    .plugin = {.name = "noted", .help = "writes down what is read", .state_bytes = 1},
    .open = noted_open,
    .fetch = noted_fetch,
    .name = noted_name,
    .close = noted_close,
};

/* It may be any of the set: keeping it would drive out others that are needed soon. */
static void what_a_row_is_mixed_with_is_read_in_passing(void **state)
{
    const struct dp_source_config source = {.input = {.count = SAMPLE, .element = DP_ELEMENT_BYTE},
                                            .classes = 9};
    struct dp_row_maker_config config = {
        .sample_bytes = SAMPLE, .label_words = DP_PAIR_WORDS, .count = ROWS, .pairs = true};
    struct dp_augment *augment = augment_of("mixup:alpha=1", &source.input);
    struct dp_samples *samples = NULL;
    struct dp_row_maker *maker = NULL;
    (void)state;

    assert_int_equal(dp_plugin_add(&dp_sources, &noted.plugin), DP_OK);
    assert_int_equal(dp_samples_open("noted", &source, &samples), DP_OK);
    config.samples = samples;
    config.augment = augment;
    assert_int_equal(dp_row_maker_create(&config, &maker), DP_OK);
    read_count = 0;
    for (uint64_t row = 0; row < ROWS; row++) {
        int32_t pair[DP_PAIR_WORDS];
        uint8_t image[SAMPLE];
        size_t skipped = 0;
        assert_int_equal(dp_row_maker_make(maker, 1, row, image, pair, &skipped), DP_OK);
    }
    assert_int_equal(read_count, 2 * ROWS);
    for (int i = 0; i < read_count; i++) {
        const uint64_t row = (uint64_t)i / 2;
        assert_int_equal(reads[i].passes, i % 2 == 1);
        assert_int_equal(reads[i].row,
                         i % 2 == 0 ? row : dp_augment_mix(augment, 1, row, ROWS).row);
    }
    dp_row_maker_destroy(maker);
    dp_samples_close(samples);
    dp_augment_destroy(augment);
    assert_int_equal(dp_mem_live(), 0);
}

static void memory_that_lacks_is_an_error(void **state)
{
    const struct dp_sample_shape shape = {.count = SAMPLE, .element = DP_ELEMENT_BYTE};
    struct dp_row_maker_config config = {.images = images[0],
                                         .labels = labels,
                                         .count = ROWS,
                                         .sample_bytes = SAMPLE,
                                         .label_words = 1,
                                         .pairs = true};
    struct dp_augment *augment = augment_of("mixup:alpha=1", &shape);
    const size_t live = dp_mem_live();
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    config.augment = augment;
    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_row_maker *maker = NULL;
        dp_mem_fail_nth(nth);
        status = dp_row_maker_create(&config, &maker);
        assert_int_equal(status == DP_OK, dp_mem_fail_nth(0) > 0);
        dp_row_maker_destroy(maker);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_log_set_level(DP_LOG_INFO);
    dp_augment_destroy(augment);
}

/* ---- pictures in files ---- */

enum { SIDE = 5, IMAGE = SIDE * SIDE * 3, HEIGHT = 30, WIDTH = 40, PICTURES = 4 };

static char folder[64];

static const struct dp_source_config files = {
    .dir = folder,
    .input = {.height = SIDE, .width = SIDE, .channels = 3, .count = IMAGE},
    .classes = 2,
    .resize = DP_RESIZE_BILINEAR};

static int make_pictures(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/test_row_maker.XXXXXX");
    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    for (int i = 0; i < PICTURES; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "train/%c/%d.png", i < 2 ? 'a' : 'b', i);
        picture_file(folder, name, WIDTH, HEIGHT, 3, (unsigned)i);
    }
    picture_file(folder, "test/a/0.png", WIDTH, HEIGHT, 3, 9);
    picture_file(folder, "test/b/0.png", WIDTH, HEIGHT, 3, 9);
    return 0;
}

static int remove_pictures(void **state)
{
    (void)state;
    remove_tree(folder);
    return 0;
}

/* That part of a picture alone, in the size of the model. */
static void scale_part(unsigned seed, const struct dp_part *part, uint8_t out[IMAGE])
{
    static uint8_t pixels[HEIGHT * WIDTH * 3];
    struct dp_picture picture = {part->height, part->width, 3, pixels, 0};
    struct dp_resizer resizer = {0};
    size_t at = 0;

    for (int y = part->top; y < part->top + part->height; y++) {
        for (int x = part->left; x < part->left + part->width; x++) {
            for (int c = 0; c < 3; c++) {
                pixels[at++] = picture_value(seed, x, y, c);
            }
        }
    }
    assert_true(dp_resize(&resizer, &picture, DP_RESIZE_BILINEAR, SIDE, SIDE, 3, out));
    dp_resizer_release(&resizer);
}

/* Of the picture as the file has it, before it gets the model's size. */
static void check_parts(const char *text)
{
    struct dp_row_maker_config config = {.sample_bytes = IMAGE, .label_words = 1};
    struct dp_augment *augment = augment_of(text, &files.input);
    struct dp_samples *samples = NULL;
    struct dp_row_maker *maker = NULL;

    assert_int_equal(dp_samples_open("folder", &files, &samples), DP_OK);
    config.count = dp_samples_info(samples)->count[DP_SET_TRAIN];
    config.samples = samples;
    config.augment = augment;
    assert_int_equal(dp_row_maker_create(&config, &maker), DP_OK);
    for (uint64_t row = 0; row < PICTURES; row++) {
        uint8_t image[IMAGE] = {0}, expected[IMAGE];
        struct dp_part part;
        size_t skipped = 0;
        int32_t label;
        assert_int_equal(dp_row_maker_make(maker, 2, row, image, &label, &skipped), DP_OK);
        dp_augment_part(augment, 2, row, HEIGHT, WIDTH, &part);
        scale_part((unsigned)row, &part, expected);
        assert_memory_equal(image, expected, IMAGE);
        assert_int_equal(label, row / 2);
    }
    dp_row_maker_destroy(maker);
    dp_samples_close(samples);
    dp_augment_destroy(augment);
    assert_int_equal(dp_mem_live(), 0);
}

/* One flip is done with the cropping, and the other one, which takes it back, after it. */
static void rows_show_the_part_that_was_chosen(void **state)
{
    (void)state;
    check_parts("random_resized_crop:scale=0.1");
    check_parts("random_resized_crop:scale=0.1;flip:p=1;flip:p=1");
}

/* What a reader has done is added to what there is already, once. */
static void times_of_readers_add_up(void **state)
{
    const uint64_t before = (uint64_t)1 << 50; /* more than reading takes here */
    struct dp_stage_times sum = {.rows = 5};
    struct dp_sample_reader *reader = NULL;
    struct dp_samples *samples = NULL;
    uint8_t image[IMAGE];
    int32_t label;
    uint64_t once = 0;
    (void)state;

    assert_int_equal(dp_samples_open("folder", &files, &samples), DP_OK);
    assert_int_equal(dp_sample_reader_create(samples, &reader), DP_OK);
    for (int i = 0; i < DP_STAGE_COUNT; i++) {
        sum.ns[i] = sum.bytes[i] = before;
    }
    for (int time = 1; time <= 3; time++) {
        assert_int_equal(dp_sample_reader_read(reader, DP_SET_TRAIN, 1, image, &label), DP_OK);
        dp_sample_reader_take_times(reader, &sum);
        once = time == 1 ? sum.bytes[DP_STAGE_READ] - before : once;
        assert_true(once > 0);
        assert_int_equal(sum.bytes[DP_STAGE_READ], before + once * (unsigned)time);
        for (int i = 0; i < DP_STAGE_COUNT; i++) {
            assert_true(sum.ns[i] >= before);
        }
    }
    assert_int_equal(sum.rows, 5);
    dp_sample_reader_destroy(reader);
    dp_samples_close(samples);
    assert_int_equal(dp_mem_live(), 0);
}

/* Each row takes as long, by the clock of this test; what was taken is not told again. */
static void times_of_changes_add_up(void **state)
{
    struct dp_row_maker_config config = {
        .sample_bytes = IMAGE, .label_words = 1, .count = PICTURES};
    struct dp_augment *augment = augment_of("flip:p=1", &files.input);
    struct dp_samples *samples = NULL;
    struct dp_row_maker *maker = NULL;
    (void)state;

    assert_int_equal(dp_samples_open("folder", &files, &samples), DP_OK);
    config.samples = samples;
    config.augment = augment;
    assert_int_equal(dp_row_maker_create(&config, &maker), DP_OK);
    for (uint64_t rows = 0; rows <= PICTURES; rows++) {
        struct dp_stage_times times;
        uint8_t image[IMAGE];
        int32_t label;
        size_t skipped = 0;
        looks = 0;
        for (uint64_t row = 0; row < rows; row++) {
            assert_int_equal(dp_row_maker_make(maker, 0, row, image, &label, &skipped), DP_OK);
        }
        looks = -1;
        dp_row_maker_take_times(maker, &times);
        assert_int_equal(times.ns[DP_STAGE_AUGMENT], rows);
        assert_int_equal(times.ns[DP_STAGE_DECODE], rows);
    }
    dp_row_maker_destroy(maker);
    dp_samples_close(samples);
    dp_augment_destroy(augment);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_reported_once),
        cmocka_unit_test(a_pair_has_both_classes_and_the_share_of_the_first),
        cmocka_unit_test(what_a_row_is_mixed_with_is_read_in_passing),
        cmocka_unit_test(memory_that_lacks_is_an_error),
        cmocka_unit_test(rows_show_the_part_that_was_chosen),
        cmocka_unit_test(times_of_readers_add_up),
        cmocka_unit_test(times_of_changes_add_up),
    };

    return cmocka_run_group_tests_name("row_maker", tests, make_pictures, remove_pictures);
}
