/* test_row_maker.c - rows of a batch, and how many of them are reported as made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "runtime/data/stream/row_maker.h"

enum { ROWS = 6, SAMPLE = 3 };

/* Each row is reported in one call alone. */
static void rows_are_reported_once(void **state)
{
    static const uint8_t images[ROWS][SAMPLE] = {{1, 2, 3}, {4, 5, 6}};
    static const int32_t labels[ROWS] = {7, 8};
    const struct dp_row_maker_config config = {.images = images[0],
                                               .labels = labels,
                                               .count = ROWS,
                                               .sample_bytes = SAMPLE,
                                               .label_words = 1};
    struct dp_row_maker *maker = NULL;
    struct dp_stage_times times;
    uint8_t image[SAMPLE];
    int32_t label;
    size_t skipped = 0;
    (void)state;

    assert_int_equal(dp_row_maker_create(&config, &maker), DP_OK);
    for (size_t rows = ROWS; rows > 0; rows--) {
        for (size_t row = 0; row < rows; row++) {
            assert_int_equal(dp_row_maker_make(maker, 0, row, image, &label, &skipped), DP_OK);
            assert_memory_equal(image, images[row], SAMPLE);
            assert_int_equal(label, labels[row]);
        }
        dp_row_maker_take_times(maker, &times);
        assert_int_equal(times.rows, rows);
        assert_int_equal(times.bytes[DP_STAGE_AUGMENT], rows * SAMPLE);
    }
    dp_row_maker_take_times(maker, &times);
    assert_int_equal(times.rows, 0);
    dp_row_maker_destroy(maker);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_reported_once)};

    return cmocka_run_group_tests_name("row_maker", tests, NULL, NULL);
}
