/*
 * source_csv.c - train.csv and test.csv: a sample a line, its label first or last.
 *
 * A model of several outputs that are compared with numbers takes a class, or a number for each: of
 * lines with as many fields as that makes these are the label. Where there is no model, as in
 * ddp_data, a label has as many numbers as were asked for.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/data/formats/csv.h"
#include "runtime/data/formats/csv_index.h"
#include "runtime/data/formats/data_file.h"
#include "runtime/data/source.h"

enum { PIECE = 1 << 20 };

static const char *const names[DP_SETS] = {"train.csv", "test.csv"};

struct table {
    struct dp_data_file file;
    struct dp_csv_index index;
    struct dp_csv_form form;
    size_t header;  /* lines of it: 0 or 1 */
    bool counts_up; /* the first row may be one */
};

struct tables {
    struct table of[DP_SETS];
};

/* ---- opening ---- */

static dp_status refuse(const struct table *t, dp_status status, const struct dp_problem *problem)
{
    return DP_FAIL(status, "%s: %s", t->file.path, problem->text);
}

/* Reads the whole file, to find its lines. */
static dp_status make_index(struct table *t, char *piece)
{
    struct dp_problem problem;
    dp_status status = DP_OK;

    for (size_t at = 0; at < t->file.bytes && status == DP_OK; at += PIECE) {
        const size_t count = t->file.bytes - at < PIECE ? t->file.bytes - at : PIECE;
        DP_TRY(dp_data_file_read(&t->file, at, piece, count));
        status = dp_csv_index_take(&t->index, piece, count, &problem);
    }
    status = status == DP_OK ? dp_csv_index_finish(&t->index, &problem) : status;
    return status == DP_OK ? DP_OK : refuse(t, status, &problem);
}

/* The first bytes of a text that an editor of Windows wrote. */
static size_t mark_bytes(const char *text, size_t bytes)
{
    return bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* Lines of a block, without the mark: where it lies in the file, and how long it is. */
static size_t block_bytes(const struct table *t, size_t block)
{
    return t->index.blocks[block + 1].at - t->index.blocks[block].at;
}

/* Fields that a label has, of a model whose outputs may be compared with as many numbers. */
static dp_status count_labels(struct table *t, const struct dp_source_config *config)
{
    const size_t input = config->input.count, targets = config->targets;

    if (targets < 2 || (input > 0 && t->form.fields == input + 1)) {
        return DP_OK;
    }
    if (input == 0 && t->form.fields <= targets) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: has %zu fields a line, of which %zu were to be the label: the others "
                       "are the sample",
                       t->file.path, t->form.fields, targets);
    }
    if (input > 0 && t->form.fields != input + targets) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: has %zu fields a line: for %zu inputs and %zu outputs of the model "
                       "write %zu, or %zu with a class as the label",
                       t->file.path, t->form.fields, input, targets, input + targets, input + 1);
    }
    t->form.labels = targets;
    return DP_OK;
}

/* What all lines have, but nobody wanted: its advice would be to change the model. */
static dp_status check_columns(const struct table *t, const struct dp_source_config *config,
                               const char *line, size_t length)
{
    const size_t input = config->input.count, fields = t->form.fields;

    if (t->header == 1 && dp_csv_lacks_name(&t->form, line, length)) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: its first column has no name, as row numbers of pandas and R: leave "
                       "them out (index=False, row.names=FALSE), or name the column",
                       t->file.path);
    }
    if (input > 0 && dp_csv_ends_empty(&t->form, line, length) &&
        (fields == input + 2 || (config->targets > 1 && fields == input + config->targets + 1))) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: line 1: ends with a separator, so that field %zu is empty: take that "
                       "out at the end of all lines",
                       t->file.path, fields);
    }
    return DP_OK;
}

/* Whether the first line can be one of a table at all. */
static dp_status check_text(const struct table *t, const char *line, size_t length)
{
    if (memchr(line, '\0', length) != NULL) {
        return DP_FAIL(DP_ERR_DATA, "%s: is no text, or one in UTF-16: save it as CSV in UTF-8",
                       t->file.path);
    }
    if (length > 0 && memchr(line, '\r', length - 1) != NULL) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: its lines end with CR alone: save it with LF, or CR LF, between lines",
                       t->file.path);
    }
    return DP_OK;
}

/* What the first line tells of all of them. */
static dp_status read_form(struct table *t, const struct dp_source_config *config, char *block)
{
    const char *line = block, *end;
    size_t bytes = block_bytes(t, 0), length;

    DP_TRY(dp_data_file_read(&t->file, t->index.blocks[0].at, block, bytes));
    line += mark_bytes(block, bytes);
    bytes -= (size_t)(line - block);
    end = memchr(line, '\n', bytes);
    length = end != NULL ? (size_t)(end - line) : bytes;
    DP_TRY(check_text(t, line, length));
    t->form = dp_csv_form_of(line, length, config->label_last);
    t->header = dp_csv_is_header(&t->form, line, length) ? 1 : 0;
    t->counts_up = dp_csv_counts_up(&t->form, line, length);
    if (t->form.fields < 2) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: its first line has one field: a label and numbers are wanted, with "
                       "commas, semicolons or tabs between them",
                       t->file.path);
    }
    if (t->index.lines == t->header) {
        return DP_FAIL(DP_ERR_DATA, "%s: has no rows", t->file.path);
    }
    DP_TRY(check_columns(t, config, line, length));
    return count_labels(t, config);
}

static dp_status open_table(struct table *t, const struct dp_source_config *config,
                            const char *name)
{
    char *memory;
    dp_status status;

    DP_TRY(dp_data_file_open(&t->file, config->dir, name));
    memory = dp_zalloc(1, PIECE);
    if (memory == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: reading", t->file.path);
    }
    status = make_index(t, memory);
    dp_free(memory);
    DP_TRY(status);
    if (t->index.lines == 0) {
        return DP_FAIL(DP_ERR_DATA, "%s: is empty", t->file.path);
    }
    memory = dp_zalloc(1, block_bytes(t, 0));
    if (memory == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: first lines", t->file.path);
    }
    status = read_form(t, config, memory);
    dp_free(memory);
    return status;
}

static struct dp_sample_shape shape_of(const struct table *t)
{
    return (struct dp_sample_shape){.count = t->form.fields - t->form.labels,
                                    .element = DP_ELEMENT_FLOAT};
}

static dp_status open_all(struct tables *all, const struct dp_source_config *config,
                          struct dp_source_info *info)
{
    const struct table *train = &all->of[DP_SET_TRAIN], *test = &all->of[DP_SET_TEST];

    if (!dp_data_file_exists(config->dir, names[DP_SET_TRAIN])) {
        return dp_data_file_missing(config->dir, names[DP_SET_TRAIN],
                                    "put it there, or set data.dir");
    }
    for (int set = 0; set < DP_SETS; set++) {
        struct table *t = &all->of[set];
        if (set == DP_SET_TRAIN || dp_data_file_exists(config->dir, names[set])) {
            DP_TRY(open_table(t, config, names[set]));
            info->count[set] = t->index.lines - t->header;
        }
    }
    if (info->count[DP_SET_TEST] > 0 && test->form.fields != train->form.fields) {
        return DP_FAIL(DP_ERR_DATA, "%s: has %zu fields a line, and %s %zu: write both alike",
                       test->file.path, test->form.fields, train->file.path, train->form.fields);
    }
    if (train->counts_up || test->counts_up) {
        (void)snprintf(info->note, sizeof(info->note),
                       "the first line of %s counts up: it is taken as a row; if it is a header, "
                       "give the columns names, or save it without (pandas: header=False)",
                       names[train->counts_up ? DP_SET_TRAIN : DP_SET_TEST]);
    }
    info->shape = shape_of(train);
    info->targets = train->form.labels > 1 ? train->form.labels : 0;
    return DP_OK;
}

static void csv_close(void *state)
{
    struct tables *all = state;

    for (int set = 0; set < DP_SETS; set++) {
        dp_csv_index_release(&all->of[set].index);
        dp_data_file_close(&all->of[set].file);
    }
}

static dp_status csv_open(void *state, const struct dp_source_config *config,
                          struct dp_source_info *info)
{
    struct dp_source_info found = {.classes = 0};
    dp_status status;

    if (config->dir == NULL || config->dir[0] == '\0') {
        return DP_FAIL(DP_ERR_CONFIG, "data.dir: source csv needs the folder of its files");
    }
    status = open_all(state, config, &found);
    if (status != DP_OK) {
        csv_close(state);
        return status;
    }
    *info = found;
    return DP_OK;
}

/* ---- reading ---- */

/* What `more` of a fetcher holds: the label of a row, its numbers, then where the lines of the
 * block begin. */
static size_t label_bytes(const struct table *t)
{
    return t->form.labels * sizeof(double);
}

static size_t row_bytes(const struct table *t)
{
    return label_bytes(t) + (t->form.fields - t->form.labels) * sizeof(float);
}

static uint32_t *starts_of(const struct table *t, const struct dp_fetcher *fetcher)
{
    return (uint32_t *)(void *)((char *)fetcher->more.data + row_bytes(t));
}

/* Reads a block, and finds its lines, of which it has as many as the index says: unless the file
 * has changed meanwhile. */
static dp_status hold_block(const struct table *t, size_t block, struct dp_fetcher *fetcher)
{
    const struct dp_csv_block *b = &t->index.blocks[block];
    const size_t bytes = block_bytes(t, block), lines = b[1].line - b[0].line;
    const char *text, *at;
    uint32_t *starts;

    fetcher->held = 0;
    if (!dp_buffer_reserve(&fetcher->bytes, bytes) ||
        !dp_buffer_reserve(&fetcher->more, row_bytes(t) + (lines + 1) * sizeof(*starts))) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: %zu lines", t->file.path, lines);
    }
    DP_TRY(dp_data_file_read(&t->file, b->at, fetcher->bytes.data, bytes));
    starts = starts_of(t, fetcher);
    text = fetcher->bytes.data;
    at = text;
    for (size_t i = 0; i <= lines; i++) {
        const char *end = at < text + bytes ? memchr(at, '\n', (size_t)(text + bytes - at)) : NULL;
        starts[i] = (uint32_t)(at - text);
        at = end != NULL ? end + 1 : text + bytes;
    }
    return DP_OK;
}

static dp_status csv_fetch(void *state, struct dp_fetcher *fetcher, enum dp_set set, size_t row,
                           struct dp_raw *raw)
{
    const struct tables *all = state;
    const struct table *t = &all->of[set];
    const size_t line = row + t->header, block = dp_csv_index_find(&t->index, line);
    const size_t within = line - t->index.blocks[block].line;
    const uint64_t number = 1 + 2 * (uint64_t)block + (uint64_t)set;
    struct dp_problem problem;
    const uint32_t *starts;
    const char *text, *end;
    double *label;
    float *numbers;

    if (fetcher->held != number) {
        DP_TRY(hold_block(t, block, fetcher));
        fetcher->held = number;
    }
    starts = starts_of(t, fetcher);
    text = (const char *)fetcher->bytes.data + starts[within];
    end = (const char *)fetcher->bytes.data + starts[within + 1];
    text += line == 0 ? mark_bytes(text, (size_t)(end - text)) : 0;
    end -= end > text && end[-1] == '\n' ? 1 : 0;
    label = fetcher->more.data;
    numbers = (float *)(void *)((char *)fetcher->more.data + label_bytes(t));
    if (dp_csv_read(&t->form, text, (size_t)(end - text), numbers, label, &problem) != DP_OK) {
        return DP_FAIL(DP_ERR_DATA, "%s: line %zu: %s", t->file.path, line + 1, problem.text);
    }
    *raw = (struct dp_raw){.kind = DP_RAW_ARRAY,
                           .data = numbers,
                           .bytes = row_bytes(t) - label_bytes(t),
                           .shape = shape_of(t),
                           .label = *label,
                           .targets = t->form.labels > 1 ? label : NULL};
    return DP_OK;
}

static void csv_name(const void *state, enum dp_set set, size_t row, char *text, size_t size)
{
    const struct tables *all = state;
    const struct table *t = &all->of[set];

    (void)snprintf(text, size, "%s: line %zu", t->file.path, row + t->header + 1);
}

static void csv_name_label(const void *state, enum dp_set set, size_t row, char *text, size_t size)
{
    const struct tables *all = state;
    const size_t header = all->of[set].header;

    (void)snprintf(text, size, "%s: line %zu%s", all->of[set].file.path, row + header + 1,
                   row == 0 && header == 0 ? " (no header, since it has numbers)" : "");
}

const struct dp_source dp_source_csv = {
    .plugin = {.name = "csv",
               .help = "train.csv and test.csv in data.dir: a sample a line, numbers and a label "
                       "(data.label)",
               .options = NULL,
               .state_bytes = sizeof(struct tables)},
    .open = csv_open,
    .fetch = csv_fetch,
    .name = csv_name,
    .name_label = csv_name_label,
    .close = csv_close,
};
