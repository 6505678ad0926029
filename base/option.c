#include "base/option.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/option_own.h"
#include "base/text.h"

/* ---- reading one text ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *skip_digits(const char *text)
{
    while (is_digit(*text)) {
        text++;
    }
    return text;
}

/* Whether all of `text` is one decimal number; `whole`: without fraction and exponent. Stricter
 * than strtod: no nan, no inf, no hexadecimal, no leading zeros (which mean octal elsewhere). */
static bool is_decimal(const char *text, bool whole)
{
    const char *first = text + (*text == '+' || *text == '-' ? 1 : 0);
    const char *at = skip_digits(first);
    size_t digits = (size_t)(at - first);

    if (digits > 1 && *first == '0') {
        return false;
    }
    if (whole) {
        return digits > 0 && *at == '\0';
    }
    if (*at == '.') {
        const char *fraction = at + 1;
        at = skip_digits(fraction);
        digits += (size_t)(at - fraction);
    }
    if (digits == 0) {
        return false;
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        at += *at == '+' || *at == '-' ? 1 : 0;
        if (!is_digit(*at)) {
            return false;
        }
        at = skip_digits(at);
    }
    return *at == '\0';
}

static bool read_number(const struct dp_option *row, const char *text, double *value)
{
    if (dp_option_may_be_null(row) && dp_option_is_null(text)) {
        *value = (double)NAN;
        return true;
    }
    if (!is_decimal(text, row->kind == DP_OPTION_INT)) {
        return false;
    }
    *value = strtod(text, NULL);
    return true;
}

/* The index of a choice, or -1. Words of a switch are equivalent: yes, where on is a choice. */
static int read_choice(const char *choices, const char *text)
{
    const int wanted = dp_option_read_switch(text);
    char word[DP_OPTION_WORD];
    int twin = -1;

    for (int i = 0; dp_option_choice_at(choices, i, word, sizeof(word)); i++) {
        if (strcmp(word, text) == 0) {
            return i;
        }
        if (wanted >= 0 && dp_option_read_switch(word) == wanted) {
            twin = i;
        }
    }
    return twin;
}

/* Whether YAML could not hold the text unchanged on one line: control characters, those of Unicode
 * that count as line ends, and the byte order mark. */
static bool has_controls(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        if (*c < 0x20 || *c == 0x7f || (c[0] == 0xc2 && c[1] < 0xa0) ||
            (c[0] == 0xe2 && c[1] == 0x80 && (c[2] == 0xa8 || c[2] == 0xa9)) ||
            (c[0] == 0xef && c[1] == 0xbb && c[2] == 0xbf) ||
            (c[0] == 0xef && c[1] == 0xbf && c[2] >= 0xbe)) {
            return true;
        }
    }
    return false;
}

static bool is_text(const char *text)
{
    return text[0] != '\0' && strlen(text) <= DP_OPTION_TEXT && !has_controls(text);
}

static bool in_range(const struct dp_option *row, double value)
{
    return isnan(value) ? dp_option_may_be_null(row) : value >= row->low && value <= row->high;
}

/* Stores one text in the field (a list: appends), without checking its range. */
static bool store(const struct dp_option *row, void *base, const char *text)
{
    void *field = (char *)base + row->offset;
    double number = 0.0;
    int index = 0;

    switch (row->kind) {
    case DP_OPTION_INT:
        /* The range is the row's, or int's for defaults: this makes the cast below defined. */
        if (!read_number(row, text, &number) || fabs(number) > 2147483647.0) {
            return false;
        }
        *(int *)field = (int)number;
        return true;
    case DP_OPTION_DOUBLE:
        return read_number(row, text, (double *)field);
    case DP_OPTION_SWITCH:
        index = dp_option_read_switch(text);
        *(bool *)field = index == 1;
        return index >= 0;
    case DP_OPTION_STRING:
        *(const char **)field = text;
        return true;
    case DP_OPTION_CHOICE:
        index = read_choice(row->choices, text);
        *(int *)field = index;
        return index >= 0;
    case DP_OPTION_NUMBERS: {
        struct dp_numbers *list = field;
        return list->count < DP_NUMBERS_MAX && read_number(row, text, &list->value[list->count++]);
    }
    case DP_OPTION_WORDS:
        index = read_choice(row->choices, text);
        *(unsigned *)field |= index >= 0 ? 1u << index : 0;
        return index >= 0;
    case DP_OPTION_END:
        break;
    }
    return false;
}

/* Checks before storing, so that a refused text leaves the field unchanged. */
static bool accepts(const struct dp_option *row, const char *text)
{
    double number;

    switch (row->kind) {
    case DP_OPTION_INT:
    case DP_OPTION_DOUBLE:
    case DP_OPTION_NUMBERS:
        return read_number(row, text, &number) && in_range(row, number);
    case DP_OPTION_SWITCH:
        return dp_option_read_switch(text) >= 0;
    case DP_OPTION_STRING:
        return is_text(text);
    case DP_OPTION_CHOICE:
    case DP_OPTION_WORDS:
        return read_choice(row->choices, text) >= 0;
    case DP_OPTION_END:
        break;
    }
    return false;
}

/* ---- tables ---- */

bool dp_option_is_list(const struct dp_option *row)
{
    return row->kind == DP_OPTION_NUMBERS || row->kind == DP_OPTION_WORDS;
}

static void empty_list(const struct dp_option *row, void *base)
{
    void *field = (char *)base + row->offset;

    if (row->kind == DP_OPTION_NUMBERS) {
        ((struct dp_numbers *)field)->count = 0;
    } else {
        *(unsigned *)field = 0;
    }
}

static void default_words(const struct dp_option *row, void *base)
{
    char word[DP_OPTION_WORD];

    empty_list(row, base);
    for (const char *at = row->initial; *at != '\0'; at += strspn(at, ",")) {
        const size_t length = strcspn(at, ",");
        (void)snprintf(word, sizeof(word), "%.*s", (int)length, at);
        const bool stored = store(row, base, word);
        assert(stored);
        (void)stored;
        at += length;
    }
}

static void default_numbers(const struct dp_option *row, void *base)
{
    struct dp_numbers *list = (struct dp_numbers *)(void *)((char *)base + row->offset);
    const char *at = row->initial;

    list->count = 0;
    while (*at != '\0' && list->count < DP_NUMBERS_MAX) {
        char *end = NULL;
        list->value[list->count++] = strtod(at, &end);
        at = end + strspn(end, ", ");
    }
}

void dp_option_defaults(const struct dp_option *table, void *base)
{
    for (const struct dp_option *row = table; row != NULL && row->kind != DP_OPTION_END; row++) {
        if (row->initial == NULL) {
            continue;
        }
        if (row->kind == DP_OPTION_NUMBERS) {
            default_numbers(row, base);
        } else if (row->kind == DP_OPTION_WORDS) {
            default_words(row, base);
        } else {
            const bool stored = store(row, base, row->initial);
            assert(stored);
            (void)stored;
        }
    }
}

const struct dp_option *dp_option_find(const struct dp_option *table, const char *name)
{
    for (const struct dp_option *row = table; row != NULL && row->kind != DP_OPTION_END; row++) {
        if (strcmp(row->name, name) == 0) {
            return row;
        }
    }
    return NULL;
}

const char *dp_option_nearest(const struct dp_option *table, const char *name)
{
    const char *nearest = NULL;
    int best = INT_MAX;

    for (const struct dp_option *row = table; row != NULL && row->kind != DP_OPTION_END; row++) {
        const int distance = dp_edit_distance(name, row->name);
        if (distance < best && dp_looks_like(name, row->name)) {
            best = distance;
            nearest = row->name;
        }
    }
    return nearest;
}

bool dp_option_holds(const struct dp_option *row, const void *base)
{
    const void *field = (const char *)base + row->offset;
    const struct dp_numbers *list;

    switch (row->kind) {
    case DP_OPTION_INT:
        return in_range(row, *(const int *)field);
    case DP_OPTION_DOUBLE:
        return in_range(row, *(const double *)field);
    case DP_OPTION_STRING:
        return is_text(*(const char *const *)field);
    case DP_OPTION_NUMBERS:
        list = field;
        for (int i = 0; i < list->count; i++) {
            if (!in_range(row, list->value[i])) {
                return false;
            }
        }
        return true;
    case DP_OPTION_SWITCH:
    case DP_OPTION_CHOICE:
    case DP_OPTION_WORDS:
    case DP_OPTION_END:
        break;
    }
    return true;
}

/* ---- storing values ---- */

/* Writes "expected an integer from 1 to 100, found 'abc'"; long texts are cut. */
static dp_status say_expected(const struct dp_option *row, const char *found, char *problem,
                              size_t size)
{
    enum { SHOWN = 60 };
    char expected[256];
    size_t length = strlen(found);

    dp_option_describe(row, expected, sizeof(expected));
    if (row->kind == DP_OPTION_STRING && length > DP_OPTION_TEXT) {
        (void)snprintf(expected, sizeof(expected), "a text of at most %d bytes", DP_OPTION_TEXT);
    } else if (row->kind == DP_OPTION_STRING && length > 0) {
        (void)snprintf(expected, sizeof(expected), "a text without control characters");
    }
    if (length == 0) {
        (void)snprintf(problem, size, "expected %s, found nothing", expected);
        return DP_ERR_CONFIG;
    }
    if (length > SHOWN) {
        length = SHOWN;
        while (length > 0 && ((unsigned char)found[length] & 0xc0) == 0x80) {
            length--; /* never half of a UTF-8 character */
        }
    }
    (void)snprintf(problem, size, "expected %s, found '%.*s%s'", expected, (int)length, found,
                   found[length] != '\0' ? "..." : "");
    return DP_ERR_CONFIG;
}

dp_status dp_option_apply(const struct dp_option *row, void *base, const char *const *texts,
                          int count, char *problem, size_t problem_size)
{
    char expected[256];

    if (dp_option_is_list(row) ? count > DP_NUMBERS_MAX : count != 1) {
        dp_option_describe(row, expected, sizeof(expected));
        (void)snprintf(problem, problem_size, "expected %s, found %d value%s", expected, count,
                       dp_plural(count));
        return DP_ERR_CONFIG;
    }
    for (int i = 0; i < count; i++) {
        if (!accepts(row, texts[i])) {
            return say_expected(row, texts[i], problem, problem_size);
        }
    }
    if (dp_option_is_list(row)) {
        empty_list(row, base);
    }
    for (int i = 0; i < count; i++) {
        if (!store(row, base, texts[i])) {
            return say_expected(row, texts[i], problem, problem_size);
        }
    }
    return DP_OK;
}
