/* test_local_peers.c - detects the death of a process on this node. */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/world/local_peers.h"

/* A process that does nothing until it is killed, as it is where this one fails. */
static struct dp_process start(void)
{
    const struct dp_process self = dp_process_self();
    const pid_t id = fork();

    if (id == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            (void)pause();
        }
    }
    assert_true(id > 0);
    return (struct dp_process){self.space, id};
}

/* Ends it, with or without a parent that waits for it. */
static void end_unnoticed(struct dp_process process)
{
    siginfo_t info;

    assert_int_equal(kill((pid_t)process.id, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)process.id, &info, WEXITED | WNOWAIT), 0);
}

static void end(struct dp_process process)
{
    end_unnoticed(process);
    assert_int_equal(waitpid((pid_t)process.id, NULL, 0), process.id);
}

/* Files that this process has open. */
static int open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    assert_int_equal(closedir(folder), 0);
    return count;
}

enum { OTHERS = 6 };

struct node {
    struct dp_process processes[OTHERS];    /* of the rank after `self`, and so on, around */
    struct dp_local_sign signs[OTHERS + 1]; /* of all ranks */
    struct dp_local_peers peers;
    int files; /* that were open before */
};

/* Rank `self` among others, each a process, as it sees them. */
static void open_node(struct node *node, int self)
{
    *node = (struct node){.peers = {.size = 0}, .files = open_files()};
    assert_int_equal(dp_local_peers_init(&node->peers, OTHERS + 1, self), DP_OK);
    for (int i = 0; i < OTHERS; i++) {
        const int rank = (self + 1 + i) % (OTHERS + 1);
        node->processes[i] = start();
        dp_local_peers_add(&node->peers, rank, node->processes[i], &node->signs[rank]);
    }
    dp_local_peers_add(&node->peers, self, dp_process_self(), &node->signs[self]);
    dp_local_peers_watch(&node->peers);
    assert_int_equal(dp_local_peers_lost(&node->peers), -1);
}

static void close_node(struct node *node, int begin)
{
    for (int i = begin; i < OTHERS; i++) {
        end(node->processes[i]);
    }
    dp_local_peers_fini(&node->peers);
    dp_local_peers_fini(&node->peers);
    assert_int_equal(open_files(), node->files);
    assert_int_equal(dp_mem_live(), 0);
    assert_int_equal(dp_local_peers_lost(&node->peers), -1);
}

/* Descriptors are few. */
static void a_rank_does_not_watch_itself(void **state)
{
    struct dp_local_peers peers = {.size = 0};
    struct dp_local_sign sign = {0};
    (void)state;

    assert_int_equal(dp_local_peers_init(&peers, 1, 0), DP_OK);
    dp_local_peers_add(&peers, 0, dp_process_self(), &sign);
    dp_local_peers_watch(&peers);
    assert_int_equal(dp_local_peers_lost(&peers), -1);
    assert_false(peers.peers[0].watched);
    dp_local_peers_fini(&peers);
}

static void a_dead_rank_is_lost_and_all_are_told(void **state)
{
    struct node node;
    (void)state;

    open_node(&node, 2);
    end(node.processes[0]);
    assert_int_equal(dp_local_peers_lost(&node.peers), 3);
    for (int i = 0; i <= OTHERS; i++) {
        assert_int_equal(node.signs[i].found, 3 + 1);
    }
    assert_false(dp_local_peers_reports(&node.peers)); /* rank 0 does */
    end(node.processes[1]);
    assert_int_equal(dp_local_peers_lost(&node.peers), 3); /* it was the first */
    close_node(&node, 2);
}

static void the_first_living_rank_reports(void **state)
{
    struct node node;
    (void)state;

    open_node(&node, 2);
    for (int i = 4; i < OTHERS; i++) { /* ranks 0 and 1, which it does not watch */
        assert_false(dp_local_peers_reports(&node.peers));
        end(node.processes[i]);
    }
    assert_true(dp_local_peers_reports(&node.peers));
    for (int i = 0; i < 4; i++) {
        end(node.processes[i]);
    }
    close_node(&node, OTHERS);
}

/* Rank 0 is as good as others: the last one watches it, reports after it, and tells of it. */
static void the_first_rank_is_watched_by_the_last(void **state)
{
    struct node node;
    (void)state;

    open_node(&node, OTHERS);
    for (int i = 1; i < OTHERS; i++) {
        atomic_store(&node.signs[i].left, 1);
        end(node.processes[i]);
        assert_int_equal(dp_local_peers_lost(&node.peers), -1);
        assert_false(dp_local_peers_reports(&node.peers));
    }
    end(node.processes[0]);
    assert_int_equal(dp_local_peers_lost(&node.peers), 0);
    for (int i = 0; i <= OTHERS; i++) {
        assert_int_equal(node.signs[i].found, 0 + 1);
    }
    assert_true(dp_local_peers_reports(&node.peers));
    close_node(&node, OTHERS);
}

/* Nobody watches more than a few. */
static void another_rank_tells_of_a_death(void **state)
{
    struct node node;
    (void)state;

    open_node(&node, 2);
    end(node.processes[3]); /* rank 6: ranks 3, 4 and 5 watch it */
    assert_int_equal(dp_local_peers_lost(&node.peers), -1);
    atomic_store(&node.signs[2].found, 6 + 1);
    assert_int_equal(dp_local_peers_lost(&node.peers), 6);
    end(node.processes[0]);
    end(node.processes[1]);
    end(node.processes[2]);
    close_node(&node, 4);
}

/* Where those that it watches leave by themselves, it watches the next ones; also where these have
 * died before. */
static void who_leaves_is_replaced(void **state)
{
    struct node node;
    int files;
    (void)state;

    open_node(&node, 0);
    files = open_files();
    for (int i = 0; i < 3; i++) { /* ranks 1, 2 and 3 */
        atomic_store(&node.signs[1 + i].left, 1);
        end(node.processes[i]);
        assert_int_equal(dp_local_peers_lost(&node.peers), -1);
        assert_int_equal(open_files(), files);
    }
    end(node.processes[4]);
    assert_int_equal(dp_local_peers_lost(&node.peers), 5);
    end(node.processes[3]);
    close_node(&node, 5);

    open_node(&node, 0);
    end(node.processes[3]); /* rank 4, which is not watched yet */
    assert_int_equal(dp_local_peers_lost(&node.peers), -1);
    atomic_store(&node.signs[2].left, 1);
    end(node.processes[1]);
    assert_int_equal(dp_local_peers_lost(&node.peers), 4);
    end(node.processes[0]);
    end(node.processes[2]);
    close_node(&node, 4);
}

static void a_zombie_is_lost_at_once(void **state)
{
    struct dp_local_sign sign = {.left = 0};
    const struct dp_process process = start();
    struct dp_local_peers peers;
    (void)state;

    assert_int_equal(dp_local_peers_init(&peers, 2, 1), DP_OK);
    dp_local_peers_add(&peers, 0, process, &sign);
    dp_local_peers_watch(&peers);
    end_unnoticed(process); /* as of a rank whose mpirun stands still */
    assert_int_equal(dp_local_peers_lost(&peers), 0);
    assert_true(dp_local_peers_reports(&peers));
    assert_int_equal(waitpid((pid_t)process.id, NULL, 0), process.id);
    dp_local_peers_fini(&peers);
}

/* Another process may have its number by now. */
static void a_rank_that_left_reports_no_more(void **state)
{
    struct dp_local_sign signs[2] = {{.left = 0}};
    const struct dp_process process = start();
    struct dp_local_peers peers;
    (void)state;

    assert_int_equal(dp_local_peers_init(&peers, 2, 1), DP_OK);
    dp_local_peers_add(&peers, 0, process, &signs[0]);
    dp_local_peers_add(&peers, 1, dp_process_self(), &signs[1]);
    dp_local_peers_watch(&peers);
    atomic_store(&signs[0].left, 1);
    end(process);
    peers.peers[0].id = dp_process_self().id;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dp_local_peers_lost(&peers), -1);
        assert_false(peers.peers[0].watched);
        assert_true(dp_local_peers_reports(&peers));
    }
    dp_local_peers_fini(&peers);
}

static void a_rank_that_left_before_it_was_watched_is_never_watched(void **state)
{
    struct dp_local_sign signs[2] = {{.left = 1}};
    const struct dp_process process = start();
    struct dp_local_peers peers;
    (void)state;

    assert_int_equal(dp_local_peers_init(&peers, 2, 1), DP_OK);
    dp_local_peers_add(&peers, 0, process, &signs[0]);
    dp_local_peers_add(&peers, 1, dp_process_self(), &signs[1]);
    end(process);
    dp_local_peers_watch(&peers);
    peers.peers[0].id = dp_process_self().id;
    assert_int_equal(dp_local_peers_lost(&peers), -1);
    assert_false(peers.peers[0].watched);
    assert_true(dp_local_peers_reports(&peers));
    dp_local_peers_fini(&peers);
}

/* As in a container, where there is no other one. */
static void process_1_can_be_a_rank(void **state)
{
    const struct dp_process first = {dp_process_self().space, 1};
    struct dp_local_sign signs[2] = {{.left = 0}};
    struct dp_local_peers peers;
    (void)state;

    for (int told = 0; told < 2; told++) {
        assert_int_equal(dp_local_peers_init(&peers, 2, 1), DP_OK);
        dp_local_peers_add(&peers, 0, first, told ? &signs[0] : NULL);
        dp_local_peers_add(&peers, 1, dp_process_self(), &signs[1]);
        assert_false(dp_local_peers_reports(&peers));
        dp_local_peers_watch(&peers);
        assert_true(peers.peers[0].watched);
        assert_false(dp_local_peers_reports(&peers));
        dp_local_peers_fini(&peers);
    }
}

/* Nobody can tell a rank whose memory is out of reach: it is watched in any case, also the last one
 * by the first, and the first by the last. */
static void ranks_without_common_memory_are_all_watched(void **state)
{
    struct dp_process processes[OTHERS];
    struct dp_local_peers peers;
    (void)state;

    for (int self = 0; self <= OTHERS; self += OTHERS) {
        const int first = self == 0 ? 1 : 0, last = self == 0 ? OTHERS - 1 : 0;
        assert_int_equal(dp_local_peers_init(&peers, OTHERS + 1, self), DP_OK);
        for (int i = 0; i < OTHERS; i++) {
            processes[i] = start();
            dp_local_peers_add(&peers, first + i, processes[i], NULL);
        }
        dp_local_peers_watch(&peers);
        assert_int_equal(dp_local_peers_lost(&peers), -1);
        end(processes[last]);
        assert_int_equal(dp_local_peers_lost(&peers), first + last);
        for (int i = 0; i < OTHERS; i++) {
            if (i != last) {
                end(processes[i]);
            }
        }
        dp_local_peers_fini(&peers);
    }
}

/* No process has number 0. */
static void a_rank_without_a_process_is_not_told(void **state)
{
    const struct dp_process nobody = {dp_process_self().space, 0}, process = start();
    struct dp_local_sign signs[3] = {{.left = 0}};
    struct dp_local_peers peers;
    (void)state;

    assert_int_equal(dp_local_peers_init(&peers, 3, 0), DP_OK);
    dp_local_peers_add(&peers, 0, dp_process_self(), &signs[0]);
    dp_local_peers_add(&peers, 1, nobody, &signs[1]);
    dp_local_peers_add(&peers, 2, process, &signs[2]);
    dp_local_peers_watch(&peers);
    end(process);
    assert_int_equal(dp_local_peers_lost(&peers), 2);
    assert_int_equal(signs[0].found, 2 + 1);
    assert_int_equal(signs[1].found, 0);
    dp_local_peers_fini(&peers);
}

/* Three of them, as many as are watched of those that can be told. */
static void a_rank_that_can_be_told_is_watched_beside_those_that_cannot(void **state)
{
    struct dp_local_sign signs[2] = {{.left = 0}};
    struct dp_process processes[4];
    struct dp_local_peers peers;
    (void)state;

    assert_int_equal(dp_local_peers_init(&peers, 5, 0), DP_OK);
    dp_local_peers_add(&peers, 0, dp_process_self(), &signs[0]);
    for (int i = 0; i < 4; i++) {
        processes[i] = start();
        dp_local_peers_add(&peers, 1 + i, processes[i], i < 3 ? NULL : &signs[1]);
    }
    dp_local_peers_watch(&peers);
    assert_int_equal(dp_local_peers_lost(&peers), -1);
    end(processes[3]);
    assert_int_equal(dp_local_peers_lost(&peers), 4);
    for (int i = 0; i < 3; i++) {
        end(processes[i]);
    }
    dp_local_peers_fini(&peers);
}

static void invisible_processes_are_not_watched(void **state)
{
    struct dp_local_sign signs[2] = {{.left = 0}};
    struct dp_process elsewhere = start();
    struct dp_local_peers peers;
    (void)state;

    elsewhere.space++;
    assert_int_equal(dp_local_peers_init(&peers, 2, 0), DP_OK);
    dp_local_peers_add(&peers, 1, elsewhere, &signs[1]);
    dp_local_peers_watch(&peers);
    end(elsewhere);
    assert_int_equal(dp_local_peers_lost(&peers), -1);
    dp_local_peers_fini(&peers);
}

static void watching_survives_a_failed_allocation(void **state)
{
    const size_t live = dp_mem_live();
    struct dp_local_peers peers;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    dp_mem_fail_nth(1);
    assert_int_equal(dp_local_peers_init(&peers, 3, 0), DP_ERR_NOMEM);
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(dp_mem_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_does_not_watch_itself),
        cmocka_unit_test(a_dead_rank_is_lost_and_all_are_told),
        cmocka_unit_test(the_first_living_rank_reports),
        cmocka_unit_test(the_first_rank_is_watched_by_the_last),
        cmocka_unit_test(another_rank_tells_of_a_death),
        cmocka_unit_test(who_leaves_is_replaced),
        cmocka_unit_test(a_zombie_is_lost_at_once),
        cmocka_unit_test(a_rank_that_left_reports_no_more),
        cmocka_unit_test(a_rank_that_left_before_it_was_watched_is_never_watched),
        cmocka_unit_test(process_1_can_be_a_rank),
        cmocka_unit_test(a_rank_without_a_process_is_not_told),
        cmocka_unit_test(ranks_without_common_memory_are_all_watched),
        cmocka_unit_test(a_rank_that_can_be_told_is_watched_beside_those_that_cannot),
        cmocka_unit_test(invisible_processes_are_not_watched),
        cmocka_unit_test(watching_survives_a_failed_allocation),
    };
    return cmocka_run_group_tests_name("local_peers", tests, NULL, NULL);
}
