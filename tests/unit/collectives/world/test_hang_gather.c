/* test_hang_gather.c - rows of all hosts come together at the first that answers. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/support/arrays.h"

#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "collectives/world/hang_gather.h"
#include "tests/support/local_world.h"

enum { RANKS = 5, STUCK_NODE = 2, ROW_LEAST = 256 };

/* Whether connections give a byte of a row, then nothing since a signal comes, then the rest. */
static atomic_bool drips;

/* The linker takes this one, and not libc's. */
ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    static atomic_uint calls;
    const bool row = (flags & MSG_PEEK) == 0 && n > ROW_LEAST;
    const unsigned turn = row && atomic_load(&drips) ? atomic_fetch_add(&calls, 1) % 3 : 2;

    if (turn == 1) {
        errno = EINTR;
        return -1;
    }
    return recvfrom(fd, buf, turn == 0 ? 1 : n, flags, NULL, NULL);
}

/* Ranks 1 and 2 are on one host; hosts 0 to 3. */
static const int node_of[RANKS] = {0, 1, 1, 2, 3};

/* Looks until that many rows are there, at most five seconds. */
static int wait_for(struct dp_hang_gather *g, int wanted)
{
    const uint64_t end_ns = dp_now_ns() + 5000000000ull;
    const struct timespec nap = {0, 2000000};
    int count, known;

    do {
        const struct dp_hang_row *rows = dp_hang_gather_rows(g, &count);
        known = 0;
        for (int i = 0; i < count; i++) {
            known += rows[i].known;
        }
        if (known < wanted) {
            (void)nanosleep(&nap, NULL);
            (void)dp_hang_gather_look(g, true);
        }
    } while (known < wanted && dp_now_ns() < end_ns);
    return known;
}

/* Gives the rows of this rank's host, each with its number in all of it. */
static void give(struct dp_group *group, struct dp_hang_gather *g)
{
    struct dp_hang_row rows[RANKS];
    int count = 0;

    for (int i = 0; i < RANKS; i++) {
        if (node_of[i] == node_of[group->rank]) {
            struct dp_hang_row *row = &rows[count++];
            memset(row, 'a' + i, sizeof(*row)); /* texts without an end, too */
            row->rank = i;
            row->known = true;
            row->waits = row->idles = i == 4;
            row->step = i;
        }
    }
    dp_hang_gather_put(g, rows, count);
    dp_hang_gather_put(g, rows, 0);
}

static const char *host_of(int rank)
{
    static const char *const hosts[] = {"h0", "h1", "h2", "h3"};

    return hosts[node_of[rank]];
}

/* Texts of other hosts end where there is no more room. */
static size_t wrong_rows(struct dp_group *group, struct dp_hang_gather *g, int without_node)
{
    enum { LAST = sizeof(((struct dp_hang_row *)0)->stacks) - 1 };
    int count;
    const struct dp_hang_row *rows = dp_hang_gather_rows(g, &count);
    size_t wrong = count != RANKS;

    for (int i = 0; i < RANKS; i++) {
        const bool known = node_of[i] != without_node;
        wrong += rows[i].rank != i || rows[i].known != known;
        wrong += known && (rows[i].step != i || rows[i].stacks[7] != 'a' + i);
        if (known && node_of[i] != node_of[group->rank]) {
            wrong += rows[i].stacks[LAST] != '\0' || rows[i].stacks[LAST - 1] == '\0';
        }
        wrong += known ? rows[i].host[0] == '\0' : strcmp(rows[i].host, host_of(i)) != 0;
    }
    return wrong;
}

/* What a rank has: which of its host speaks, its link, and its gather. */
struct side {
    atomic_int *speakers, *speaker;
    struct dp_host_link link;
    struct dp_host_names *names;
    struct dp_hang_gather *g;
};

static size_t begin(struct dp_group *group, struct side *side)
{
    const int first = dp_group_leader(group, group->node_of[group->rank]);
    size_t wrong = 0;

    *side = (struct side){.speakers = dp_group_memory(group, DP_MEM_COMM, sizeof(atomic_int))};
    side->speaker = dp_group_peer(group, side->speakers, first);
    dp_host_link_init(&side->link);
    wrong += side->speaker == NULL;
    wrong += dp_host_link_open(group, &side->link) != DP_OK;
    wrong += dp_host_names_create(group, host_of(group->rank), &side->names) != DP_OK;
    wrong +=
        dp_hang_gather_create(group, &side->link, side->names, side->speaker, &side->g) != DP_OK;
    wrong += side->g == NULL || dp_hang_gather_look(side->g, true);
    if (side->link.mine >= 0) { /* which nobody reads before rows come */
        const unsigned char news[] = {DP_HOST_LINK_PROGRESS, DP_HOST_LINK_PROGRESS + 1};
        wrong += send(side->link.mine, news, sizeof(news), 0) != sizeof(news);
    }
    return wrong + (dp_group_barrier(group) != DP_OK);
}

static size_t end(struct dp_group *group, struct side *side)
{
    const size_t wrong = dp_group_barrier(group) != DP_OK;

    dp_hang_gather_destroy(side->g);
    dp_host_names_destroy(side->names);
    dp_host_link_close(&side->link);
    dp_group_release(group, side->speakers);
    return wrong;
}

/* One host is stuck as a whole: the others have each other's rows by the other way round; then it
 * answers after all. */
static size_t gather(struct dp_group *group, const void *arg)
{
    const bool stuck = node_of[group->rank] == STUCK_NODE;
    const bool first = group->rank != 2; /* which is not the first of its host */
    struct side side;
    size_t wrong = begin(group, &side);
    struct dp_hang_gather *g = side.g;
    (void)arg;

    if (first && !stuck) {
        give(group, g);
        wrong += wait_for(g, RANKS - 1) != RANKS - 1 || wrong_rows(group, g, STUCK_NODE) > 0;
        wrong += dp_hang_gather_complete(g) || !dp_hang_gather_look(g, true);
        wrong += dp_hang_gather_reports(g) != (group->rank == 0);
        wrong += dp_host_link_lost(&side.link, 30); /* rows are no farewell */
    }
    wrong += dp_group_barrier(group) != DP_OK;
    if (stuck) {
        wrong += dp_hang_gather_look(g, false) || !dp_hang_gather_look(g, true);
        give(group, g);
    }
    if (first) {
        wrong += wait_for(g, RANKS) != RANKS || wrong_rows(group, g, -1) > 0;
        wrong += !dp_hang_gather_complete(g) || dp_hang_gather_reports(g) != (group->rank == 0);
    }
    return wrong + end(group, &side);
}

static void rows_go_round_a_host_that_is_stuck_and_the_first_host_reports(void **state)
{
    (void)state;

    assert_int_equal(on_local_nodes(RANKS, node_of, gather, NULL), 0);
}

/* The first rank of a host is stopped: the second one has its connections, too, and keeps them when
 * the first one goes on. */
static size_t gather_by_the_second(struct dp_group *group, const void *arg)
{
    const bool stopped = group->rank == 1;
    struct side side;
    size_t wrong = begin(group, &side);
    (void)arg;

    if (!stopped) {
        give(group, side.g);
        wrong += wait_for(side.g, RANKS) != RANKS || wrong_rows(group, side.g, -1) > 0;
        wrong += dp_hang_gather_reports(side.g) != (group->rank == 0);
    }
    wrong += dp_group_barrier(group) != DP_OK;
    if (stopped) {
        int count;
        give(group, side.g);
        wrong += dp_hang_gather_look(side.g, true) || dp_hang_gather_reports(side.g);
        for (int i = 0; i < RANKS; i++) {
            wrong += dp_hang_gather_rows(side.g, &count)[i].known;
        }
    }
    return wrong + end(group, &side);
}

static void the_second_rank_of_a_host_gives_its_rows_where_the_first_is_stopped(void **state)
{
    (void)state;

    assert_int_equal(on_local_nodes(RANKS, node_of, gather_by_the_second, NULL), 0);
}

/* A host tells what it has reported: all others hear of it, and of no hang. */
static size_t hear(struct dp_group *group, const void *arg)
{
    const enum dp_hang_news news = *(const enum dp_hang_news *)arg, other = news ^ 3;
    const bool speaks = group->rank != 2, tells = group->rank == 3;
    const struct timespec nap = {0, 2000000};
    struct side side;
    size_t wrong = begin(group, &side);

    if (tells) {
        dp_hang_gather_tell(side.g, news);
    }
    for (int i = 0; speaks && !tells && !dp_hang_gather_knows(side.g, news) && i < 2500; i++) {
        wrong += dp_hang_gather_look(side.g, true);
        (void)nanosleep(&nap, NULL);
    }
    wrong += dp_hang_gather_knows(side.g, news) != (speaks && !tells);
    wrong += dp_hang_gather_knows(side.g, other);
    wrong += dp_hang_gather_knows(NULL, news);
    dp_hang_gather_tell(NULL, news);
    return wrong + end(group, &side);
}

static void what_a_host_has_reported_is_known_to_the_others(void **state)
{
    (void)state;

    for (enum dp_hang_news news = DP_HANG_DEATH; news <= DP_HANG_REPORT; news++) {
        assert_int_equal(on_local_nodes(RANKS, node_of, hear, &news), 0);
    }
}

static void rows_that_come_in_pieces_are_put_together(void **state)
{
    (void)state;

    atomic_store(&drips, true);
    assert_int_equal(on_local_nodes(RANKS, node_of, gather_by_the_second, NULL), 0);
    atomic_store(&drips, false);
}

/* Without shared memory two ranks of a host cannot agree on who uses the connections. */
static size_t gather_apart(struct dp_group *group, const void *arg)
{
    struct dp_host_link link;
    struct dp_host_names *names = NULL;
    struct dp_hang_gather *g = NULL;
    size_t wrong = 0;
    (void)arg;

    dp_host_link_init(&link);
    wrong += dp_host_link_open(group, &link) != DP_OK;
    wrong += dp_host_names_create(group, "h", &names) != DP_OK;
    wrong += dp_hang_gather_create(group, &link, names, NULL, &g) != DP_OK;
    wrong += (g == NULL) != (group->rank == 2);
    wrong += dp_group_barrier(group) != DP_OK;
    dp_hang_gather_destroy(g);
    dp_host_names_destroy(names);
    dp_host_link_close(&link);
    return wrong;
}

static void without_shared_memory_the_first_rank_alone_has_the_connections(void **state)
{
    (void)state;

    assert_int_equal(on_local_nodes(RANKS, node_of, gather_apart, NULL), 0);
}

static size_t has_no_other_host(struct dp_group *group, const void *arg)
{
    struct dp_host_link link;
    struct dp_hang_gather *g = NULL;
    size_t wrong;
    (void)arg;

    dp_host_link_init(&link);
    wrong = dp_hang_gather_create(group, &link, NULL, NULL, &g) != DP_OK || g != NULL;
    return wrong + dp_hang_gather_look(g, true);
}

static size_t has_one_other_host(struct dp_group *group, const void *arg)
{
    struct side side;
    const size_t wrong = begin(group, &side);
    (void)arg;

    return wrong + end(group, &side);
}

static void rows_go_to_other_hosts_where_there_are_any(void **state)
{
    (void)state;

    assert_int_equal(on_local_ranks(2, has_no_other_host, NULL), 0);
    assert_int_equal(on_local_nodes(2, (const int[]){0, 1}, has_one_other_host, NULL), 0);
}

/* The other one has been reset. Nothing is sent where the standard input happens to be. */
static size_t loses_its_connections(struct dp_group *group, const void *arg)
{
    const int outside = *(const int *)arg;
    struct side side;
    size_t wrong = begin(group, &side);
    char byte;

    if (group->rank == 0) {
        (void)shutdown(side.link.mine, SHUT_RDWR);
        (void)shutdown(side.link.theirs, SHUT_RDWR);
        for (int i = 0; i < 3; i++) {
            give(group, side.g);
            wrong += recvfrom(outside, &byte, 1, MSG_DONTWAIT, NULL, NULL) != -1;
        }
        wrong += dp_hang_gather_complete(side.g);
    }
    return wrong + end(group, &side);
}

static void a_broken_connection_is_left_alone(void **state)
{
    const int stdin_kept = dup(STDIN_FILENO);
    int pair[2];
    (void)state;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(dup2(pair[0], STDIN_FILENO), STDIN_FILENO);
    assert_int_equal(on_local_nodes(2, (const int[]){0, 1}, loses_its_connections, &pair[1]), 0);
    (void)dup2(stdin_kept, STDIN_FILENO);
    (void)close(stdin_kept);
    (void)close(pair[0]);
    (void)close(pair[1]);
}

/* As hang_gather.c sends it. */
struct message {
    char kind;
    int news;
    struct dp_hang_row row;
};

static bool sends_row(int fd, int rank, bool known)
{
    const struct message m = {DP_HOST_LINK_ROW, 0, {.rank = rank, .known = known}};

    return send(fd, &m, sizeof(m), 0) == sizeof(m);
}

/* A row that no host can have comes first, and then one by the same connection, and one by the
 * other. */
static size_t hears_nonsense(struct dp_group *group, const void *arg)
{
    const struct dp_hang_row *nonsense = arg;
    struct side side;
    size_t wrong = begin(group, &side);

    if (group->rank == 0) {
        wrong += !sends_row(side.link.mine, nonsense->rank, nonsense->known);
        wrong += !sends_row(side.link.mine, 1, true);
        wrong += !sends_row(side.link.theirs, 0, true);
    }
    wrong += dp_group_barrier(group) != DP_OK;
    if (group->rank == 1) {
        int count;
        wrong += wait_for(side.g, 1) != 1 || !dp_hang_gather_look(side.g, true);
        wrong += !dp_hang_gather_rows(side.g, &count)[0].known;
        wrong += dp_hang_gather_rows(side.g, &count)[1].known;
    }
    return wrong + end(group, &side);
}

static void after_a_row_of_nobody_nothing_is_taken_from_there(void **state)
{
    static const struct dp_hang_row cases[] = {
        {.rank = -1, .known = true}, {.rank = 2, .known = true}, {.rank = 1, .known = false}};
    (void)state;

    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        if (on_local_nodes(2, (const int[]){0, 1}, hears_nonsense, &cases[i]) != 0) {
            fail_msg("a row of rank %d", cases[i].rank);
        }
    }
}

static size_t create(struct dp_group *group, const void *arg)
{
    atomic_int speaker = 0;
    struct dp_host_link link;
    struct dp_host_names *names = NULL;
    struct dp_hang_gather *g = NULL;
    size_t wrong;
    (void)arg;

    dp_host_link_init(&link);
    dp_status status = dp_host_link_open(group, &link);
    if (status == DP_OK) {
        status = dp_host_names_create(group, "h", &names);
    }
    if (status == DP_OK) {
        status = dp_hang_gather_create(group, &link, names, &speaker, &g);
    }
    wrong = status != DP_OK && status != DP_ERR_NOMEM && status != DP_ERR_CANCELLED;
    wrong += status != DP_OK && g != NULL;
    dp_hang_gather_destroy(g);
    dp_host_names_destroy(names);
    dp_host_link_close(&link);
    return wrong;
}

static void a_failed_allocation_leaves_nothing_and_blocks_no_rank(void **state)
{
    const size_t live = dp_mem_live();
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; nth < 60; nth++) {
        dp_mem_fail_nth(nth);
        (void)on_local_nodes(3, (const int[]){0, 1, 1}, create, NULL);
        dp_mem_fail_nth(0);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_log_set_level(DP_LOG_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_go_round_a_host_that_is_stuck_and_the_first_host_reports),
        cmocka_unit_test(the_second_rank_of_a_host_gives_its_rows_where_the_first_is_stopped),
        cmocka_unit_test(rows_that_come_in_pieces_are_put_together),
        cmocka_unit_test(what_a_host_has_reported_is_known_to_the_others),
        cmocka_unit_test(rows_go_to_other_hosts_where_there_are_any),
        cmocka_unit_test(a_broken_connection_is_left_alone),
        cmocka_unit_test(after_a_row_of_nobody_nothing_is_taken_from_there),
        cmocka_unit_test(without_shared_memory_the_first_rank_alone_has_the_connections),
        cmocka_unit_test(a_failed_allocation_leaves_nothing_and_blocks_no_rank),
    };

    return cmocka_run_group_tests_name("hang_gather", tests, NULL, NULL);
}
