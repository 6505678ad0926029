/*
 * test_option.c - what tables of options accept, refuse, print and guess.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/option.h"

struct sample {
    int count;
    double rate, price;
    bool fast;
    const char *name;
    int mode, order;
    struct dp_numbers list;
    unsigned words;
};

#define SAMPLE struct sample

/* clang-format off */
static const struct dp_option table[] = {
    DP_INT(    SAMPLE, count, NULL,    1, 100, "how many"),
    DP_DOUBLE( SAMPLE, rate,  "0.5",   0, 1, "how much"),
    DP_DOUBLE( SAMPLE, price, "null",  0, 1e9, "what it costs"),
    DP_SWITCH( SAMPLE, fast,  "true",  "whether it hurries"),
    DP_STRING( SAMPLE, name,  "sgd",   "what it is called"),
    DP_CHOICE( SAMPLE, mode,  "auto",  "auto|on|off", "when it works"),
    DP_CHOICE( SAMPLE, order, "fp32",  "fp32", "the only one there is"),
    DP_NUMBERS(SAMPLE, list,  "1,2.5", -10, 10, "several"),
    DP_WORDS(  SAMPLE, words, "c,a",  "a|b|c", "several words"),
    {0},
};
/* clang-format on */

static char problem[512];

static dp_status apply(struct sample *s, const char *key, const char *text)
{
    problem[0] = '\0';
    return dp_option_apply(dp_option_find(table, key), s, &text, 1, problem, sizeof(problem));
}

/* `text` is refused, with this problem, and the struct stays as it was. */
static void refuses(const char *key, const char *text, const char *expected)
{
    struct sample s, before;

    memset(&s, 0, sizeof(s));
    dp_option_defaults(table, &s);
    memcpy(&before, &s, sizeof(s));
    assert_int_equal(apply(&s, key, text), DP_ERR_CONFIG);
    assert_string_equal(problem, expected);
    assert_memory_equal(&s, &before, sizeof(s));
}

static void defaults_fill_every_field_but_required_ones(void **state)
{
    struct sample s;
    (void)state;

    memset(&s, 0, sizeof(s));
    s.count = 77;
    dp_option_defaults(table, &s);
    assert_int_equal(s.count, 77);
    assert_true(s.rate == 0.5);
    assert_true(isnan(s.price));
    assert_true(s.fast);
    assert_string_equal(s.name, "sgd");
    assert_int_equal(s.mode, 0);
    assert_int_equal(s.list.count, 2);
    assert_true(s.list.value[0] == 1.0 && s.list.value[1] == 2.5);
}

static void rows_are_found_by_their_whole_name(void **state)
{
    (void)state;
    assert_ptr_equal(dp_option_find(table, "rate"), &table[1]);
    assert_null(dp_option_find(table, "rat"));
    assert_null(dp_option_find(table, ""));
    assert_null(dp_option_find(NULL, "rate"));
}

static void integers_are_decimal_and_in_range(void **state)
{
    static const char *const wrong[] = {
        "",   "abc", "0x10", "010", "0o7", "1e2", "5.0", "5 ", " 5", "5a",
        "-5", "0",   "101",  "nan", "inf", "1_0", "1:3", "+",  "-",  "99999999999999999999"};
    struct sample s = {0};
    (void)state;

    assert_int_equal(apply(&s, "count", "42"), DP_OK);
    assert_int_equal(s.count, 42);
    assert_int_equal(apply(&s, "count", "+7"), DP_OK);
    assert_int_equal(s.count, 7);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(apply(&s, "count", wrong[i]), DP_ERR_CONFIG);
        assert_int_equal(s.count, 7);
    }
    refuses("count", "abc", "expected an integer from 1 to 100, found 'abc'");
    refuses("count", "101", "expected an integer from 1 to 100, found '101'");
    refuses("count", "", "expected an integer from 1 to 100, found nothing");
}

static void numbers_are_decimal_and_in_range(void **state)
{
    static const char *const right[] = {"0", "1", "0.25", "1e-3", "1E-3", "+.5", "1.", "0.0e+05"};
    static const char *const wrong[] = {"nan",  ".nan", "inf", ".inf", "-inf",  "0x1p-1",
                                        "00.5", "1e",   ".",   "e5",   "0.5f",  "1e999",
                                        "-0.1", "1.01", "0,5", "null", "1e-3 x"};
    struct sample s = {0};
    (void)state;

    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        assert_int_equal(apply(&s, "rate", right[i]), DP_OK);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(apply(&s, "rate", wrong[i]), DP_ERR_CONFIG);
    }
    refuses("rate", "nan", "expected a number from 0 to 1, found 'nan'");
}

static void null_is_accepted_only_where_it_is_the_default(void **state)
{
    struct sample s = {.price = 1.0};
    (void)state;

    assert_int_equal(apply(&s, "price", "null"), DP_OK);
    assert_true(isnan(s.price));
    assert_int_equal(apply(&s, "price", "3.06"), DP_OK);
    assert_true(s.price == 3.06);
    refuses("price", "free", "expected a number from 0 to 1000000000, or null, found 'free'");
}

static void switches_take_six_words(void **state)
{
    static const char *const words[] = {"false", "true", "off", "on", "no", "yes"};
    struct sample s = {0};
    (void)state;

    for (int i = 0; i < 6; i++) {
        s.fast = i % 2 == 0;
        assert_int_equal(apply(&s, "fast", words[i]), DP_OK);
        assert_int_equal(s.fast, i % 2);
    }
    refuses("fast", "1", "expected true or false, found '1'");
}

static void choices_become_their_index(void **state)
{
    struct sample s = {0};
    (void)state;

    assert_int_equal(apply(&s, "mode", "off"), DP_OK);
    assert_int_equal(s.mode, 2);
    assert_int_equal(apply(&s, "mode", "yes"), DP_OK); /* another word for on */
    assert_int_equal(s.mode, 1);
    refuses("mode", "of", "expected one of auto, on, off, found 'of'");
    refuses("order", "fp64", "expected fp32, found 'fp64'");
    refuses("order", "true", "expected fp32, found 'true'");
}

static void texts_are_printable_and_limited(void **state)
{
    char endless[DP_OPTION_TEXT + 2];
    struct sample s = {0};
    (void)state;

    assert_int_equal(apply(&s, "name", "h\xc3\xa9h\xc3\xa9: {x}"), DP_OK);
    assert_string_equal(s.name, "h\xc3\xa9h\xc3\xa9: {x}");
    refuses("name", "", "expected a text, found nothing");
    assert_int_equal(apply(&s, "name", "two\nlines"), DP_ERR_CONFIG);
    assert_int_equal(apply(&s, "name", "a\xe2\x80\xa8z"), DP_ERR_CONFIG); /* line separator */
    assert_int_equal(apply(&s, "name", "a\xc2\x85z"), DP_ERR_CONFIG);     /* next line */
    memset(endless, 'a', sizeof(endless) - 1);
    endless[sizeof(endless) - 1] = '\0';
    assert_int_equal(apply(&s, "name", endless), DP_ERR_CONFIG);
    assert_non_null(strstr(problem, "expected a text of at most 1000 bytes, found 'aaa"));
    assert_true(strlen(problem) < 200);
}

static void lists_hold_some_numbers_and_a_number_is_a_list(void **state)
{
    static const char *const many[DP_NUMBERS_MAX + 1] = {
        "1", "2", "3", "4", "5", "6", "7", "8", "9", "1", "2", "3", "4", "5", "6", "7", "8"};
    static const char *const outside[] = {"1", "11"};
    const struct dp_option *row = dp_option_find(table, "list");
    struct sample s = {0};
    (void)state;

    assert_int_equal(apply(&s, "list", "-2.5"), DP_OK);
    assert_int_equal(s.list.count, 1);
    assert_int_equal(dp_option_apply(row, &s, many, DP_NUMBERS_MAX, problem, sizeof(problem)),
                     DP_OK);
    assert_int_equal(s.list.count, DP_NUMBERS_MAX);
    assert_true(s.list.value[15] == 7.0);
    assert_int_equal(dp_option_apply(row, &s, many, 0, problem, sizeof(problem)), DP_OK);
    assert_int_equal(s.list.count, 0);
    assert_int_equal(dp_option_apply(row, &s, outside, 2, problem, sizeof(problem)), DP_ERR_CONFIG);
    assert_string_equal(problem, "expected a list of numbers from -10 to 10, found '11'");
    assert_int_equal(dp_option_apply(row, &s, many, DP_NUMBERS_MAX + 1, problem, sizeof(problem)),
                     DP_ERR_CONFIG);
    assert_int_equal(dp_option_apply(&table[0], &s, many, 2, problem, sizeof(problem)),
                     DP_ERR_CONFIG);
    assert_string_equal(problem, "expected an integer from 1 to 100, found 2 values");
}

static void lists_of_words_are_sets(void **state)
{
    static const char *const some[] = {"b", "c", "b"}, *const wrong[] = {"a", "d"};
    const struct dp_option *row = dp_option_find(table, "words");
    struct sample s;
    char text[64];
    (void)state;

    dp_option_defaults(table, &s);
    assert_int_equal(s.words, 5);
    dp_option_print(row, &s, text, sizeof(text));
    assert_string_equal(text, "[a, c]");
    assert_int_equal(dp_option_apply(row, &s, some, 3, problem, sizeof(problem)), DP_OK);
    assert_int_equal(s.words, 6);
    assert_int_equal(dp_option_apply(row, &s, wrong, 2, problem, sizeof(problem)), DP_ERR_CONFIG);
    assert_string_equal(problem, "expected a list of a, b, c, found 'd'");
    assert_int_equal(s.words, 6);
    assert_int_equal(dp_option_apply(row, &s, some, 0, problem, sizeof(problem)), DP_OK);
    dp_option_print(row, &s, text, sizeof(text));
    assert_string_equal(text, "[]");
}

static void a_default_outside_its_range_is_an_error(void **state)
{
    static const struct dp_option steps[] = {DP_INT(SAMPLE, count, "0", 1, 100, "or none"), {0}};
    struct sample s = {0};
    (void)state;

    dp_option_defaults(steps, &s);
    assert_int_equal(s.count, 0);
    assert_false(dp_option_holds(&steps[0], &s));
    s.count = 100;
    assert_true(dp_option_holds(&steps[0], &s));
    dp_option_defaults(table, &s);
    for (const struct dp_option *row = table; row->kind != DP_OPTION_END; row++) {
        assert_true(dp_option_holds(row, &s));
    }
    s.rate = (double)NAN;
    assert_false(dp_option_holds(&table[1], &s));
}

static void printed_numbers_read_back_to_the_bit(void **state)
{
    static const double values[] = {0.0, -0.0, 0.1, 1.0 / 3.0, 3.06, 1e-8, 5e-324, 123456789.125};
    static const struct { /* numbers to YAML 1.1, too, which wants a point before an exponent */
        double value;
        const char *text;
    } shown[] = {{0.1, "0.1"},        {60.0, "60"},     {86400.0, "86400"}, {1e-5, "1.0e-05"},
                 {1.5e-7, "1.5e-07"}, {1e9, "1.0e+09"}, {1e30, "1.0e+30"}};
    const struct dp_option *row = dp_option_find(table, "price");
    char text[DP_OPTION_PRINTED];
    struct sample s = {0}, back = {0};
    (void)state;

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        s.price = values[i];
        dp_option_print(row, &s, text, sizeof(text));
        assert_int_equal(apply(&back, "price", text), DP_OK);
        assert_memory_equal(&s.price, &back.price, sizeof(s.price));
    }
    for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++) {
        s.price = shown[i].value;
        dp_option_print(row, &s, text, sizeof(text));
        assert_string_equal(text, shown[i].text);
    }
}

static void prints(const char *key, const struct sample *s, const char *expected)
{
    char text[DP_OPTION_PRINTED];

    dp_option_print(dp_option_find(table, key), s, text, sizeof(text));
    assert_string_equal(text, expected);
}

static void values_print_as_yaml(void **state)
{
    struct sample s = {.count = -3, .price = (double)NAN, .mode = 2, .list = {{0.286, 2}, 2}};
    (void)state;

    prints("count", &s, "-3");
    prints("price", &s, "null");
    prints("fast", &s, "false");
    prints("mode", &s, "off");
    prints("list", &s, "[0.286, 2]");
    s.list.count = 0;
    prints("list", &s, "[]");
    s.name = "/usr/share/x-1.0_b";
    prints("name", &s, "/usr/share/x-1.0_b");
    s.name = "hier:inner=shm,outer=ring";
    prints("name", &s, "\"hier:inner=shm,outer=ring\"");
    s.name = "say \"\\hi\"";
    prints("name", &s, "\"say \\\"\\\\hi\\\"\"");
    s.name = "No"; /* would be a switch */
    prints("name", &s, "\"No\"");
    s.name = "null";
    prints("name", &s, "\"null\"");
    s.name = "5";
    prints("name", &s, "\"5\"");
    s.name = "a:";
    prints("name", &s, "\"a:\"");
    s.name = "evil\u202efgc.\u061c\u00e9"; /* a terminal would show it from right to left */
    prints("name", &s, "\"evil\\u202efgc.\\u061c\u00e9\"");
}

/* Parameters of a plug-in may be any bytes. */
static void text_that_is_not_utf8_is_cut_too(void **state)
{
    struct sample s = {0};
    char found[200];
    (void)state;

    memset(found, 0x80, sizeof(found) - 1);
    found[sizeof(found) - 1] = found[0] = '\0';
    assert_int_equal(apply(&s, "count", found + 100), DP_ERR_CONFIG);
    assert_string_equal(problem + strlen(problem) - strlen("found '...'"), "found '...'");
}

static void edit_distance_counts_swaps_once(void **state)
{
    char endless[100];
    (void)state;

    assert_int_equal(dp_edit_distance("", ""), 0);
    assert_int_equal(dp_edit_distance("", "abc"), 3);
    assert_int_equal(dp_edit_distance("filter", "filters"), 1);
    assert_int_equal(dp_edit_distance("rnig", "ring"), 1);
    assert_int_equal(dp_edit_distance("kitten", "sitting"), 3);
    assert_int_equal(dp_edit_distance("abcd", "badc"), 2);
    assert_int_equal(dp_edit_distance("sitting", "kitten"), 3);
    memset(endless, 'a', sizeof(endless));
    endless[sizeof(endless) - 1] = '\0';
    assert_true(dp_edit_distance(endless, "aaaa") > 50);
}

static void misspellings_resemble_the_intended_word(void **state)
{
    (void)state;
    assert_true(dp_looks_like("filter", "filters"));
    assert_true(dp_looks_like("ReLU", "relu"));
    assert_true(dp_looks_like("conv", "conv2d"));
    assert_true(dp_looks_like("batch", "batchnorm"));
    assert_true(dp_looks_like("golbal_batch", "global_batch"));
    assert_false(dp_looks_like("x", "lr"));
    assert_false(dp_looks_like("l", "r"));
    assert_false(dp_looks_like("epochs", "steps"));
    assert_false(dp_looks_like("", "lr"));
    assert_string_equal(dp_option_nearest(table, "cuont"), "count");
    assert_null(dp_option_nearest(table, "weather"));
    assert_null(dp_option_nearest(NULL, "count"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_fill_every_field_but_required_ones),
        cmocka_unit_test(rows_are_found_by_their_whole_name),
        cmocka_unit_test(integers_are_decimal_and_in_range),
        cmocka_unit_test(numbers_are_decimal_and_in_range),
        cmocka_unit_test(null_is_accepted_only_where_it_is_the_default),
        cmocka_unit_test(switches_take_six_words),
        cmocka_unit_test(choices_become_their_index),
        cmocka_unit_test(texts_are_printable_and_limited),
        cmocka_unit_test(lists_hold_some_numbers_and_a_number_is_a_list),
        cmocka_unit_test(lists_of_words_are_sets),
        cmocka_unit_test(a_default_outside_its_range_is_an_error),
        cmocka_unit_test(printed_numbers_read_back_to_the_bit),
        cmocka_unit_test(values_print_as_yaml),
        cmocka_unit_test(text_that_is_not_utf8_is_cut_too),
        cmocka_unit_test(edit_distance_counts_swaps_once),
        cmocka_unit_test(misspellings_resemble_the_intended_word),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
