#include "launch/bench/rows.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"

/* Where a column appears: always, in the table alone, or when an option asks for it. */
enum when { ALWAYS, TABLE, BOUND, BUCKETS, TRAIN };
enum kind { TEXT, NAME /* a text in the row itself */, WHOLE, REAL };

#define ROW struct dp_bench_row

/* clang-format off */
static const struct column {
    const char *name;
    enum kind kind;
    enum when when;
    size_t offset;
    int width, decimals; /* in the table; decimals -1: as many as matter */
} columns[] = {
    {"bucket",       NAME,  BUCKETS, offsetof(ROW, bucket),       6, 0},
    {"size",         WHOLE, ALWAYS,  offsetof(ROW, size),        11, 0},
    {"count",        WHOLE, ALWAYS,  offsetof(ROW, count),       11, 0},
    {"type",         TEXT,  ALWAYS,  offsetof(ROW, type),         6, 0},
    {"strategy",     TEXT,  ALWAYS,  offsetof(ROW, strategy),    15, 0},
    {"compressor",   TEXT,  ALWAYS,  offsetof(ROW, compressor),  11, 0},
    {"ranks",        WHOLE, ALWAYS,  offsetof(ROW, ranks),        5, 0},
    {"min_us",       REAL,  ALWAYS,  offsetof(ROW, min_us),      10, 1},
    {"median_us",    REAL,  ALWAYS,  offsetof(ROW, median_us),   10, 1},
    {"p99_us",       REAL,  ALWAYS,  offsetof(ROW, p99_us),      10, 1},
    {"algbw",        REAL,  ALWAYS,  offsetof(ROW, algbw),        7, 2},
    {"busbw",        REAL,  ALWAYS,  offsetof(ROW, busbw),        7, 2},
    {"wrong",        WHOLE, ALWAYS,  offsetof(ROW, wrong),        7, 0},
    {"wire_bytes",   WHOLE, ALWAYS,  offsetof(ROW, wire_bytes),  11, 0},
    {"max_ulp",      REAL,  ALWAYS,  offsetof(ROW, max_ulp),      8, -1},
    {"rel_l2",       REAL,  ALWAYS,  offsetof(ROW, rel_l2),       8, -1},
    {"predicted_us", REAL,  ALWAYS,  offsetof(ROW, predicted_us),12, 1},
    {"meas/pred",    REAL,  TABLE,   offsetof(ROW, ratio),        9, 2},
    {"bound_us",     REAL,  BOUND,   offsetof(ROW, bound_us),    10, 1},
    {"step_us",      REAL,  BUCKETS, offsetof(ROW, step_us),     10, 1},
    {"exposed_us",   REAL,  BUCKETS, offsetof(ROW, exposed_us),  10, 1},
    {"loss",         REAL,  TRAIN,   offsetof(ROW, loss),         8, 4},
    {"accuracy",     REAL,  TRAIN,   offsetof(ROW, accuracy),     8, 4},
};
/* clang-format on */

enum { COLUMN_COUNT = sizeof(columns) / sizeof(columns[0]), CELL = 128 };

static const char *text_of(const struct column *column, const struct dp_bench_row *row)
{
    const char *field = (const char *)row + column->offset;

    return column->kind == TEXT ? *(const char *const *)(const void *)field : field;
}

static double number_of(const struct column *column, const struct dp_bench_row *row)
{
    return *(const double *)(const void *)((const char *)row + column->offset);
}

static bool shown(const struct dp_bench_rows *rows, const struct column *column)
{
    const struct dp_bench_options *o = rows->options;

    switch (column->when) {
    case TABLE:
        return o->format == DP_BENCH_TABLE;
    case BOUND:
        return o->bound;
    case BUCKETS:
        return o->buckets != NULL;
    case TRAIN:
        return o->train_steps > 0;
    default:
        return true;
    }
}

void dp_bench_row_init(struct dp_bench_row *row)
{
    memset(row, 0, sizeof(*row));
    row->type = "float";
    row->bound = "copy bound";
    row->median_range = row->exposed_range = (struct dp_stats_range){(double)NAN, (double)NAN};
    for (int i = 0; i < COLUMN_COUNT; i++) {
        if (columns[i].kind == WHOLE || columns[i].kind == REAL) {
            *(double *)(void *)((char *)row + columns[i].offset) = (double)NAN;
        }
    }
}

static bool is_text(const struct column *column)
{
    return column->kind == TEXT || column->kind == NAME;
}

static void print_number(const struct dp_bench_rows *rows, const struct column *column,
                         double value)
{
    char cell[CELL];

    if (isnan(value)) {
        (void)snprintf(cell, sizeof(cell), "-");
    } else if (column->decimals < 0) {
        (void)snprintf(cell, sizeof(cell), "%.2g", value);
    } else {
        (void)snprintf(cell, sizeof(cell), "%.*f", column->decimals, value);
    }
    (void)fprintf(rows->file, " %*s", column->width, cell);
}

static void print_cell(const struct dp_bench_rows *rows, const struct column *column,
                       const struct dp_bench_row *row)
{
    if (is_text(column)) {
        (void)fprintf(rows->file, " %*s", column->width, text_of(column, row));
    } else {
        print_number(rows, column, number_of(column, row));
    }
}

static void print_csv(const struct dp_bench_rows *rows, const struct column *column,
                      const struct dp_bench_row *row)
{
    if (is_text(column)) {
        const char *text = text_of(column, row);
        (void)fprintf(rows->file, strchr(text, ',') != NULL ? "\"%s\"" : "%s", text);
    } else if (!isnan(number_of(column, row))) {
        (void)fprintf(rows->file, "%.*g", DP_JSON_READABLE, number_of(column, row));
    }
}

static dp_status set_json(struct dp_json *json, const struct column *column,
                          const struct dp_bench_row *row)
{
    const double value = is_text(column) ? 0.0 : number_of(column, row);

    if (is_text(column)) {
        return dp_json_set_text(json, column->name, text_of(column, row));
    }
    if (isnan(value)) {
        return dp_json_set_null(json, column->name);
    }
    return column->kind == WHOLE ? dp_json_set_int(json, column->name, (int64_t)value)
                                 : dp_json_set_real(json, column->name, value);
}

static dp_status print_json(const struct dp_bench_rows *rows, const struct dp_bench_row *row)
{
    const bool first = row == rows->row;
    struct dp_json *json = dp_json_create();
    dp_status status = json != NULL ? DP_OK : DP_ERR_NOMEM;
    char *text = NULL;

    for (int i = 0; i < COLUMN_COUNT && status == DP_OK; i++) {
        if (shown(rows, &columns[i])) {
            status = set_json(json, &columns[i], row);
        }
    }
    if (status == DP_OK) {
        status = dp_json_dump(json, 0, DP_JSON_READABLE, &text);
    }
    if (status == DP_OK) {
        (void)fprintf(rows->file, "%s\n%s", first ? "" : ",", text);
    }
    dp_free(text);
    dp_json_destroy(json);
    return status == DP_OK ? DP_OK : DP_FAIL(status, "a row of JSON");
}

/* The array is closed also after a row has failed. */
static dp_status print_array(const struct dp_bench_rows *rows)
{
    dp_status status = DP_OK;

    (void)fputc('[', rows->file);
    for (size_t i = 0; i < rows->count && status == DP_OK; i++) {
        status = print_json(rows, &rows->row[i]);
    }
    (void)fputs("\n]\n", rows->file);
    return status;
}

/* Once, before the first row. */
static void print_heading(struct dp_bench_rows *rows)
{
    const char *between = "";

    if (rows->headed) {
        return;
    }
    rows->headed = true;
    for (int i = 0; i < COLUMN_COUNT; i++) {
        if (!shown(rows, &columns[i])) {
            continue;
        }
        if (rows->options->format == DP_BENCH_CSV) {
            (void)fprintf(rows->file, "%s%s", between, columns[i].name);
        } else { /* the first name gives way to the mark of a comment */
            (void)fprintf(rows->file, "%s%*s", *between == '\0' ? "#" : " ", columns[i].width,
                          columns[i].name);
        }
        between = ",";
    }
    (void)fputc('\n', rows->file);
}

static void print_row(const struct dp_bench_rows *rows, const struct dp_bench_row *row)
{
    const char *between = "";

    for (int i = 0; i < COLUMN_COUNT; i++) {
        if (!shown(rows, &columns[i])) {
            continue;
        }
        if (rows->options->format == DP_BENCH_CSV) {
            (void)fputs(between, rows->file);
            print_csv(rows, &columns[i], row);
        } else {
            print_cell(rows, &columns[i], row);
        }
        between = ",";
    }
    (void)fputc('\n', rows->file);
    (void)fflush(rows->file);
}

static dp_status keep(struct dp_bench_rows *rows, const struct dp_bench_row *row)
{
    if (rows->count == rows->capacity) {
        const size_t capacity = 2 * rows->capacity + 16;
        struct dp_bench_row *more = dp_zalloc(capacity, sizeof(*more));
        if (more == NULL) {
            return DP_FAIL(DP_ERR_NOMEM, "%zu rows", capacity);
        }
        if (rows->count > 0) {
            memcpy(more, rows->row, rows->count * sizeof(*more));
        }
        dp_free(rows->row);
        rows->row = more;
        rows->capacity = capacity;
    }
    rows->row[rows->count++] = *row;
    return DP_OK;
}

void dp_bench_rows_begin(struct dp_bench_rows *rows, const struct dp_bench_options *options,
                         FILE *file)
{
    *rows = (struct dp_bench_rows){.options = options, .file = file};
}

dp_status dp_bench_rows_add(struct dp_bench_rows *rows, const struct dp_bench_row *row)
{
    if (rows->file != NULL && rows->options->format != DP_BENCH_JSON) {
        print_heading(rows);
        print_row(rows, row);
    }
    return keep(rows, row);
}

dp_status dp_bench_rows_end(struct dp_bench_rows *rows)
{
    dp_status status = DP_OK;

    if (rows->file == NULL) {
        return DP_OK;
    }
    if (rows->options->format == DP_BENCH_JSON) {
        status = print_array(rows);
    } else {
        print_heading(rows);
    }
    (void)fflush(rows->file); /* the program checks at its end that all was written */
    return status;
}

void dp_bench_rows_note(const struct dp_bench_rows *rows, const char *format, ...)
{
    const bool table = rows->options->format == DP_BENCH_TABLE;
    FILE *file = table ? rows->file : stderr;
    va_list arguments;

    if (rows->file == NULL) {
        return;
    }
    (void)fputs("# ", file);
    va_start(arguments, format);
    dp_text_vline(file, format, arguments);
    va_end(arguments);
    (void)fflush(file);
}

void dp_bench_rows_destroy(struct dp_bench_rows *rows)
{
    dp_free(rows->row);
    *rows = (struct dp_bench_rows){.options = rows->options};
}
