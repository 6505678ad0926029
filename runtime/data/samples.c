#include "runtime/data/samples.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/files/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/decode.h"
#include "runtime/data/split.h"

struct dp_samples {
    struct dp_source_config config;
    const struct dp_source *source;
    void *state;                 /* owned: the source's */
    struct dp_source_info found; /* by the source */
    struct dp_samples_info info;
    struct dp_split split; /* test 0: the test set is the source's own */
    uint8_t *held[DP_SETS];
    int32_t *held_labels[DP_SETS]; /* owned; NULL: not held */
};

struct dp_sample_reader {
    struct dp_samples *samples; /* borrowed */
    struct dp_fetcher fetcher;
    struct dp_decoder *decoder; /* owned */
};

/* What messages call the data set. */
static const char *place_of(const struct dp_samples *s)
{
    const char *dir = s->config.dir;

    return dir != NULL && dir[0] != '\0' ? dir : s->source->plugin.name;
}

/* ---- opening ---- */

static dp_status check_sets(const struct dp_samples *s)
{
    const size_t *count = s->found.count;

    if (count[DP_SET_TRAIN] == 0) {
        return DP_FAIL(DP_ERR_DATA, "%s: no samples to train on", place_of(s));
    }
    if (count[DP_SET_TEST] > 0 || s->config.only_train) {
        return DP_OK;
    }
    if (s->config.test_fraction <= 0.0) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: no test set: set data.test_fraction (to 0.1, say) to hold out some of "
                       "the training set",
                       place_of(s));
    }
    if (count[DP_SET_TRAIN] < 2) {
        return DP_FAIL(DP_ERR_DATA, "%s: one sample cannot be split into a training and a test set",
                       place_of(s));
    }
    return DP_OK;
}

static dp_status check_model(const struct dp_samples *s)
{
    const int most = s->config.classes, classes = s->found.classes;
    const size_t outputs = s->config.targets > 0 ? s->config.targets : (size_t)most;
    struct dp_problem problem;

    if (s->config.input.count > 0 &&
        dp_decode_check(&s->found.shape, &s->config.input, s->config.resize, &problem) != DP_OK) {
        return DP_FAIL(DP_ERR_DATA, "%s: %s", place_of(s), problem.text);
    }
    if (most > 0 && classes > most) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: %d classes do not fit the model's %zu output%s: give its last dense "
                       "layer units: %d",
                       place_of(s), classes, outputs, dp_plural(outputs), classes);
    }
    return DP_OK;
}

static bool is_same_shape(const struct dp_sample_shape *a, const struct dp_sample_shape *b)
{
    return a->count == b->count &&
           (a->height == 0 || b->height == 0 ||
            (a->height == b->height && a->width == b->width && a->channels == b->channels));
}

static void fill_info(struct dp_samples *s)
{
    const struct dp_sample_shape *input = &s->config.input;
    const size_t *count = s->found.count;

    s->info.shape = input->count > 0 ? *input : s->found.shape;
    s->info.shape.element = s->found.shape.element;
    s->info.classes = s->found.classes;
    s->info.targets = s->config.targets == 1 ? 1 : s->found.targets;
    s->info.class_names = s->found.class_names;
    s->info.note = s->found.note;
    s->info.any_order = s->source->fetch != NULL;
    if (count[DP_SET_TEST] == 0 && !s->config.only_train) {
        s->split = dp_split_of(count[DP_SET_TRAIN], s->config.test_fraction);
        s->info.count[DP_SET_TRAIN] = s->split.count - s->split.test;
        s->info.count[DP_SET_TEST] = s->split.test;
    } else {
        memcpy(s->info.count, count, sizeof(s->info.count));
    }
    s->info.whole = s->source->load != NULL && s->split.test == 0 &&
                    is_same_shape(&s->info.shape, &s->found.shape);
}

static dp_status open_source(struct dp_samples *s, const char *name)
{
    const struct dp_plugin *plugin = NULL;
    const struct dp_source *source;
    char problem[256];
    const dp_status status =
        dp_plugin_create(&dp_sources, name, &plugin, &s->state, problem, sizeof(problem));

    if (status != DP_OK) {
        return DP_FAIL(status, "data.source: %s", problem);
    }
    source = (const struct dp_source *)plugin;
    DP_TRY(source->open(s->state, &s->config, &s->found));
    s->source = source;
    DP_TRY(check_sets(s));
    DP_TRY(check_model(s));
    fill_info(s);
    return DP_OK;
}

dp_status dp_samples_open(const char *source, const struct dp_source_config *config,
                          struct dp_samples **out)
{
    struct dp_samples *s = dp_zalloc(1, sizeof(*s));
    dp_status status;

    if (s == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "data set");
    }
    s->config = *config;
    status = open_source(s, source);
    if (status != DP_OK) {
        dp_samples_close(s);
        return status;
    }
    *out = s;
    return DP_OK;
}

const struct dp_samples_info *dp_samples_info(const struct dp_samples *s)
{
    return &s->info;
}

void dp_samples_close(struct dp_samples *s)
{
    if (s == NULL) {
        return;
    }
    if (s->source != NULL) {
        s->source->close(s->state);
    }
    for (int set = 0; set < DP_SETS; set++) {
        dp_free(s->held[set]);
        dp_free(s->held_labels[set]);
    }
    dp_free(s->state);
    dp_free(s);
}

/* ---- reading in order ---- */

/* A model of one output compares it with the label's number. */
static void make_numbers(int32_t *labels, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float number = (float)labels[i];
        memcpy(&labels[i], &number, sizeof(number));
    }
}

dp_status dp_samples_load(struct dp_samples *s, uint8_t *const out[DP_SETS],
                          int32_t *const labels[DP_SETS])
{
    DP_TRY(s->source->load(s->state, out, labels));
    for (int set = 0; s->info.targets == 1 && set < DP_SETS; set++) {
        make_numbers(labels[set], s->info.count[set]);
    }
    return DP_OK;
}

dp_status dp_samples_hold(struct dp_samples *s)
{
    const size_t bytes = dp_shape_bytes(&s->found.shape);

    for (int set = 0; set < DP_SETS; set++) {
        const size_t count = s->found.count[set];
        s->held[set] = dp_mem_arena(DP_MEM_DATA, count * bytes);
        s->held_labels[set] = dp_mem_arena(DP_MEM_DATA, count * sizeof(int32_t));
        if (s->held[set] == NULL || s->held_labels[set] == NULL) {
            return DP_FAIL(DP_ERR_NOMEM, "%s: %zu samples of %zu bytes", place_of(s), count, bytes);
        }
    }
    return s->source->load(s->state, s->held, s->held_labels);
}

/* ---- reading in any order ---- */

/* Where sample `i` of a set lies in the source. */
static size_t locate(const struct dp_samples *s, enum dp_set set, size_t i, enum dp_set *from)
{
    *from = s->split.test > 0 ? DP_SET_TRAIN : set;
    return s->split.test == 0   ? i
           : set == DP_SET_TEST ? dp_split_test_row(&s->split, i)
                                : dp_split_train_row(&s->split, i);
}

void dp_samples_name(const struct dp_samples *s, enum dp_set set, size_t i, char *text, size_t size)
{
    enum dp_set from;
    const size_t row = locate(s, set, i, &from);

    if (s->source->name != NULL) {
        s->source->name(s->state, from, row, text, size);
    } else {
        (void)snprintf(text, size, "%s: sample %zu (counted from 0) of the %s set", place_of(s),
                       row, from == DP_SET_TRAIN ? "training" : "test");
    }
}

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

void dp_sample_reader_destroy(struct dp_sample_reader *reader)
{
    if (reader != NULL) {
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

static dp_status check_label(const struct dp_samples *s, enum dp_set set, size_t i, double label)
{
    const int outputs = s->config.classes;
    char problem[DP_PROBLEM_BYTES];

    if (label >= 0.0 && label < (double)(outputs > 0 ? outputs : INT_MAX) &&
        label == floor(label)) {
        return DP_OK;
    }
    if (outputs > 0) {
        (void)snprintf(problem, sizeof(problem),
                       "label %.17g is not one of 0 to %d, for which the model has outputs: give "
                       "the model more, or mend the label",
                       label, outputs - 1);
    } else {
        (void)snprintf(problem, sizeof(problem), "label %.17g: labels are whole numbers from 0 up",
                       label);
    }
    return refuse(s, set, i, DP_ERR_DATA, problem);
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
        return refuse(s, set, i, DP_ERR_DATA, problem);
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
    while (bad + 1 < count && isfinite(x[bad])) {
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
    const size_t row = locate(s, set, i, &from);

    if (s->source->fetch != NULL) {
        DP_TRY(s->source->fetch(s->state, &reader->fetcher, from, row, raw));
    } else {
        take_held(s, from, row, raw);
    }
    return s->info.targets > 0 ? check_targets(s, set, i, targets_of(raw))
                               : check_label(s, set, i, raw->label);
}

dp_status dp_sample_reader_read(struct dp_sample_reader *reader, enum dp_set set, size_t i,
                                void *out, int32_t *label)
{
    struct dp_samples *s = reader->samples;
    struct dp_problem problem;
    struct dp_raw raw;
    dp_status status;

    DP_TRY(dp_sample_reader_raw(reader, set, i, &raw));
    status = dp_decode(reader->decoder, &raw, &s->info.shape, s->config.resize, out, &problem);
    if (status != DP_OK) {
        return refuse(s, set, i, status, problem.text);
    }
    put_label(s, &raw, label);
    return s->info.shape.element == DP_ELEMENT_FLOAT
               ? check_numbers(s, set, i, out, s->info.shape.count)
               : DP_OK;
}
