/* test_stdio.c - a program's descriptors 0, 1 and 2, whatever its caller made of them. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/files/stdio.h"
#include "base/log.h"

/* Whether the descriptor is /dev/null, opened in this way. */
static bool is_null(int fd, int mode)
{
    struct stat found, null;

    return fstat(fd, &found) == 0 && stat("/dev/null", &null) == 0 && S_ISCHR(found.st_mode) &&
           found.st_rdev == null.st_rdev && (fcntl(fd, F_GETFL) & O_ACCMODE) == mode &&
           (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0; /* what we start inherits it */
}

/* Runs in a child process, whose exit code has a bit for each mistake. */
static int after_closing(int closed)
{
    const pid_t child = fork();
    int wrong = 0, state = 0;

    if (child == 0) {
        for (int fd = 0; fd < 3; fd++) {
            if ((closed & 1 << fd) != 0) {
                (void)close(fd);
            }
        }
        wrong |= dp_stdio_open() != DP_OK ? 8 : 0;
        for (int fd = 0; fd < 3; fd++) {
            if ((closed & 1 << fd) != 0 && !is_null(fd, fd == 0 ? O_RDONLY : O_WRONLY)) {
                wrong |= 1 << fd;
            }
        }
        _exit(wrong);
    }
    assert_true(child > 0 && waitpid(child, &state, 0) == child && WIFEXITED(state));
    return WEXITSTATUS(state);
}

static void closed_descriptors_are_opened_on_dev_null(void **state)
{
    (void)state;

    for (int closed = 0; closed < 8; closed++) {
        assert_int_equal(after_closing(closed), 0);
    }
}

/* Prints on a full device, in a child process. */
static int after_printing(dp_status status, bool answers)
{
    const pid_t child = fork();
    int state = 0;

    if (child == 0) {
        const int full = open("/dev/full", O_WRONLY), null = open("/dev/null", O_WRONLY);
        if (full < 0 || dup2(full, STDOUT_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0) {
            _exit(99);
        }
        (void)fputs("an answer\n", stdout);
        _exit(dp_status_exit(dp_stdio_finish(status, answers)));
    }
    assert_true(child > 0 && waitpid(child, &state, 0) == child && WIFEXITED(state));
    return WEXITSTATUS(state);
}

static void unread_output_is_an_error_unless_there_was_one(void **state)
{
    (void)state;

    if (access("/dev/full", W_OK) != 0) {
        skip();
    }
    (void)fflush(stdout); /* so that a child has nothing of it */
    assert_int_equal(after_printing(DP_OK, true), 74);
    assert_int_equal(after_printing(DP_OK, false), 0);
    assert_int_equal(after_printing(DP_ERR_CONFIG, true), 78);
    assert_int_equal(after_printing(DP_STOPPED, false), 75);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_descriptors_are_opened_on_dev_null),
        cmocka_unit_test(unread_output_is_an_error_unless_there_was_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
