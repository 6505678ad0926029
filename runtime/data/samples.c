#include "runtime/data/samples.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/decode.h"
#include "runtime/data/samples_own.h"

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

    if (s->config.resize != DP_RESIZE_AUTO && s->found.shape.count > 0 &&
        s->found.shape.height == 0) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "data.resize: samples of %s are rows of numbers, which have no size to "
                       "change: leave it out",
                       place_of(s));
    }
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

static size_t units_of(const struct dp_samples *s, enum dp_set set)
{
    return s->source->units != NULL && s->found.count[set] > 0 ? s->source->units(s->state, set)
                                                               : 0;
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
    s->info.copied = s->found.copied;
    s->info.any_order = s->source->fetch != NULL;
    s->info.units = units_of(s, DP_SET_TRAIN) + units_of(s, DP_SET_TEST);
    if (count[DP_SET_TEST] == 0 && !s->config.only_train) {
        s->split = dp_split_of(count[DP_SET_TRAIN], s->config.test_fraction);
        s->info.split = true;
        s->info.count[DP_SET_TRAIN] = s->split.count - s->split.test;
        s->info.count[DP_SET_TEST] = s->split.test;
    } else {
        memcpy(s->info.count, count, sizeof(s->info.count));
    }
    s->info.resized = !is_same_shape(&s->info.shape, &s->found.shape);
    s->info.whole = s->source->load != NULL && s->split.test == 0 && !s->info.resized;
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

/* ---- a description ---- */

static size_t put_word(char *out, const char *word)
{
    const size_t bytes = strlen(word) + 1;

    if (out != NULL) {
        memcpy(out, word, bytes);
    }
    return bytes;
}

/* Writes all words, unless `out` is NULL; returns their bytes. */
static size_t put_words(char *out, const struct dp_samples_info *info)
{
    size_t bytes = put_word(out, info->note);

    for (int i = 0; info->class_names != NULL && i < info->classes; i++) {
        bytes += put_word(out != NULL ? out + bytes : NULL, info->class_names[i]);
    }
    return bytes;
}

dp_status dp_samples_words(const struct dp_samples *s, char **words, size_t *bytes)
{
    *bytes = put_words(NULL, &s->info);
    *words = dp_zalloc(1, *bytes);
    if (*words == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%zu bytes of names", *bytes);
    }
    (void)put_words(*words, &s->info);
    return DP_OK;
}

dp_status dp_samples_describe(const struct dp_samples_info *info, const char *words, size_t bytes,
                              struct dp_samples **out)
{
    const size_t names = info->class_names != NULL ? (size_t)info->classes : 0;
    struct dp_samples *s = dp_zalloc(1, sizeof(*s));
    const char **name;
    char *text;

    if (s == NULL || (s->state = dp_zalloc(1, names * sizeof(*name) + bytes)) == NULL) {
        dp_free(s);
        return DP_FAIL(DP_ERR_NOMEM, "data set");
    }
    name = s->state;
    text = (char *)(name + names);
    memcpy(text, words, bytes);
    s->info = *info;
    s->info.note = text;
    s->info.class_names = names > 0 ? name : NULL;
    for (size_t i = 0; i < names; i++) {
        text += strlen(text) + 1;
        name[i] = text;
    }
    *out = s;
    return DP_OK;
}

bool dp_samples_absent(const struct dp_samples *s)
{
    return s->source == NULL;
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

/* ---- units ---- */

/* The set of unit `u`, which then counts in it. */
static enum dp_set set_of_unit(const struct dp_samples *s, size_t *u)
{
    const size_t train = units_of(s, DP_SET_TRAIN);

    if (*u < train) {
        return DP_SET_TRAIN;
    }
    *u -= train;
    return DP_SET_TEST;
}

size_t dp_samples_unit_bytes(const struct dp_samples *s, size_t u)
{
    const enum dp_set set = set_of_unit(s, &u);

    return s->source->unit_bytes(s->state, set, u);
}

dp_status dp_samples_read_unit(const struct dp_samples *s, size_t u, size_t bytes, uint8_t *out)
{
    const enum dp_set set = set_of_unit(s, &u);

    return s->source->read_unit(s->state, set, u, bytes, out);
}

void dp_samples_keep(struct dp_samples *s, const uint8_t *bytes, const uint64_t *at,
                     const uint8_t *there)
{
    const size_t train = units_of(s, DP_SET_TRAIN);

    s->kept = (struct dp_kept_units){
        .bytes = bytes, .at = {at, at + train}, .there = {there, there + train}};
}

/* ---- what readers take, and share ---- */

size_t dp_samples_fetcher_bytes(const struct dp_samples *s)
{
    return dp_samples_absent(s) || s->source->fetcher_bytes == NULL
               ? 0
               : s->source->fetcher_bytes(s->state);
}

/* Of the source's rows, among which one of each stretch may be held out to test with. */
static size_t source_rows(const struct dp_samples *s, size_t rows)
{
    const size_t stretch = s->split.test > 0 ? s->split.count / s->split.test : 0;

    return s->split.test == 0 ? rows
           : stretch > 1      ? rows + rows / (stretch - 1) + 2
                              : s->split.count;
}

size_t dp_samples_window_bytes(const struct dp_samples *s, size_t rows)
{
    return dp_samples_absent(s) || s->source->window_bytes == NULL
               ? 0
               : s->source->window_bytes(s->state, source_rows(s, rows));
}

dp_status dp_samples_share(struct dp_samples *s, size_t rows, size_t bytes)
{
    return dp_samples_absent(s) || s->source->share == NULL || bytes == 0
               ? DP_OK
               : s->source->share(s->state, source_rows(s, rows), bytes);
}

/* ---- places ---- */

size_t dp_samples_locate(const struct dp_samples *s, enum dp_set set, size_t i, enum dp_set *from)
{
    *from = s->split.test > 0 ? DP_SET_TRAIN : set;
    return s->split.test == 0   ? i
           : set == DP_SET_TEST ? dp_split_test_row(&s->split, i)
                                : dp_split_train_row(&s->split, i);
}

void dp_samples_name(const struct dp_samples *s, enum dp_set set, size_t i, char *text, size_t size)
{
    enum dp_set from;
    const size_t row = dp_samples_locate(s, set, i, &from);

    if (s->source->name != NULL) {
        s->source->name(s->state, from, row, text, size);
    } else {
        (void)snprintf(text, size, "%s: sample %zu (counted from 0) of the %s set", place_of(s),
                       row, from == DP_SET_TRAIN ? "training" : "test");
    }
}

void dp_samples_name_label(const struct dp_samples *s, enum dp_set set, size_t i, char *text,
                           size_t size)
{
    enum dp_set from;
    const size_t row = dp_samples_locate(s, set, i, &from);

    if (s->source->name_label != NULL) {
        s->source->name_label(s->state, from, row, text, size);
    } else {
        dp_samples_name(s, set, i, text, size);
    }
}
