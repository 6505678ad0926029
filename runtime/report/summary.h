/*
 * summary.h - the results of a run, as its report has them: run.json. summary_print.h prints them.
 *
 * The structs hold results only, filled in by whoever measured them. Their members, with what each
 * one is, are the rows of summary.def.
 */
#ifndef DP_RUNTIME_REPORT_SUMMARY_H
#define DP_RUNTIME_REPORT_SUMMARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"

#define DP_SUMMARY_SCHEMA "lockstep.run/1"

/* How a run ended: name in run.json. */
#define DP_RUN_EXITS(X)               \
    X(FINISHED, "finished")           \
    X(EARLY_STOPPED, "early_stopped") \
    X(STOPPED, "stopped")             \
    X(DIVERGED, "diverged")           \
    X(HUNG, "hung")                   \
    X(ERROR, "error")

enum dp_run_exit {
#define X(name, text) DP_RUN_##name,
    DP_RUN_EXITS(X)
#undef X
        DP_RUN_EXIT_COUNT
};

const char *dp_run_exit_text(enum dp_run_exit exit);

/* The parts of a step, in milliseconds: key in run.json, heading of the table, what it is. */
#define DP_STEP_PARTS(X)                                                          \
    X(INPUT, "input", "input", "waits for a batch")                               \
    X(COPY, "copy", "copy", "bytes of a batch become numbers")                    \
    X(FORWARD, "forward", "forward", "forward")                                   \
    X(BACKWARD, "backward", "backward", "backward")                               \
    X(EXPOSED, "exposed_comm", "exposed", "waits for communication")              \
    X(OPTIMIZER, "optimizer", "optim", "updates weights")                         \
    X(CHECKPOINT, "checkpoint", "ckpt", "takes snapshots, and waits for a write") \
    X(OTHER, "other", "other", "all else")

enum dp_step_part {
#define X(name, key, heading, help) DP_PART_##name,
    DP_STEP_PARTS(X)
#undef X
        DP_STEP_PART_COUNT
};

/* How a value is stored, in what unit, and how people see it: kind, unit. */
#define DP_REPORT_KINDS(X)     \
    X(TEXT, "")                \
    X(NAME, "")                \
    X(EXIT, "")                \
    X(COUNT, "")               \
    X(BYTES, "bytes")          \
    X(NUMBER, "")              \
    X(LOSS, "")                \
    X(FRACTION, "of 1")        \
    X(ACCURACY, "of 1")        \
    X(RATE, "samples/s")       \
    X(PER_DOLLAR, "samples/$") \
    X(SECONDS, "s")            \
    X(MILLISECONDS, "ms")      \
    X(GFLOPS, "GFLOP/s")       \
    X(GBS, "GB/s")             \
    X(SERIES, "")              \
    X(PARTS, "ms")             \
    X(HISTOGRAM, "")           \
    X(LIST, "")

enum dp_report_kind {
#define X(kind, unit) DP_REPORT_##kind,
    DP_REPORT_KINDS(X)
#undef X
};

enum { DP_REPORT_NAME_BYTES = 128 };

struct dp_histogram {
    const uint64_t *counts; /* [bins]; borrowed */
    size_t bins;            /* 0: there is none */
};

struct dp_series {
    double *at; /* [count]; owned by the summary */
    int count;  /* 0: there are none */
};

struct dp_text_list {
    const char *const *texts; /* [count]; borrowed */
    int count;                /* 0: there is none */
};

/* The members of the structs, by kind. */
#define DP_MEMBER_TEXT(member) const char *member
#define DP_MEMBER_NAME(member) char member[DP_REPORT_NAME_BYTES]
#define DP_MEMBER_EXIT(member) enum dp_run_exit member
#define DP_MEMBER_COUNT(member) int64_t member
#define DP_MEMBER_BYTES(member) int64_t member
#define DP_MEMBER_NUMBER(member) double member
#define DP_MEMBER_LOSS(member) double member
#define DP_MEMBER_FRACTION(member) double member
#define DP_MEMBER_ACCURACY(member) double member
#define DP_MEMBER_RATE(member) double member
#define DP_MEMBER_PER_DOLLAR(member) double member
#define DP_MEMBER_SECONDS(member) double member
#define DP_MEMBER_MILLISECONDS(member) double member
#define DP_MEMBER_GFLOPS(member) double member
#define DP_MEMBER_GBS(member) double member
#define DP_MEMBER_SERIES(member) struct dp_series member
#define DP_MEMBER_PARTS(member) double member[DP_STEP_PART_COUNT]
#define DP_MEMBER_HISTOGRAM(member) struct dp_histogram member
#define DP_MEMBER_LIST(member) struct dp_text_list member

/* clang-format off */

/* An object of each table: struct dp_run_rank, struct dp_run_bucket ... Those without TEXT are
 * plain bytes, so that ranks of one build may send them to each other. */
#define DP_TABLE(NAME, one, many) struct dp_run_##one {
#define DP_TABLE_ROW(one, kind, member, key, width, heading, help) DP_MEMBER_##kind(member);
#define DP_TABLE_END(one) };
#include "runtime/report/summary.def"

/* clang-format on */

enum dp_run_table {
#define DP_TABLE(NAME, one, many) DP_TABLE_##NAME,
#include "runtime/report/summary.def"
    DP_RUN_TABLES
};

struct dp_run_summary {
#define DP_RUN_ROW(kind, member, key, line, end, text, help) DP_MEMBER_##kind(member);
#include "runtime/report/summary.def"
/* clang-format off */
#define DP_TABLE(NAME, one, many) struct dp_run_##one *many; int one##_count;
#include "runtime/report/summary.def"
    /* clang-format on */
};

/* Lines of the text for people, from top to bottom. */
enum dp_report_line {
    DP_LINE_NONE,
    DP_LINE_REASON,
    DP_LINE_SETUP,
    DP_LINE_PLAN,
    DP_LINE_LOSSES,
    DP_LINE_RATES,
    DP_LINE_COST,
    DP_LINE_VERDICT,
    DP_LINE_INPUT
};

/* A row of summary.def. */
struct dp_report_row {
    enum dp_report_kind kind;
    const char *key;
    size_t offset; /* of its member */
    enum dp_report_line line;
    bool end;
    int width;
    const char *text, *help; /* text: also the heading of a column */
};

/* Row number `i`, from 0, of the whole run or of a rank; NULL: there are no more. */
const struct dp_report_row *dp_report_run_row(int i);
const struct dp_report_row *dp_report_rank_row(int i);

/* A table of summary.def. */
struct dp_report_table {
    const char *key;
    const struct dp_report_row *rows; /* [row_count] */
    int row_count;
    size_t size;                         /* of an object */
    size_t objects_offset, count_offset; /* in the summary */
};

const struct dp_report_table *dp_report_table(enum dp_run_table table);

/* The objects of a table: their number, and one of them. */
int dp_report_table_count(const struct dp_run_summary *summary, enum dp_run_table table);
void *dp_report_table_at(const struct dp_run_summary *summary, enum dp_run_table table, int i);

/* Replaces the file `path` by the summary as JSON; a reader never sees a part of it. On error an
 * older one stays. Errors: DP_ERR_WRITE, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_run_summary_write(const struct dp_run_summary *summary, const char *path);

/* Sets what the last line of metrics.jsonl has of it, each by the last word of its key. Errors:
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_run_summary_put_end(const struct dp_run_summary *summary,
                                            struct dp_json *object);

/* Prints a line for each key of run.json, on stdout: the key, its unit, what it is. */
void dp_run_summary_list(void);

#endif
