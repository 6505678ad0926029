/*
 * test_ranks_in.c - which ranks of one communicator are which of another, asked of functions in the
 * place of MPI's; what is asked for is given back.
 */
#include <mpi.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/core/shrink_mpi.h"

enum { RANKS = 5 };

static struct {
    int groups, freed;
} mpi;

/* ---- in the place of MPI's ---- */

int MPI_Comm_group(MPI_Comm comm, MPI_Group *group)
{
    const union {
        uint64_t number;
        MPI_Group group;
    } any = {(uint64_t)(1 + mpi.groups)};

    (void)comm;
    mpi.groups++;
    *group = any.group;
    return MPI_SUCCESS;
}

/* Rank 2 is in the first one only; those after it move up. */
int MPI_Group_translate_ranks(MPI_Group group1, int n, const int *ranks1, MPI_Group group2,
                              int *ranks2)
{
    (void)group1;
    (void)group2;
    for (int i = 0; i < n; i++) {
        ranks2[i] = ranks1[i] == 2 ? MPI_UNDEFINED : ranks1[i] - (ranks1[i] > 2);
    }
    return MPI_SUCCESS;
}

int MPI_Group_free(MPI_Group *group)
{
    mpi.freed++;
    *group = MPI_GROUP_NULL;
    return MPI_SUCCESS;
}

/* ---- the test ---- */

static void each_rank_has_its_number_or_none(void **state)
{
    static const int expected[RANKS] = {0, 1, -1, 2, 3};
    int found[RANKS + 1];
    (void)state;

    for (int size = 1; size <= RANKS; size++) {
        memset(&mpi, 0, sizeof(mpi));
        memset(found, 0x5a, sizeof(found));
        assert_int_equal(dp_mpi_ranks_in(MPI_COMM_WORLD, size, MPI_COMM_SELF, found), DP_OK);
        assert_memory_equal(found, expected, (size_t)size * sizeof(int));
        assert_int_equal(found[size], 0x5a5a5a5a);
        assert_int_equal(mpi.groups, 2);
        assert_int_equal(mpi.freed, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rank_has_its_number_or_none),
    };

    return cmocka_run_group_tests_name("ranks_in", tests, NULL, NULL);
}
