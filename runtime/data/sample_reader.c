#include "runtime/data/sample_reader.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/files/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "runtime/data/samples_own.h"

struct dp_sample_reader {
    struct dp_samples *samples; /* borrowed */
    struct dp_fetcher fetcher;
    struct dp_decoder *decoder;  /* owned */
    const struct dp_crop *crop;  /* borrowed; NULL: whole pictures */
    struct dp_stage_times times; /* of decoding */
};

enum {
    TRIES_MOST = 1000, /* samples that may be bad in a row */
    TRIED = 8          /* samples, for what a reader needs */
};

dp_status dp_sample_reader_create(struct dp_samples *samples, struct dp_sample_reader **out)
{
    struct dp_sample_reader *reader = dp_zalloc(1, sizeof(*reader));
    dp_status status;

    if (reader == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "reader of samples");
    }
    reader->samples = samples;
    status = dp_decoder_create(&reader->decoder);
    if (status != DP_OK) {
        dp_free(reader);
        return status;
    }
    *out = reader;
    return DP_OK;
}

void dp_sample_reader_crop(struct dp_sample_reader *reader, const struct dp_crop *crop)
{
    reader->crop = crop;
}

void dp_sample_reader_pass(struct dp_sample_reader *reader, bool passes)
{
    reader->fetcher.passes = passes;
}

void dp_sample_reader_destroy(struct dp_sample_reader *reader)
{
    if (reader != NULL) {
        const struct dp_samples *s = reader->samples;
        if (reader->fetcher.held != 0 && s->source->leave != NULL) { /* it has read some */
            s->source->leave(s->state, &reader->fetcher);
        }
        dp_decoder_destroy(reader->decoder);
        dp_buffer_release(&reader->fetcher.bytes);
        dp_buffer_release(&reader->fetcher.more);
        dp_free(reader);
    }
}

static void take_held(const struct dp_samples *s, enum dp_set set, size_t row, struct dp_raw *raw)
{
    const size_t bytes = dp_shape_bytes(&s->found.shape);

    *raw = (struct dp_raw){.kind = DP_RAW_ARRAY,
                           .data = s->held[set] + row * bytes,
                           .bytes = bytes,
                           .shape = s->found.shape,
                           .label = s->held_labels[set][row]};
}

/* Says what is wrong with a sample, and which it is. */
static dp_status refuse(const struct dp_samples *s, enum dp_set set, size_t i, dp_status status,
                        const char *problem)
{
    char name[DP_PATH_BYTES];

    dp_samples_name(s, set, i, name, sizeof(name));
    return DP_FAIL(status, "%s: %s", name, problem);
}

static dp_status refuse_label(const struct dp_samples *s, enum dp_set set, size_t i,
                              const char *problem)
{
    char name[DP_PATH_BYTES];

    dp_samples_name_label(s, set, i, name, sizeof(name));
    return DP_FAIL(DP_ERR_DATA, "%s: %s", name, problem);
}

static dp_status check_label(const struct dp_samples *s, enum dp_set set, size_t i, double label)
{
    const int outputs = s->config.classes;
    char problem[DP_PROBLEM_BYTES];

    if (label >= 0.0 && label < (double)(outputs > 0 ? outputs : INT_MAX) &&
        label == floor(label)) {
        return DP_OK;
    }
    if (outputs > 0) {
        (void)snprintf(
            problem, sizeof(problem),
            "label %.12g is not one of 0 to %d, for which the model has outputs: %s", label,
            outputs - 1,
            label != floor(label)
                ? "classes are whole numbers: is something else the label, or train.loss to be mse?"
            : label == outputs ? "classes count from 0: give the model one more, or "
                                 "subtract 1 from labels"
                               : "give the model more, or mend the label");
    } else {
        (void)snprintf(problem, sizeof(problem), "label %.12g: labels are whole numbers from 0 up",
                       label);
    }
    return refuse_label(s, set, i, problem);
}

/* The numbers of a label that is none of classes. */
static const double *targets_of(const struct dp_raw *raw)
{
    return raw->targets != NULL ? raw->targets : &raw->label;
}

static dp_status check_targets(const struct dp_samples *s, enum dp_set set, size_t i,
                               const double *targets)
{
    char problem[DP_PROBLEM_BYTES];

    for (size_t k = 0; k < s->info.targets; k++) {
        const double t = targets[k];
        if (isfinite((float)t) && (!s->config.shares || (t >= 0.0 && t <= 1.0))) {
            continue;
        }
        (void)snprintf(problem, sizeof(problem),
                       "number %zu of its label (counted from 0) is %.9g: %s: mend it, or take the "
                       "sample out",
                       k, t,
                       s->config.shares ? "train.loss binary_cross_entropy needs 0 to 1"
                                        : "numbers of float32 are wanted");
        return refuse_label(s, set, i, problem);
    }
    return DP_OK;
}

static void put_label(const struct dp_samples *s, const struct dp_raw *raw, int32_t *label)
{
    if (s->info.targets == 0) {
        *label = (int32_t)raw->label;
    }
    for (size_t k = 0; k < s->info.targets; k++) {
        const float number = (float)targets_of(raw)[k];
        memcpy(&label[k], &number, sizeof(number));
    }
}

/* One that is not finite would make all weights so. */
static dp_status check_numbers(const struct dp_samples *s, enum dp_set set, size_t i,
                               const float *x, size_t count)
{
    char problem[DP_PROBLEM_BYTES];
    float sum = 0.0f;
    size_t bad = 0;

    for (size_t k = 0; k < count; k++) {
        sum += x[k] * 0.0f; /* 0, or not a number */
    }
    if (sum == 0.0f) {
        return DP_OK;
    }
    while (isfinite(x[bad])) {
        bad++;
    }
    (void)snprintf(problem, sizeof(problem),
                   "number %zu (counted from 0) is %s: mend it, or take the sample out", bad,
                   isnan(x[bad]) ? "not a number" : "infinite");
    return refuse(s, set, i, DP_ERR_DATA, problem);
}

dp_status dp_sample_reader_raw(struct dp_sample_reader *reader, enum dp_set set, size_t i,
                               struct dp_raw *raw)
{
    struct dp_samples *s = reader->samples;
    enum dp_set from;
    const size_t row = dp_samples_locate(s, set, i, &from);

    if (s->source->fetch != NULL) {
        reader->fetcher.kept = s->kept.bytes != NULL ? &s->kept : NULL;
        DP_TRY(s->source->fetch(s->state, &reader->fetcher, from, row, raw));
    } else {
        take_held(s, from, row, raw);
    }
    return s->info.targets > 0 ? check_targets(s, set, i, targets_of(raw))
                               : check_label(s, set, i, raw->label);
}

dp_status dp_sample_reader_label(struct dp_sample_reader *reader, enum dp_set set, size_t i,
                                 struct dp_raw *raw, int32_t *label)
{
    DP_TRY(dp_sample_reader_raw(reader, set, i, raw));
    put_label(reader->samples, raw, label);
    return DP_OK;
}

dp_status dp_sample_reader_read(struct dp_sample_reader *reader, enum dp_set set, size_t i,
                                void *out, int32_t *label)
{
    struct dp_samples *s = reader->samples;
    struct dp_problem problem;
    struct dp_raw raw;
    uint64_t begin_ns;
    dp_status status;

    DP_TRY(dp_sample_reader_label(reader, set, i, &raw, label));
    begin_ns = dp_now_ns();
    status =
        reader->crop != NULL
            ? dp_decode_part(reader->decoder, &raw, &s->info.shape, reader->crop, out, &problem)
            : dp_decode(reader->decoder, &raw, &s->info.shape, s->config.resize, out, &problem);
    if (status != DP_OK) {
        return refuse(s, set, i, status, problem.text);
    }
    if (s->info.shape.element == DP_ELEMENT_FLOAT) {
        DP_TRY(check_numbers(s, set, i, out, s->info.shape.count));
    }
    reader->times.ns[DP_STAGE_DECODE] += dp_now_ns() - begin_ns;
    reader->times.bytes[DP_STAGE_DECODE] += dp_shape_bytes(&s->info.shape);
    return DP_OK;
}

/* Reads a few samples; but not on from a place that gives none. */
static void look(struct dp_sample_reader *reader, uint8_t *sample, int32_t *label)
{
    struct dp_samples *s = reader->samples;
    const size_t count = s->info.count[DP_SET_TRAIN];
    dp_status status = DP_OK;

    if (s->source->look != NULL) {
        s->source->look(s->state, true);
    }
    for (size_t i = 0; i < TRIED && status != DP_ERR_NOINPUT; i++) {
        status = dp_sample_reader_read(reader, DP_SET_TRAIN, i * count / TRIED, sample, label);
    }
    if (s->source->look != NULL) {
        s->source->look(s->state, false);
    }
}

/* Of a reader that has read some. */
static size_t need_of(const struct dp_sample_reader *reader)
{
    const size_t held = reader->fetcher.bytes.room + reader->fetcher.more.room;
    const size_t most = dp_samples_fetcher_bytes(reader->samples);

    return (held > most ? held : most) + dp_decoder_memory(reader->decoder);
}

size_t dp_sample_reader_need(struct dp_samples *s)
{
    uint8_t *sample = dp_mem_arena(DP_MEM_DATA, dp_shape_bytes(&s->info.shape));
    int32_t *label = dp_zalloc(dp_label_words(&s->info), sizeof(*label));
    struct dp_sample_reader *reader = NULL;
    struct dp_log_capture capture;
    size_t bytes = 0;

    dp_log_capture_begin(&capture, DP_LOG_ERROR); /* a bad one is reported when it is needed */
    if (sample != NULL && label != NULL && !dp_samples_absent(s) && s->source->fetch != NULL &&
        dp_sample_reader_create(s, &reader) == DP_OK) {
        look(reader, sample, label);
        bytes = need_of(reader);
    }
    dp_log_capture_end(&capture, DP_LOG_DROP);
    dp_sample_reader_destroy(reader);
    dp_free(sample);
    dp_free(label);
    return bytes;
}

/* Once for each sample: it is met again in every epoch. */
static void warn_of_bad(struct dp_samples *s, enum dp_set set, size_t i, const char *error)
{
    const size_t name = 2 * i + (size_t)set + 1;

    for (int k = 0; k < DP_SAMPLES_WARNED; k++) {
        size_t found = 0;
        if (atomic_compare_exchange_strong(&s->warned[k], &found, name)) {
            DP_WARN("%s; another one stands in its place%s", error,
                    k + 1 == DP_SAMPLES_WARNED ? ", and so it may be for others, without a word"
                                               : "");
            return;
        }
        if (found == name) {
            return;
        }
    }
}

dp_status dp_sample_reader_read_good(struct dp_sample_reader *reader, enum dp_set set, size_t i,
                                     void *out, int32_t *label, size_t *skipped)
{
    struct dp_samples *s = reader->samples;
    const size_t count = s->info.count[set];
    struct dp_log_capture capture;
    dp_status status = DP_ERR_DATA;

    for (size_t k = 0; status == DP_ERR_DATA && k < count && k < TRIES_MOST; k++) {
        dp_log_capture_begin(&capture, DP_LOG_ERROR);
        status = dp_sample_reader_read(reader, set, (i + k) % count, out, label);
        dp_log_capture_end(&capture, status == DP_ERR_DATA ? DP_LOG_DROP : DP_LOG_PRINT);
        if (k == 0 && status == DP_ERR_DATA) {
            ++*skipped;
            warn_of_bad(s, set, i, dp_log_captured(&capture));
        }
    }
    return status == DP_ERR_DATA
               ? DP_FAIL(status, "%s; and so are those after it", dp_log_captured(&capture))
               : status;
}

void dp_sample_reader_take_times(struct dp_sample_reader *reader, struct dp_stage_times *sum)
{
    struct dp_fetcher *f = &reader->fetcher;

    dp_stage_times_add(sum, &reader->times);
    sum->ns[DP_STAGE_READ] += f->read_ns;
    sum->bytes[DP_STAGE_READ] += f->read_bytes;
    sum->ns[DP_STAGE_EXPAND] += f->expand_ns;
    sum->bytes[DP_STAGE_EXPAND] += f->expand_bytes;
    reader->times = (struct dp_stage_times){.rows = 0};
    f->read_ns = f->read_bytes = f->expand_ns = f->expand_bytes = 0;
}
