/*
 * test_rows.h - rows of the test set, as an evaluation takes them: where they lie in memory, or
 * read and decoded when they are wanted, a pass at a time.
 */
#ifndef DP_RUNTIME_DATA_STREAM_TEST_ROWS_H
#define DP_RUNTIME_DATA_STREAM_TEST_ROWS_H

#include "runtime/data/samples.h"

struct dp_test_rows_config {
    const uint8_t *images;  /* borrowed; [count, sample_bytes]; NULL: `samples` are read */
    const int32_t *labels;  /* borrowed; [count, label_words] */
    const uint32_t *prints; /* borrowed; [count]: row_print.h; NULL: rows are not checked */
    size_t count, sample_bytes, label_words;
    struct dp_samples *samples; /* borrowed */
    bool skips;                 /* another sample takes the place of a bad one */
    int users;                  /* threads that take rows at the same time */
    int threads;                /* that read for one user; more than 1 only where users is 1 */
};

struct dp_test_rows;

/* Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_test_rows_create(const struct dp_test_rows_config *config,
                                         struct dp_test_rows **out);

size_t dp_test_rows_count(const struct dp_test_rows *rows);

/*
 * Rows [first, first + count) for thread `user`, from 0.
 *
 *   images, labels  out  as above; valid until the user's next call
 *
 * Errors: those of dp_sample_reader_read(), which are not reported but kept; DP_ERR_NOMEM; where
 * rows lie in memory DP_ERR_DISAGREE: one is another than was read.
 */
DP_CHECKED dp_status dp_test_rows_get(struct dp_test_rows *rows, int user, size_t first,
                                      size_t count, const uint8_t **images, const int32_t **labels);

/* The kept failure of the first row that could not be read, and what is to be said of it, once:
 * other threads and ranks may have met other bad rows. DP_OK: there is none, or `rows` is NULL. */
DP_CHECKED dp_status dp_test_rows_failure(const struct dp_test_rows *rows, const char **error);

/* NULL is allowed. */
void dp_test_rows_destroy(struct dp_test_rows *rows);

#endif
