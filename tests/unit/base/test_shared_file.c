/* test_shared_file.c - whether memory can be shared by way of a file. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/files/file.h"
#include "base/files/shared_file.h"
#include "tests/support/scratch.h"

enum { MB = 1 << 20 };

static void a_file_that_can_be_created_is_removed_again(void **state)
{
    DIR *folder;
    (void)state;

    assert_true(dp_shared_file_possible(scratch_folder, 1));
    assert_true(dp_shared_file_possible(scratch_folder, MB));
    folder = opendir(scratch_folder);
    assert_non_null(folder);
    assert_null(scratch_next(folder));
    assert_int_equal(closedir(folder), 0);
}

static void a_folder_must_exist_and_have_space(void **state)
{
    char path[DP_PATH_BYTES + 8];
    (void)state;

    assert_int_equal(dp_file_join(path, scratch_folder, "missing"), DP_OK);
    assert_false(dp_shared_file_possible(path, 1));
    assert_false(dp_shared_file_possible(scratch_folder, dp_file_free(scratch_folder) + MB));
    memset(path, '/', sizeof(path) - 1); /* a name too long for any system */
    path[sizeof(path) - 1] = '\0';
    assert_false(dp_shared_file_possible(path, 1));
}

/* Whether a process under that limit, with `MB` bytes asked of it, says `expected` and lives. */
static bool says_under(int resource, rlim_t most, bool expected)
{
    const struct rlimit limit = {most, most};
    const pid_t child = fork();
    int status = -1;

    if (child == 0) {
        (void)signal(SIGXFSZ, SIG_DFL); /* ignored by whoever started the test, maybe */
        _exit(setrlimit(resource, &limit) == 0 &&
                      dp_shared_file_possible(scratch_folder, MB) == expected
                  ? 0
                  : 1);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void limits_are_checked_beforehand(void **state)
{
    (void)state;

    assert_true(says_under(RLIMIT_FSIZE, MB, true));
    assert_true(says_under(RLIMIT_FSIZE, MB - 1, false));
    assert_true(says_under(RLIMIT_NOFILE, 3, false)); /* stdin, stdout, stderr */
    assert_false(dp_shared_file_possible(scratch_folder, 1ull << 62));
}

static void a_limited_address_space_is_noticed(void **state)
{
    (void)state;

#ifdef __SANITIZE_ADDRESS__
    skip(); /* it has taken the address space itself */
#endif
    assert_true(says_under(RLIMIT_AS, MB / 2, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_that_can_be_created_is_removed_again, scratch_create,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(a_folder_must_exist_and_have_space, scratch_create,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(limits_are_checked_beforehand, scratch_create,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(a_limited_address_space_is_noticed, scratch_create,
                                        scratch_destroy),
    };
    return cmocka_run_group_tests_name("shared_file", tests, NULL, NULL);
}
