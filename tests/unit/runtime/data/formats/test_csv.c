/* test_csv.c - lines of numbers, and where they lie: any line is found, however a file is cut. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/random.h"
#include "runtime/data/formats/csv.h"
#include "runtime/data/formats/csv_index.h"

static struct dp_problem problem;

/* ---- lines ---- */

/* Reads a line of three fields, the label first. */
static dp_status read_three(const char *line, float numbers[2], double *label)
{
    const struct dp_csv_form form = {',', false, 3, 1};

    problem.text[0] = '\0';
    return dp_csv_read(&form, line, strlen(line), numbers, label, &problem);
}

static void assert_refused(const char *line, const char *words)
{
    float numbers[2];
    double label;

    assert_int_equal(read_three(line, numbers, &label), DP_ERR_DATA);
    if (strstr(problem.text, words) == NULL) {
        fail_msg("'%s': \"%s\" does not say \"%s\"", line, problem.text, words);
    }
}

static void a_line_is_a_label_and_numbers(void **state)
{
    const struct dp_csv_form last = {';', true, 3, 1}, tabs = {'\t', true, 3, 1};
    float numbers[2];
    double label;
    (void)state;

    assert_int_equal(read_three("7,1.5,-2e3", numbers, &label), DP_OK);
    assert_true(label == 7.0 && numbers[0] == 1.5f && numbers[1] == -2000.0f);
    assert_int_equal(read_three(" \"7\" ,\t+.5, 3. \r", numbers, &label), DP_OK);
    assert_true(label == 7.0 && numbers[0] == 0.5f && numbers[1] == 3.0f);
    assert_int_equal(dp_csv_read(&last, "1;2;3", 5, numbers, &label, &problem), DP_OK);
    assert_true(label == 3.0 && numbers[0] == 1.0f && numbers[1] == 2.0f);
    assert_int_equal(dp_csv_read(&tabs, "1\t \t3", 5, numbers, &label, &problem), DP_ERR_DATA);
    assert_non_null(strstr(problem.text, "field 2 is empty")); /* which ends before a space */
}

static void a_label_may_be_several_fields(void **state)
{
    const struct dp_csv_form first = {',', false, 4, 3}, last = {',', true, 4, 3};
    double label[3];
    float number;
    (void)state;

    assert_int_equal(dp_csv_read(&first, "1,2,3,4", 7, &number, label, &problem), DP_OK);
    assert_true(label[0] == 1.0 && label[1] == 2.0 && label[2] == 3.0 && number == 4.0f);
    assert_int_equal(dp_csv_read(&last, "1,2,3,4", 7, &number, label, &problem), DP_OK);
    assert_true(label[0] == 2.0 && label[1] == 3.0 && label[2] == 4.0 && number == 1.0f);
}

static void what_is_no_number_is_named_by_its_field(void **state)
{
    static const char *const words[] = {"cat", "nan", "inf", "0x10",  "1e", "e5",    ".",   "-",
                                        "1 2", "--1", "1e+", "1.2.3", "\"", "1,5\"", "1_0", "1d3"};
    char line[64];
    (void)state;

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        (void)snprintf(line, sizeof(line), "7,%s,3", words[i]);
        if (strchr(words[i], ',') == NULL) {
            assert_refused(line, "field 2 is no number: '");
        }
    }
    assert_refused("7,,3", "field 2 is empty");
    assert_refused("7,\"\",3", "field 2 is empty");
    assert_refused("7, ,3", "field 2 is empty");
    assert_refused("", "field 1 is empty");
    assert_refused("7,1e39,3", "field 2 is too large for float32");
    assert_refused("7,1", "has 2 fields, the first line has 3");
    assert_refused("7", "has 1 field, ");
    assert_refused("7,1,2,3", "has 4 fields, ");
    assert_refused("7,1,2,", "has 4 fields, ");
}

static void a_field_of_any_length_is_no_harm(void **state)
{
    char line[400] = "7,";
    (void)state;

    memset(line + 2, '1', 300);
    memcpy(line + 302, ",3", 3);
    assert_refused(line, "field 2 is no number: '11111");
    assert_true(strlen(problem.text) < 200);
}

static void a_number_has_127_characters_at_most_and_a_message_shows_40(void **state)
{
    char line[400] = "7,", words[64];
    float numbers[2];
    double label;
    (void)state;

    memset(line + 2, '0', 127);
    memcpy(line + 128, "5,3", 4);
    assert_int_equal(read_three(line, numbers, &label), DP_OK);
    assert_true(numbers[0] == 5.0f && numbers[1] == 3.0f);
    memcpy(line + 128, "05,3", 5);
    assert_refused(line, "field 2 is no number: '0000000");
    memset(line + 2, 'x', 41);
    memcpy(line + 43, ",3", 3);
    (void)snprintf(words, sizeof(words), "no number: '%.40s': mend it", line + 2);
    assert_refused(line, words);
}

/* What to do about it depends on where the label is. */
static void advice_is_of_the_field(void **state)
{
    static const struct {
        const char *line, *words;
        bool label_last;
    } cases[] = {
        {"cat,2,3", "'cat': if it is the label, set data.label to first", true},
        {"1,cat,3", "'cat': mend it, or take the line out", true},
        {"1,2,cat", "'cat': the label is a number", true},
        {"1,2,cat", "'cat': if it is the label, set data.label to last", false},
        {"1,cat,3", "'cat': mend it, or take the line out", false},
        {"cat,2,3", "'cat': the label is a number", false},
        {"7,x5\",3", "field 2 is no number: 'x5\"': mend", false},
        {"7,\",3", "field 2 is no number: '\"': mend", false},
        {"7,1,2,", "has 4 fields, the first line has 3: take out the separator", false},
        {"7,1,2,3", "has 4 fields, the first line has 3: mend it", false},
        {"7,1,2,,", "has 5 fields, the first line has 3: mend it", false},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct dp_csv_form form = {',', cases[i].label_last, 3, 1};
        const char *line = cases[i].line;
        float numbers[2];
        double label;
        assert_int_equal(dp_csv_read(&form, line, strlen(line), numbers, &label, &problem),
                         DP_ERR_DATA);
        if (strstr(problem.text, cases[i].words) == NULL) {
            fail_msg("'%s': \"%s\" does not say \"%s\"", line, problem.text, cases[i].words);
        }
    }
}

/* As strtod, to the bit, over all forms and sizes of numbers. */
static void numbers_are_those_of_the_c_library(void **state)
{
    const struct dp_csv_form form = {',', false, 1, 1};
    double large = 0.0;
    char text[64];
    (void)state;

    for (uint64_t i = 0; i < 20000; i++) {
        const uint32_t bits = dp_random_u32(3, DP_RANDOM_TEST, 1, i);
        const uint32_t more = dp_random_u32(3, DP_RANDOM_TEST, 2, i);
        const double value = ((double)bits - 2e9) * pow(10.0, (int)(more % 61) - 30);
        double label = 0.0;
        (void)snprintf(text, sizeof(text),
                       more % 3 == 0   ? "%.*f"
                       : more % 3 == 1 ? "%.*e"
                                       : "%.*g",
                       (int)(more >> 8) % 20, value);
        if (strlen(text) < 60) {
            assert_int_equal(dp_csv_read(&form, text, strlen(text), NULL, &label, &problem), DP_OK);
            assert_true(label == strtod(text, NULL));
        }
    }
    /* 2^64 + 1 */
    assert_int_equal(dp_csv_read(&form, "18446744073709551617", 20, NULL, &large, &problem), DP_OK);
    assert_true(large == 0x1p64);
}

static struct dp_csv_form form_of(const char *line, bool label_last)
{
    return dp_csv_form_of(line, strlen(line), label_last);
}

static bool is_header(const char *line, bool label_last)
{
    const struct dp_csv_form form = form_of(line, label_last);

    return dp_csv_is_header(&form, line, strlen(line));
}

static void the_first_line_reports_the_form_of_all(void **state)
{
    (void)state;

    assert_int_equal(form_of("1,2,3,4;5", false).separator, ',');
    assert_int_equal(form_of("1,5;2,5;3,5", false).separator, ';'); /* decimal commas */
    assert_int_equal(form_of("1,5\t2,5", false).separator, '\t');
    assert_int_equal(form_of("1,2,3;,4;,5,6", false).separator, ','); /* more than one a number */
    assert_int_equal(form_of("1,2,3\t,4\t,5,6", false).separator, ',');
    assert_int_equal(form_of("1;2;3", false).separator, ';');
    assert_int_equal(form_of("1\t2", false).separator, '\t');
    assert_int_equal(form_of("1;2", false).separator, ';');
    assert_int_equal(form_of("1,5;2,5", false).separator, ';'); /* two commas of two numbers */
    assert_int_equal(form_of("1,5\t2,5\t3,5", false).separator, '\t');
    assert_int_equal(form_of("", false).separator, ',');
    assert_int_equal(form_of("1;2;3", false).fields, 3);
    assert_int_equal(form_of("", false).fields, 1);
    assert_true(is_header("label,1,2", false));
    assert_false(is_header("label,1,2", true)); /* which then is a row that is refused */
    assert_true(is_header("\"x\",\"y\"", true));
    assert_true(is_header("", false));
    assert_false(is_header("5,x,2", false));
    assert_false(is_header("nan,1,2", false)); /* a row whose label is missing */
    assert_false(is_header("1,2,NA", true));
}

static void separators_in_quotes_are_none(void **state)
{
    static const char line[] = "\"label\",\"a, or \"\"b\"\", c\", \"d,e\" ,f";
    static const char data[] = "1,\"2\", \"3\" ,4";
    const struct dp_csv_form form = form_of(line, false);
    float numbers[3];
    double label;
    (void)state;

    assert_int_equal(form.fields, 4);
    assert_int_equal(form_of("\"a,\"b", false).fields, 1); /* two quotes, then more */
    assert_int_equal(form_of("5\",6", false).fields, 2);
    assert_int_equal(form_of("\"5,6", false).fields, 2); /* one quote alone is a character */
    assert_int_equal(form_of("\"a;b\",c", false).separator, ',');
    assert_int_equal(form_of("a,\"b\",c", false).fields, 3);
    assert_int_equal(form_of("\"\",\"ab\",c", false).fields, 3);
    assert_int_equal(form_of("x,\"a,b\"", false).fields, 2);
    assert_int_equal(form_of("\"a,\"\"", false).fields, 2);     /* no quote ends it */
    assert_int_equal(form_of("\"a,\"\"\",5", false).fields, 2); /* the third one does */
    assert_int_equal(form_of("\"a,\"\"b\"", false).fields, 1);
    assert_int_equal(dp_csv_form_of("\"a,\"\"\",z", 5, false).fields, 2);
    assert_int_equal(dp_csv_read(&form, data, strlen(data), numbers, &label, &problem), DP_OK);
    assert_true(label == 1 && numbers[0] == 2 && numbers[1] == 3 && numbers[2] == 4);
}

/* A quote after the line would continue the field that ends there. */
static void what_follows_a_line_is_not_looked_at(void **state)
{
    static const char text[] = "7,1,\"2\"\",9\",3";
    const struct dp_csv_form form = {',', false, 3, 1};
    float numbers[2];
    double label;
    (void)state;

    assert_int_equal(dp_csv_read(&form, text, 7, numbers, &label, &problem), DP_OK);
    assert_true(label == 7 && numbers[0] == 1 && numbers[1] == 2);
    assert_int_equal(dp_csv_read(&form, "7,1,  \"5\",3", 5, numbers, &label, &problem),
                     DP_ERR_DATA);
    assert_non_null(strstr(problem.text, "field 3 is empty")); /* quotes are after it */
    assert_int_equal(dp_csv_read(&form, "7,1,\"\",9", 5, numbers, &label, &problem), DP_ERR_DATA);
    assert_non_null(strstr(problem.text, "field 3 is no number: '\"'"));
    assert_int_equal(dp_csv_read(&form, "7,1, 5,9", 4, numbers, &label, &problem), DP_ERR_DATA);
    assert_non_null(strstr(problem.text, "field 3 is empty"));
    assert_int_equal(dp_csv_read(&form, "7,1,2.5", 5, numbers, &label, &problem), DP_OK);
    assert_int_equal(dp_csv_read(&form, "7,1,25", 5, numbers, &label, &problem), DP_OK);
    assert_int_equal(dp_csv_read(&form, "7,1,2e5", 5, numbers, &label, &problem), DP_OK);
    assert_true(numbers[1] == 2);
}

static bool counts_up(const char *line)
{
    const struct dp_csv_form form = form_of(line, false);

    return dp_csv_counts_up(&form, line, strlen(line));
}

static void headers_of_numbers_count_up(void **state)
{
    (void)state;

    assert_true(counts_up("0,1,2"));
    assert_true(counts_up("1;2;3;4"));
    assert_true(counts_up("\"1990\",1991.0,1992"));
    assert_true(counts_up("4,0,1,2,3")); /* the label was moved to the front, or to the end */
    assert_true(counts_up("1,2,3,0"));
    assert_false(counts_up("0,1"));
    assert_false(counts_up("0,1,3"));
    assert_false(counts_up("1,0,1"));
    assert_false(counts_up("2,0,-2")); /* two labels were not */
    assert_false(counts_up("4,0,1,4,0,1"));
    assert_false(counts_up("2,1,0"));
    assert_false(counts_up("0.5,1.5,2.5"));
    assert_false(counts_up("0,1,x"));
}

/* ---- where lines lie ---- */

enum { MOST = 1 << 19 };

/* Feeds a text in pieces of `piece` bytes. */
static dp_status index_text(struct dp_csv_index *index, const char *text, size_t bytes,
                            size_t piece)
{
    dp_status status = DP_OK;

    problem.text[0] = '\0';
    for (size_t at = 0; at < bytes && status == DP_OK; at += piece) {
        status =
            dp_csv_index_take(index, text + at, bytes - at < piece ? bytes - at : piece, &problem);
    }
    return status == DP_OK ? dp_csv_index_finish(index, &problem) : status;
}

static void every_line_is_found_however_the_file_is_cut(void **state)
{
    static const size_t pieces[] = {1000, 65536, 7777, MOST};
    static char text[MOST];
    static size_t begins[MOST / 10];
    size_t bytes = 0, lines = 0;
    (void)state;

    while (bytes < MOST - 100) {
        const unsigned length = 20 + dp_random_u32(3, DP_RANDOM_TEST, 3, lines) % 60;
        begins[lines++] = bytes;
        memset(text + bytes, 'x', length);
        bytes += length;
        text[bytes++] = '\n';
    }
    for (size_t p = 0; p < sizeof(pieces) / sizeof(pieces[0]); p++) {
        struct dp_csv_index index = {.blocks = NULL};
        assert_int_equal(index_text(&index, text, bytes, pieces[p]), DP_OK);
        assert_int_equal(index.lines, lines);
        assert_in_range(index.count, MOST / DP_CSV_BLOCK - 1, MOST / DP_CSV_BLOCK + 1);
        for (size_t line = 0; line < lines; line++) {
            const struct dp_csv_block *block = &index.blocks[dp_csv_index_find(&index, line)];
            assert_true(block->line <= line && line < block[1].line);
            assert_int_equal(block->at, begins[block->line]);
            assert_true(begins[line] < block[1].at);
        }
        dp_csv_index_release(&index);
        assert_int_equal(dp_mem_live(), 0);
    }
}

static void empty_lines_count_at_the_end_only_and_for_nothing(void **state)
{
    static const struct {
        const char *text, *words; /* NULL: two lines */
    } cases[] = {
        {"1,2\n3,4\n", NULL},           {"1,2\n3,4", NULL},
        {"1,2\r\n3,4\r\n", NULL},       {"1,2\n3,4\n\n\r\n\n", NULL},
        {"1,2\n3,4\r\n\r", NULL},       {"1,2\n\n3,4\n", "line 2 is empty"},
        {"\n1,2\n", "line 1 is empty"}, {"1,2\n\r\n\r\n3,4", "line 2 is empty"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t piece = 1; piece < 20; piece++) {
            struct dp_csv_index index = {.blocks = NULL};
            const char *text = cases[i].text;
            const dp_status status = index_text(&index, text, strlen(text), piece);
            assert_int_equal(status, cases[i].words == NULL ? DP_OK : DP_ERR_DATA);
            if (cases[i].words == NULL) {
                assert_int_equal(index.lines, 2);
                assert_true(index.blocks[1].at >= 7 && index.blocks[1].at <= 10);
            } else {
                assert_non_null(strstr(problem.text, cases[i].words));
            }
            dp_csv_index_release(&index);
        }
    }
}

static void an_empty_file_has_no_lines(void **state)
{
    struct dp_csv_index index = {.blocks = NULL};
    (void)state;

    assert_int_equal(index_text(&index, "\n\r\n", 3, 1), DP_OK);
    assert_int_equal(index.lines, 0);
    assert_null(index.blocks);
}

static void a_line_without_end_is_refused_before_it_fills_memory(void **state)
{
    static char text[1 << 20];
    struct dp_csv_index index = {.blocks = NULL};
    dp_status status = DP_OK;
    size_t bytes = 0;
    (void)state;

    memset(text, '1', sizeof(text));
    while (status == DP_OK) {
        status = dp_csv_index_take(&index, text, sizeof(text), &problem);
        bytes += sizeof(text);
    }
    assert_int_equal(status, DP_ERR_DATA);
    assert_int_equal(bytes, DP_CSV_LINE + sizeof(text));
    assert_non_null(strstr(problem.text, "line 1 is longer than 16 MiB"));
    dp_csv_index_release(&index);
}

/* So many bytes, before what `end` is, on the second line of a file. */
static dp_status index_long_line(struct dp_csv_index *index, size_t bytes, const char *end)
{
    static const char text[DP_CSV_LINE];

    assert_int_equal(dp_csv_index_take(index, "1\n", 2, &problem), DP_OK);
    assert_int_equal(dp_csv_index_take(index, text, bytes, &problem), DP_OK);
    return dp_csv_index_take(index, end, strlen(end), &problem);
}

static void a_line_may_be_as_long_as_its_limit(void **state)
{
    static const struct {
        size_t bytes;
        const char *end;
        dp_status status;
    } cases[] = {
        {DP_CSV_LINE, "\n", DP_OK},        {DP_CSV_LINE - 1, "1", DP_OK},
        {DP_CSV_LINE - 1, "1\n", DP_OK},   {DP_CSV_LINE, "1", DP_ERR_DATA},
        {DP_CSV_LINE, "1\n", DP_ERR_DATA},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dp_csv_index index = {.blocks = NULL};
        assert_int_equal(index_long_line(&index, cases[i].bytes, cases[i].end), cases[i].status);
        assert_true(cases[i].status == DP_OK ||
                    strstr(problem.text, "line 2 is longer than 16 MiB") != NULL);
        assert_int_equal(index.line,
                         cases[i].status == DP_OK && strchr(cases[i].end, '\n') ? 2 : 1);
        dp_csv_index_release(&index);
    }
}

static void indexing_survives_failed_allocations(void **state)
{
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_csv_index index = {.blocks = NULL};
        dp_mem_fail_nth(nth);
        status = index_text(&index, "1,2\n", 4, 4);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || (status == DP_ERR_NOMEM && nth == 1));
        dp_csv_index_release(&index);
        assert_int_equal(dp_mem_live(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_a_label_and_numbers),
        cmocka_unit_test(a_label_may_be_several_fields),
        cmocka_unit_test(what_is_no_number_is_named_by_its_field),
        cmocka_unit_test(a_field_of_any_length_is_no_harm),
        cmocka_unit_test(a_number_has_127_characters_at_most_and_a_message_shows_40),
        cmocka_unit_test(advice_is_of_the_field),
        cmocka_unit_test(numbers_are_those_of_the_c_library),
        cmocka_unit_test(the_first_line_reports_the_form_of_all),
        cmocka_unit_test(separators_in_quotes_are_none),
        cmocka_unit_test(what_follows_a_line_is_not_looked_at),
        cmocka_unit_test(headers_of_numbers_count_up),
        cmocka_unit_test(every_line_is_found_however_the_file_is_cut),
        cmocka_unit_test(empty_lines_count_at_the_end_only_and_for_nothing),
        cmocka_unit_test(an_empty_file_has_no_lines),
        cmocka_unit_test(a_line_without_end_is_refused_before_it_fills_memory),
        cmocka_unit_test(a_line_may_be_as_long_as_its_limit),
        cmocka_unit_test(indexing_survives_failed_allocations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
