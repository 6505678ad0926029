/*
 * test_window_rows.c - of a source's rows a window of training rows needs those that are held out
 * to test with, too, which lie between them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "runtime/data/samples.h"
#include "runtime/data/split.h"

/* A source of numbered rows, which says that a window takes as many bytes as it has rows. */
static struct {
    size_t rows;
    size_t shared_rows, shared_bytes; /* of the last call of share() */
} numbered;

static dp_status numbered_open(void *state, const struct dp_source_config *config,
                               struct dp_source_info *info)
{
    (void)state;
    (void)config;
    *info = (struct dp_source_info){.count = {numbered.rows, 0},
                                    .shape = {.count = 1, .height = 1, .width = 1, .channels = 1}};
    return DP_OK;
}

static size_t numbered_window_bytes(const void *state, size_t rows)
{
    (void)state;
    return rows;
}

static dp_status numbered_share(void *state, size_t rows, size_t bytes)
{
    (void)state;
    numbered.shared_rows = rows;
    numbered.shared_bytes = bytes;
    return DP_OK;
}

static void numbered_close(void *state)
{
    (void)state;
}

static const struct dp_source numbered_source = {
    .plugin = {.name = "numbered", .help = "rows with numbers", .state_bytes = 1},
    .open = numbered_open,
    .window_bytes = numbered_window_bytes,
    .share = numbered_share,
    .close = numbered_close,
};

static struct dp_samples *open_rows(size_t rows, double held_out)
{
    const struct dp_source_config config = {.test_fraction = held_out,
                                            .only_train = held_out == 0.0};
    struct dp_samples *samples = NULL;

    numbered.rows = rows;
    numbered.shared_rows = numbered.shared_bytes = 0;
    assert_int_equal(dp_samples_open("numbered", &config, &samples), DP_OK);
    return samples;
}

/* From the first to the last row of the source, of the longest window of training rows. */
static size_t longest(const struct dp_split *split, size_t rows)
{
    const size_t count = split->count - split->test;
    size_t most = 0;

    for (size_t first = 0; first + rows <= count; first++) {
        const size_t begin = dp_split_train_row(split, first);
        const size_t last = dp_split_train_row(split, first + rows - 1);
        most = last + 1 - begin > most ? last + 1 - begin : most;
    }
    return most;
}

/* Stretches of `stretch` rows, of each of which one is held out. */
static void check_stretch(size_t stretch)
{
    const size_t rows = 5000 * stretch;
    const struct dp_split split = dp_split_of(rows, 1.0 / (double)stretch);
    struct dp_samples *samples = open_rows(rows, 1.0 / (double)stretch);
    size_t exact = 0;

    assert_int_equal(dp_samples_info(samples)->count[DP_SET_TEST], 5000);
    assert_int_equal(dp_samples_window_bytes(samples, 1), 3); /* wherever it lies */
    for (size_t window = 2; window < 8; window++) {
        const size_t needs = longest(&split, window);
        assert_in_range(dp_samples_window_bytes(samples, window), needs, needs + 1);
        exact += dp_samples_window_bytes(samples, window) == needs;
        assert_int_equal(dp_samples_share(samples, window, 10), DP_OK);
        assert_int_equal(numbered.shared_rows, dp_samples_window_bytes(samples, window));
        assert_int_equal(numbered.shared_bytes, 10);
    }
    assert_true(exact > 0);
    dp_samples_close(samples);
}

static void rows_that_are_held_out_lie_in_a_window_too(void **state)
{
    (void)state;

    for (size_t stretch = 4; stretch <= 7; stretch++) {
        check_stretch(stretch);
    }
    assert_int_equal(dp_mem_live(), 0);
}

/* Where every row but one may be held out, all lie in it. */
static void where_most_rows_are_held_out_a_window_has_all(void **state)
{
    struct dp_samples *samples = open_rows(100, 0.6);
    (void)state;

    assert_int_equal(dp_samples_window_bytes(samples, 2), 100);
    dp_samples_close(samples);
    samples = open_rows(100, 0.5); /* stretches of two */
    assert_int_equal(dp_samples_window_bytes(samples, 10), 22);
    dp_samples_close(samples);
}

static void a_window_has_its_own_rows_where_none_are_held_out(void **state)
{
    struct dp_samples *samples = open_rows(100, 0.0);
    (void)state;

    assert_int_equal(dp_samples_window_bytes(samples, 7), 7);
    assert_int_equal(dp_samples_share(samples, 7, 0), DP_OK);
    assert_int_equal(numbered.shared_rows, 0); /* no room, nothing to share */
    assert_int_equal(dp_samples_share(samples, 7, 1), DP_OK);
    assert_int_equal(numbered.shared_rows, 7);
    dp_samples_close(samples);
}

static int add_source(void **state)
{
    (void)state;
    return dp_plugin_add(&dp_sources, &numbered_source.plugin) != DP_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_are_held_out_lie_in_a_window_too),
        cmocka_unit_test(where_most_rows_are_held_out_a_window_has_all),
        cmocka_unit_test(a_window_has_its_own_rows_where_none_are_held_out),
    };

    return cmocka_run_group_tests_name("window_rows", tests, add_source, NULL);
}
