/* test_text_width.c - texts take the columns that a terminal gives them, and are cut there. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/text_width.h"

static const struct {
    const char *text;
    int width;
} rows[] = {
    {"", 0},
    {"node-12", 7},
    {"na\u00efve", 5},
    {"\u65e5\u672c", 4},
    {"\uff21\uac00", 4},
    {"\U0001f600!", 3},
    {"e\u0301\u0302", 1},
    {"a\nb", 4},         /* as it is printed */
    {"\x1b[2K\xff", 11}, /* four, three, four */
    {"\u05d0\u0431", 2},
};

static void check_width(const char *text, int width)
{
    if (dp_text_width(text) != width) {
        fail_msg("\"%s\" takes %d columns, not %d", text, dp_text_width(text), width);
    }
}

static void columns_are_those_of_a_terminal_in_any_locale(void **state)
{
    static const char *const locales[] = {"C", "C.UTF-8", ""};
    (void)state;

    for (size_t k = 0; k < sizeof(locales) / sizeof(locales[0]); k++) {
        (void)setlocale(LC_ALL, locales[k]);
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            check_width(rows[i].text, rows[i].width);
        }
    }
    (void)setlocale(LC_ALL, "C");
}

static void what_does_not_fit_is_cut_between_characters(void **state)
{
    char out[64], small[8];
    (void)state;

    assert_int_equal(dp_text_cut("abcdef", 6, out, sizeof(out)), 6);
    assert_string_equal(out, "abcdef");
    assert_int_equal(dp_text_cut("abcdefg", 6, out, sizeof(out)), 6);
    assert_string_equal(out, "abc...");
    assert_int_equal(dp_text_cut("abcdefg", 3, out, sizeof(out)), 3);
    assert_string_equal(out, "abc");
    assert_int_equal(dp_text_cut("\u65e5\u672c\u8a9e", 5, out, sizeof(out)), 5);
    assert_string_equal(out, "\u65e5...");
    assert_int_equal(dp_text_cut("\u65e5\u672c", 3, out, sizeof(out)), 2);
    assert_string_equal(out, "\u65e5");
    assert_int_equal(dp_text_cut("\u65e5", 0, out, sizeof(out)), 0);
    assert_string_equal(out, "");
    assert_int_equal(dp_text_cut("ae\u0301bcde", 5, out, sizeof(out)), 5);
    assert_string_equal(out, "ae\u0301...");
    assert_true(dp_text_cut("\u65e5\u672c\u8a9e", 20, small, sizeof(small)) <= 20);
    assert_string_equal(small, "\u65e5...");
}

static void cells_are_as_wide_as_their_column(void **state)
{
    char out[64];
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (int width = 0; width < 16; width++) {
            dp_text_cell(rows[i].text, width, out, sizeof(out));
            assert_int_equal(dp_text_width(out), width);
        }
    }
}

/* Those of a cluster begin alike. */
static void a_long_host_keeps_what_tells_it_from_others(void **state)
{
    static const struct {
        const char *host, *cell;
        int columns;
    } hosts[] = {
        {"vm", "vm      ", 8},
        {"node-017", "node-017", 8},
        {"node-017.cluster.example.org", "node-017", 8},
        {"ip-10-0-12-37.ec2.internal", "...12-37", 8},
        {"10.200.100.17", "...00.17", 8},
        {"\u65e5\u672c\u8a9e\u65e5\u672c\u8a9e", "...\u672c\u8a9e ", 8},
        {"node-017.cluster.example.org", "nod", 3},
        {".", ".   ", 4},
        {"....................", "....", 4},
    };
    char out[64];
    (void)state;

    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        dp_text_host_cell(hosts[i].host, hosts[i].columns, out, sizeof(out));
        assert_string_equal(out, hosts[i].cell);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_those_of_a_terminal_in_any_locale),
        cmocka_unit_test(what_does_not_fit_is_cut_between_characters),
        cmocka_unit_test(cells_are_as_wide_as_their_column),
        cmocka_unit_test(a_long_host_keeps_what_tells_it_from_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
