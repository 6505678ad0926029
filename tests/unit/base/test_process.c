/* test_process.c - whether a process has ended, with and without a descriptor that refers to it. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/system/process.h"
#include "base/system/process_tag.h"

/* A child that does nothing until it is killed. Its name looks like other fields of its state. */
static pid_t start(void)
{
    const pid_t id = fork();

    if (id == 0) {
        (void)prctl(PR_SET_NAME, "a) Z 1 (b", 0, 0, 0);
        for (;;) {
            (void)pause();
        }
    }
    return id;
}

/* Kills a child, which then is a zombie. */
static bool kill_child(pid_t id)
{
    siginfo_t info;

    return kill(id, SIGKILL) == 0 && waitid(P_PID, (id_t)id, &info, WEXITED | WNOWAIT) == 0;
}

/* From here on pidfd_open fails, as with an older kernel or a container's filter. */
static bool forbid_descriptors(void)
{
#ifdef SYS_pidfd_open
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof(rules) / sizeof(rules[0]), rules};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
#else
    return true;
#endif
}

/* The number of the first line that is wrong; 0: none. */
static int first_wrong(bool descriptors)
{
    struct dp_process_watch watch, later;
    const pid_t id = start();

#define DP_RIGHT(truth)      \
    do {                     \
        if (!(truth)) {      \
            return __LINE__; \
        }                    \
    } while (0)
    DP_RIGHT(dp_process_watch(&watch, id));
    DP_RIGHT(descriptors || watch.fd == -1);
    DP_RIGHT(!dp_process_ended(&watch));
    if (watch.fd == -1) { /* another one that has got the number */
        later = watch;
        later.started--;
        DP_RIGHT(dp_process_ended(&later));
    }
    DP_RIGHT(kill_child(id));
    DP_RIGHT(dp_process_ended(&watch));
    DP_RIGHT(!dp_process_watch(&later, id));
    DP_RIGHT(waitpid(id, NULL, 0) == id);
    DP_RIGHT(dp_process_ended(&watch));
    DP_RIGHT(!dp_process_watch(&later, id));
    dp_process_unwatch(&watch);
    dp_process_unwatch(&watch);
#undef DP_RIGHT
    return 0;
}

static void a_zombie_has_ended(void **state)
{
    (void)state;
    assert_int_equal(first_wrong(true), 0);
}

/* Files of a process are deleted as soon as it has ended, also where nobody waits for it. */
static void what_a_zombie_wrote_is_left_over(void **state)
{
    const pid_t id = start();
    char mine[DP_PROCESS_TAG_BYTES], tag[DP_PROCESS_TAG_BYTES + 32];
    (void)state;

    assert_true(id > 0);
    dp_process_tag(mine);
    *strrchr(mine, '-') = '\0';
    (void)snprintf(tag, sizeof(tag), "%s-%ld.%llu", mine, (long)id,
                   (unsigned long long)dp_process_start(id));
    assert_int_equal(dp_process_judge(tag), DP_PROCESS_ALIVE);
    assert_true(kill_child(id));
    assert_int_equal(dp_process_judge(tag), DP_PROCESS_GONE);
    assert_int_equal(waitpid(id, NULL, 0), id);
}

static void without_descriptors_a_zombie_has_ended(void **state)
{
    int status = -1;
    const pid_t child = fork();
    (void)state;

    if (child == 0) {
        const int line = forbid_descriptors() ? first_wrong(false) : -1;
        if (line > 0) {
            (void)fprintf(stderr, "line %d is wrong\n", line);
        }
        _exit(line == 0 ? 0 : line < 0 ? 77 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        skip(); /* filters are not to be had */
    }
    assert_int_equal(status, 0);
}

static void without_a_process_nothing_is_watched(void **state)
{
    struct dp_process_watch watch;
    (void)state;

    assert_false(dp_process_watch(&watch, INT32_MAX));
    dp_process_unwatch(&watch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_zombie_has_ended),
        cmocka_unit_test(what_a_zombie_wrote_is_left_over),
        cmocka_unit_test(without_descriptors_a_zombie_has_ended),
        cmocka_unit_test(without_a_process_nothing_is_watched),
    };
    return cmocka_run_group_tests_name("process", tests, NULL, NULL);
}
