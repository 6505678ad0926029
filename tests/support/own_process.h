/*
 * own_process.h - for tests of what ends a program on tests/cuda_on_host: bodies that run in a
 * process of their own, which has touched no GPU before.
 */
#ifndef DP_TESTS_SUPPORT_OWN_PROCESS_H
#define DP_TESTS_SUPPORT_OWN_PROCESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cuda_runtime.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static char body_stderr[4000]; /* what the last process wrote to stderr */

/* Of a body: it ends here, unless a call went well. */
static inline void ok(int result)
{
    if (result != 0) {
        fprintf(stderr, "a call gives %d\n", result);
        _exit(1);
    }
}

/* As fork(); the child ends with its parent. */
static inline pid_t fork_child(void)
{
    const pid_t child = fork();

    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    return child;
}

/* Returns how it ended. */
static inline int run_body(void (*body)(void))
{
    size_t length = 0;
    ssize_t got = 1;
    int ends[2], status;

    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork_child();
    assert_true(child >= 0);
    if (child == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        (void)close(ends[0]);
        (void)close(ends[1]);
        body();
        exit(0);
    }
    (void)close(ends[1]);
    while (got > 0 && length + 1 < sizeof(body_stderr)) {
        got = read(ends[0], body_stderr + length, sizeof(body_stderr) - 1 - length);
        length += got > 0 ? (size_t)got : 0;
    }
    body_stderr[length] = '\0';
    (void)close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static inline void assert_ends(void (*misuse)(void), const char *why)
{
    const int status = run_body(misuse);

    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || strstr(body_stderr, why) == NULL) {
        fail_msg("it does not end because of '%s', but with status %d: %s", why, status,
                 body_stderr);
    }
}

static inline void assert_goes_on(void (*use)(void))
{
    const int status = run_body(use);

    if (status != 0) {
        fail_msg("it ends with status %d: %s", status, body_stderr);
    }
}

static inline char *device_memory(size_t bytes)
{
    void *memory = NULL;

    ok((int)cudaMalloc(&memory, bytes));
    return memory;
}

static inline cudaStream_t new_stream(void)
{
    cudaStream_t stream = NULL;

    ok((int)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

#endif
