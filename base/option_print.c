#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/option_own.h"
#include "base/text.h"

/* ---- what a row accepts ---- */

bool dp_option_is_null(const char *text)
{
    return strcmp(text, "null") == 0 || strcmp(text, "~") == 0;
}

bool dp_option_may_be_null(const struct dp_option *row)
{
    return row->kind == DP_OPTION_DOUBLE && row->initial != NULL && dp_option_is_null(row->initial);
}

int dp_option_read_switch(const char *text)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};

    for (int i = 0; i < (int)(sizeof(words) / sizeof(words[0])); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            return i % 2;
        }
    }
    return -1;
}

bool dp_option_choice_at(const char *choices, int i, char *word, size_t size)
{
    for (; i > 0; i--) {
        choices = strchr(choices, '|');
        if (choices == NULL) {
            return false;
        }
        choices++;
    }
    (void)snprintf(word, size, "%.*s", (int)strcspn(choices, "|"), choices);
    return true;
}

static void add_choices(const char *choices, char *text, size_t size)
{
    char word[DP_OPTION_WORD];

    for (int i = 0; dp_option_choice_at(choices, i, word, sizeof(word)); i++) {
        const size_t used = strlen(text);
        (void)snprintf(text + used, size - used, "%s%s", i > 0 ? ", " : "", word);
    }
}

void dp_option_describe(const struct dp_option *row, char *text, size_t size)
{
    text[0] = '\0';
    switch (row->kind) {
    case DP_OPTION_INT:
        (void)snprintf(text, size, "an integer from %.10g to %.10g", row->low, row->high);
        break;
    case DP_OPTION_DOUBLE:
        (void)snprintf(text, size, "a number from %.10g to %.10g%s", row->low, row->high,
                       dp_option_may_be_null(row) ? ", or null" : "");
        break;
    case DP_OPTION_SWITCH:
        (void)snprintf(text, size, "true or false");
        break;
    case DP_OPTION_STRING:
        (void)snprintf(text, size, "a text");
        break;
    case DP_OPTION_CHOICE:
        (void)snprintf(text, size, "%s", strchr(row->choices, '|') != NULL ? "one of " : "");
        add_choices(row->choices, text, size);
        break;
    case DP_OPTION_NUMBERS:
        (void)snprintf(text, size, "a list of numbers from %.10g to %.10g", row->low, row->high);
        break;
    case DP_OPTION_WORDS:
        (void)snprintf(text, size, "a list of ");
        add_choices(row->choices, text, size);
        break;
    case DP_OPTION_END:
        break;
    }
}

/* ---- values ---- */

/* 1e-05 becomes 1.0e-05: without a point YAML 1.1, and so PyYAML, reads a text. */
static void add_point(char *text, size_t size)
{
    char exponent[16];
    char *at = strchr(text, 'e');

    if (at != NULL && strchr(text, '.') == NULL) {
        (void)snprintf(exponent, sizeof(exponent), "%s", at);
        (void)snprintf(at, size - (size_t)(at - text), ".0%s", exponent);
    }
}

void dp_option_print_number(double value, char *text, size_t size)
{
    if (isnan(value)) {
        (void)snprintf(text, size, "null");
        return;
    }
    if (fabs(value) < 1e6 && value == floor(value)) { /* 60, which is "6e+01" below */
        (void)snprintf(text, size, "%.0f", value);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(text, size, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    add_point(text, size);
}

/* Whether YAML reads the word as text without quotes, in flow style too. */
static bool is_plain(const char *text)
{
    static const char *const taken[] = {"y", "n", "null"};
    const size_t length = strlen(text);

    if (!isalpha((unsigned char)text[0]) && text[0] != '/' && text[0] != '_') {
        return false;
    }
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        if (strcasecmp(text, taken[i]) == 0) {
            return false;
        }
    }
    return dp_option_read_switch(text) < 0 && text[length - 1] != ':' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:+=@-") ==
               length;
}

static void print_words(const char *choices, unsigned words, char *text, size_t size)
{
    const char *before = "";
    char word[DP_OPTION_WORD];

    (void)snprintf(text, size, "[");
    for (int i = 0; dp_option_choice_at(choices, i, word, sizeof(word)); i++) {
        const size_t used = strlen(text);
        if ((words >> i & 1) != 0) {
            (void)snprintf(text + used, size - used, "%s%s", before, word);
            before = ", ";
        }
    }
    (void)snprintf(text + strlen(text), size - strlen(text), "]");
}

static void print_text(const char *value, char *text, size_t size)
{
    size_t used = 0;

    if (is_plain(value)) {
        (void)snprintf(text, size, "%s", value);
        return;
    }
    if (size < 3 * strlen(value) + 3) {
        text[0] = '\0';
        return;
    }
    text[used++] = '"';
    while (*value != '\0') {
        char piece[DP_TEXT_PIECE];
        if (*value == '"' || *value == '\\') {
            text[used++] = '\\';
        }
        value += dp_text_piece(value, piece); /* YAML reads it, since the text is UTF-8 */
        memcpy(text + used, piece, strlen(piece));
        used += strlen(piece);
    }
    text[used++] = '"';
    text[used] = '\0';
}

void dp_option_print(const struct dp_option *row, const void *base, char *text, size_t size)
{
    const void *field = (const char *)base + row->offset;
    const struct dp_numbers *list = field;

    switch (row->kind) {
    case DP_OPTION_INT:
        (void)snprintf(text, size, "%d", *(const int *)field);
        break;
    case DP_OPTION_DOUBLE:
        dp_option_print_number(*(const double *)field, text, size);
        break;
    case DP_OPTION_SWITCH:
        (void)snprintf(text, size, "%s", *(const bool *)field ? "true" : "false");
        break;
    case DP_OPTION_STRING:
        print_text(*(const char *const *)field, text, size);
        break;
    case DP_OPTION_CHOICE:
        (void)dp_option_choice_at(row->choices, *(const int *)field, text, size);
        break;
    case DP_OPTION_NUMBERS:
        (void)snprintf(text, size, "[");
        for (int i = 0; i < list->count; i++) {
            char number[32];
            const size_t used = strlen(text);
            dp_option_print_number(list->value[i], number, sizeof(number));
            (void)snprintf(text + used, size - used, "%s%s", i > 0 ? ", " : "", number);
        }
        (void)snprintf(text + strlen(text), size - strlen(text), "]");
        break;
    case DP_OPTION_WORDS:
        print_words(row->choices, *(const unsigned *)field, text, size);
        break;
    case DP_OPTION_END:
        break;
    }
}
