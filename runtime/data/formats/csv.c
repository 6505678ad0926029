#include "runtime/data/formats/csv.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    NUMBER_MOST = 127, /* characters */
    SHOWN = 40,        /* characters of a field in a message */
    DIGITS_MOST = 19,  /* so many are below 2^64 */
    EXPONENT_MOST = 100000,
    EXACT_TENS = 22 /* powers of ten that a double holds exactly */
};

static const double tens[EXACT_TENS + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                            1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                            1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Some characters of a line. */
struct field {
    const char *begin, *end;
};

/* ---- fields ---- */

/* After the quotes that a field begins with; `at` where it has none, or only one. */
static const char *after_quotes(const char *at, const char *end)
{
    const char *quote = at;

    while (quote < end && *quote == ' ') {
        quote++;
    }
    if (quote == end || *quote != '"') {
        return at;
    }
    quote = memchr(quote + 1, '"', (size_t)(end - quote - 1));
    while (quote != NULL && quote + 1 < end && quote[1] == '"') { /* one within the field */
        quote = memchr(quote + 2, '"', (size_t)(end - quote - 2));
    }
    return quote == NULL ? at : quote + 1;
}

/* The field that begins at `at`, up to the separator or the end of the line. */
static struct field field_at(const char *at, const char *end, char separator)
{
    const char *from = after_quotes(at, end);
    const char *stop = memchr(from, separator, (size_t)(end - from));

    return (struct field){at, stop != NULL ? stop : end};
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Without spaces around it, and without quotes. */
static struct field trimmed(struct field f)
{
    while (f.begin < f.end && is_space(*f.begin)) {
        f.begin++;
    }
    while (f.end > f.begin && is_space(f.end[-1])) {
        f.end--;
    }
    if (f.end - f.begin >= 2 && *f.begin == '"' && f.end[-1] == '"') {
        f.begin++;
        f.end--;
    }
    return f;
}

/* ---- numbers ---- */

static bool is_digit(const char *at, const char *end)
{
    return at < end && *at >= '0' && *at <= '9';
}

/* A decimal number in parts: digits times 10^exponent. */
struct decimal {
    uint64_t digits; /* what fits, of more than DIGITS_MOST */
    ptrdiff_t count; /* of digits */
    int exponent;
    bool negative;
};

/* Digits before or after the point; returns what comes after them. */
static const char *take_digits(const char *at, const char *end, struct decimal *d)
{
    const char *begin = at;
    uint64_t digits = d->digits; /* in a register: the characters could be parts of *d, for all that
                                  * the compiler knows */

    for (; is_digit(at, end); at++) {
        digits = digits * 10 + (uint64_t)(*at - '0');
    }
    d->digits = digits;
    d->count += at - begin;
    return at;
}

/* An exponent, from its e on; NULL: it is none. */
static const char *take_exponent(const char *at, const char *end, struct decimal *d)
{
    bool negative = false;
    int exponent = 0;

    at++;
    if (at < end && (*at == '-' || *at == '+')) {
        negative = *at++ == '-';
    }
    if (!is_digit(at, end)) {
        return NULL;
    }
    for (; is_digit(at, end); at++) {
        exponent = exponent < EXPONENT_MOST ? exponent * 10 + (*at - '0') : exponent;
    }
    d->exponent += negative ? -exponent : exponent;
    return at;
}

/* Returns what comes after a decimal number, of which these characters begin; NULL: none does. */
static const char *take_decimal(const char *at, const char *end, struct decimal *d)
{
    const char *point;

    *d = (struct decimal){0, 0, 0, false};
    if (at < end && (*at == '-' || *at == '+')) {
        d->negative = *at++ == '-';
    }
    at = take_digits(at, end, d);
    if (at < end && *at == '.') {
        point = at++;
        at = take_digits(at, end, d);
        d->exponent = d->count <= DIGITS_MOST ? (int)(point + 1 - at) : 0;
    }
    if (d->count > 0 && at < end && (*at == 'e' || *at == 'E')) {
        at = take_exponent(at, end, d);
    }
    return d->count > 0 ? at : NULL;
}

/* Few digits and a small power of ten are exact doubles, and so their product or quotient is
 * rounded once. Others, which are rare, are left to the C library. Source: Clinger, "How to read
 * floating point numbers accurately", PLDI 1990, section 3. */
static bool value_of(const struct decimal *d, const struct field *f, double *number)
{
    char text[NUMBER_MOST + 1];
    const size_t length = (size_t)(f->end - f->begin);
    double value;

    if (length > NUMBER_MOST) {
        return false;
    }
    if (d->count <= DIGITS_MOST && d->digits < (uint64_t)1 << 53 &&
        abs(d->exponent) <= EXACT_TENS) {
        value = (double)d->digits;
        value = d->exponent < 0 ? value / tens[-d->exponent] : value * tens[d->exponent];
        *number = d->negative ? -value : value;
    } else {
        memcpy(text, f->begin, length);
        text[length] = '\0';
        *number = strtod(text, NULL);
    }
    return true;
}

static bool number_of(const struct field *f, double *number)
{
    struct decimal d;

    return take_decimal(f->begin, f->end, &d) == f->end && value_of(&d, f, number);
}

/* Takes the field that begins at *at, and moves that to what ends it; false: it is no number. A
 * plain number ends its field by itself: most are too short for looking for the separator first.
 * Others may have spaces or quotes. */
static bool take_number(const char **at, const char *end, char separator, struct field *f,
                        double *number)
{
    const char *begin = *at;
    struct decimal d;

    while (begin < end && *begin == ' ') {
        begin++;
    }
    *f = (struct field){begin, take_decimal(begin, end, &d)};
    if (f->end != NULL && (f->end == end || *f->end == separator)) {
        *at = f->end;
        return value_of(&d, f, number);
    }
    *f = field_at(begin, end, separator);
    *at = f->end;
    *f = trimmed(*f);
    return number_of(f, number);
}

/* ---- lines ---- */

/* Separators of a line: those in quotes are none. */
static size_t count_of(const char *line, size_t length, char separator)
{
    const char *end = line + length;
    struct field f = field_at(line, end, separator);
    size_t count = 0;

    for (; f.end < end; count++) {
        f = field_at(f.end + 1, end, separator);
    }
    return count;
}

/* The last field of a line. */
static struct field last_of(const char *line, size_t length, char separator)
{
    const char *end = line + length;
    struct field f = field_at(line, end, separator);

    while (f.end < end) {
        f = field_at(f.end + 1, end, separator);
    }
    return trimmed(f);
}

struct dp_csv_form dp_csv_form_of(const char *line, size_t length, bool label_last)
{
    const size_t commas = count_of(line, length, ',');
    const size_t semicolons = count_of(line, length, ';'), tabs = count_of(line, length, '\t');
    struct dp_csv_form form = {',', label_last, 1, 1};

    /* A comma may also be the point of a number: between n fields there are n - 1 semicolons, and
     * in them n commas at most. */
    if (semicolons > 0 && 2 * semicolons >= commas) {
        form.separator = ';';
    } else if (tabs > 0 && 2 * tabs >= commas) {
        form.separator = '\t';
    }
    form.fields += form.separator == ',' ? commas : form.separator == ';' ? semicolons : tabs;
    return form;
}

/* What tables have in the place of a number that is not known. */
static bool is_missing(const char *text, size_t length)
{
    static const char *const words[] = {"", "?", "-", "na", "n/a", "nan", "null", "none"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strlen(words[i]) == length && strncasecmp(words[i], text, length) == 0) {
            return true;
        }
    }
    return false;
}

bool dp_csv_is_header(const struct dp_csv_form *form, const char *line, size_t length)
{
    const struct field f = form->label_last
                               ? last_of(line, length, form->separator)
                               : trimmed(field_at(line, line + length, form->separator));
    const size_t size = (size_t)(f.end - f.begin);
    double ignored;

    return !number_of(&f, &ignored) && (size == 0 || !is_missing(f.begin, size));
}

bool dp_csv_lacks_name(const struct dp_csv_form *form, const char *line, size_t length)
{
    const struct field f = trimmed(field_at(line, line + length, form->separator));

    return f.begin == f.end;
}

bool dp_csv_ends_empty(const struct dp_csv_form *form, const char *line, size_t length)
{
    const struct field f = last_of(line, length, form->separator);

    return f.begin == f.end;
}

bool dp_csv_counts_up(const struct dp_csv_form *form, const char *line, size_t length)
{
    const char *at = line, *end = line + length;
    double number = 0.0, before = 0.0;
    size_t jumps = 0;

    for (size_t i = 0; i < form->fields; i++) {
        struct field f = field_at(at, end, form->separator);
        at = f.end < end ? f.end + 1 : end;
        f = trimmed(f);
        if (!number_of(&f, &number) || number != floor(number)) {
            return false;
        }
        if (i > 0 && number != before + 1.0) { /* the label was moved to the other end */
            jumps += number == before + 1.0 - (double)form->fields ? 1 : 2;
        }
        before = number;
    }
    return form->fields >= 3 && jumps <= 1;
}

/* What to do about a field that is no number. */
static const char *advice_on(const struct dp_csv_form *form, const struct field *f, size_t number,
                             size_t label_at)
{
    const size_t length = (size_t)(f->end - f->begin);
    const size_t other_end = form->label_last ? 1 : form->fields;

    if (length == 0 && number == form->fields) {
        return "fill it in, or take the line out (pandas: fillna, dropna); where every line ends "
               "so, take that separator out of all of them";
    }
    if (is_missing(f->begin, length)) {
        return "fill it in, or take the line out (pandas: fillna, dropna)";
    }
    if (memchr(f->begin, ',', length) != NULL) {
        return "write decimals with a point, and thousands without a comma";
    }
    if (number > label_at && number <= label_at + form->labels) {
        return "the label is a number, of classes from 0 up: mend it, or take the line out; "
               "data.label says where it is";
    }
    return number != other_end ? "mend it, or take the line out"
           : form->label_last  ? "if it is the label, set data.label to first, and write a number "
                                 "for each class, from 0 up"
                               : "if it is the label, set data.label to last, and write a number "
                                 "for each class, from 0 up";
}

static dp_status refuse(const struct dp_csv_form *form, const struct field *f, size_t number,
                        size_t label_at, struct dp_problem *problem)
{
    const int length = f->end - f->begin > SHOWN ? SHOWN : (int)(f->end - f->begin);

    return dp_problem_refuse(problem, DP_ERR_DATA, "field %zu %s%.*s%s: %s", number,
                             length == 0 ? "is empty" : "is no number: '", length, f->begin,
                             length == 0 ? "" : "'", advice_on(form, f, number, label_at));
}

static dp_status refuse_count(const struct dp_csv_form *form, const char *line, size_t length,
                              struct dp_problem *problem)
{
    const size_t fields = count_of(line, length, form->separator) + 1;

    return dp_problem_refuse(problem, DP_ERR_DATA, "has %zu field%s, the first line has %zu: %s",
                             fields, fields == 1 ? "" : "s", form->fields,
                             fields == form->fields + 1 && dp_csv_ends_empty(form, line, length)
                                 ? "take out the separator that it ends with"
                                 : "mend it, or take it out");
}

dp_status dp_csv_read(const struct dp_csv_form *form, const char *line, size_t length,
                      float *numbers, double *label, struct dp_problem *problem)
{
    const size_t label_at = form->label_last ? form->fields - form->labels : 0;
    const char *at = line, *end = line + length;
    bool more = true;

    for (size_t i = 0; i < form->fields; i++) {
        double number = 0.0;
        struct field f;
        if (!more) {
            return refuse_count(form, line, length, problem);
        }
        if (!take_number(&at, end, form->separator, &f, &number)) {
            return refuse(form, &f, i + 1, label_at, problem);
        }
        more = at < end;
        at += more ? 1 : 0;
        if (i >= label_at && i < label_at + form->labels) {
            *label++ = number;
        } else if (!isfinite((float)number)) {
            return dp_problem_refuse(
                problem, DP_ERR_DATA,
                "field %zu is too large for float32: mend it, or take the line out", i + 1);
        } else {
            *numbers++ = (float)number;
        }
    }
    return !more ? DP_OK : refuse_count(form, line, length, problem);
}
