/* test_live.c - what a process shows of itself is seen by others, while it lives. */
#define _GNU_SOURCE /* memfd_create */

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/system/live.h"

static struct dp_live seen; /* too large for a stack */

static const struct dp_live_who who = {.name = "small",
                                       .host = "here",
                                       .job = "one",
                                       .folder = "/runs/one",
                                       .rank = 3,
                                       .ranks = 4,
                                       .steps = 70};

/* A child that shows where it is: in step 8, waiting for bucket 2. Returns once it does. */
static pid_t start(void)
{
    int ready[2];
    char byte;
    pid_t id;

    assert_int_equal(pipe(ready), 0);
    id = fork();
    if (id == 0) {
        struct dp_live_file file;
        dp_live_open(&file, &who);
        if (file.live != NULL) {
            DP_SPAN(DP_PHASE_STEP, 7);
            DP_SPAN(DP_PHASE_WAIT, 2);
            atomic_store(&file.live->rows_per_second, 12.5);
            (void)!write(ready[1], "x", 1);
            for (;;) {
                (void)pause();
            }
        }
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    return id;
}

static void another_process_is_seen_until_it_ends(void **state)
{
    const pid_t id = start();
    (void)state;

    assert_true(dp_live_read(id, &seen));
    assert_string_equal(seen.who.folder, "/runs/one");
    assert_int_equal(seen.who.rank, 3);
    assert_int_equal(atomic_load(&seen.mark.step), 8);
    assert_int_equal(atomic_load(&seen.mark.bucket), 2);
    assert_int_equal(atomic_load(&seen.mark.phase), DP_PHASE_WAIT);
    assert_int_equal(atomic_load(&seen.mark.activity), DP_PHASE_STEP);
    assert_float_equal(atomic_load(&seen.rows_per_second), 12.5, 0.0);
    assert_int_equal(kill(id, SIGKILL), 0);
    assert_int_equal(waitpid(id, NULL, 0), id);
    assert_false(dp_live_read(id, &seen));
}

static void a_process_shows_nothing_before_and_after(void **state)
{
    struct dp_live_file file;
    (void)state;

    assert_false(dp_live_read(getpid(), &seen));
    dp_live_open(&file, &who);
    assert_non_null(file.live);
    assert_true(dp_live_read(getpid(), &seen));
    assert_int_equal(atomic_load(&seen.mark.open), 0);
    dp_live_close(&file);
    assert_false(dp_live_read(getpid(), &seen));
    dp_live_close(&file);
    { /* what is published no more is not written */
        DP_SPAN(DP_PHASE_STEP, 0);
    }
}

/* A file of that name that is another layout's, or too short. */
static void another_layout_is_not_read(void **state)
{
    const int file = memfd_create("lockstep-live", MFD_CLOEXEC);
    char zeros[sizeof(struct dp_live)] = "lockstep.live/0";
    (void)state;

    assert_true(file >= 0);
    assert_false(dp_live_read(getpid(), &seen));
    assert_int_equal(write(file, zeros, sizeof(zeros)), sizeof(zeros));
    assert_false(dp_live_read(getpid(), &seen));
    (void)close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_process_is_seen_until_it_ends),
        cmocka_unit_test(a_process_shows_nothing_before_and_after),
        cmocka_unit_test(another_layout_is_not_read),
    };
    return cmocka_run_group_tests_name("live", tests, NULL, NULL);
}
