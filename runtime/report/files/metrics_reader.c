#include "runtime/report/files/metrics_reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files/file.h"
#include "base/log.h"
#include "base/mem.h"

enum { WINDOW_BYTES = 64 * 1024 }; /* also the longest line that is readable */

double dp_metrics_real(const struct dp_json *line, const char *key)
{
    double value;

    return dp_json_real(dp_json_get(line, key), &value) ? value : (double)NAN;
}

/* ---- one line ---- */

static const struct {
    const char *key;
    size_t offset;
} members[] = {
#define MEMBER(name)                                    \
    {                                                   \
#name, offsetof(struct dp_metrics_sample, name) \
    }
    MEMBER(step),    MEMBER(epoch),   MEMBER(time),
    MEMBER(loss),    MEMBER(lr),      MEMBER(samples_per_second),
    MEMBER(step_ms), MEMBER(skipped),
#undef MEMBER
};
enum { MEMBERS = sizeof(members) / sizeof(members[0]) };

static double *member_of(struct dp_metrics_sample *sample, const char *key, size_t bytes)
{
    for (int i = 0; i < MEMBERS; i++) {
        if (strlen(members[i].key) == bytes && memcmp(members[i].key, key, bytes) == 0) {
            void *member = (char *)sample + members[i].offset;
            return member;
        }
    }
    return NULL;
}

/* Reads a number or a word at *at, and moves *at past it. False: there is none. */
static bool read_number(const char **at, double *value)
{
    static const struct {
        const char *word;
        double value;
    } words[] = {{"null", (double)NAN}, {"false", 0.0}, {"true", 1.0}};
    char *end;

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const size_t length = strlen(words[i].word);
        if (strncmp(*at, words[i].word, length) == 0) {
            *value = words[i].value;
            *at += length;
            return true;
        }
    }
    if (**at != '-' && (**at < '0' || **at > '9')) {
        return false;
    }
    *value = strtod(*at, &end);
    *at = end;
    return true;
}

/* A line of a step as metrics.c writes it: {"type":"step","time":1.5,...}, all else numbers. False:
 * it is another one, which JSON's own parser has to read. line[bytes] is a line end. */
static bool read_step(const char *line, size_t bytes, struct dp_metrics_sample *sample)
{
    static const char head[] = "{\"type\":\"step\"";
    const char *at = line + sizeof(head) - 1, *const end = line + bytes - 1;

    if (bytes <= sizeof(head) || memcmp(line, head, sizeof(head) - 1) != 0 || *end != '}') {
        return false;
    }
    while (at < end) {
        const char *key = at + 2, *quote;
        double *member, value;
        if (at[0] != ',' || at[1] != '"' ||
            (quote = memchr(key, '"', (size_t)(end - key))) == NULL || quote[1] != ':') {
            return false;
        }
        at = quote + 2;
        if (!read_number(&at, &value)) {
            return false;
        }
        member = member_of(sample, key, (size_t)(quote - key));
        if (member != NULL) {
            *member = value;
        }
    }
    return at == end;
}

static const struct dp_metrics_sample unknown = {(double)NAN, (double)NAN, (double)NAN,
                                                 (double)NAN, (double)NAN, (double)NAN,
                                                 (double)NAN, (double)NAN};

static struct dp_metrics_sample sample_of(const struct dp_json *line)
{
    struct dp_metrics_sample sample = unknown;
    bool skipped;

    for (int i = 0; i < MEMBERS; i++) {
        void *member = (char *)&sample + members[i].offset;
        *(double *)member = dp_metrics_real(line, members[i].key);
    }
    if (dp_json_switch(dp_json_get(line, "skipped"), &skipped)) {
        sample.skipped = skipped;
    }
    return sample;
}

/* NULL: it is no JSON. */
static struct dp_json *parse_line(const char *text, size_t bytes)
{
    struct dp_log_capture capture;
    struct dp_json *line = NULL;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_ERROR); /* one bad line says nothing about the others */
    status = dp_json_parse(text, bytes, "", &line);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    return status == DP_OK ? line : NULL;
}

static void take_line(struct dp_metrics_reader *reader, const char *text, size_t bytes,
                      const struct dp_metrics_taker *taker)
{
    struct dp_metrics_sample sample = unknown;
    struct dp_json *line = NULL;
    const char *type = "step";

    if (!read_step(text, bytes, &sample)) {
        line = parse_line(text, bytes);
        type = dp_json_text(dp_json_get(line, "type"));
        sample = sample_of(line);
    }
    if (type == NULL) {
        reader->unreadable++;
    } else if (strcmp(type, "step") == 0) {
        taker->step(taker->context, &sample);
    } else if (taker->other != NULL) {
        taker->other(taker->context, type, line);
    }
    reader->lines += type != NULL;
    dp_json_destroy(line);
}

/* ---- a file ---- */

/* Takes the whole lines of a window; returns how many bytes they are. */
static size_t take_window(struct dp_metrics_reader *reader, const char *window, size_t bytes,
                          const struct dp_metrics_taker *taker)
{
    const char *line = window, *const all = window + bytes, *end;

    while ((end = memchr(line, '\n', (size_t)(all - line))) != NULL) {
        if (end > line) {
            take_line(reader, line, (size_t)(end - line), taker);
        }
        line = end + 1;
    }
    return (size_t)(line - window);
}

/* Where a line that no window holds ends: the end of what there is, if it has none. */
static dp_status skip_line(int fd, const char *path, size_t *at, char *window)
{
    size_t got;
    const char *end;

    for (;;) {
        DP_TRY(dp_file_take_at(fd, path, *at, window, WINDOW_BYTES, &got));
        end = memchr(window, '\n', got);
        if (end != NULL) {
            *at += (size_t)(end + 1 - window);
            return DP_OK;
        }
        *at += got;
        if (got < WINDOW_BYTES) {
            return DP_OK;
        }
    }
}

static dp_status read_lines(struct dp_metrics_reader *reader, int fd, const char *path,
                            char *window, const struct dp_metrics_taker *taker)
{
    size_t got, used;

    do {
        DP_TRY(dp_file_take_at(fd, path, reader->at, window, WINDOW_BYTES, &got));
        used = take_window(reader, window, got, taker);
        reader->at += used;
        if (used == 0 && got == WINDOW_BYTES) {
            reader->unreadable++;
            DP_TRY(skip_line(fd, path, &reader->at, window));
        }
    } while (got == WINDOW_BYTES);
    reader->torn = used < got;
    return DP_OK;
}

dp_status dp_metrics_read(struct dp_metrics_reader *reader, const char *path,
                          const struct dp_metrics_taker *taker)
{
    size_t bytes;
    char *window;
    dp_status status;
    int fd;

    DP_TRY(dp_file_open(path, &fd, &bytes));
    window = dp_zalloc(1, WINDOW_BYTES);
    status = window == NULL ? DP_FAIL(DP_ERR_NOMEM, "%s", path)
                            : read_lines(reader, fd, path, window, taker);
    dp_free(window);
    (void)close(fd);
    return status;
}
