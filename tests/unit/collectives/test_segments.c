/* test_segments.c - where Open MPI is told to put the memory that ranks of a node share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "collectives/core/mpi/window_fits_mpi.h"
#include "tests/support/memory/free_room.h"

#define SEGMENTS "OMPI_MCA_btl_vader_"

static void set(const char *name, const char *value)
{
    assert_int_equal(value == NULL ? unsetenv(name) : setenv(name, value, 1), 0);
}

/* Of 4 MB a rank, unless another size is set. */
static void segments_that_do_not_fit_into_shared_memory_lie_elsewhere(void **state)
{
    static const struct {
        const char *ranks, *bytes;
        unsigned long long all;
    } cases[] = {{"2", NULL, 8388608}, {"12", "1048576", 12582912},       {"3", "0", 12582912},
                 {"3", "1", 3},        {"1000000000", "19", 19000000000}, {NULL, "1000000000", 0}};
    (void)state;

    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        const bool fits = i % 2 == 0 || cases[i / 2].all == 0;
        const char *folder;
        free_bytes = cases[i / 2].all - (fits ? 0 : 1);
        set(SEGMENTS "backing_directory", NULL);
        set("TMPDIR", i < 2 ? NULL : "/x");
        set("OMPI_COMM_WORLD_LOCAL_SIZE", cases[i / 2].ranks);
        set(SEGMENTS "segment_size", cases[i / 2].bytes);
        assert_int_equal(dp_mpi_place_segments(), fits);
        folder = getenv(SEGMENTS "backing_directory");
        assert_int_equal(folder == NULL, fits);
        assert_true(folder == NULL || strcmp(folder, i < 2 ? "/tmp" : "/x") == 0);
        set(SEGMENTS "backing_directory", "/y"); /* what the user has set stays */
        assert_false(dp_mpi_place_segments());
        assert_string_equal(getenv(SEGMENTS "backing_directory"), "/y");
    }
    free_bytes = 1 << 30;
}

/* Whoever writes more than a limit of files allows gets SIGXFSZ. */
static void segments_are_not_longer_than_files_may_be(void **state)
{
    struct rlimit before, limit;
    (void)state;

    set(SEGMENTS "backing_directory", NULL);
    set("OMPI_COMM_WORLD_LOCAL_SIZE", "2");
    set(SEGMENTS "segment_size", "1000000");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (int less = 0; less < 2; less++) {
        limit = (struct rlimit){(rlim_t)(1000000 - less), before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        assert_int_equal(dp_mpi_place_segments(), less == 0);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

/* Open MPI would take it for a folder without a name, and hang. */
static void an_empty_folder_counts_as_none(void **state)
{
    static const char *const variables[] = {SEGMENTS "backing_directory",
                                            "OMPI_MCA_osc_sm_backing_directory"};
    (void)state;

    assert_int_equal(unsetenv(SEGMENTS "segment_size"), 0);
    assert_int_equal(setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1), 0);
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        assert_int_equal(setenv(variables[i], "", 1), 0);
        (void)dp_mpi_place_segments();
        assert_null(getenv(variables[i]));
        assert_int_equal(setenv(variables[i], "x", 1), 0);
        (void)dp_mpi_place_segments();
        assert_string_equal(getenv(variables[i]), "x");
        assert_int_equal(unsetenv(variables[i]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_that_do_not_fit_into_shared_memory_lie_elsewhere),
        cmocka_unit_test(segments_are_not_longer_than_files_may_be),
        cmocka_unit_test(an_empty_folder_counts_as_none),
    };

    return cmocka_run_group_tests_name("segments", tests, NULL, NULL);
}
