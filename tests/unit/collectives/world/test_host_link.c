/* test_host_link.c - detects the death of a rank that is alone on its host. */
#define _DEFAULT_SOURCE /* syscall() */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "collectives/world/host_link.h"
#include "collectives/world/liveness.h"
#include "tests/support/local_world.h"
#include "tests/support/stderr_text.h"

/* Milliseconds since the last answer of a host, as the kernel is made to report them; -1: what it
 * reports itself. */
static int simulated_ms = -1;

/* The linker takes this one, and not libc's. */
int getsockopt(int fd, int level, int optname, void *restrict optval, socklen_t *restrict optlen)
{
    if (level == IPPROTO_TCP && optname == TCP_INFO && simulated_ms >= 0) {
        struct tcp_info *info = optval;
        info->tcpi_last_ack_recv = (uint32_t)simulated_ms;
        return 0;
    }
    return (int)syscall(SYS_getsockopt, fd, level, optname, optval, optlen);
}

/* Whether a loss is seen within a second. */
static bool is_lost(struct dp_host_link *line)
{
    const uint64_t end_ns = dp_now_ns() + 1000000000;
    const struct timespec nap = {0, 5000000};

    do {
        if (dp_host_link_lost(line, DP_OUTAGE_S)) {
            return true;
        }
        (void)nanosleep(&nap, NULL);
    } while (dp_now_ns() < end_ns);
    return false;
}

/* As the kernel does when a process is killed: no farewell. */
static void die(struct dp_host_link *line)
{
    (void)close(line->mine);
    line->mine = -1;
}

/* Ranks 0 and 1, each alone, and two ranks that have local peers. Rank 1 dies, which rank 2 finds;
 * rank 0 leaves by itself, so that rank 1 has lost nobody; rank 2 dies, which rank 3 reports. */
static size_t one_dies_and_one_leaves(struct dp_group *group, const void *arg)
{
    static const int watched[] = {2, 0, 1, -1};
    struct dp_host_link line;
    size_t wrong = 0;
    (void)arg;

    dp_host_link_init(&line);
    if (dp_host_link_open(group, &line) != DP_OK) {
        return 1;
    }
    wrong += line.watched != watched[group->rank] || (line.mine >= 0) != (group->rank < 3);
    wrong += (line.theirs >= 0) != (line.watched >= 0) || dp_host_link_lost(&line, DP_OUTAGE_S);
    wrong += line.watched >= 0 && line.host[0] == '\0';
    wrong += dp_group_barrier(group) != DP_OK;
    if (group->rank == 1 || group->rank == 2) {
        die(&line);
    } else {
        dp_host_link_leave(&line);
    }
    wrong += dp_group_barrier(group) != DP_OK;
    wrong += is_lost(&line) != (group->rank == 2) || line.silent_s > 0;
    dp_host_link_close(&line);
    return wrong + (line.watched != -1);
}

static void a_dead_rank_is_lost_and_a_leaving_one_is_not(void **state)
{
    const int node_of[] = {0, 1, 2, 2};
    (void)state;

    assert_int_equal(on_local_nodes(4, node_of, one_dies_and_one_leaves, NULL), 0);
}

static size_t both_close(struct dp_group *group, const void *arg)
{
    struct dp_host_link line;
    struct dp_log_capture capture;
    size_t wrong = 0;
    (void)arg;

    dp_host_link_init(&line);
    wrong += dp_host_link_open(group, &line) != DP_OK || line.watched != 1 - group->rank;
    if (group->rank == 0) {
        dp_host_link_close(&line);
    }
    wrong += dp_group_barrier(group) != DP_OK;
    dp_log_capture_begin(&capture, DP_LOG_WARN);
    wrong += is_lost(&line);
    dp_log_capture_end(&capture, DP_LOG_PRINT);
    wrong += capture.used != 0; /* no warning: nothing is broken */
    dp_host_link_close(&line);
    return wrong;
}

static void two_hosts_watch_each_other_and_closing_is_not_a_loss(void **state)
{
    const int node_of[] = {0, 1};
    (void)state;

    assert_int_equal(on_local_nodes(2, node_of, both_close, NULL), 0);
}

static size_t watches_nobody(struct dp_group *group, const void *arg)
{
    struct dp_host_link line;
    size_t wrong = 0;
    (void)arg;

    dp_host_link_init(&line);
    wrong += dp_host_link_open(group, &line) != DP_OK;
    wrong += line.watched != -1 || line.theirs != -1 || line.mine != -1;
    wrong += dp_host_link_lost(&line, DP_OUTAGE_S);
    dp_host_link_leave(&line);
    dp_host_link_close(&line);
    return wrong;
}

/* Makes the kernel reset a connection, as a firewall between two hosts may do. */
static void reset(struct dp_host_link *line)
{
    const struct linger at_once = {.l_onoff = 1};

    (void)setsockopt(line->mine, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    die(line);
}

/* Both processes live. */
static size_t one_is_reset(struct dp_group *group, const void *arg)
{
    struct dp_host_link line;
    size_t wrong = 0;
    (void)arg;

    dp_host_link_init(&line);
    wrong += dp_host_link_open(group, &line) != DP_OK;
    if (group->rank == 0) {
        reset(&line);
    }
    wrong += dp_group_barrier(group) != DP_OK;
    wrong += is_lost(&line) || (line.theirs < 0) != (group->rank == 1);
    dp_host_link_close(&line);
    return wrong;
}

static void a_broken_connection_is_not_a_death(void **state)
{
    const int node_of[] = {0, 1};
    size_t wrong;
    (void)state;

    stderr_begin();
    wrong = on_local_nodes(2, node_of, one_is_reset, NULL);
    stderr_end();
    assert_int_equal(wrong, 0);
    assert_non_null(strstr(stderr_text, "the host is no longer monitored"));
}

/* Of four hosts, that of rank 1 was silent for 7 s when its connection broke. So rank 2 has lost
 * it, and the two others learn of that. */
static size_t one_is_silent(struct dp_group *group, const void *arg)
{
    struct dp_host_link line;
    size_t wrong = 0;
    (void)arg;

    dp_host_link_init(&line);
    wrong += dp_host_link_open(group, &line) != DP_OK;
    if (group->rank == 1) {
        reset(&line);
    }
    wrong += dp_group_barrier(group) != DP_OK;
    if (group->rank != 1) {
        line.warned = group->rank == 2;
        line.quiet_s = 7;
        wrong += !is_lost(&line) || line.told != (group->rank != 2);
        wrong += line.watched != 1 || line.silent_s != 7 || line.host[0] == '\0';
        wrong += !dp_host_link_lost(&line, DP_OUTAGE_S);
    }
    wrong += dp_group_barrier(group) != DP_OK;
    dp_host_link_close(&line);
    return wrong;
}

static void the_loss_of_a_host_is_passed_on_to_all_hosts(void **state)
{
    const int node_of[] = {0, 1, 2, 3};
    (void)state;

    assert_int_equal(on_local_nodes(4, node_of, one_is_silent, NULL), 0);
}

/* What is logged when a host has been silent for so long, of an outage of 30 s at most. */
static bool is_lost_after(struct dp_host_link *line, int ms)
{
    bool lost;

    simulated_ms = ms;
    stderr_begin();
    lost = dp_host_link_lost(line, 30);
    stderr_end();
    simulated_ms = -1;
    return lost;
}

static void a_silent_host_is_warned_of_and_then_given_up(void **state)
{
    struct dp_host_link line;
    int pair[2];
    (void)state;

    dp_host_link_init(&line);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    line.theirs = pair[0];
    line.watched = 1;
    memcpy(line.host, "far", 4);
    assert_false(is_lost_after(&line, 4999));
    assert_string_equal(stderr_text, "");
    assert_false(is_lost_after(&line, 5000));
    assert_non_null(strstr(stderr_text, "no sign of life from host far (rank 1) for 5 s"));
    assert_false(is_lost_after(&line, 20000)); /* which is not said again */
    assert_string_equal(stderr_text, "");
    assert_false(is_lost_after(&line, 2999));
    assert_non_null(strstr(stderr_text, "host far (rank 1) responds again after 20 s"));
    assert_false(is_lost_after(&line, 29999)); /* it is silent once more */
    assert_non_null(strstr(stderr_text, "no sign of life from host far (rank 1) for 29 s"));
    assert_true(is_lost_after(&line, 30000));
    assert_int_equal(line.silent_s, 30);
    line.silent_s = 0;
    simulated_ms = 1000; /* the least that may be allowed: it stays lost */
    assert_true(dp_host_link_lost(&line, 1) && dp_host_link_lost(&line, 1));
    simulated_ms = -1;
    dp_host_link_close(&line);
    (void)close(pair[1]);
}

/* Two hosts that have not answered each other for almost half a minute; rank 0 then allows less.
 * What ranks show to others is released in the end. */
static size_t waits_for_a_silent_host(struct dp_group *group, const void *arg)
{
    struct dp_liveness *liveness = NULL;
    size_t wrong = 0;
    char all[2];
    (void)arg;

    /* The group keeps what it gathers with. */
    wrong += dp_group_gather_node(group, "", 1, all) != DP_OK;
    const size_t before = dp_mem_bytes(DP_MEM_COMM);
    if (dp_group_barrier(group) != DP_OK || dp_liveness_create(group, &liveness) != DP_OK) {
        return 1;
    }
    wrong += dp_liveness_lost(liveness).rank != -1;
    wrong += dp_group_barrier(group) != DP_OK;
    if (group->rank == 0) {
        dp_liveness_allow_outage(liveness, 20);
        const struct dp_loss loss = dp_liveness_lost(liveness);
        wrong += loss.rank != 1 || loss.silent_s != 29;
    }
    wrong += dp_group_barrier(group) != DP_OK; /* until then no farewell comes */
    dp_liveness_destroy(liveness);
    wrong += dp_group_barrier(group) != DP_OK;
    return wrong + (dp_mem_bytes(DP_MEM_COMM) != before);
}

static void a_host_may_be_silent_for_half_a_minute_unless_less_is_allowed(void **state)
{
    const int node_of[] = {0, 1};
    size_t wrong;
    (void)state;

    simulated_ms = 29999;
    stderr_begin();
    wrong = on_local_nodes(2, node_of, waits_for_a_silent_host, NULL);
    stderr_end();
    simulated_ms = -1;
    assert_int_equal(wrong, 0);
}

static void ranks_of_one_host_need_no_connection(void **state)
{
    (void)state;

    assert_int_equal(on_local_ranks(2, watches_nobody, NULL), 0);
}

static size_t opens(struct dp_group *group, const void *arg)
{
    struct dp_host_link line;
    size_t wrong;
    (void)arg;

    dp_host_link_init(&line);
    const dp_status status = dp_host_link_open(group, &line);
    wrong = status != DP_OK && status != DP_ERR_NOMEM && status != DP_ERR_CANCELLED;
    wrong += status != DP_OK && (line.theirs != -1 || line.mine != -1);
    dp_host_link_close(&line);
    return wrong;
}

static void a_failed_allocation_leaves_nothing_and_blocks_no_rank(void **state)
{
    const size_t live = dp_mem_live();
    const int node_of[] = {0, 1};
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; nth < 40; nth++) {
        dp_mem_fail_nth(nth);
        (void)on_local_nodes(2, node_of, opens, NULL);
        dp_mem_fail_nth(0);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_log_set_level(DP_LOG_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dead_rank_is_lost_and_a_leaving_one_is_not),
        cmocka_unit_test(two_hosts_watch_each_other_and_closing_is_not_a_loss),
        cmocka_unit_test(a_broken_connection_is_not_a_death),
        cmocka_unit_test(the_loss_of_a_host_is_passed_on_to_all_hosts),
        cmocka_unit_test(a_silent_host_is_warned_of_and_then_given_up),
        cmocka_unit_test(a_host_may_be_silent_for_half_a_minute_unless_less_is_allowed),
        cmocka_unit_test(ranks_of_one_host_need_no_connection),
        cmocka_unit_test(a_failed_allocation_leaves_nothing_and_blocks_no_rank),
    };
    return cmocka_run_group_tests_name("host_link", tests, NULL, NULL);
}
