/* test_lent_rows.c - what a trainer lends to another one of its rank that measures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collectives/core/transport.h"
#include "runtime/data/row_print.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"

enum { STEPS = 3 };

/* As dp_trainer_lend() where other ranks read this rank's rows, and send them. */
static struct dp_trainer_config lend_received(struct dp_trainer *t)
{
    struct dp_trainer_config config;
    int receiver;

    t->input.receiver = (struct dp_batch_receiver *)(void *)&receiver; /* nobody looks into it */
    config = dp_trainer_lend(t);
    t->input.receiver = NULL;
    return config;
}

static size_t lend(struct dp_group *group, const void *arg)
{
    const struct small_run *run = arg;
    struct dp_trainer *t = NULL, *borrower = NULL;
    struct dp_trainer_config config;
    struct dp_group *alone = NULL;
    struct dp_step_report report;
    size_t wrong = 0;

    if (small_run_trainer(run, group, STEPS, &t) != DP_OK || dp_trainer_step(t, &report) != DP_OK ||
        dp_local_alone(&alone) != DP_OK) {
        return 1;
    }
    config = lend_received(t);
    wrong += config.data->train_images != t->input.batch.images || !config.cached_input;
    wrong += config.data->train_count != t->input.batch.rows;
    wrong += !config.data->made; /* nothing changes them a second time */
    config.group = alone;
    config.threads = 1;
    config.total_steps = STEPS;
    if (dp_trainer_create(&config, &borrower) != DP_OK) {
        return wrong + 1;
    }
    wrong += dp_trainer_copy_state(borrower, t) != DP_OK;
    for (int i = 0; i < STEPS; i++) {
        wrong += dp_trainer_step(borrower, &report) != DP_OK || !(report.loss > 0);
    }
    dp_trainer_destroy(borrower);
    dp_group_destroy(alone);
    wrong += dp_trainer_step(t, &report) != DP_OK;
    dp_trainer_destroy(t);
    return wrong;
}

/* As many rows as the rank with most has. */
static size_t lends_a_ranks_share(struct dp_group *group, const void *run)
{
    struct dp_trainer *t = NULL;
    size_t wrong = 0;

    if (small_run_trainer(run, group, STEPS, &t) != DP_OK) {
        return 1;
    }
    for (size_t rows = 30; rows <= 33; rows++) {
        t->input.global_batch = rows;
        wrong += dp_trainer_lend(t).global_batch != (rows == 30 ? 10 : 11);
    }
    dp_trainer_destroy(t);
    return wrong;
}

static void a_lent_batch_is_a_ranks_share(void **state)
{
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, NULL), 0);
    assert_int_equal(on_local_ranks(3, lends_a_ranks_share, &run), 0);
    small_run_destroy(&run);
}

/* The hashes of the data set are of its own rows: those of a batch are others. */
static void rows_that_were_received_are_lent_and_are_not_compared_with_the_data_set(void **state)
{
    uint32_t prints[SMALL_TRAIN];
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, NULL), 0);
    const struct dp_row_prints rows = {.images = run.data.train_images,
                                       .labels = run.data.train_labels,
                                       .count = SMALL_TRAIN,
                                       .sample_bytes = run.data.sample_bytes,
                                       .label_words = 1};
    dp_row_prints_make(&rows, prints);
    run.data.train_prints = prints;
    for (int ranks = 1; ranks <= 2; ranks++) {
        assert_int_equal(on_local_ranks(ranks, lend, &run), 0);
    }
    small_run_destroy(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_were_received_are_lent_and_are_not_compared_with_the_data_set),
        cmocka_unit_test(a_lent_batch_is_a_ranks_share),
    };

    return cmocka_run_group_tests_name("lent_rows", tests, NULL, NULL);
}
