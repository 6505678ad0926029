/*
 * csv.h - a line of numbers, some of which are the label.
 *
 * Fields are separated by commas, semicolons or tabs, whichever the file's first line has; spaces
 * around them are left out, and so is a pair of double quotes, in which no separator counts.
 * Numbers are decimal. Each is read as a double and rounded to float32, as numpy.loadtxt does with
 * astype('float32').
 */
#ifndef DP_RUNTIME_DATA_FORMATS_CSV_H
#define DP_RUNTIME_DATA_FORMATS_CSV_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "runtime/data/problem.h"

/* How the lines of a file are written. */
struct dp_csv_form {
    char separator;
    bool label_last; /* the label is at the end of a line, else at the beginning */
    size_t fields;   /* of a line, with the label */
    size_t labels;   /* fields of the label: 1 or more, fewer than `fields` */
};

/* What a line without its end tells: its separator, and how many fields it has, one of them of the
 * label. A comma in fields that semicolons or tabs separate is none. */
struct dp_csv_form dp_csv_form_of(const char *line, size_t length, bool label_last);

/* Whether a line is a header: where the label belongs there is no number, and no "nan" or "NA",
 * which stand in the place of one. */
bool dp_csv_is_header(const struct dp_csv_form *form, const char *line, size_t length);

/* Whether the first field of a line is empty: in a header that of row numbers is, as pandas and R
 * write them. */
bool dp_csv_lacks_name(const struct dp_csv_form *form, const char *line, size_t length);

/* Whether a line ends with a separator. */
bool dp_csv_ends_empty(const struct dp_csv_form *form, const char *line, size_t length);

/* Whether the fields of a line, three at least, are whole numbers that count up, such as 0, 1, 2 or
 * 1990, 1991, 1992; the label's may have been moved from one end to the other: a header of columns
 * that have no names, which looks like a row. */
bool dp_csv_counts_up(const struct dp_csv_form *form, const char *line, size_t length);

/*
 * Reads a line without its end.
 *
 *   numbers  out  [form->fields - form->labels]: all but the label, in order
 *   label    out  [form->labels]
 *
 * Errors: DP_ERR_DATA (another number of fields; one that is no number, or not one of float32);
 * `problem` says which.
 */
DP_CHECKED dp_status dp_csv_read(const struct dp_csv_form *form, const char *line, size_t length,
                                 float *numbers, double *label, struct dp_problem *problem);

#endif
