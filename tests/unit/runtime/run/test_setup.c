/* test_setup.c - if one rank cannot begin, all leave together, and none waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "runtime/run/dataset/load_dataset.h"
#include "runtime/run/place.h"
#include "runtime/run/setup.h"
#include "runtime/run/training.h"
#include "tests/support/local_world.h"
#include "tests/support/stderr_text.h"
#include "tests/support/whole_run.h"

enum { RANKS = 2 };

typedef dp_status part(struct dp_run_job *job);

struct attempt {
    const struct dp_run_options *options;
    part *body;
    bool meets;              /* with any result ranks remain in step */
    int nth;                 /* allocation that fails, of whichever rank */
    dp_status status[RANKS]; /* what it came to */
};

static size_t try_part(struct dp_group *group, const void *arg)
{
    struct attempt *attempt = *(struct attempt *const *)arg;
    struct dp_world world = {
        .all = group, .train = group, .roles = {.count = {[DP_ROLE_TRAIN] = group->size}}};
    struct dp_training run;

    memset(&run, 0, sizeof(run));
    run.job.options = attempt->options;
    run.job.world = &world;
    attempt->status[group->rank] = DP_ERR_CANCELLED; /* unless it comes so far */
    if (dp_group_barrier(group) != DP_OK) {
        return 1;
    }
    if (group->rank == 0) {
        dp_mem_fail_nth(attempt->nth);
    }
    if (dp_group_barrier(group) != DP_OK) {
        return 1;
    }
    attempt->status[group->rank] = attempt->body(&run.job);
    dp_run_teardown(&run);
    if (attempt->meets && dp_group_barrier(group) != DP_OK) {
        return 1; /* they sent what nobody had asked for */
    }
    return attempt->status[group->rank] != DP_OK;
}

/* Lets every allocation of every rank fail once. */
static void fail_everywhere(part *body, bool meets)
{
    const struct dp_run_options options = options_of("out", 0, NULL);
    struct attempt attempt = {.options = &options, .body = body, .meets = meets};
    const struct attempt *const arg = &attempt;
    const size_t live = dp_mem_live();
    size_t wrong = 1;

    scratch_write(scratch_path("small.cfg"), whole_run_text, sizeof(whole_run_text) - 1);
    for (attempt.nth = 1; wrong > 0; attempt.nth++) {
        stderr_begin();
        wrong = on_local_ranks(RANKS, try_part, &arg);
        stderr_end();
        dp_mem_fail_nth(0);
        assert_true(wrong == 0 || wrong == RANKS);
        assert_int_equal(dp_mem_live(), live);
        assert_in_range(attempt.nth, 1, 10000);
        for (int rank = 0; wrong > 0 && rank < RANKS; rank++) {
            assert_true(attempt.status[rank] == DP_ERR_NOMEM ||
                        (!meets && attempt.status[rank] == DP_ERR_CANCELLED));
        }
    }
    assert_true(attempt.nth > 2 * RANKS);
}

static void a_rank_without_memory_to_be_placed_ends_all(void **state)
{
    (void)state;
    fail_everywhere(dp_run_place, true);
}

static void ranks_without_memory_for_their_configuration_all_end(void **state)
{
    (void)state;
    fail_everywhere(dp_run_configure, false);
}

static dp_status load_data(struct dp_run_job *job)
{
    struct dp_progress progress;

    dp_progress_init(&progress, stdout, false, true);
    DP_TRY(dp_run_configure(job));
    return dp_run_load_data(job, &progress);
}

static void ranks_without_memory_for_their_data_all_end(void **state)
{
    (void)state;
    fail_everywhere(load_data, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_rank_without_memory_to_be_placed_ends_all, scratch_create,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(ranks_without_memory_for_their_configuration_all_end,
                                        scratch_create, scratch_destroy),
        cmocka_unit_test_setup_teardown(ranks_without_memory_for_their_data_all_end, scratch_create,
                                        scratch_destroy),
    };

    return cmocka_run_group_tests_name("setup", tests, NULL, NULL);
}
