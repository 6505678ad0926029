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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_that_do_not_fit_into_shared_memory_lie_elsewhere),
    };

    return cmocka_run_group_tests_name("segments", tests, NULL, NULL);
}
