/* test_source_cifar10.c - records of planes become images of pixels; damaged files are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/formats/cifar10.h"
#include "tests/support/files/array_files.h"
#include "tests/support/files/picture_files.h"
#include "tests/support/files/read_source.h"

static const char names[] =
    "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n";

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/test_source_cifar10.XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    remove_tree(folder);
    return 0;
}

static struct dp_source_config usual(void)
{
    return (struct dp_source_config){
        .dir = folder,
        .input = {.height = 32, .width = 32, .channels = 3, .count = DP_CIFAR10_IMAGE},
        .classes = 10};
}

static void write_set(void)
{
    cifar10_file(folder, "data_batch_1.bin", 3, 0);
    cifar10_file(folder, "data_batch_2.bin", 2, 3);
    cifar10_file(folder, "test_batch.bin", 1, 5);
    remove_file(folder, "batches.meta.txt");
    remove_file(folder, "data_batch_3.bin");
}

static void images_of_all_batches_follow_each_other(void **state)
{
    const struct dp_source_config config = usual();
    struct outcome o;
    (void)state;

    write_set();
    o = run_source_well("cifar10", &config);
    assert_int_equal(o.info.count[DP_SET_TRAIN], 5);
    assert_int_equal(o.info.count[DP_SET_TEST], 1);
    assert_int_equal(o.info.classes, 10);
    assert_null(o.info.class_names);
    for (int row = 0; row < 5; row++) {
        assert_int_equal(o.labels[DP_SET_TRAIN][row], row);
        for (int at = 0; at < DP_CIFAR10_IMAGE; at += 97) { /* pixel by pixel, not by planes */
            const uint8_t *image = o.images[DP_SET_TRAIN] + (size_t)row * o.bytes;
            assert_int_equal(image[at], cifar10_value(row, at % 3, at / 3));
        }
    }
    assert_int_equal(o.labels[DP_SET_TEST][0], 5);
    outcome_free(&o);
}

static void names_of_classes_are_taken_if_they_are_there(void **state)
{
    const struct dp_source_config config = usual();
    struct dp_samples *samples = NULL;
    (void)state;

    write_set();
    write_bytes(folder, "batches.meta.txt", names, strlen(names));
    assert_int_equal(dp_samples_open("cifar10", &config, &samples), DP_OK);
    assert_string_equal(dp_samples_info(samples)->class_names[0], "airplane");
    assert_string_equal(dp_samples_info(samples)->class_names[9], "truck");
    dp_samples_close(samples);
    write_bytes(folder, "batches.meta.txt", names, 20);
    assert_source_refuses("cifar10", &config, DP_ERR_DATA, "names 2 classes, not 10");
    write_bytes(folder, "batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\n\x1b[2J\n", 23);
    assert_source_refuses("cifar10", &config, DP_ERR_DATA, "name 10 has control characters");
}

/* For a host without the files. */
static void a_description_is_what_another_host_needs_to_know(void **state)
{
    const struct dp_source_config config = usual();
    struct dp_samples *here = NULL, *there = NULL;
    const struct dp_samples_info *info;
    char *words = NULL;
    size_t bytes;
    (void)state;

    write_set();
    write_bytes(folder, "batches.meta.txt", names, strlen(names));
    assert_int_equal(dp_samples_open("cifar10", &config, &here), DP_OK);
    assert_false(dp_samples_absent(here));
    assert_int_equal(dp_samples_words(here, &words, &bytes), DP_OK);
    assert_int_equal(dp_samples_describe(dp_samples_info(here), words, bytes, &there), DP_OK);
    dp_free(words);
    dp_samples_close(here);
    info = dp_samples_info(there);
    assert_true(dp_samples_absent(there));
    assert_int_equal(info->classes, DP_CIFAR10_CLASSES);
    assert_string_equal(info->class_names[0], "airplane");
    assert_string_equal(info->class_names[9], "truck");
    assert_string_equal(info->note, "");
    dp_samples_close(there);
    assert_int_equal(dp_mem_live(), 0);
}

static void describing_survives_every_failed_allocation(void **state)
{
    const struct dp_samples_info info = {.note = "", .classes = 0};
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_samples *samples = NULL;
        dp_mem_fail_nth(nth);
        status = dp_samples_describe(&info, "", 1, &samples);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((samples == NULL) == (status != DP_OK));
        assert_true(status != DP_OK || nth > 2);
        dp_samples_close(samples);
        assert_int_equal(dp_mem_live(), 0);
    }
}

static dp_status names_of(const char *text, size_t bytes, struct dp_problem *problem)
{
    char found[DP_CIFAR10_CLASSES][DP_CIFAR10_NAME];

    return dp_cifar10_names(text, bytes, found, problem);
}

static void only_ten_plain_names_are_names(void **state)
{
    struct dp_problem problem;
    char text[1000];
    (void)state;

    assert_int_equal(names_of(names, strlen(names), &problem), DP_OK);
    assert_int_equal(names_of(names, strlen(names) - 1, &problem), DP_OK);
    assert_int_equal(names_of("0\r\n1\n2\n3\n\n4\n5\n6\n7\n8\n9\r\n\r\n", 25, &problem), DP_OK);
    assert_int_equal(names_of("", 0, &problem), DP_ERR_DATA);
    memset(text, 'x', sizeof(text));
    assert_int_equal(names_of(text, sizeof(text), &problem), DP_ERR_DATA);
    assert_non_null(strstr(problem.text, "a line that is no name"));
    (void)snprintf(text, sizeof(text), "%s%s", names, names);
    assert_int_equal(names_of(text, strlen(text), &problem), DP_ERR_DATA);
    assert_non_null(strstr(problem.text, "more than 10 classes"));
    assert_int_equal(names_of("0\n1\0\n2\n3\n4\n5\n6\n7\n8\n9\n", 21, &problem), DP_ERR_DATA);
    assert_int_equal(names_of("0\n1\n2\n3\n4\n5\n6\n7\n8\n\xff\n", 20, &problem), DP_ERR_DATA);
}

static void damaged_and_missing_files_are_named(void **state)
{
    struct dp_source_config config = usual();
    static char zeros[2 * DP_CIFAR10_RECORD];
    (void)state;

    write_set();
    write_bytes(folder, "data_batch_2.bin", zeros, sizeof(zeros) - 1);
    assert_source_refuses("cifar10", &config, DP_ERR_DATA, "data_batch_2.bin: has 6145 bytes");
    write_bytes(folder, "data_batch_2.bin", zeros, 0);
    assert_source_refuses("cifar10", &config, DP_ERR_DATA, "data_batch_2.bin: has 0 bytes");
    zeros[DP_CIFAR10_RECORD] = 10;
    write_bytes(folder, "data_batch_2.bin", zeros, sizeof(zeros));
    assert_source_refuses("cifar10", &config, DP_ERR_DATA,
                          "data_batch_2.bin: image 1 (counted from 0): label 10 is not one of 0 "
                          "to 9: the file is damaged");
    write_set();
    remove_file(folder, "data_batch_1.bin");
    assert_source_refuses("cifar10", &config, DP_ERR_NOINPUT,
                          "data_batch_2.bin is there, but no data_batch_1.bin");
    remove_file(folder, "data_batch_2.bin");
    assert_source_refuses("cifar10", &config, DP_ERR_NOINPUT, "no data_batch_1.bin: put");
    write_set();
    config.classes = 7;
    assert_source_refuses("cifar10", &config, DP_ERR_DATA, "give its last dense layer units: 10");
    config = usual();
    remove_file(folder, "test_batch.bin");
    assert_source_refuses("cifar10", &config, DP_ERR_DATA, "set data.test_fraction");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_of_all_batches_follow_each_other),
        cmocka_unit_test(names_of_classes_are_taken_if_they_are_there),
        cmocka_unit_test(a_description_is_what_another_host_needs_to_know),
        cmocka_unit_test(describing_survives_every_failed_allocation),
        cmocka_unit_test(only_ten_plain_names_are_names),
        cmocka_unit_test(damaged_and_missing_files_are_named),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
