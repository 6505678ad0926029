#include "runtime/data/formats/npy.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PREAMBLE = 10 /* magic, version, and a length of 16 bits */, WORD_BYTES = 32 };

/* The header's text, and how far it was read. */
struct cursor {
    const char *next, *end;
};

/* What the dictionary says. */
struct facts {
    char descr[WORD_BYTES];
    bool has_descr, has_order, has_shape;
    bool fortran;
    int dims;
    size_t dim[DP_NPY_DIMS];
};

/* ---- the dictionary, from left to right ---- */

static void skip_space(struct cursor *c)
{
    while (c->next < c->end && (*c->next == ' ' || *c->next == '\n')) {
        c->next++;
    }
}

/* Takes a character if it comes next. */
static bool take(struct cursor *c, char wanted)
{
    skip_space(c);
    if (c->next == c->end || *c->next != wanted) {
        return false;
    }
    c->next++;
    return true;
}

static bool take_word(struct cursor *c, const char *word)
{
    const size_t length = strlen(word);

    skip_space(c);
    if ((size_t)(c->end - c->next) < length || memcmp(c->next, word, length) != 0) {
        return false;
    }
    c->next += length;
    return true;
}

/* 'text', without escapes; at most WORD_BYTES - 1 characters of it. */
static bool take_text(struct cursor *c, char text[WORD_BYTES])
{
    const bool single = take(c, '\'');
    size_t length = 0;
    char quote = '\'';

    if (!single && !take(c, '"')) {
        return false;
    }
    if (!single) {
        quote = '"';
    }
    while (c->next < c->end && *c->next != quote && length + 1 < WORD_BYTES) {
        text[length++] = *c->next++;
    }
    text[length] = '\0';
    return take(c, quote);
}

/* A whole number; one of Python 2 ends with an L. */
static bool take_number(struct cursor *c, size_t *number)
{
    const char *begin;

    skip_space(c);
    begin = c->next;
    *number = 0;
    while (c->next < c->end && *c->next >= '0' && *c->next <= '9') {
        const size_t digit = (size_t)(*c->next++ - '0');
        if (*number > (SIZE_MAX - digit) / 10) {
            return false;
        }
        *number = *number * 10 + digit;
    }
    if (c->next == begin) {
        return false;
    }
    (void)take(c, 'L');
    return true;
}

/* (3, 4), (3,) or (). */
static bool take_shape(struct cursor *c, struct facts *facts)
{
    bool more = true;

    if (!take(c, '(')) {
        return false;
    }
    facts->dims = 0;
    while (!take(c, ')')) {
        if (!more || facts->dims == DP_NPY_DIMS || !take_number(c, &facts->dim[facts->dims])) {
            return false;
        }
        facts->dims++;
        more = take(c, ',');
    }
    facts->has_shape = true;
    return true;
}

/* The value of a key. *structured: elements are records of several fields. */
static bool take_value(struct cursor *c, const char *key, struct facts *facts, bool *structured)
{
    if (strcmp(key, "descr") == 0) {
        facts->has_descr = true;
        *structured = take(c, '[');
        return !*structured && take_text(c, facts->descr);
    }
    if (strcmp(key, "fortran_order") == 0) {
        facts->has_order = true;
        facts->fortran = take_word(c, "True");
        return facts->fortran || take_word(c, "False");
    }
    return strcmp(key, "shape") == 0 && take_shape(c, facts);
}

static bool take_facts(struct cursor *c, struct facts *facts, bool *structured)
{
    char key[WORD_BYTES];
    bool more = true;

    if (!take(c, '{')) {
        return false;
    }
    while (!take(c, '}')) {
        if (!more || !take_text(c, key) || !take(c, ':') ||
            !take_value(c, key, facts, structured)) {
            return false;
        }
        more = take(c, ',');
    }
    return facts->has_descr && facts->has_order && facts->has_shape;
}

/* ---- what it means ---- */

static const struct type {
    const char *descr, *name;
    enum dp_npy_kind kind;
    size_t width;
} types[] = {
    {"|u1", "uint8", DP_NPY_UNSIGNED, 1},  {"<u2", "uint16", DP_NPY_UNSIGNED, 2},
    {"<u4", "uint32", DP_NPY_UNSIGNED, 4}, {"<u8", "uint64", DP_NPY_UNSIGNED, 8},
    {"|i1", "int8", DP_NPY_SIGNED, 1},     {"<i2", "int16", DP_NPY_SIGNED, 2},
    {"<i4", "int32", DP_NPY_SIGNED, 4},    {"<i8", "int64", DP_NPY_SIGNED, 8},
    {"<f4", "float32", DP_NPY_FLOAT, 4},   {"<f8", "float64", DP_NPY_FLOAT, 8},
};

enum { TYPES = sizeof(types) / sizeof(types[0]) };

static dp_status find_type(const char *descr, struct dp_npy *out, struct dp_problem *problem)
{
    for (int i = 0; i < TYPES; i++) {
        if (strcmp(types[i].descr, descr) == 0) {
            out->kind = types[i].kind;
            out->width = types[i].width;
            return DP_OK;
        }
    }
    if (descr[0] != '\0' && (descr[1] == 'U' || descr[1] == 'S')) {
        return dp_problem_refuse(problem, DP_ERR_DATA,
                                 "holds texts (type '%s'): number the classes: save "
                                 "numpy.unique(labels, return_inverse=True)[1]",
                                 descr);
    }
    return dp_problem_refuse(
        problem, DP_ERR_DATA,
        "holds %s (type '%s'): save it with astype('float32'), labels with astype('int64')",
        descr[0] == '|' && descr[1] == 'O' ? "Python objects"
        : descr[0] == '>'                  ? "big-endian numbers"
                                           : "elements that are not read",
        descr);
}

static dp_status take_dims(const struct facts *facts, struct dp_npy *out,
                           struct dp_problem *problem)
{
    size_t room = SIZE_MAX / 2 / out->width;

    if (facts->dims == 0) {
        return dp_problem_refuse(problem, DP_ERR_DATA, "is one number: save an array");
    }
    out->dims = facts->dims;
    out->rows = facts->dim[0];
    out->count = 1;
    for (int i = 0; i < facts->dims; i++) {
        out->dim[i] = facts->dim[i];
        if (facts->dim[i] > 0 && room / facts->dim[i] == 0) {
            return dp_problem_refuse(problem, DP_ERR_DATA,
                                     "has an impossible shape: it is damaged");
        }
        room = facts->dim[i] > 0 ? room / facts->dim[i] : room;
        out->count *= i > 0 ? facts->dim[i] : 1;
    }
    return DP_OK;
}

static dp_status check_length(const struct dp_npy *npy, size_t bytes, struct dp_problem *problem)
{
    const size_t wanted = npy->begin + npy->rows * npy->count * npy->width;

    return bytes == wanted
               ? DP_OK
               : dp_problem_refuse(problem, DP_ERR_DATA,
                                   "has %zu bytes, where its header asks for %zu: %s", bytes,
                                   wanted,
                                   bytes < wanted ? "it is cut off, save it again"
                                                  : "more follows the array, save it again");
}

static dp_status interpret(const struct facts *facts, size_t bytes, struct dp_npy *out,
                           struct dp_problem *problem)
{
    DP_TRY(find_type(facts->descr, out, problem));
    DP_TRY(take_dims(facts, out, problem));
    if (facts->fortran && facts->dims > 1) {
        return dp_problem_refuse(problem, DP_ERR_DATA,
                                 "is in Fortran order: save numpy.ascontiguousarray of it");
    }
    return check_length(out, bytes, problem);
}

/* Where the dictionary lies. */
static dp_status find_dictionary(const uint8_t *head, size_t count, size_t *begin, size_t *end,
                                 struct dp_problem *problem)
{
    size_t length;

    if (count >= 4 && memcmp(head, "PK\3\4", 4) == 0) {
        return dp_problem_refuse(problem, DP_ERR_DATA,
                                 "is a .npz: save each array by itself, with numpy.save");
    }
    if (count < PREAMBLE || memcmp(head, "\x93NUMPY", 6) != 0) {
        return dp_problem_refuse(problem, DP_ERR_DATA, "%s: write it with numpy.save",
                                 count == 0 ? "is empty" : "is no .npy file");
    }
    if (head[6] < 1 || head[6] > 3) {
        return dp_problem_refuse(problem, DP_ERR_DATA,
                                 "is of version %d of the format, 1 to 3 are read: save it again",
                                 head[6]);
    }
    *begin = head[6] == 1 ? PREAMBLE : PREAMBLE + 2;
    length = head[8] | (size_t)head[9] << 8;
    if (head[6] > 1 && count >= *begin) {
        length |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
    }
    *end = *begin + length;
    return *end <= count ? DP_OK
                         : dp_problem_refuse(problem, DP_ERR_DATA,
                                             "ends inside its header, or has one of more than %d "
                                             "bytes: save it again",
                                             DP_NPY_HEAD);
}

dp_status dp_npy_parse(const uint8_t *head, size_t count, size_t bytes, struct dp_npy *out,
                       struct dp_problem *problem)
{
    struct facts facts = {.has_descr = false};
    struct dp_npy npy = {.begin = 0};
    struct cursor cursor;
    bool structured = false;
    size_t begin = 0;

    DP_TRY(find_dictionary(head, count, &begin, &npy.begin, problem));
    cursor = (struct cursor){(const char *)head + begin, (const char *)head + npy.begin};
    if (!take_facts(&cursor, &facts, &structured)) {
        return dp_problem_refuse(problem, DP_ERR_DATA, "%s: save it again",
                                 structured ? "holds records of several fields, not numbers"
                                            : "has a header that is not NumPy's: it is damaged");
    }
    DP_TRY(interpret(&facts, bytes, &npy, problem));
    *out = npy;
    return DP_OK;
}

static double float_of(uint64_t bits, size_t width)
{
    const uint32_t low = (uint32_t)bits;
    double wide;
    float single;

    if (width == sizeof(wide)) {
        memcpy(&wide, &bits, sizeof(wide));
        return wide;
    }
    memcpy(&single, &low, sizeof(single));
    return (double)single;
}

double dp_npy_number(const struct dp_npy *npy, const void *elements, size_t i)
{
    const uint8_t *at = (const uint8_t *)elements + i * npy->width;
    uint64_t bits = 0;

    for (size_t b = 0; b < npy->width; b++) {
        bits |= (uint64_t)at[b] << 8 * b;
    }
    if (npy->kind == DP_NPY_FLOAT) {
        return float_of(bits, npy->width);
    }
    if (npy->kind == DP_NPY_SIGNED) { /* the sign is the highest bit of as many as there are */
        const uint64_t sign = (uint64_t)0x80 << (8 * (npy->width - 1) & 63);
        return (double)(int64_t)((bits ^ sign) - sign);
    }
    return (double)bits;
}

void dp_npy_type_text(const struct dp_npy *npy, char text[16])
{
    for (int i = 0; i < TYPES; i++) {
        if (types[i].kind == npy->kind && types[i].width == npy->width) {
            (void)snprintf(text, 16, "%s", types[i].name);
        }
    }
}
