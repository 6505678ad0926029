/* test_host_names.c - every rank knows the names of the hosts of all ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collectives/world/host_names.h"
#include "tests/support/local_world.h"
#include "tests/support/memory/marked_end.h"

static const char *const hosts[] = {"first", "second"};

static size_t knows_all_hosts(struct dp_group *group, const void *arg)
{
    struct dp_host_names *names = NULL;
    const uint64_t bytes = group->wire_bytes;
    const bool first = dp_group_leader(group, group->node_of[group->rank]) == group->rank;
    size_t wrong = 0;
    (void)arg;

    if (dp_host_names_create(group, hosts[group->node_of[group->rank]], &names) != DP_OK) {
        return 1;
    }
    /* What first ranks send each other counts, too. */
    wrong += group->nodes > 1 && first && group->wire_bytes - bytes < DP_HOST_NAME;
    for (int i = 0; i < group->size; i++) {
        wrong += strcmp(dp_host_names_of(names, i), hosts[group->node_of[i]]) != 0;
    }
    dp_host_names_destroy(names);
    return wrong;
}

static void all_ranks_know_all_hosts_with_and_without_shared_memory(void **state)
{
    static const int one_host[] = {0, 0, 0}, two_hosts[] = {0, 1, 1};
    (void)state;

    mark_ends(true);
    for (int shared = 0; shared < 2; shared++) {
        local_world_room(shared ? -1 : 0);
        assert_int_equal(on_local_nodes(3, one_host, knows_all_hosts, NULL), 0);
        assert_int_equal(on_local_nodes(3, two_hosts, knows_all_hosts, NULL), 0);
    }
    mark_ends(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_know_all_hosts_with_and_without_shared_memory),
    };
    return cmocka_run_group_tests_name("host_names", tests, NULL, NULL);
}
