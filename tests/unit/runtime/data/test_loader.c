/* test_loader.c - batches: over all ranks exactly the order of the epoch, from any step on, and no
 * allocation on the way. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/loader.h"
#include "runtime/data/permute.h"
#include "runtime/data/rows.h"
#include "runtime/data/window.h"
#include "tests/support/held_mutexes.h"

enum { COUNT = 261, TWICE = 2 * COUNT, SAMPLE = 5 };

static uint8_t images[COUNT * SAMPLE];
static int32_t labels[COUNT];

/* Byte j of row i: rows can be told apart by their first two bytes. */
static uint8_t pixel(size_t row, size_t j)
{
    return (uint8_t)(j == 0 ? row & 255 : j == 1 ? row >> 8 : row * 7 + j);
}

static int make_data(void **state)
{
    (void)state;
    for (size_t row = 0; row < COUNT; row++) {
        for (size_t j = 0; j < SAMPLE; j++) {
            images[row * SAMPLE + j] = pixel(row, j);
        }
        labels[row] = (int32_t)row + 1000;
    }
    return 0;
}

static struct dp_loader_config configured(size_t global_batch, int rank, int ranks, uint64_t steps)
{
    return (struct dp_loader_config){.images = images,
                                     .labels = labels,
                                     .count = COUNT,
                                     .sample_bytes = SAMPLE,
                                     .global_batch = global_batch,
                                     .rank = rank,
                                     .ranks = ranks,
                                     .seed = 42,
                                     .shuffle = true,
                                     .total_steps = steps};
}

static struct dp_loader *created(const struct dp_loader_config *config)
{
    struct dp_loader *loader = NULL;

    assert_int_equal(dp_loader_create(config, &loader), DP_OK);
    return loader;
}

/* The row of the data set that stands in row `i` of the batch, image and label agreeing. */
static size_t row_of(const struct dp_batch *batch, size_t i)
{
    const uint8_t *image = batch->images + i * SAMPLE;
    const size_t row = (size_t)batch->labels[i] - 1000;

    assert_true(row < COUNT);
    for (size_t j = 0; j < SAMPLE; j++) {
        assert_int_equal(image[j], pixel(row, j));
    }
    return row;
}

/* Which row each position of the first `steps` steps got; rows are put down by every rank. */
struct record {
    size_t row[TWICE];
    int times[TWICE];
};

/* Runs one rank from first to last step and puts its rows down. */
static void record_rank(struct record *record, const struct dp_loader_config *config)
{
    const uint64_t per_epoch = dp_steps_per_epoch(COUNT, config->global_batch, config->drop_last);
    struct dp_loader *loader = created(config);
    struct dp_batch batch;

    for (uint64_t step = config->first_step; step < config->total_steps; step++) {
        const uint64_t index = step % per_epoch;
        assert_int_equal(dp_loader_next(loader, &batch), DP_OK);
        assert_int_equal(batch.step, step);
        assert_int_equal(batch.epoch, step / per_epoch);
        assert_int_equal(batch.global_rows, dp_global_rows(COUNT, config->global_batch, index));
        for (size_t i = 0; i < batch.rows; i++) {
            const size_t at = (size_t)batch.epoch * COUNT + (size_t)index * config->global_batch +
                              batch.first_row + i;
            assert_true(at < TWICE);
            record->row[at] = row_of(&batch, i);
            record->times[at]++;
        }
    }
    dp_loader_destroy(loader);
}

/* Checks `covered` positions of both epochs against the permutation. */
static void check_record(const struct record *record, const struct dp_loader_config *config,
                         size_t covered)
{
    for (uint32_t epoch = 0; epoch < 2; epoch++) {
        struct dp_permutation order;
        dp_permutation_init(&order, config->seed, epoch, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            const size_t at = (size_t)epoch * COUNT + i;
            assert_int_equal(record->times[at], i < covered ? 1 : 0);
            if (i < covered) {
                assert_int_equal(record->row[at],
                                 config->shuffle ? dp_permutation_at(&order, i) : i);
            }
        }
    }
}

static void ranks_together_take_exactly_the_order_of_the_epoch(void **state)
{
    static const int ranks[] = {1, 2, 3, 4, 8, 300};
    static const size_t batches[] = {1, 7, 250, 256, 261, 1000};
    static struct record record;
    (void)state;

    for (size_t p = 0; p < sizeof(ranks) / sizeof(ranks[0]); p++) {
        for (size_t b = 0; b < sizeof(batches) / sizeof(batches[0]); b++) {
            const uint64_t steps = 2 * dp_steps_per_epoch(COUNT, batches[b], false);
            struct dp_loader_config config = configured(batches[b], 0, ranks[p], steps);
            memset(&record, 0, sizeof(record));
            for (config.rank = 0; config.rank < ranks[p]; config.rank++) {
                record_rank(&record, &config);
            }
            check_record(&record, &config, COUNT);
        }
    }
}

static void in_windows_ranks_together_take_each_row_once(void **state)
{
    static struct record record;
    struct dp_loader_config config = configured(7, 0, 3, 2 * dp_steps_per_epoch(COUNT, 7, false));
    struct dp_window_order order;
    (void)state;

    config.window = 50;
    memset(&record, 0, sizeof(record));
    for (config.rank = 0; config.rank < 3; config.rank++) {
        record_rank(&record, &config);
    }
    for (size_t at = 0; at < TWICE; at++) {
        dp_window_order_init(&order, config.seed, at < COUNT ? 0 : 1, COUNT, 50);
        assert_int_equal(record.times[at], 1);
        assert_int_equal(record.row[at], dp_window_order_at(&order, at % COUNT));
    }
}

static void without_shuffle_rows_follow_the_file(void **state)
{
    static struct record record;
    struct dp_loader_config config = configured(7, 0, 3, 2 * dp_steps_per_epoch(COUNT, 7, false));
    (void)state;

    config.shuffle = false;
    memset(&record, 0, sizeof(record));
    for (config.rank = 0; config.rank < 3; config.rank++) {
        record_rank(&record, &config);
    }
    check_record(&record, &config, COUNT);
}

static void drop_last_leaves_out_the_short_batch_only(void **state)
{
    static struct record record;
    struct dp_loader_config config = configured(7, 0, 3, 2 * dp_steps_per_epoch(COUNT, 7, true));
    (void)state;

    config.drop_last = true;
    memset(&record, 0, sizeof(record));
    for (config.rank = 0; config.rank < 3; config.rank++) {
        record_rank(&record, &config);
    }
    check_record(&record, &config, COUNT - COUNT % 7);
}

static void steps_of_an_epoch_round_up_or_down(void **state)
{
    (void)state;
    assert_int_equal(dp_steps_per_epoch(60000, 256, false), 235);
    assert_int_equal(dp_steps_per_epoch(60000, 256, true), 234);
    assert_int_equal(dp_steps_per_epoch(512, 256, false), 2);
    assert_int_equal(dp_steps_per_epoch(512, 256, true), 2);
    assert_int_equal(dp_steps_per_epoch(100, 256, false), 1);
    assert_int_equal(dp_steps_per_epoch(100, 256, true), 0);
    assert_int_equal(dp_steps_per_epoch(0, 256, false), 0);
    assert_int_equal(dp_global_rows(60000, 256, 234), 96);
    assert_int_equal(dp_global_rows(60000, 256, 233), 256);
}

/* The formula is part of the interface: it decides which rank trains on what. */
static void row_ranges_follow_the_formula_and_fit_the_slot(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 40; ranks++) {
        for (size_t rows = 0; rows <= 90; rows++) {
            size_t next = 0;
            for (int rank = 0; rank < ranks; rank++) {
                const struct dp_range range = dp_row_range(rows, rank, ranks);
                assert_int_equal(range.begin, next);
                assert_int_equal(range.begin, (size_t)rank * rows / (size_t)ranks);
                assert_true(range.count <= dp_most_rows(rows, ranks));
                next += range.count;
            }
            assert_int_equal(next, rows);
        }
    }
}

static void drop_last_without_a_full_batch_is_refused(void **state)
{
    struct dp_loader_config config = configured(COUNT + 1, 0, 1, 1);
    struct dp_loader *loader = NULL;
    (void)state;

    config.drop_last = true;
    assert_int_equal(dp_loader_create(&config, &loader), DP_ERR_CONFIG);
    config.global_batch = 1;
    config.count = 0;
    assert_int_equal(dp_loader_create(&config, &loader), DP_ERR_DATA);
    assert_null(loader);
    assert_int_equal(dp_mem_live(), 0);
}

/* Fails unless both batches are the same, row by row. */
static void assert_same_batch(const struct dp_batch *a, const struct dp_batch *b)
{
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->global_rows, b->global_rows);
    assert_int_equal(a->first_row, b->first_row);
    assert_int_equal(a->rows, b->rows);
    assert_memory_equal(a->images, b->images, a->rows * SAMPLE);
    assert_memory_equal(a->labels, b->labels, a->rows * sizeof(*a->labels));
}

static void a_start_in_the_middle_equals_skipping(void **state)
{
    static const uint64_t starts[] = {1, 17, 37, 38, 50, 99};
    (void)state;

    for (size_t s = 0; s < sizeof(starts) / sizeof(starts[0]); s++) {
        struct dp_loader_config config = configured(7, 1, 2, 100);
        struct dp_loader *whole = created(&config), *deferred;
        struct dp_batch expected, found;
        config.first_step = starts[s];
        deferred = created(&config);
        for (uint64_t step = 0; step < 100; step++) {
            assert_int_equal(dp_loader_next(whole, &expected), DP_OK);
            if (step >= starts[s]) {
                assert_int_equal(dp_loader_next(deferred, &found), DP_OK);
                assert_same_batch(&expected, &found);
            }
        }
        dp_loader_destroy(deferred);
        dp_loader_destroy(whole);
    }
}

static void a_batch_stays_until_the_next_call(void **state)
{
    (void)state;
    for (int depth = 1; depth <= 4; depth++) {
        struct dp_loader_config config = configured(64, 0, 2, 200);
        struct dp_loader *loader;
        struct dp_batch batch;
        uint8_t copy[64 * SAMPLE];
        config.depth = depth;
        loader = created(&config);
        for (int step = 0; step < 200; step++) {
            assert_int_equal(dp_loader_next(loader, &batch), DP_OK);
            memcpy(copy, batch.images, batch.rows * SAMPLE);
            /* Meanwhile the thread fills all other slots. */
            for (size_t i = 0; i < batch.rows; i++) {
                (void)row_of(&batch, i);
            }
            assert_memory_equal(copy, batch.images, batch.rows * SAMPLE);
        }
        dp_loader_destroy(loader);
    }
}

static void after_the_last_step_there_is_no_batch(void **state)
{
    struct dp_loader_config config = configured(7, 0, 1, 2);
    struct dp_loader *loader = created(&config);
    struct dp_batch batch = {.step = 77};
    (void)state;

    assert_int_equal(dp_loader_next(loader, &batch), DP_OK);
    assert_int_equal(dp_loader_next(loader, &batch), DP_OK);
    assert_int_equal(dp_loader_next(loader, &batch), DP_ERR_ARG);
    assert_int_equal(batch.step, 1);
    dp_loader_destroy(loader);
    config.first_step = 5; /* a finished run that is resumed */
    loader = created(&config);
    assert_int_equal(dp_loader_next(loader, &batch), DP_ERR_ARG);
    dp_loader_destroy(loader);
}

static void cached_input_repeats_the_first_batch(void **state)
{
    struct dp_loader_config config = configured(100, 1, 2, 1000);
    struct dp_loader *plain = created(&config), *cached;
    struct dp_batch first, batch;
    (void)state;

    assert_int_equal(dp_loader_next(plain, &first), DP_OK);
    config.cached = true;
    config.first_step = 5;
    cached = created(&config);
    for (uint64_t step = 5; step < 1000; step++) {
        assert_int_equal(dp_loader_next(cached, &batch), DP_OK);
        assert_int_equal(batch.step, step);
        assert_int_equal(batch.epoch, step / 3);
        batch.step = first.step;
        batch.epoch = first.epoch;
        assert_same_batch(&first, &batch);
    }
    assert_int_equal(dp_loader_next(cached, &batch), DP_ERR_ARG);
    dp_loader_destroy(cached);
    dp_loader_destroy(plain);
}

/* Until the thread has it: it fills all slots that nobody reads. */
static struct dp_batch peeked(struct dp_loader *loader)
{
    struct dp_batch batch;

    while (!dp_loader_peek(loader, &batch)) {
        (void)sched_yield();
    }
    return batch;
}

static void the_next_batch_can_be_seen_before_it_is_taken(void **state)
{
    struct dp_loader_config config = configured(64, 0, 2, 9);
    (void)state;

    for (int cached = 0; cached < 2; cached++) {
        config.cached = cached != 0;
        struct dp_loader *loader = created(&config);
        struct dp_batch batch, next = peeked(loader);
        for (uint64_t step = 0; step < 9; step++) {
            const int32_t label = next.labels[0];
            assert_int_equal(next.step, step);
            assert_int_equal(dp_loader_next(loader, &batch), DP_OK);
            assert_ptr_equal(batch.images, next.images);
            assert_int_equal(batch.labels[0], label); /* it has stayed */
            assert_int_equal(batch.epoch, next.epoch);
            assert_same_batch(&batch, &next);
            if (step < 8) {
                next = peeked(loader);
            }
        }
        assert_false(dp_loader_peek(loader, &next));
        dp_loader_destroy(loader);
    }
}

static struct {
    char *memory;
    size_t bytes;
    int pins, unpins;
} pinned;

static void note_pin(void *memory, size_t bytes)
{
    pinned.memory = memory;
    pinned.bytes = bytes;
    pinned.pins++;
}

static void note_unpin(void *memory)
{
    assert_ptr_equal(memory, pinned.memory);
    pinned.unpins++;
}

/* Once for all of them: pages that two slots share could not be pinned twice. */
static void for_a_device_all_slots_are_pinned_at_once(void **state)
{
    const struct dp_device device = {.pin = note_pin, .unpin = note_unpin};
    struct dp_loader_config config = configured(7, 0, 1, 20);
    struct dp_loader *loader;
    struct dp_batch batch;
    (void)state;

    config.device = &device;
    loader = created(&config);
    for (int step = 0; step < 20; step++) {
        const char *begin = pinned.memory, *end = begin + pinned.bytes;
        assert_int_equal(dp_loader_next(loader, &batch), DP_OK);
        assert_true((const char *)batch.images >= begin &&
                    (const char *)(batch.images + batch.rows * SAMPLE) <= end);
        assert_true((const char *)batch.labels >= begin &&
                    (const char *)(batch.labels + batch.rows) <= end);
    }
    dp_loader_destroy(loader);
    assert_int_equal(pinned.pins, 1);
    assert_int_equal(pinned.unpins, 1);
}

static void a_loader_ends_promptly_at_any_point(void **state)
{
    (void)state;
    for (int round = 0; round < 300; round++) {
        struct dp_loader_config config = configured(50, 0, 1, (uint64_t)1 << 40);
        struct dp_loader *loader = created(&config);
        struct dp_batch batch;
        for (int i = 0; i < round % 6; i++) {
            assert_int_equal(dp_loader_next(loader, &batch), DP_OK);
        }
        dp_loader_destroy(loader);
    }
    dp_loader_destroy(NULL);
    assert_int_equal(dp_mem_live(), 0);
}

/* An armed failure that is still pending at the end was met by no allocation. */
static void batches_allocate_nothing(void **state)
{
    struct dp_loader_config config = configured(20, 1, 3, 500);
    struct dp_loader *loader = created(&config);
    struct dp_batch batch;
    (void)state;

    dp_mem_fail_nth(1);
    for (int step = 0; step < 500; step++) {
        assert_int_equal(dp_loader_next(loader, &batch), DP_OK);
    }
    assert_null(dp_zalloc(1, 1));
    dp_mem_fail_nth(0);
    dp_loader_destroy(loader);
}

static void survives_every_failed_allocation(void **state)
{
    (void)state;
    for (int cached = 0; cached < 2; cached++) {
        struct dp_loader_config config = configured(7, 0, 2, 50);
        dp_status status = DP_ERR_NOMEM;
        config.cached = cached != 0;
        for (int nth = 1; status != DP_OK; nth++) {
            struct dp_loader *loader = NULL;
            dp_mem_fail_nth(nth);
            status = dp_loader_create(&config, &loader);
            assert_true(status == DP_OK || status == DP_ERR_NOMEM);
            assert_true((loader != NULL) == (status == DP_OK));
            assert_true(status != DP_OK || nth > 3);
            dp_loader_destroy(loader);
            assert_int_equal(dp_mem_live(), 0);
        }
        dp_mem_fail_nth(0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_together_take_exactly_the_order_of_the_epoch),
        cmocka_unit_test(in_windows_ranks_together_take_each_row_once),
        cmocka_unit_test(without_shuffle_rows_follow_the_file),
        cmocka_unit_test(drop_last_leaves_out_the_short_batch_only),
        cmocka_unit_test(steps_of_an_epoch_round_up_or_down),
        cmocka_unit_test(row_ranges_follow_the_formula_and_fit_the_slot),
        cmocka_unit_test(drop_last_without_a_full_batch_is_refused),
        cmocka_unit_test(a_start_in_the_middle_equals_skipping),
        cmocka_unit_test(a_batch_stays_until_the_next_call),
        cmocka_unit_test(after_the_last_step_there_is_no_batch),
        cmocka_unit_test(cached_input_repeats_the_first_batch),
        cmocka_unit_test(the_next_batch_can_be_seen_before_it_is_taken),
        cmocka_unit_test(for_a_device_all_slots_are_pinned_at_once),
        cmocka_unit_test(a_loader_ends_promptly_at_any_point),
        cmocka_unit_test(batches_allocate_nothing),
        cmocka_unit_test(survives_every_failed_allocation),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests(tests, make_data, NULL);
}
