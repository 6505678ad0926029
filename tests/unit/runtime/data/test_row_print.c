/* test_row_print.c - any bit of a row that flips in memory is found when the row is read. */
#include "tests/support/arrays.h"

#include "base/log.h"
#include "runtime/data/row_print.h"
#include "runtime/data/stream/row_maker.h"
#include "runtime/data/stream/test_rows.h"
#include "tests/support/stderr_text.h"

enum { ROWS = 5, BYTES = 13, WORDS = 2 };

static struct {
    uint8_t images[ROWS * BYTES];
    int32_t labels[ROWS * WORDS];
    uint32_t prints[ROWS];
} set;

static struct dp_row_prints begin(void)
{
    const struct dp_row_prints rows = {set.images, set.labels, ROWS, BYTES, WORDS, set.prints};

    for (int i = 0; i < ROWS * BYTES; i++) {
        set.images[i] = (uint8_t)(i * 37);
    }
    for (int i = 0; i < ROWS * WORDS; i++) {
        set.labels[i] = i * 3;
    }
    dp_row_prints_make(&rows, set.prints);
    return rows;
}

static void each_bit_of_images_and_labels_counts_and_only_in_its_row(void **state)
{
    const struct dp_row_prints rows = begin();
    (void)state;

    assert_int_equal(dp_row_prints_check(&rows, DP_SET_TRAIN, 0, ROWS), DP_OK);
    dp_log_set_level(DP_LOG_NONE);
    for (size_t bit = 0; bit < 8 * (sizeof(set.images) + sizeof(set.labels)); bit++) {
        const size_t byte = bit / 8, label = byte - sizeof(set.images);
        const bool image = byte < sizeof(set.images);
        const size_t row = image ? byte / BYTES : label / (WORDS * sizeof(int32_t));
        uint8_t *where = image ? &set.images[byte] : (uint8_t *)set.labels + label;

        *where ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(dp_row_prints_check(&rows, DP_SET_TRAIN, row, 1), DP_ERR_DISAGREE);
        assert_int_equal(dp_row_prints_check(&rows, DP_SET_TRAIN, 0, row), DP_OK);
        assert_int_equal(dp_row_prints_check(&rows, DP_SET_TRAIN, row + 1, ROWS - row - 1), DP_OK);
        *where ^= (uint8_t)(1 << bit % 8);
    }
    dp_log_set_level(DP_LOG_INFO);
}

/* Who takes rows: to train on, and to evaluate. */
static void who_reads_a_changed_row_is_refused_it(void **state)
{
    const struct dp_test_rows_config test = {.images = set.images,
                                             .labels = set.labels,
                                             .prints = set.prints,
                                             .count = ROWS,
                                             .sample_bytes = BYTES,
                                             .label_words = WORDS,
                                             .users = 1,
                                             .threads = 1};
    const struct dp_row_maker_config train = {.images = set.images,
                                              .labels = set.labels,
                                              .prints = set.prints,
                                              .count = ROWS,
                                              .sample_bytes = BYTES,
                                              .label_words = WORDS};
    struct dp_test_rows *rows = NULL;
    struct dp_row_maker *maker = NULL;
    uint8_t image[BYTES];
    int32_t label[WORDS];
    const uint8_t *images;
    const int32_t *labels;
    size_t skipped = 0;
    (void)state;

    (void)begin();
    assert_int_equal(dp_test_rows_create(&test, &rows), DP_OK);
    assert_int_equal(dp_row_maker_create(&train, &maker), DP_OK);
    set.images[3 * BYTES + 12] ^= 128;
    stderr_begin();
    assert_int_equal(dp_test_rows_get(rows, 0, 0, 3, &images, &labels), DP_OK);
    assert_int_equal(dp_test_rows_get(rows, 0, 2, 2, &images, &labels), DP_ERR_DISAGREE);
    assert_int_equal(dp_row_maker_make(maker, 0, 2, image, label, &skipped), DP_OK);
    assert_int_equal(dp_row_maker_make(maker, 0, 3, image, label, &skipped), DP_ERR_DISAGREE);
    stderr_end();
    assert_non_null(strstr(stderr_text, "sample 3 (counted from 0) of the test set in memory"));
    assert_non_null(strstr(stderr_text, "sample 3 (counted from 0) of the training set in memory"));
    dp_row_maker_destroy(maker);
    dp_test_rows_destroy(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_bit_of_images_and_labels_counts_and_only_in_its_row),
        cmocka_unit_test(who_reads_a_changed_row_is_refused_it),
    };

    return cmocka_run_group_tests_name("row_print", tests, NULL, NULL);
}
