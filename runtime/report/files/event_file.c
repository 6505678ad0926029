#include "runtime/report/files/event_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/files/disk.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "runtime/report/files/metrics_reader.h"

static const double step_most = 1e15; /* of damaged lines more */

enum { BUFFER_BYTES = 64 * 1024, EVENT_BYTES = 1024, VALUES_BYTES = 512 };

struct dp_event_file {
    struct dp_metrics_reader reader;
    int fd; /* -1: there has been no line yet */
    dp_status status;
    size_t used;
    uint8_t buffer[BUFFER_BYTES];
    char folder[DP_PATH_BYTES], path[DP_PATH_BYTES];
};

/* ---- records ---- */

/* Of the bytes, by the polynomial of Castagnoli, reflected: RFC 3720, appendix B.4. */
static uint32_t crc32c(const uint8_t *data, size_t bytes)
{
    static const uint32_t polynomial = 0x82f63b78u;
    uint32_t crc = 0xffffffffu;

    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (polynomial & (0u - (crc & 1u)));
        }
    }
    return ~crc;
}

static uint32_t masked(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static void put_little(uint8_t *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        out[i] = (uint8_t)(value >> (8 * i));
    }
}

static void flush(struct dp_event_file *f)
{
    if (f->status == DP_OK && f->used > 0) {
        f->status = dp_file_write_all(f->fd, f->path, f->buffer, f->used);
    }
    f->used = 0;
}

static void add_record(struct dp_event_file *f, const uint8_t *data, size_t bytes)
{
    enum { HEAD = 12, TAIL = 4 };
    uint8_t *out;

    if (f->used + HEAD + bytes + TAIL > sizeof(f->buffer)) {
        flush(f);
    }
    out = f->buffer + f->used;
    put_little(out, bytes, 8);
    put_little(out + 8, masked(crc32c(out, 8)), 4);
    memcpy(out + HEAD, data, bytes);
    put_little(out + HEAD + bytes, masked(crc32c(data, bytes)), 4);
    f->used += HEAD + bytes + TAIL;
}

/* ---- protobuf ---- */

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* A message being made. Its fields are few and short, so that it has room for all. */
struct message {
    uint8_t *at;
};

static void put_varint(struct message *m, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) {
        *m->at++ = (uint8_t)(value | 0x80);
    }
    *m->at++ = (uint8_t)value;
}

static void put_key(struct message *m, unsigned field, enum wire wire)
{
    put_varint(m, field << 3 | (unsigned)wire);
}

static void put_bytes(struct message *m, unsigned field, const void *data, size_t bytes)
{
    put_key(m, field, WIRE_BYTES);
    put_varint(m, bytes);
    memcpy(m->at, data, bytes);
    m->at += bytes;
}

static void put_double(struct message *m, unsigned field, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    put_key(m, field, WIRE_64);
    put_little(m->at, bits, 8);
    m->at += 8;
}

/* One scalar of a summary: summary.proto, Summary.Value. What is not known has none. */
static void put_scalar(struct message *m, const char *tag, double value)
{
    enum { TAG = 1, SIMPLE_VALUE = 2, VALUE = 1 };
    const float narrow = (float)value;
    uint8_t bytes[EVENT_BYTES];
    struct message inner = {bytes};
    uint32_t bits;

    if (!isfinite(value)) {
        return;
    }
    memcpy(&bits, &narrow, sizeof(bits));
    put_bytes(&inner, TAG, tag, strlen(tag));
    put_key(&inner, SIMPLE_VALUE, WIRE_32);
    put_little(inner.at, bits, 4);
    inner.at += 4;
    put_bytes(m, VALUE, bytes, (size_t)(inner.at - bytes));
}

/* event.proto, Event. */
enum { WALL_TIME = 1, STEP = 2, FILE_VERSION = 3, SUMMARY = 5 };

static void add_event(struct dp_event_file *f, double time, double step, const uint8_t *summary,
                      size_t bytes)
{
    uint8_t event[EVENT_BYTES];
    struct message m = {event};

    put_double(&m, WALL_TIME, time);
    put_key(&m, STEP, WIRE_VARINT);
    put_varint(&m, step > 0 && step < step_most ? (uint64_t)step : 0);
    put_bytes(&m, SUMMARY, summary, bytes);
    add_record(f, event, (size_t)(m.at - event));
}

/* ---- lines ---- */

static const char name_begin[] = "events.out.tfevents.", name_end[] = ".lockstep";

/* Whether a file is one that this module has made. */
static bool is_ours(const char *name)
{
    const size_t begin = sizeof(name_begin) - 1;

    return strncmp(name, name_begin, begin) == 0 &&
           strcmp(name + begin + strspn(name + begin, "0123456789"), name_end) == 0;
}

/* Where a run was killed before its first checkpoint, and began anew, its steps would be shown
 * beside those of before. */
static void remove_others(const char *folder, const char *name)
{
    DIR *files = opendir(folder);
    const struct dirent *entry;

    while (files != NULL && (entry = readdir(files)) != NULL) {
        if (is_ours(entry->d_name) && strcmp(entry->d_name, name) != 0) {
            (void)dp_disk_unlink_at(dirfd(files), entry->d_name);
        }
    }
    if (files != NULL) {
        (void)closedir(files);
    }
}

/* At the first line. A link of that name is not followed. */
static void open_file(struct dp_event_file *f, double time)
{
    static const char version[] = "brain.Event:2";
    uint8_t event[EVENT_BYTES];
    struct message m = {event};
    char name[64];

    if (f->fd >= 0 || f->status != DP_OK) {
        return;
    }
    (void)snprintf(name, sizeof(name), "%s%010.0f%s", name_begin,
                   isfinite(time) ? floor(time) : 0.0, name_end);
    remove_others(f->folder, name);
    f->status = dp_file_join(f->path, f->folder, name);
    if (f->status != DP_OK) {
        return;
    }
    f->fd = dp_disk_create(f->path, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);
    if (f->fd < 0) {
        f->status = dp_file_fail(f->path, errno);
        return;
    }
    put_double(&m, WALL_TIME, time);
    put_bytes(&m, FILE_VERSION, version, sizeof(version) - 1);
    add_record(f, event, (size_t)(m.at - event));
}

static void take_step(void *context, const struct dp_metrics_sample *sample)
{
    struct dp_event_file *f = context;
    uint8_t values[VALUES_BYTES];
    struct message m = {values};

    open_file(f, sample->time);
    put_scalar(&m, "train/loss", sample->loss);
    put_scalar(&m, "train/learning_rate", sample->lr);
    put_scalar(&m, "speed/samples_per_second", sample->samples_per_second);
    put_scalar(&m, "speed/step_ms", sample->step_ms);
    add_event(f, sample->time, sample->step, values, (size_t)(m.at - values));
}

static void take_other(void *context, const char *type, const struct dp_json *line)
{
    static const struct {
        const char *type, *step, *key, *tag;
    } scalars[] = {
        {"eval", "step", "test_loss", "test/loss"},
        {"eval", "step", "test_accuracy", "test/accuracy"},
        {"eval", "step", "test_top5_accuracy", "test/top5_accuracy"},
        {"eval", "step", "test_mean_absolute_error", "test/mean_absolute_error"},
        {"end", "steps", "scaling_efficiency", "speed/scaling_efficiency"},
    };
    struct dp_event_file *f = context;
    const double time = dp_metrics_real(line, "time");
    uint8_t values[VALUES_BYTES];
    struct message m = {values};
    double step = 0.0;

    open_file(f, time);
    for (size_t i = 0; i < sizeof(scalars) / sizeof(scalars[0]); i++) {
        if (strcmp(type, scalars[i].type) == 0) {
            step = dp_metrics_real(line, scalars[i].step);
            put_scalar(&m, scalars[i].tag, dp_metrics_real(line, scalars[i].key));
        }
    }
    if (m.at > values) {
        add_event(f, time, step, values, (size_t)(m.at - values));
    }
}

/* ---- the file ---- */

dp_status dp_event_file_create(const char *folder, struct dp_event_file **out)
{
    struct dp_event_file *f = dp_zalloc(1, sizeof(*f));

    if (f == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "events for TensorBoard");
    }
    f->fd = -1;
    if (snprintf(f->folder, sizeof(f->folder), "%s", folder) >= (int)sizeof(f->folder)) {
        dp_free(f);
        return DP_FAIL(DP_ERR_ARG, "%.80s...: the path is too long", folder);
    }
    *out = f;
    return DP_OK;
}

static void close_file(struct dp_event_file *f)
{
    if (f->fd >= 0) {
        (void)close(f->fd);
    }
    f->fd = -1;
}

static void begin_anew(struct dp_event_file *f)
{
    close_file(f);
    memset(&f->reader, 0, sizeof(f->reader));
    f->status = DP_OK;
    f->used = 0;
}

dp_status dp_event_file_update(struct dp_event_file *f)
{
    const struct dp_metrics_taker taker = {f, take_step, take_other};
    char path[DP_PATH_BYTES];

    if (f->status != DP_OK) {
        begin_anew(f);
    }
    f->status = dp_file_join(path, f->folder, "metrics.jsonl");
    if (f->status == DP_OK) {
        const dp_status status = dp_metrics_read(&f->reader, path, &taker);
        f->status = f->status == DP_OK ? status : f->status;
    }
    flush(f);
    return f->status;
}

void dp_event_file_destroy(struct dp_event_file *file)
{
    if (file != NULL) {
        close_file(file);
        dp_free(file);
    }
}
