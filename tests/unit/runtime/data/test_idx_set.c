/*
 * test_idx_set.c - which sets of four IDX files are taken, and what each half of them is for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "tests/support/files/idx_files.h"
#include "tests/support/files/read_source.h"

static struct dp_source_config config_of(int height, int width)
{
    return (struct dp_source_config){.dir = folder,
                                     .input = {.height = height,
                                               .width = width,
                                               .channels = 1,
                                               .count = (size_t)height * (size_t)width},
                                     .classes = CLASSES,
                                     .seed = 5};
}

/* Three images of zeros to train on, and three to test with. */
static void write_zeros(unsigned height, unsigned width)
{
    static struct content content;
    const unsigned dim[] = {3, height, width};

    remove_all();
    for (int file = 0; file < 4; file++) {
        const bool images = file % 2 == 0;
        put_header(&content, images ? 0x803 : 0x801, dim, images ? 3 : 1);
        for (unsigned k = 0; k < (images ? 3 * height * width : 3); k++) {
            put_byte(&content, 0);
        }
        write_file(file_names[file], "", &content);
    }
}

static void fashion_mnist_has_28_rows_of_28_pixels(void **state)
{
    static const int sides[][2] = {{28, 28}, {28, 27}, {27, 28}};
    (void)state;

    for (size_t i = 0; i < 3; i++) {
        const struct dp_source_config config = config_of(sides[i][0], sides[i][1]);
        struct outcome o;
        write_zeros((unsigned)sides[i][0], (unsigned)sides[i][1]);
        o = run_source_well(i == 0 ? "fashion-mnist" : "idx", &config);
        outcome_free(&o);
        if (i > 0) {
            assert_source_refuses("fashion-mnist", &config, DP_ERR_DATA, "set data.source to idx");
        }
    }
}

/* Samples are held out where that is wanted, and there are no files to test with. */
static void files_to_test_with_are_taken_where_they_are(void **state)
{
    struct dp_source_config config = config_of(H, W);
    struct outcome o;
    (void)state;

    config.test_fraction = 0.5;
    write_set(false);
    o = run_source_well("idx", &config);
    assert_int_equal(o.info.count[DP_SET_TRAIN], TRAIN);
    assert_int_equal(o.info.count[DP_SET_TEST], TEST);
    assert_int_equal(o.images[DP_SET_TEST][0], pixel(0, 0, false));
    outcome_free(&o);
    remove_file(file_names[2], "");
    remove_file(file_names[3], "");
    o = run_source_well("idx", &config);
    assert_int_equal(o.info.count[DP_SET_TRAIN], TRAIN / 2);
    assert_int_equal(o.info.count[DP_SET_TEST], TRAIN / 2);
    outcome_free(&o);
    config.test_fraction = 0.0;
    assert_source_refuses("idx", &config, DP_ERR_NOINPUT, "no t10k-images-idx3-ubyte, nor ");
}

static void images_without_pixels_are_refused(void **state)
{
    static const int sides[][2] = {{0, 3}, {3, 0}};
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        const struct dp_source_config config = config_of(sides[i][0], sides[i][1]);
        write_zeros((unsigned)sides[i][0], (unsigned)sides[i][1]);
        assert_source_refuses("idx", &config, DP_ERR_DATA, "has impossible dimensions");
    }
}

/* Of bytes that a file can have, at most 2^63 - 1 without its header. */
static void dimensions_are_impossible_where_no_file_has_so_many_bytes(void **state)
{
    static const struct {
        unsigned dim[3];
        const char *why;
    } cases[] = {
        {{331974727, 82443193, 337}, "has 16 bytes, but its header speaks of 9223372036854775823"},
        {{1u << 21, 1u << 21, 1u << 21}, "has impossible dimensions"},
        {{1u << 22, 1u << 21, 1u << 21}, "has impossible dimensions"},
    };
    static struct content content;
    const struct dp_source_config config = config_of(H, W);
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_set(false);
        put_header(&content, 0x803, cases[i].dim, 3);
        write_file(file_names[0], "", &content);
        assert_source_refuses("idx", &config, DP_ERR_DATA, cases[i].why);
    }
}

/* Three labels, of which the last one is that. */
static void write_label(const char *name, unsigned last)
{
    static struct content content;
    const unsigned dim[] = {3};

    put_header(&content, 0x801, dim, 1);
    put_byte(&content, 0);
    put_byte(&content, 0);
    put_byte(&content, last);
    write_file(name, "", &content);
}

/* Classes: so many, or 0 where any label will do. */
static void labels_are_below_the_number_of_classes(void **state)
{
    struct dp_source_config config = config_of(2, 2);
    struct outcome o;
    char words[80];
    (void)state;

    for (int classes = 0; classes <= 3; classes++) {
        config.classes = classes;
        for (size_t file = 1; file < 4; file += 2) {
            write_zeros(2, 2);
            write_label(file_names[file], classes > 0 ? (unsigned)classes - 1 : 255);
            o = run_source_well("idx", &config);
            assert_int_equal(o.labels[file / 2][2], classes > 0 ? classes - 1 : 255);
            outcome_free(&o);
            if (classes > 0) {
                write_label(file_names[file], (unsigned)classes);
                (void)snprintf(words, sizeof(words),
                               "%s: label %d of row 2 (counted from 0) is too large for %d classes",
                               file_names[file], classes, classes);
                assert_source_refuses("idx", &config, DP_ERR_DATA, words);
            }
        }
    }
}

/* Without a folder there is a default one; a name of one letter is a folder's, too. */
static void a_folder_may_have_a_short_name(void **state)
{
    struct dp_source_config config = config_of(28, 28);
    struct outcome o;
    (void)state;

    write_zeros(28, 28);
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(symlink(".", "d"), 0);
    config.dir = "d";
    o = run_source_well("fashion-mnist", &config);
    assert_int_equal(o.info.count[DP_SET_TRAIN], 3);
    outcome_free(&o);
    assert_int_equal(unlink("d"), 0);
    assert_int_equal(chdir("/"), 0);
}

static void bytes_that_lack_are_counted(void **state)
{
    static struct content content;
    const struct dp_source_config config = config_of(H, W);
    char words[80];
    (void)state;

    write_set(true);
    make_images(&content, true);
    content.count -= 5;
    (void)snprintf(words, sizeof(words), "ends after %zu bytes of plain data, 5 too early",
                   content.count);
    compress_content(&content);
    write_file(file_names[0], ".gz", &content);
    assert_source_refuses("idx", &config, DP_ERR_DATA, words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fashion_mnist_has_28_rows_of_28_pixels),
        cmocka_unit_test(files_to_test_with_are_taken_where_they_are),
        cmocka_unit_test(images_without_pixels_are_refused),
        cmocka_unit_test(dimensions_are_impossible_where_no_file_has_so_many_bytes),
        cmocka_unit_test(a_folder_may_have_a_short_name),
        cmocka_unit_test(bytes_that_lack_are_counted),
        cmocka_unit_test(labels_are_below_the_number_of_classes),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests_name("idx_set", tests, make_folder, remove_folder);
}
