/*
 * option.h - options as tables: one row declares a key's name, type, range, default and help.
 *
 * The same rows serve model.cfg, --set, DP_* variables, --print-config, --help and error messages.
 * A table ends with a row of zeros. Offsets are into the struct that the table fills; strings in it
 * are static (defaults) or borrowed from the caller of dp_option_apply().
 */
#ifndef DP_BASE_OPTION_H
#define DP_BASE_OPTION_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum dp_option_kind {
    DP_OPTION_END,
    DP_OPTION_INT,     /* int */
    DP_OPTION_DOUBLE,  /* double; "null" gives NaN where the default is "null" */
    DP_OPTION_SWITCH,  /* bool: true false on off yes no */
    DP_OPTION_STRING,  /* const char * */
    DP_OPTION_CHOICE,  /* int: index into "a|b|c", from 0 */
    DP_OPTION_NUMBERS, /* struct dp_numbers: a list; a single number is a list of one */
    DP_OPTION_WORDS    /* unsigned: a list of words of "a|b|c"; bit i is word i */
};

enum {
    DP_NUMBERS_MAX = 16,
    DP_OPTION_TEXT = 1000,                     /* longest text of a DP_OPTION_STRING, in bytes */
    DP_OPTION_PRINTED = 3 * DP_OPTION_TEXT + 3 /* the most that dp_option_print() writes */
};

struct dp_numbers {
    double value[DP_NUMBERS_MAX];
    int count;
};

struct dp_option {
    const char *name;
    enum dp_option_kind kind;
    size_t offset;
    const char *initial; /* the default, as text; lists "a,b"; NULL: the key is required */
    double low, high;    /* range, both included; for each number of a list */
    const char *choices; /* DP_OPTION_CHOICE, DP_OPTION_WORDS: "auto|on|off" */
    const char *help;    /* one line */
    unsigned flags;      /* further properties, defined by the table's user; 0: none */
};

/* Offset of a field; does not compile unless the field has exactly the type `ctype`. */
#define DP_FIELD(type, field, ctype) \
    (offsetof(type, field) + 0 * sizeof(_Generic(((type *)0)->field, ctype : 0))) /* NOLINT */

/* A row ends with its help, or with its help and its flags. */
/* clang-format off */
#define DP_ROW_OF(type, field, kind, ctype, initial, low, high, choices, help, flags, ...) \
    {#field, kind, DP_FIELD(type, field, ctype), initial, low, high, choices, help, flags}
#define DP_ROW(type, field, kind, ctype, initial, low, high, choices, ...) \
    DP_ROW_OF(type, field, kind, ctype, initial, low, high, choices, __VA_ARGS__, 0, 0)
#define DP_INT(type, field, initial, low, high, ...) \
    DP_ROW(type, field, DP_OPTION_INT, int, initial, low, high, NULL, __VA_ARGS__)
#define DP_DOUBLE(type, field, initial, low, high, ...) \
    DP_ROW(type, field, DP_OPTION_DOUBLE, double, initial, low, high, NULL, __VA_ARGS__)
#define DP_SWITCH(type, field, initial, ...) \
    DP_ROW(type, field, DP_OPTION_SWITCH, bool, initial, 0, 1, NULL, __VA_ARGS__)
#define DP_STRING(type, field, initial, ...) \
    DP_ROW(type, field, DP_OPTION_STRING, const char *, initial, 0, 0, NULL, __VA_ARGS__)
#define DP_CHOICE(type, field, initial, choices, ...) \
    DP_ROW(type, field, DP_OPTION_CHOICE, int, initial, 0, 0, choices, __VA_ARGS__)
#define DP_NUMBERS(type, field, initial, low, high, ...) \
    DP_ROW(type, field, DP_OPTION_NUMBERS, struct dp_numbers, initial, low, high, NULL, \
           __VA_ARGS__)
#define DP_WORDS(type, field, initial, choices, ...) \
    DP_ROW(type, field, DP_OPTION_WORDS, unsigned, initial, 0, 0, choices, __VA_ARGS__)
/* clang-format on */

/* Fills every field of the table with its default; required ones are unchanged. */
void dp_option_defaults(const struct dp_option *table, void *base);

/* The row with that name, or NULL. `table` may be NULL. */
const struct dp_option *dp_option_find(const struct dp_option *table, const char *name);

/* The name in the table of which `name` may be a misspelling, or NULL. `table` may be NULL. */
const char *dp_option_nearest(const struct dp_option *table, const char *name);

/* Writes what the row accepts: "an integer from 1 to 100", "one of auto, on, off". */
void dp_option_describe(const struct dp_option *row, char *text, size_t size);

/* Whether the row takes a list. */
bool dp_option_is_list(const struct dp_option *row);

/* Whether the field's value is in the row's range. A default may be outside: it then means "not
 * given" (for example stride 0, which follows the window), and is not printed. */
bool dp_option_holds(const struct dp_option *row, const void *base);

/*
 * Parses texts[0..count) into the field of `row` in the struct at `base`. Every kind but
 * DP_OPTION_NUMBERS and DP_OPTION_WORDS needs count 1. Strings are stored as given, not copied.
 *
 *   problem  out  on error: one line with what was expected and what was found ("expected an
 *                 integer from 1 to 100, found 'abc'"); nothing is logged
 *
 * Numbers are decimal: nan, inf, octal, hexadecimal and trailing text are refused. A choice that
 * includes on or true also accepts the other words of a switch. Texts are not empty, at most
 * DP_OPTION_TEXT bytes, and without control characters. Errors: DP_ERR_CONFIG.
 */
DP_CHECKED dp_status dp_option_apply(const struct dp_option *row, void *base,
                                     const char *const *texts, int count, char *problem,
                                     size_t problem_size);

/* Writes the field's value in YAML flow style ("[0.286, 0.5]", "true", "sgd"), quoted where YAML
 * needs it, and with escapes for characters that change the writing direction. Reading it back
 * gives the same value, to the bit. */
void dp_option_print(const struct dp_option *row, const void *base, char *text, size_t size);

/* The shortest decimal that reads back as the same bits, in at most DP_NUMBER_TEXT bytes; "null"
 * for NaN. */
enum { DP_NUMBER_TEXT = 32 };
void dp_option_print_number(double value, char *text, size_t size);

/* The edit distance of two words, with a swap of neighbours counted once (Damerau 1964), and
 * whether `word` is near enough to `known` to be a misspelling of it. */
int dp_edit_distance(const char *a, const char *b);
bool dp_looks_like(const char *word, const char *known);

#endif
