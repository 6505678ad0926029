/* test_liveness.c - what a rank sees of its host, and its host of others. */
#define _DEFAULT_SOURCE /* syscall() */
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/trace.h"
#include "collectives/world/liveness.h"
#include "tests/support/arrays.h"
#include "tests/support/local_world.h"

enum { MOST_RANKS = 4 };

/* Whether this rank's calls of others fail, as through a firewall. */
static _Thread_local bool refused;

/* The linker takes this one, and not libc's. */
int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    if (refused) {
        errno = ECONNREFUSED;
        return -1;
    }
    return (int)syscall(SYS_connect, fd, addr, len);
}

/* In the place of last_watch.c: what each rank asks for. */
static struct dp_last_watch {
    struct dp_last_watch_config config;
} watches[MOST_RANKS];

struct dp_last_watch *dp_last_watch_begin(const struct dp_last_watch_config *config)
{
    watches[config->self].config = *config;
    return &watches[config->self];
}

/* What a rank shows that the ranks of its host do. */
static const struct dp_trace_mark *mark_of(const struct dp_last_watch_config *seen, int rank)
{
    for (int i = 0; i < seen->count; i++) {
        if (seen->ranks[i].rank == rank) {
            return seen->ranks[i].mark;
        }
    }
    return NULL;
}

struct met {
    const char *host;
    int outage_s; /* -1: not said */
    double others_s[MOST_RANKS];
};

/* All meet and watch each other; on the first host there are two. */
static size_t meet(struct dp_group *group, const void *arg)
{
    const struct met *met = arg;
    struct dp_liveness *liveness = NULL;
    const int here = group->local_size;
    size_t wrong = 0;

    if (dp_liveness_create(group, &liveness) != DP_OK) {
        return 1;
    }
    if (met->outage_s >= 0) {
        dp_liveness_allow_outage(liveness, met->outage_s);
    }
    const struct dp_last_watch *watch = dp_liveness_meet(liveness, met->host, 7.5);
    const struct dp_last_watch_config *config = &watches[group->rank].config;
    wrong += watch != &watches[group->rank] || config->count != here;
    wrong += config->self != group->rank || config->host != met->host;
    wrong += config->timeout_s < 7.5 || config->timeout_s > 7.5;
    wrong += fabs(config->others_s - met->others_s[group->rank]) > 1e-9;
    wrong += config->look != dp_process_look || config->end == NULL;
    wrong += mark_of(config, group->rank) != dp_liveness_mark(liveness);
    for (int i = 0; i < here && i < config->count; i++) {
        wrong += config->ranks[i].process != getpid() || config->ranks[i].question == NULL;
        wrong += i > 0 && config->ranks[i].rank <= config->ranks[i - 1].rank;
    }
    wrong += dp_group_barrier(group) != DP_OK; /* until then no farewell comes */
    dp_liveness_destroy(liveness);
    return wrong;
}

static void a_cause_on_another_host_is_left_to_each_of_those_before(void **state)
{
    const int node_of[] = {0, 0, 1, 2};
    const struct met met[] = {{"h", 1, {10, 10, 20, 30}},
                              {"h", 5, {10, 10, 20, 30}},
                              {"h", 6, {11, 11, 21, 31}},
                              {"h", -1, {35, 35, 45, 55}}};
    (void)state;

    for (size_t i = 0; i < DP_COUNT(met); i++) {
        assert_int_equal(on_local_nodes(4, node_of, meet, &met[i]), 0);
    }
}

static void where_all_are_on_one_host_nobody_waits_for_others(void **state)
{
    const struct met met = {"h", -1, {0}};
    (void)state;

    assert_int_equal(on_local_ranks(3, meet, &met), 0);
}

/* Rank 0 comes, rank 1 has said farewell. */
static size_t meet_who_has_left(struct dp_group *group, const void *arg)
{
    struct dp_liveness *liveness = NULL;
    size_t wrong = 0;
    (void)arg;

    if (dp_liveness_create(group, &liveness) != DP_OK) {
        return 1;
    }
    if (group->rank == 1) {
        dp_liveness_farewell(liveness);
    } else {
        wrong += dp_liveness_meet(liveness, "h", 0.0) != &watches[group->rank];
    }
    wrong += dp_group_barrier(group) != DP_OK;
    dp_liveness_destroy(liveness);
    return wrong;
}

static void who_has_left_is_not_waited_for(void **state)
{
    (void)state;

    assert_int_equal(on_local_ranks(2, meet_who_has_left, NULL), 0);
}

/* Rank 1 never comes, and waits end. */
static size_t meet_nobody(struct dp_group *group, const void *arg)
{
    struct dp_liveness *liveness = NULL;
    size_t wrong = 0;
    (void)arg;

    if (dp_liveness_create(group, &liveness) != DP_OK) {
        return 1;
    }
    const dp_status begun = dp_group_barrier(group);
    if (group->rank == 0) { /* the other one may still be in there */
        wrong += begun != DP_OK;
        dp_group_leave(group, DP_ERR_NOMEM);
        wrong += dp_liveness_meet(liveness, "h", 0.0) != NULL;
    }
    dp_liveness_destroy(liveness);
    return wrong;
}

static void where_waits_have_ended_nobody_is_met(void **state)
{
    (void)state;

    assert_int_equal(on_local_ranks(2, meet_nobody, NULL), 0);
    assert_null(dp_liveness_meet(NULL, "h", 0.0));
    dp_liveness_farewell(NULL);
    dp_liveness_destroy(NULL);
}

/* ---- progress of other hosts ---- */

struct part {
    int refused; /* the rank that cannot call the host before; -1: none */
    int mover;   /* the rank that makes progress */
    int speaker; /* the rank that takes the connections of its host for rows; -1: none */
    int heard[MOST_RANKS];
};

/* How often a rank has heard of progress on other hosts. */
static int heard_by(const struct dp_last_watch_config *seen, int rank)
{
    for (int i = 0; i < seen->count; i++) {
        if (seen->ranks[i].rank == rank) {
            return atomic_load(&seen->ranks[i].question->heard);
        }
    }
    return -1;
}

/* The ranks look one after the other, twice round, so that what is sent has come. */
static size_t look_in_turn(struct dp_group *group, struct dp_liveness *liveness)
{
    size_t wrong = 0;

    for (int turn = 0; turn < 2 * group->size; turn++) {
        wrong += dp_group_barrier(group) != DP_OK;
        if (turn % group->size == group->rank) {
            wrong += dp_liveness_lost(liveness).rank != -1;
        }
    }
    return wrong + (dp_group_barrier(group) != DP_OK);
}

static size_t hear_of_progress(struct dp_group *group, const void *arg)
{
    const struct part *part = arg;
    struct dp_liveness *liveness = NULL;
    struct dp_hang_gather *gather = NULL;
    size_t wrong = 0;

    refused = group->rank == part->refused;
    if (dp_liveness_create(group, &liveness) != DP_OK ||
        dp_liveness_gather(liveness, NULL, &gather) != DP_OK) {
        return 1;
    }
    (void)dp_liveness_meet(liveness, "h", 0.0); /* for what it sees */
    wrong += look_in_turn(group, liveness);     /* nobody moves: nothing is told */
    wrong += heard_by(&watches[group->rank].config, group->rank) != 0;
    if (group->rank == part->speaker) {
        wrong += dp_hang_gather_look(gather, true);
        dp_hang_gather_tell(gather, DP_HANG_REPORT);
    }
    if (group->rank == part->mover) {
        struct dp_trace_mark *mark = dp_liveness_mark(liveness);
        atomic_fetch_add(part->mover == 0 ? &mark->beats : &mark->changes, 1);
    }
    wrong += look_in_turn(group, liveness);
    wrong += heard_by(&watches[group->rank].config, group->rank) != part->heard[group->rank];
    dp_hang_gather_destroy(gather);
    dp_liveness_destroy(liveness);
    return wrong;
}

static void hosts_hear_of_progress(void **state)
{
    const int node_of[] = {0, 1, 2};
    const struct part first = {-1, 0, -1, {0, 1, 1}}, last = {-1, 2, -1, {1, 1, 0}};
    (void)state;

    assert_int_equal(on_local_nodes(3, node_of, hear_of_progress, &first), 0);
    assert_int_equal(on_local_nodes(3, node_of, hear_of_progress, &last), 0);
}

/* Where rank 1 could not call host 0, it has only the connection from host 2, and host 0 only the
 * one to host 2. */
static void a_host_with_one_connection_tells_or_hears(void **state)
{
    const int node_of[] = {0, 1, 2};
    const struct part tells = {1, 1, -1, {1, 0, 1}}, hears = {1, 2, -1, {1, 0, 0}};
    (void)state;

    assert_int_equal(on_local_nodes(3, node_of, hear_of_progress, &tells), 0);
    assert_int_equal(on_local_nodes(3, node_of, hear_of_progress, &hears), 0);
}

static void the_first_rank_of_a_host_tells_what_any_of_it_does(void **state)
{
    const int node_of[] = {0, 0, 1};
    const struct part second = {-1, 1, -1, {0, 0, 1}}, other = {-1, 2, -1, {1, 0, 0}};
    (void)state;

    assert_int_equal(on_local_nodes(3, node_of, hear_of_progress, &second), 0);
    assert_int_equal(on_local_nodes(3, node_of, hear_of_progress, &other), 0);
}

/* What is read by two would come to each in parts. */
static void who_has_the_connections_for_rows_is_not_disturbed(void **state)
{
    const int node_of[] = {0, 0, 1};
    const struct part own = {-1, 1, 0, {0}}, other = {-1, 1, 1, {0}};
    (void)state;

    assert_int_equal(on_local_nodes(3, node_of, hear_of_progress, &own), 0);
    assert_int_equal(on_local_nodes(3, node_of, hear_of_progress, &other), 0);
}

/* ---- what is made and left ---- */

static size_t make_all(struct dp_group *group, const void *arg)
{
    struct dp_liveness *liveness = NULL;
    struct dp_watchdog *watchdog = NULL;
    size_t wrong = 0;
    (void)arg;

    if (dp_liveness_create(group, &liveness) != DP_OK) {
        return 1;
    }
    wrong += dp_liveness_watchdog(liveness, "h", &watchdog) != DP_OK;
    if (watchdog != NULL) {
        wrong += dp_watchdog_has_others(watchdog) != (group->nodes > 1);
    }
    dp_watchdog_destroy(watchdog);
    wrong += dp_group_barrier(group) != DP_OK;
    dp_liveness_destroy(liveness);
    return wrong;
}

static void without_memory_nothing_stays_and_no_rank_waits(void **state)
{
    const int node_of[] = {0, 0, 1};
    (void)state;

    check_failing_allocations(3, node_of, make_all, NULL);
    check_failing_allocations(2, NULL, make_all, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cause_on_another_host_is_left_to_each_of_those_before),
        cmocka_unit_test(where_all_are_on_one_host_nobody_waits_for_others),
        cmocka_unit_test(who_has_left_is_not_waited_for),
        cmocka_unit_test(where_waits_have_ended_nobody_is_met),
        cmocka_unit_test(hosts_hear_of_progress),
        cmocka_unit_test(a_host_with_one_connection_tells_or_hears),
        cmocka_unit_test(the_first_rank_of_a_host_tells_what_any_of_it_does),
        cmocka_unit_test(who_has_the_connections_for_rows_is_not_disturbed),
        cmocka_unit_test(without_memory_nothing_stays_and_no_rank_waits),
    };

    return cmocka_run_group_tests_name("liveness", tests, NULL, NULL);
}
