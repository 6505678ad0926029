/* test_text.c - texts from outside are printed in one line, without terminal commands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/status.h"
#include "base/text.h"

static const struct {
    const char *text, *printed;
} rows[] = {
    {"", ""},
    {"runs/a b.cfg", "runs/a b.cfg"},
    {"na\u00efve \u65e5\u672c \U0001f600 \u200d", "na\u00efve \u65e5\u672c \U0001f600 \u200d"},
    {"a\nb\r\tc", "a\\nb\\r\\tc"},
    {"\x1b[2K\x1b]0;x\x07\x7f", "\\x1b[2K\\x1b]0;x\\x07\\x7f"},
    {"\xc2\x9bm \xc2\x80 \xc2\xa0", "\\u009bm \\u0080 \xc2\xa0"}, /* C1, and a space */
    {"\x9bm", "\\x9bm"}, /* C1 of a terminal that knows no UTF-8 */
    {"a\u202eb\u2066\u200f\u061c\u2028\ufeff", "a\\u202eb\\u2066\\u200f\\u061c\\u2028\\ufeff"},
    {"\xff\xc3", "\\xff\\xc3"},                            /* no UTF-8, and half a character */
    {"\xc0\x8a\xe0\x80\x8a", "\\xc0\\x8a\\xe0\\x80\\x8a"}, /* a line end in too many bytes */
    {"\xed\xa0\x80\xf4\x90\x80\x80", "\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80"}, /* no characters */
};
enum { ROW_COUNT = sizeof(rows) / sizeof(rows[0]) };

static void controls_are_spelled_and_all_else_is_kept(void **state)
{
    char printed[256], line[256];
    (void)state;

    for (size_t i = 0; i < ROW_COUNT; i++) {
        FILE *file = tmpfile();

        assert_int_equal(dp_text_clean(rows[i].text, printed, sizeof(printed)),
                         strlen(rows[i].printed));
        assert_string_equal(printed, rows[i].printed);
        dp_text_line(file, "%s", rows[i].text);
        rewind(file);
        assert_non_null(fgets(line, sizeof(line), file));
        assert_memory_equal(line, printed, strlen(printed));
        assert_string_equal(line + strlen(printed), "\n");
        assert_int_equal(fgetc(file), EOF);
        (void)fclose(file);
    }
}

/* At every size: as much as fits of whole characters, then dots. */
static void long_text_is_cut_between_characters(void **state)
{
    static const char text[] = "ab\u00e9\x1b\xff\u202e", whole[] = "ab\u00e9\\x1b\\xff\\u202e";
    static const size_t ends[] = {0, 1, 2, 4, 8, 12, 18}; /* of the printed characters */
    char out[32];
    (void)state;

    for (size_t size = 4; size <= sizeof(whole); size++) {
        size_t kept = 0;

        for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
            kept = ends[i] + sizeof("...") <= size ? ends[i] : kept;
        }
        memset(out, 'x', sizeof(out));
        if (size == sizeof(whole)) {
            assert_int_equal(dp_text_clean(text, out, size), sizeof(whole) - 1);
            assert_string_equal(out, whole);
        } else {
            assert_int_equal(dp_text_clean(text, out, size), kept + 3);
            assert_memory_equal(out, whole, kept);
            assert_string_equal(out + kept, "...");
        }
        assert_int_equal(out[size], 'x');
    }
}

/* Returns what a message writes to stderr, which must be one write. */
static size_t logged(const char *text, char *line, size_t size)
{
    const int real = dup(STDERR_FILENO);
    int ends[2];
    ssize_t got;

    /* Of this kind of socket each receive gets one write, whole. */
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    assert_true(dup2(ends[0], STDERR_FILENO) >= 0);
    DP_WARN("%s: strange", text);
    assert_true(dup2(real, STDERR_FILENO) >= 0);
    (void)close(real);
    (void)close(ends[0]);
    got = recv(ends[1], line, size - 1, 0);
    assert_true(got > 0);
    line[got] = '\0';
    assert_int_equal(recv(ends[1], line + got, 1, 0), 0);
    (void)close(ends[1]);
    return (size_t)got;
}

static void a_message_is_one_line_without_controls(void **state)
{
    char line[8192], expected[512];
    (void)state;

    for (size_t i = 0; i < ROW_COUNT; i++) {
        (void)snprintf(expected, sizeof(expected), "lockstep: warning: %s: strange\n",
                       rows[i].printed);
        (void)logged(rows[i].text, line, sizeof(line));
        assert_string_equal(line, expected);
    }
}

/* A pipe takes 4096 bytes in one piece: more would mix with lines of other ranks. */
static void a_long_message_is_one_write_that_a_pipe_takes_whole(void **state)
{
    static char text[6000];
    char line[8192];
    size_t length;
    (void)state;

    for (int fill = 0; fill < 2; fill++) {
        memset(text, fill == 0 ? '\n' : 'a', sizeof(text) - 1);
        length = logged(text, line, sizeof(line));
        assert_in_range(length, 4000, 4096);
        assert_ptr_equal(strchr(line, '\n'), line + length - 1);
        assert_string_equal(line + length - 4, "...\n");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(controls_are_spelled_and_all_else_is_kept),
        cmocka_unit_test(long_text_is_cut_between_characters),
        cmocka_unit_test(a_message_is_one_line_without_controls),
        cmocka_unit_test(a_long_message_is_one_write_that_a_pipe_takes_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
