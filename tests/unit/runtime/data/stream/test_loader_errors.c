/*
 * test_loader_errors.c - which of several bad rows of a batch is reported, whatever thread finds
 * its one first: rows are made by functions in the place of row_maker.c.
 */
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "runtime/data/loader.h"
#include "runtime/data/stream/row_maker.h"
#include "tests/support/stderr_text.h"

enum { ROWS = 3, SAMPLE_BYTES = 1 << 20 /* so that a thread takes one row at once */ };

static sem_t last_row; /* is being made */

dp_status dp_row_maker_create(const struct dp_row_maker_config *config, struct dp_row_maker **out)
{
    (void)config;
    *out = NULL;
    return DP_OK;
}

void dp_row_maker_expect(const struct dp_row_maker *maker, uint64_t row)
{
    (void)maker;
    (void)row;
}

/* Row 0 fails once the thread that has failed with row 1 makes the next one. */
dp_status dp_row_maker_make(struct dp_row_maker *maker, uint64_t epoch, uint64_t row,
                            uint8_t *image, int32_t *label, size_t *skipped)
{
    (void)maker;
    (void)epoch;
    (void)image;
    (void)label;
    (void)skipped;
    if (row == ROWS - 1) {
        (void)sem_post(&last_row);
        return DP_OK;
    }
    while (row == 0 && sem_wait(&last_row) != 0) {
    }
    return DP_FAIL(row == 0 ? DP_ERR_DATA : DP_ERR_NOINPUT, "row %d is bad", (int)row);
}

void dp_row_maker_take_times(struct dp_row_maker *maker, struct dp_stage_times *out)
{
    (void)maker;
    memset(out, 0, sizeof(*out));
}

void dp_row_maker_destroy(struct dp_row_maker *maker)
{
    (void)maker;
}

static void of_bad_rows_the_first_in_the_batch_is_reported(void **state)
{
    static const uint8_t images[1];
    const struct dp_loader_config config = {.images = images,
                                            .count = ROWS,
                                            .sample_bytes = SAMPLE_BYTES,
                                            .global_batch = ROWS,
                                            .ranks = 1,
                                            .total_steps = 1,
                                            .workers = 2};
    struct dp_loader *loader = NULL;
    struct dp_batch batch;
    (void)state;

    assert_int_equal(sem_init(&last_row, 0, 0), 0);
    assert_int_equal(dp_loader_create(&config, &loader), DP_OK);
    stderr_begin();
    const dp_status status = dp_loader_next(loader, &batch);
    stderr_end();
    assert_int_equal(status, DP_ERR_DATA);
    assert_non_null(strstr(stderr_text, "row 0 is bad"));
    assert_null(strstr(stderr_text, "row 1 is bad"));
    dp_loader_destroy(loader);
    (void)sem_destroy(&last_row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_bad_rows_the_first_in_the_batch_is_reported),
    };
    return cmocka_run_group_tests_name("loader_errors", tests, NULL, NULL);
}
