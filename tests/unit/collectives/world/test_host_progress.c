/* test_host_progress.c - each host hears that another one makes progress, and nobody twice. */
#include <time.h>

#include "base/trace.h"
#include "collectives/world/host_progress.h"
#include "tests/support/arrays.h"
#include "tests/support/local_world.h"

enum { HOSTS = 4, MOVER = 2 };

#define SECOND 1000000000ull

/* Whether news comes within five seconds. */
static bool hears(struct dp_host_progress *p, const struct dp_host_link *link, int hosts)
{
    const uint64_t end_ns = dp_now_ns() + 5 * SECOND;
    const struct timespec nap = {0, 1000000};
    bool heard = false;

    while (!heard && dp_now_ns() < end_ns) {
        heard = dp_host_progress_share(p, link, hosts, false, SECOND);
        (void)nanosleep(&nap, NULL);
    }
    return heard;
}

/* What a host does with its links. */
struct part {
    size_t (*run)(struct dp_group *group, struct dp_host_link *link, struct dp_host_progress *p);
};

static size_t run_linked(struct dp_group *group, const void *arg)
{
    const struct part *part = arg;
    struct dp_host_progress p = {0};
    struct dp_host_link link;
    size_t wrong;

    dp_host_link_init(&link);
    wrong = dp_host_link_open(group, &link) != DP_OK;
    wrong += part->run(group, &link, &p);
    wrong += dp_group_barrier(group) != DP_OK;
    dp_host_link_close(&link);
    return wrong;
}

/* One host of several moves, once: each other one hears of it once, and it does not come back. */
static size_t pass_round(struct dp_group *group, struct dp_host_link *link,
                         struct dp_host_progress *p)
{
    size_t wrong = 0;

    wrong += dp_host_progress_share(p, link, group->size, false, SECOND); /* nobody moves yet */
    wrong += dp_group_barrier(group) != DP_OK;
    if (group->rank == MOVER % group->size) {
        wrong += dp_host_progress_share(p, link, group->size, true, SECOND);
    } else {
        wrong += !hears(p, link, group->size);
    }
    wrong += dp_group_barrier(group) != DP_OK;
    wrong += dp_host_progress_share(p, link, group->size, false, SECOND);
    wrong += dp_host_link_lost(link, 30); /* and nothing is left to be read */
    return wrong;
}

static void news_goes_round_all_hosts_once(void **state)
{
    const int node_of[HOSTS] = {0, 1, 2, 3};
    const struct part part = {pass_round};
    (void)state;

    for (int hosts = 2; hosts <= HOSTS; hosts++) {
        assert_int_equal(on_local_nodes(hosts, node_of, run_linked, &part), 0);
    }
}

/* Rank 0 moves all the time, rank 1 counts the bytes that it has sent. */
static size_t sends_few(struct dp_group *group, struct dp_host_link *link,
                        struct dp_host_progress *p)
{
    size_t wrong = 0;

    if (group->rank == 0) { /* within a second of it, and then what has moved meanwhile */
        for (int i = 0; i < 10; i++) {
            wrong += dp_host_progress_share(p, link, 2, i < 5, 5 * SECOND + (uint64_t)i);
        }
    }
    wrong += dp_group_barrier(group) != DP_OK;
    if (group->rank == 1) {
        wrong += !hears(p, link, 2) || dp_host_progress_share(p, link, 2, false, SECOND);
    }
    wrong += dp_group_barrier(group) != DP_OK;
    if (group->rank == 0) {
        wrong += dp_host_progress_share(p, link, 2, false, 6 * SECOND);
    } else {
        wrong += !hears(p, link, 2);
    }
    return wrong;
}

static void a_host_tells_of_itself_once_a_second(void **state)
{
    const int node_of[] = {0, 1};
    const struct part part = {sends_few};
    (void)state;

    assert_int_equal(on_local_nodes(2, node_of, run_linked, &part), 0);
}

/* News that nobody has read hides no farewell, and is no loss. */
static size_t leaves_after_news(struct dp_group *group, struct dp_host_link *link,
                                struct dp_host_progress *p)
{
    size_t wrong = 0;

    if (group->rank == 0) {
        wrong += dp_host_progress_share(p, link, 2, true, SECOND);
        dp_host_link_close(link);
    }
    wrong += dp_group_barrier(group) != DP_OK;
    if (group->rank == 1) {
        wrong += dp_host_link_lost(link, 30) || link->theirs < 0;
        wrong += !hears(p, link, 2);
        wrong += dp_host_link_lost(link, 30) || link->theirs >= 0;
    }
    return wrong;
}

static void a_farewell_after_news_is_no_loss(void **state)
{
    const int node_of[] = {0, 1};
    const struct part part = {leaves_after_news};
    (void)state;

    assert_int_equal(on_local_nodes(2, node_of, run_linked, &part), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(news_goes_round_all_hosts_once),
        cmocka_unit_test(a_host_tells_of_itself_once_a_second),
        cmocka_unit_test(a_farewell_after_news_is_no_loss),
    };
    return cmocka_run_group_tests_name("host_progress", tests, NULL, NULL);
}
