/*
 * stderr_text.h - for tests: what a piece of code writes to stderr.
 */
#ifndef DP_TESTS_SUPPORT_STDERR_TEXT_H
#define DP_TESTS_SUPPORT_STDERR_TEXT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static char stderr_text[4096]; /* what was written between begin and end */
static int stderr_real = -1, stderr_file = -1;

static inline void stderr_begin(void)
{
    char name[] = "/tmp/lockstep-test-XXXXXX";

    stderr_file = mkstemp(name);
    assert_true(stderr_file >= 0);
    assert_int_equal(unlink(name), 0);
    stderr_real = dup(STDERR_FILENO);
    assert_true(stderr_real >= 0);
    assert_int_equal(dup2(stderr_file, STDERR_FILENO), STDERR_FILENO);
}

static inline void stderr_end(void)
{
    ssize_t length;

    assert_int_equal(dup2(stderr_real, STDERR_FILENO), STDERR_FILENO);
    length = pread(stderr_file, stderr_text, sizeof(stderr_text) - 1, 0);
    assert_true(length >= 0);
    stderr_text[length] = '\0';
    (void)close(stderr_file);
    (void)close(stderr_real);
}

#endif
