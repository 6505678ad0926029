/*
 * at_once.h - for tests that mostly wait: each one in a process of its own, all at the same time.
 */
#ifndef DP_TESTS_SUPPORT_AT_ONCE_H
#define DP_TESTS_SUPPORT_AT_ONCE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* How many have failed. */
static int run_at_once(const struct CMUnitTest *tests, size_t count)
{
    pid_t *processes = calloc(count, sizeof(*processes));
    int failed = processes == NULL;

    for (size_t i = 0; processes != NULL && i < count; i++) {
        processes[i] = fork();
        if (processes[i] == 0) {
            const struct CMUnitTest one[] = {tests[i]};

            free(processes);
            exit(cmocka_run_group_tests_name(tests[i].name, one, NULL, NULL));
        }
    }
    for (size_t i = 0; processes != NULL && i < count; i++) {
        int status = -1;

        if (waitpid(processes[i], &status, 0) != processes[i] || status != 0) {
            (void)fprintf(stderr, "%s failed: status %d\n", tests[i].name, status);
            failed++;
        }
    }
    free(processes);
    return failed;
}

#endif
