/* test_local_peers.c - detects the death of a process on this node. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/world/local_peers.h"

/* A process that does nothing until it is killed. */
static struct dp_process start(void)
{
    const struct dp_process self = dp_process_self();
    const pid_t id = fork();

    if (id == 0) {
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

static void a_killed_process_is_lost_and_the_first_remaining_one_reports(void **state)
{
    const struct dp_process processes[] = {start(), start()};
    struct dp_local_peers peers;
    (void)state;

    assert_int_equal(dp_local_peers_init(&peers, 4, 2), DP_OK);
    dp_local_peers_watch(&peers, 0, processes[0], NULL);
    dp_local_peers_watch(&peers, 2, dp_process_self(), NULL);
    dp_local_peers_watch(&peers, 3, processes[1], NULL);
    assert_int_equal(dp_local_peers_lost(&peers), -1);
    assert_false(dp_local_peers_reports(&peers));
    end(processes[1]);
    assert_int_equal(dp_local_peers_lost(&peers), 3);
    assert_false(dp_local_peers_reports(&peers)); /* rank 0 does */
    end(processes[0]);
    assert_int_equal(dp_local_peers_lost(&peers), 0);
    assert_true(dp_local_peers_reports(&peers));
    dp_local_peers_fini(&peers);
    dp_local_peers_fini(&peers);
}

static void a_zombie_is_lost_at_once(void **state)
{
    const struct dp_process process = start();
    struct dp_local_peers peers;
    (void)state;

    assert_int_equal(dp_local_peers_init(&peers, 2, 1), DP_OK);
    dp_local_peers_watch(&peers, 0, process, NULL);
    end_unnoticed(process); /* as of a rank whose mpirun stands still */
    assert_int_equal(dp_local_peers_lost(&peers), 0);
    assert_true(dp_local_peers_reports(&peers));
    dp_local_peers_watch(&peers, 0, process, NULL);
    assert_int_equal(dp_local_peers_lost(&peers), -1); /* it was dead before */
    assert_int_equal(waitpid((pid_t)process.id, NULL, 0), process.id);
    dp_local_peers_fini(&peers);
}

static void a_process_that_left_by_itself_is_not_lost(void **state)
{
    const struct dp_process process = start();
    struct dp_local_peers peers;
    atomic_int left;
    (void)state;

    atomic_init(&left, 0);
    assert_int_equal(dp_local_peers_init(&peers, 2, 0), DP_OK);
    dp_local_peers_watch(&peers, 1, process, &left);
    atomic_store(&left, 1);
    end(process);
    assert_int_equal(dp_local_peers_lost(&peers), -1);
    atomic_store(&left, 0);
    assert_int_equal(dp_local_peers_lost(&peers), 1);
    dp_local_peers_fini(&peers);
}

static void invisible_processes_are_not_watched(void **state)
{
    struct dp_process process = start(), elsewhere = process;
    struct dp_local_peers peers;
    (void)state;

    elsewhere.space++;
    assert_int_equal(dp_local_peers_init(&peers, 3, 0), DP_OK);
    dp_local_peers_watch(&peers, 1, elsewhere, NULL);
    end(process);
    dp_local_peers_watch(&peers, 2, process, NULL); /* gone before it was watched */
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
        cmocka_unit_test(a_killed_process_is_lost_and_the_first_remaining_one_reports),
        cmocka_unit_test(a_zombie_is_lost_at_once),
        cmocka_unit_test(a_process_that_left_by_itself_is_not_lost),
        cmocka_unit_test(invisible_processes_are_not_watched),
        cmocka_unit_test(watching_survives_a_failed_allocation),
    };
    return cmocka_run_group_tests_name("local_peers", tests, NULL, NULL);
}
