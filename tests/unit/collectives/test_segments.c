/* test_segments.c - where Open MPI is told to put the memory that ranks of a node share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/core/mpi/window_fits_mpi.h"

#define SEGMENTS "OMPI_MCA_btl_vader_"

/* Of 4 MB a rank, unless another size is set. */
static void segments_that_do_not_fit_into_shared_memory_lie_elsewhere(void **state)
{
    static const struct {
        const char *ranks, *bytes;
        bool fits;
    } cases[] = {{"2", NULL, true},
                 {"2", "1048576", true},
                 {"2", "0", true},
                 {"1", "1000000000000000", false},
                 {"1000000000", NULL, false},
                 {NULL, "1000000000000000", true}};
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *folder;
        assert_int_equal(unsetenv(SEGMENTS "backing_directory") | setenv("TMPDIR", "/x", 1), 0);
        (void)(cases[i].ranks == NULL ? unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE")
                                      : setenv("OMPI_COMM_WORLD_LOCAL_SIZE", cases[i].ranks, 1));
        (void)(cases[i].bytes == NULL ? unsetenv(SEGMENTS "segment_size")
                                      : setenv(SEGMENTS "segment_size", cases[i].bytes, 1));
        (void)dp_mpi_place_segments();
        folder = getenv(SEGMENTS "backing_directory");
        assert_int_equal(folder == NULL, cases[i].fits);
        assert_true(folder == NULL || strcmp(folder, "/x") == 0);
    }
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
        assert_int_equal(setenv(variables[i], "/x", 1), 0);
        (void)dp_mpi_place_segments();
        assert_string_equal(getenv(variables[i]), "/x");
        assert_int_equal(unsetenv(variables[i]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_that_do_not_fit_into_shared_memory_lie_elsewhere),
        cmocka_unit_test(an_empty_folder_counts_as_none),
    };

    return cmocka_run_group_tests_name("segments", tests, NULL, NULL);
}
