/* test_disk_speed.c - how fast disks are: plausible rates or none, and nothing is left behind. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/files/disk_speed.h"
#include "base/mem.h"
#include "tests/support/scratch.h"

enum { FILE_BYTES = (2 << 20) + 5 };

static const double seconds = 0.01;

static void a_folder_without_files_of_a_block_has_no_reading_rate(void **state)
{
    (void)state;

    assert_true(isnan(dp_disk_read_gbs("/nonexistent", seconds)));
    assert_true(isnan(dp_disk_read_gbs(scratch_folder, seconds)));
    scratch_write(scratch_path("small"), "text", 4);
    assert_int_equal(mkdir(scratch_path("folder"), 0777), 0);
    assert_true(isnan(dp_disk_read_gbs(scratch_folder, seconds)));
}

static void the_largest_file_is_read_where_the_disk_can(void **state)
{
    char *bytes = calloc(1, FILE_BYTES);
    (void)state;

    assert_non_null(bytes);
    scratch_write(scratch_path("large"), bytes, FILE_BYTES);
    free(bytes);
    const double rate = dp_disk_read_gbs(scratch_folder, seconds);
    assert_true(isnan(rate) || rate > 0.0);
    assert_int_equal(dp_mem_live(), 0);
}

static void writing_leaves_no_file(void **state)
{
    const double rate = dp_disk_write_gbs(scratch_folder, seconds);
    (void)state;

    assert_true(isnan(rate) || rate > 0.0);
    assert_int_equal(scratch_count(""), 0);
    assert_true(isnan(dp_disk_write_gbs("/nonexistent", seconds)));
    assert_int_equal(dp_mem_live(), 0);
}

static void a_folder_has_the_number_of_its_disk(void **state)
{
    (void)state;

    assert_int_equal(mkdir(scratch_path("inside"), 0777), 0);
    assert_true(dp_disk_number(scratch_folder) != 0);
    assert_int_equal(dp_disk_number(scratch_path("inside")), dp_disk_number(scratch_folder));
    assert_int_equal(dp_disk_number("/nonexistent"), 0);
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(a_folder_without_files_of_a_block_has_no_reading_rate),
        IN_SCRATCH(the_largest_file_is_read_where_the_disk_can),
        IN_SCRATCH(writing_leaves_no_file),
        IN_SCRATCH(a_folder_has_the_number_of_its_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
