/*
 * test_progress.c - lines of progress, plain and on a terminal; the log makes them make way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/log.h"
#include "runtime/report/live/progress.h"
#include "tests/support/scratch.h"

static void large_numbers_are_grouped(void **state)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0, "0.00"},        {9.994, "9.99"},           {9.996, "10.0"},   {99.94, "99.9"},
        {99.96, "100"},     {999.5, "1,000"},          {12345, "12,345"}, {-1234, "-1,234"},
        {1e6, "1,000,000"}, {123456789, "123,456,789"}};
    char text[DP_GROUPED_BYTES];
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_string_equal(dp_grouped(text, cases[i].value), cases[i].text);
    }
    assert_string_equal(dp_grouped(text, (double)NAN), "-");
    assert_string_equal(dp_grouped(text, -(double)INFINITY), "-");
    assert_string_equal(dp_grouped(text, 1e300), "1e+300");
}

static void counts_stay_whole(void **state)
{
    char text[DP_GROUPED_BYTES];
    (void)state;

    assert_string_equal(dp_grouped_count(text, 0), "0");
    assert_string_equal(dp_grouped_count(text, 99), "99");
    assert_string_equal(dp_grouped_count(text, 100), "100");
    assert_string_equal(dp_grouped_count(text, 60000), "60,000");
    assert_string_equal(dp_loss_text(text, 0.35079), "0.3508");
    assert_string_equal(dp_loss_text(text, 1.6711e17), "1.671e+17"); /* it diverges */
    assert_string_equal(dp_loss_text(text, (double)NAN), "nan");
}

static const struct dp_progress_step here = {.epoch = 1,
                                             .epochs = 3,
                                             .step = 120,
                                             .steps = 705,
                                             .loss = 0.53121,
                                             .lr = 0.05,
                                             .samples_per_second = 12345,
                                             .efficiency = 0.982,
                                             .left_s = 21.2};

/* Shows two steps, the second too early, then a line that stays, a step, and the end. */
static void show(bool terminal, bool quiet, char *text, size_t size)
{
    FILE *out = fopen(scratch_path("out"), "wb");
    struct dp_progress_step later = here;
    struct dp_progress progress;

    assert_non_null(out);
    later.step = 121;
    later.epochs = 0;
    later.lr = 3.14e-6;
    later.left_s = 3725;
    later.efficiency = (double)NAN;
    dp_progress_init(&progress, out, terminal, quiet);
    dp_progress_step(&progress, &later); /* not due yet */
    progress.next_ns = 0;
    dp_progress_step(&progress, &here);
    dp_progress_step(&progress, &later); /* not due */
    dp_progress_line(&progress, "test accuracy %d %%", 90);
    progress.next_ns = 0;
    later.step = 122;
    dp_progress_step(&progress, &later);
    dp_progress_end(&progress);
    dp_progress_end(&progress);
    assert_int_equal(fclose(out), 0);
    assert_true(scratch_read(scratch_path("out"), text, size) >= 0);
}

#define HERE "epoch 1/3 step 120/705 loss 0.5312 12,345 samples/s lr 0.0500 eta 0:21"
#define LATER "step 122/705 loss 0.5312 12,345 samples/s lr 3.1e-06 eta 1:02:05"

static void progress_is_rewritten_on_a_terminal_and_plain_elsewhere(void **state)
{
    char text[1024];
    (void)state;

    show(false, false, text, sizeof(text));
    assert_string_equal(text, HERE "\ntest accuracy 90 %\n" LATER "\n");
    show(true, false, text, sizeof(text));
    /* In 79 columns, with a bar of what is left. */
    assert_string_equal(text, "[#---------] step 120/705 loss 0.5312 12,345 samples/s efficiency "
                              "98 % eta 0:21\r\033[Ktest accuracy 90 %\n"
                              "[##----------] " LATER "\n");
    show(true, true, text, sizeof(text));
    assert_string_equal(text, "");
}

/* ---- a terminal for stdout and stderr ---- */

/* Returns the end that its program has; *user: that of whoever looks at it. */
static int open_terminal(int *user)
{
    int number = 0, unlocked = 0, fd;
    char path[32];

    *user = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    if (*user < 0 || ioctl(*user, TIOCSPTLCK, &unlocked) != 0 ||
        ioctl(*user, TIOCGPTN, &number) != 0) {
        return -1;
    }
    (void)snprintf(path, sizeof(path), "/dev/pts/%d", number);
    fd = open(path, O_RDWR | O_NOCTTY);
    return fd;
}

#define BAR "[#---------] step 120/705 loss 0.5312 12,345 samples/s efficiency 98 % eta 0:21"
#define ERASE "\r\033[K"

static void a_line_of_the_log_takes_the_place_of_the_bar(void **state)
{
    const int saved = dup(STDERR_FILENO);
    struct dp_progress progress;
    char text[2048];
    int user, terminal = open_terminal(&user);
    size_t used = 0;
    ssize_t length;
    FILE *out;
    (void)state;

    if (terminal < 0) {
        (void)close(saved);
        skip();
    }
    out = fdopen(dup(terminal), "w");
    assert_non_null(out);
    (void)dup2(terminal, STDERR_FILENO);
    dp_progress_init(&progress, out, true, false);
    dp_progress_make_way(false);
    DP_WARN("before");
    progress.next_ns = 0;
    dp_progress_step(&progress, &here);
    DP_WARN("between");
    DP_INFO("again");
    dp_progress_end(&progress);
    DP_WARN("after");
    (void)dup2(saved, STDERR_FILENO);
    dp_log_set_screen(NULL);
    do { /* a terminal hands on what it has so far, which may be a line of many */
        length = read(user, text + used, sizeof(text) - 1 - used);
        used += length > 0 ? (size_t)length : 0;
        text[used] = '\0';
    } while (length > 0 && strstr(text, "after\r\n") == NULL);
    assert_string_equal(text, "lockstep: warning: before\r\n" BAR ERASE
                              "lockstep: warning: between\r\n" ERASE BAR ERASE
                              "lockstep: again\r\n" ERASE BAR "\r\n"
                              "lockstep: warning: after\r\n");
    (void)fclose(out);
    (void)close(terminal);
    (void)close(user);
    (void)close(saved);
}

/* Where stderr leads elsewhere, nothing of a terminal is written there. */
static void elsewhere_lines_of_the_log_are_plain(void **state)
{
    const int saved = dup(STDERR_FILENO);
    FILE *out = fopen(scratch_path("out"), "wb"), *err = fopen(scratch_path("err"), "wb");
    struct dp_progress progress;
    char text[256];
    (void)state;

    assert_true(out != NULL && err != NULL);
    (void)dup2(fileno(err), STDERR_FILENO);
    dp_progress_init(&progress, out, true, false);
    for (int launched = 0; launched < 2; launched++) {
        dp_progress_make_way(launched == 1);
        progress.next_ns = 0;
        dp_progress_step(&progress, &here);
        DP_WARN("w");
    }
    dp_progress_end(&progress);
    (void)dup2(saved, STDERR_FILENO);
    (void)close(saved);
    (void)fclose(out);
    (void)fclose(err);
    assert_true(scratch_read(scratch_path("err"), text, sizeof(text)) > 0);
    assert_string_equal(text, "lockstep: warning: w\nlockstep: warning: w\n");
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_numbers_are_grouped),
        cmocka_unit_test(counts_stay_whole),
        WITH_FOLDER(progress_is_rewritten_on_a_terminal_and_plain_elsewhere),
        cmocka_unit_test(a_line_of_the_log_takes_the_place_of_the_bar),
        WITH_FOLDER(elsewhere_lines_of_the_log_are_plain),
    };

    return cmocka_run_group_tests_name("progress", tests, NULL, NULL);
}
