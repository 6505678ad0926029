/* test_group_memory.c - what memory a group takes, and who reaches it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tests/support/local_world.h"

enum { RANKS = 8, RECORD = 1 << 18 };

static size_t shares_once(struct dp_group *group, const void *unused)
{
    char *shared = dp_group_memory(group, DP_MEM_COMM, 100);
    char *own = dp_group_memory(group, DP_MEM_COMM, 100);
    size_t wrong = shared == NULL || own == NULL || !group->unshared;
    (void)unused;

    for (int i = 0; i < group->size && wrong == 0; i++) {
        wrong += dp_group_peer(group, shared, i) == NULL;
        wrong += dp_group_peer(group, own, i) != (i == group->rank ? own : NULL);
    }
    dp_group_release(group, own);
    dp_group_release(group, shared);
    return wrong;
}

static void memory_that_cannot_be_shared_is_reached_by_its_own_rank_only(void **state)
{
    (void)state;

    local_world_room(1);
    const size_t wrong = on_local_ranks(3, shares_once, NULL);
    local_world_room(-1);
    assert_int_equal(wrong, 0);
}

/* Records that ranks have allocated memory for. */
static atomic_int room_for;

static void *note_room(size_t bytes)
{
    atomic_fetch_add(&room_for, (int)(bytes / RECORD));
    return NULL; /* the C library allocates */
}

static size_t gathers_records(struct dp_group *group, const void *arg)
{
    char *const all = *(char *const *)arg;
    static const char mine[RECORD] = "";

    return dp_group_gather(group, mine, RECORD, group->rank == 0 ? all : NULL) != DP_OK;
}

/* Of 8 ranks 4 pass on one record, 2 pass on two, and 1 passes on four; of 5 it has but its own. */
static void a_rank_has_memory_for_the_records_that_it_passes_on(void **state)
{
    static const struct {
        int size, records;
    } cases[] = {{8, 12}, {5, 1 + 2 + 1 + 1}, {7, 1 + 2 + 1 + 3 + 1 + 1}, {2, 1}};
    char *all = dp_zalloc(RANKS, RECORD);
    (void)state;

    assert_non_null(all);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        atomic_store(&room_for, 0);
        dp_mem_take_from(note_room, NULL);
        const size_t wrong = on_local_ranks(cases[i].size, gathers_records, &all);
        dp_mem_take_from(NULL, NULL);
        assert_int_equal(wrong, 0);
        assert_int_equal(atomic_load(&room_for), cases[i].records);
    }
    dp_free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_cannot_be_shared_is_reached_by_its_own_rank_only),
        cmocka_unit_test(a_rank_has_memory_for_the_records_that_it_passes_on),
    };

    return cmocka_run_group_tests_name("group_memory", tests, NULL, NULL);
}
