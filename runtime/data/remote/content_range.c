#include "runtime/data/remote/content_range.h"

#include <string.h>

/* What is left of the header. */
struct rest {
    const char *at, *end;
};

static bool take_word(struct rest *r, const char *word)
{
    const size_t length = strlen(word);

    if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0) {
        return false;
    }
    r->at += length;
    return true;
}

/* One digit or more, below 2^63: so that one more is no overflow. */
static bool take_number(struct rest *r, uint64_t *out)
{
    const char *begin = r->at;
    uint64_t value = 0;

    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        if (value > ((uint64_t)INT64_MAX - 9) / 10) {
            return false;
        }
        value = 10 * value + (uint64_t)(*r->at - '0');
    }
    *out = value;
    return r->at > begin;
}

static void skip_spaces(struct rest *r)
{
    while (r->at < r->end && strchr(" \t\r\n", *r->at) != NULL && *r->at != '\0') {
        r->at++;
    }
}

bool dp_content_range_parse(const char *text, size_t bytes, struct dp_content_range *out)
{
    struct rest r = {text, text + bytes};
    struct dp_content_range range = {0, 0, 0};
    uint64_t last = 0;

    skip_spaces(&r);
    if (!take_word(&r, "bytes ")) {
        return false;
    }
    if (take_word(&r, "*/")) {
        if (!take_number(&r, &range.total)) {
            return false;
        }
    } else if (!take_number(&r, &range.begin) || !take_word(&r, "-") || !take_number(&r, &last) ||
               !take_word(&r, "/") || last < range.begin ||
               (!take_word(&r, "*") && (!take_number(&r, &range.total) || range.total <= last))) {
        return false;
    } else {
        range.end = last + 1;
    }
    skip_spaces(&r);
    if (r.at != r.end) {
        return false;
    }
    *out = range;
    return true;
}
