/* test_failed_start.c - where one rank cannot make its trainer, all ranks learn of it. */
#include "tests/support/arrays.h"

#include "base/log.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"

enum { RANKS = 3 };

struct trial {
    struct small_run run;
    int failing; /* the rank that has no rows to train on */
};

static size_t start(struct dp_group *group, const void *arg)
{
    const struct trial *trial = arg;
    struct small_run run = trial->run;
    struct dp_log_capture capture;
    struct dp_trainer *t = NULL;
    dp_status status;
    size_t wrong = 0;

    if (group->rank == trial->failing) {
        run.data.train_count = 0;
    }
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = small_run_trainer(&run, group, SMALL_STEPS, &t);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    wrong += status != (trial->failing < RANKS ? DP_ERR_DATA : DP_OK);
    wrong += (t != NULL) != (status == DP_OK);
    wrong +=
        (strstr(dp_log_captured(&capture), "no rows") != NULL) != (group->rank == trial->failing);
    dp_trainer_destroy(t);
    return wrong;
}

static void a_trainer_that_one_rank_cannot_make_no_rank_makes(void **state)
{
    struct trial trial;
    (void)state;

    assert_int_equal(small_run_create(&trial.run, small_dense, NULL), 0);
    for (trial.failing = 0; trial.failing <= RANKS; trial.failing++) {
        assert_int_equal(on_local_ranks(RANKS, start, &trial), 0);
    }
    small_run_destroy(&trial.run);
    assert_int_equal(dp_mem_live(), 0);
}

/* Of as many ranks as there are servers none is left to train. */
static size_t start_servers(struct dp_group *group, const void *arg)
{
    struct dp_log_capture capture;
    struct dp_trainer *t = NULL;
    size_t wrong = 0;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    wrong += small_run_trainer(arg, group, SMALL_STEPS, &t) != DP_ERR_CONFIG;
    dp_log_capture_end(&capture, DP_LOG_DROP);
    wrong += t != NULL;
    wrong += strstr(dp_log_captured(&capture), "leave none to train") == NULL;
    dp_trainer_destroy(t);
    return wrong;
}

static void servers_alone_do_not_train(void **state)
{
    static const char *const sets[] = {"comm.strategy=ps", "comm.servers=2", NULL};
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    assert_int_equal(on_local_ranks(1, start_servers, &run), 0);
    assert_int_equal(on_local_ranks(2, start_servers, &run), 0);
    small_run_destroy(&run);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trainer_that_one_rank_cannot_make_no_rank_makes),
        cmocka_unit_test(servers_alone_do_not_train),
    };

    return cmocka_run_group_tests_name("failed_start", tests, NULL, NULL);
}
