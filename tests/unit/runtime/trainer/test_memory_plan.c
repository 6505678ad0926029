/*
 * test_memory_plan.c - the memory that ranks need is predicted, and with less there is advice.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "collectives/exchange/exchange_calls.h"
#include "collectives/gpu/gpu_peers.h"
#include "runtime/trainer/prepare/memory_check.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"
#include "tests/support/stderr_text.h"

enum { ROWS = 32 }; /* the global batch of a small run */

static struct dp_memory_plan need_of(const struct small_run *run)
{
    return (struct dp_memory_plan){.config = run->config,
                                   .model = run->model,
                                   .device = run->device,
                                   .trainers = 1,
                                   .threads = 1,
                                   .ranks_per_device = 1,
                                   .one_node = true};
}

static size_t sum_of(const struct dp_memory_plan *need, size_t micro_batch)
{
    size_t bytes[DP_MEM_PURPOSE_COUNT], sum = 0;

    dp_memory_plan_device(need, micro_batch, bytes);
    for (int i = 0; i < DP_MEM_PURPOSE_COUNT; i++) {
        sum += bytes[i];
    }
    return sum;
}

static dp_status check(const struct dp_memory_plan *need, size_t left)
{
    const struct dp_device_room room = {.name = "gpu", .total = (size_t)1 << 30, .left = left};
    dp_status status;

    stderr_begin();
    status = dp_memory_check_device(need, &room);
    stderr_end();
    return status;
}

/* The number after `word` in the line; 0: not found. */
static size_t number_after(const char *word)
{
    const char *at = strstr(stderr_text, word);

    return at == NULL ? 0 : strtoul(at + strlen(word), NULL, 10);
}

static void memory_that_just_fits_passes_and_a_byte_less_is_refused(void **state)
{
    struct small_run run;
    struct dp_memory_plan need;
    (void)state;

    assert_int_equal(small_run_create(&run, small_own_norm, NULL), 0);
    need = need_of(&run);
    assert_int_equal(check(&need, sum_of(&need, 0)), DP_OK);
    assert_string_equal(stderr_text, "");
    assert_int_equal(check(&need, sum_of(&need, 0) - 1), DP_ERR_NOMEM);
    assert_non_null(strstr(stderr_text, "gpu, 1.0 GiB, "));
    assert_non_null(strstr(stderr_text, "activations of 32 rows need "));
    assert_non_null(strstr(stderr_text, ", weights "));
    assert_non_null(strstr(stderr_text, ", gradients "));
    assert_non_null(strstr(stderr_text, ", optimizer state "));
    assert_non_null(strstr(stderr_text, " (now 32): out of memory\n"));
    assert_null(strchr(strchr(stderr_text, '\n') + 1, '\n')); /* one line */
    small_run_destroy(&run);
}

/* The advice fits, with a thirty-second in reserve, and fewer passes would not. */
static void the_advice_is_the_fewest_passes_that_fit(void **state)
{
    static const char *const rows_25[] = {"train.global_batch=25", NULL};
    struct small_run run;
    struct dp_memory_plan need;
    (void)state;

    assert_int_equal(small_run_create(&run, small_own_norm, rows_25), 0);
    need = need_of(&run);
    for (size_t left = sum_of(&need, 0) - 1; left > sum_of(&need, 1); left -= left / 16) {
        const size_t kept = left - left / 32;
        size_t advice, passes;
        assert_int_equal(check(&need, left), DP_ERR_NOMEM);
        advice = number_after("train.micro_batch ");
        if (advice == 0) {
            assert_non_null(strstr(stderr_text, "not even one row at a time would fit"));
            assert_true(sum_of(&need, 1) > kept);
            continue;
        }
        passes = (25 + advice - 1) / advice;
        assert_true(sum_of(&need, advice) <= kept);
        assert_true(passes > 1);
        assert_true(sum_of(&need, (25 + passes - 2) / (passes - 1)) > kept);
    }
    assert_int_equal(check(&need, sum_of(&need, 1) / 2), DP_ERR_NOMEM);
    assert_non_null(strstr(stderr_text, "not even one row at a time would fit"));
    small_run_destroy(&run);
}

/* Micro-batches are refused where batch norm is over the whole batch. */
static void a_synchronised_model_is_advised_a_smaller_batch(void **state)
{
    struct small_run run;
    struct dp_memory_plan need;
    (void)state;

    assert_int_equal(small_run_create(&run, small_conv, NULL), 0);
    need = need_of(&run);
    assert_int_equal(check(&need, sum_of(&need, 20)), DP_ERR_NOMEM);
    assert_null(strstr(stderr_text, "micro_batch"));
    assert_in_range(number_after("train.global_batch "), 1, 20);
    small_run_destroy(&run);
}

static void ranks_on_one_device_share_it_and_leave_the_workspace(void **state)
{
    enum { RANKS = 4, WORKSPACE = 1 << 20 };
    struct dp_device_room room = {.name = "gpu", .total = (size_t)1 << 30, .workspace = WORKSPACE};
    struct small_run run;
    struct dp_memory_plan need;
    (void)state;

    assert_int_equal(small_run_create(&run, small_own_norm, NULL), 0);
    need = need_of(&run);
    need.trainers = need.ranks_per_device = RANKS;
    room.left = RANKS * (sum_of(&need, 0) + WORKSPACE);
    assert_int_equal(dp_memory_check_device(&need, &room), DP_OK);
    room.left--;
    stderr_begin();
    assert_int_equal(dp_memory_check_device(&need, &room), DP_ERR_NOMEM);
    stderr_end();
    assert_non_null(strstr(stderr_text, " free for 4 ranks: activations of 8 rows need "));
    small_run_destroy(&run);
}

/* ---- the host ---- */

static size_t host_sum(const struct dp_memory_plan *plan, const struct dp_memory_ranks *ranks,
                       size_t micro_batch)
{
    size_t bytes[DP_MEM_PURPOSE_COUNT];

    dp_memory_plan_host(plan, ranks, micro_batch, bytes);
    return dp_memory_plan_sum(bytes);
}

static dp_status check_host(const struct dp_memory_plan *plan, const struct dp_memory_ranks *ranks,
                            size_t available, size_t swap)
{
    const struct dp_memory_limit limit = {
        .total = available, .available = available, .swap = swap, .name = "control group /job"};
    dp_status status;

    stderr_begin();
    status = dp_memory_check_host(plan, ranks, &limit);
    stderr_end();
    return status;
}

/* Memory that libraries have loaded already, swap, and the error of the system's figures. */
static void a_host_refuses_only_what_cannot_fit(void **state)
{
    enum { RANKS = 2 };
    const struct dp_memory_ranks all = {.trainers = RANKS, .first = true, .leads = true};
    size_t bytes[DP_MEM_PURPOSE_COUNT], need, sure;
    struct small_run run;
    struct dp_memory_plan plan;
    (void)state;

    assert_int_equal(small_run_create(&run, small_own_norm, NULL), 0);
    plan = need_of(&run);
    plan.trainers = RANKS;
    plan.data_bytes = (size_t)1 << 30;
    plan.saves = true;
    dp_memory_plan_host(&plan, &all, 0, bytes);
    need = dp_memory_plan_sum(bytes);
    sure = need - bytes[DP_MEM_OTHER];
    assert_int_equal(check_host(&plan, &all, need, 0), DP_OK);
    assert_string_equal(stderr_text, "");
    assert_int_equal(check_host(&plan, &all, need - 1, 0), DP_OK);
    assert_non_null(strstr(stderr_text, "warning: "));
    assert_non_null(strstr(stderr_text, "control group /job, "));
    assert_int_equal(check_host(&plan, &all, sure, 0), DP_OK);
    assert_int_equal(check_host(&plan, &all, sure / 2, sure / 2), DP_OK);
    assert_int_equal(check_host(&plan, &all, sure - sure / 16, 0), DP_ERR_NOMEM);
    assert_non_null(strstr(stderr_text, " available for 2 ranks: data need 1.0 GiB, "));
    assert_null(strchr(strchr(stderr_text, '\n') + 1, '\n')); /* one line */
    small_run_destroy(&run);
}

static void a_host_has_one_data_set_and_one_copy_of_shared_weights(void **state)
{
    static const char *const sets[2][2] = {{"comm.strategy=auto", NULL},
                                           {"comm.strategy=ring", NULL}};
    const struct dp_memory_ranks one = {.trainers = 1}, first = {.trainers = 1, .first = true};
    size_t rank[DP_MEM_PURPOSE_COUNT], host[DP_MEM_PURPOSE_COUNT];
    struct small_run run;
    struct dp_memory_plan plan;
    (void)state;

    for (int i = 0; i < 2; i++) {
        assert_int_equal(small_run_create(&run, small_own_norm, sets[i]), 0);
        plan = need_of(&run);
        plan.trainers = 4;
        plan.data_bytes = 12345;
        dp_memory_plan_host(&plan, &one, 0, rank);
        dp_memory_plan_host(&plan, &first, 0, host);
        assert_int_equal(host[DP_MEM_DATA] - rank[DP_MEM_DATA], 12345);
        assert_int_equal(host[DP_MEM_WEIGHTS], run.model->trained * sizeof(float));
        assert_int_equal(rank[DP_MEM_WEIGHTS], i == 0 && run.device->host_memory
                                                   ? 0
                                                   : run.model->trained * sizeof(float));
        small_run_destroy(&run);
    }
}

/* Libraries take their memory in each process, whatever it does. */
static void every_rank_of_a_host_has_its_libraries(void **state)
{
    static const struct dp_memory_ranks cases[] = {
        {.trainers = 1},
        {.trainers = 3},
        {.trainers = 2, .servers = 1},
        {.trainers = 2, .readers = 3},
        {.trainers = 1, .servers = 2, .readers = 1, .first = true, .leads = true},
        {.trainers = 1, .evaluators = 1},
    };
    size_t bytes[DP_MEM_PURPOSE_COUNT], one = 0;
    struct small_run run;
    struct dp_memory_plan plan;
    (void)state;

    assert_int_equal(small_run_create(&run, small_own_norm, NULL), 0);
    plan = need_of(&run);
    plan.trainers = 4;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct dp_memory_ranks *r = &cases[i];
        const int evaluators = run.device->host_memory ? r->evaluators : 0;
        dp_memory_plan_host(&plan, r, 0, bytes);
        one = i == 0 ? bytes[DP_MEM_OTHER] : one;
        assert_true(one > 0);
        assert_int_equal(bytes[DP_MEM_OTHER],
                         one * (size_t)(r->trainers + r->servers + r->readers + evaluators));
    }
    small_run_destroy(&run);
}

/* Fewer rows at a time if activations are too large, else fewer ranks. */
static void the_advice_of_a_host_fits(void **state)
{
    struct dp_memory_ranks all = {.trainers = 4, .first = true, .leads = true};
    struct small_run run;
    struct dp_memory_plan plan;
    size_t advice;
    (void)state;

    assert_int_equal(small_run_create(&run, small_own_norm, NULL), 0);
    plan = need_of(&run);
    plan.trainers = 4;
    run.config->train.global_batch = 1 << 20;
    if (run.device->host_memory) {
        const size_t left = host_sum(&plan, &all, 0) / 2;
        assert_int_equal(check_host(&plan, &all, left, 0), DP_ERR_NOMEM);
        advice = number_after("train.micro_batch ");
        assert_in_range(advice, 1, 1 << 18);
        assert_true(host_sum(&plan, &all, advice) <= left);
    }
    run.config->train.global_batch = ROWS;
    run.model->trained = (size_t)1 << 30;
    assert_int_equal(check_host(&plan, &all, (size_t)19 << 30, 0), DP_ERR_NOMEM);
    advice = number_after("; ");
    assert_in_range(advice, 1, 3);
    all.trainers = plan.trainers = (int)advice;
    assert_true(host_sum(&plan, &all, 0) <= (size_t)19 << 30);
    assert_int_equal(check_host(&plan, &all, (size_t)1 << 30, 0), DP_ERR_NOMEM);
    assert_non_null(strstr(stderr_text, "; a rank alone, with one row at a time, would need "));
    small_run_destroy(&run);
}

/* ---- a real trainer ---- */

static const enum dp_purpose foreseen[] = {DP_MEM_WEIGHTS,   DP_MEM_GRADIENTS, DP_MEM_OPTIMIZER,
                                           DP_MEM_RESIDUALS, DP_MEM_COMM,      DP_MEM_ACTIVATIONS};

/* The memory of all ranks, which are threads of one process. */
static size_t take(struct dp_group *group, const void *arg)
{
    const struct small_run *run = arg;
    const size_t ranks = (size_t)group->size, more = ranks > 1 ? DP_UNIT_PIECE : 16384;
    struct dp_memory_plan need = need_of(run);
    struct dp_device_room before, after;
    size_t bytes[DP_MEM_PURPOSE_COUNT], wrong = 0;
    struct dp_trainer *trainer = NULL;

    need.trainers = group->size;
    if (dp_gpu_peers_create(group, run->device) != DP_OK || /* the group keeps it */
        dp_group_barrier(group) != DP_OK) {
        return 1;
    }
    run->device->room(&before);
    if (dp_group_barrier(group) != DP_OK || small_run_trainer(run, group, 1, &trainer) != DP_OK ||
        dp_exchange_barrier(trainer->exchange) != DP_OK) {
        return 1;
    }
    run->device->room(&after);
    wrong += dp_exchange_barrier(trainer->exchange) != DP_OK;
    dp_memory_plan_device(&need, (size_t)run->config->train.micro_batch, bytes);
    for (size_t i = 0; i < sizeof(foreseen) / sizeof(foreseen[0]); i++) {
        const size_t taken = (after.used[foreseen[i]] - before.used[foreseen[i]]) / ranks;
        /* Tail and running statistics come on top; shared memory is rounded. Memory of messages is
         * predicted exactly. */
        const size_t beside = foreseen[i] == DP_MEM_COMM ? 0 : more;
        if (taken + 64 < bytes[foreseen[i]] || taken > bytes[foreseen[i]] + beside) {
            DP_WARN("%s: %zu bytes, foreseen %zu", dp_purpose_text(foreseen[i]), taken,
                    bytes[foreseen[i]]);
            wrong++;
        }
    }
    wrong += group->gpus->here != group->size || after.peak < before.peak;
    dp_trainer_destroy(trainer);
    wrong += dp_group_barrier(group) != DP_OK;
    run->device->room(&after);
    wrong += dp_group_barrier(group) != DP_OK;
    return wrong + (memcmp(after.used, before.used, sizeof(after.used)) != 0);
}

static void a_trainer_allocates_what_was_predicted(void **state)
{
    static const struct {
        int ranks;
        const char *sets[4];
    } ways[] = {
        {1, {"train.precision=fp32", NULL}},
        {1, {"train.precision=bf16", NULL}},
        {1, {"train.micro_batch=8", "train.precision=fp16", NULL}},
        {2, {"train.precision=bf16", "comm.strategy=staged", "comm.compressor=topk", NULL}},
        {2,
         {"comm.strategy=staged", "comm.compressor=topk:ratio=0.5,momentum=0.9",
          "optimizer.momentum=0", NULL}},
        {2, {"comm.strategy=staged", "comm.compressor=randomk:ratio=0.5", NULL}},
        {3, {"comm.strategy=staged", "comm.compressor=powersgd:rank=2", NULL}},
        {2, {"comm.strategy=staged", "comm.compressor=int8", NULL}},
        {3, {"comm.strategy=staged", "comm.compressor=onebit", NULL}},
        {2, {"comm.strategy=staged", "comm.compressor=fp16", NULL}},
        {2, {"comm.strategy=staged", "comm.compressor=bf16", NULL}},
        {2, {"train.precision=bf16", "comm.strategy=zero1:over=shm", NULL}},
        {2, {"comm.strategy=auto", NULL}},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct small_run run;
        assert_int_equal(small_run_create(&run, small_own_norm, ways[i].sets), 0);
        if (run.device->room == NULL) {
            small_run_destroy(&run);
            skip(); /* the host's memory: nothing is foreseen */
        }
        if (on_local_ranks(ways[i].ranks, take, &run) != 0) {
            fail_msg("%d ranks, %s", ways[i].ranks, ways[i].sets[0]);
        }
        small_run_destroy(&run);
    }
}

/* The host memory of all ranks, which are threads of one process. */
static size_t take_host(struct dp_group *group, const void *arg)
{
    static const enum dp_purpose purposes[] = {
        DP_MEM_WEIGHTS, DP_MEM_GRADIENTS,   DP_MEM_OPTIMIZER, DP_MEM_RESIDUALS,
        DP_MEM_COMM,    DP_MEM_ACTIVATIONS, DP_MEM_WORKSPACE, DP_MEM_DATA};
    const struct small_run *run = arg;
    const struct dp_memory_ranks all = {
        .trainers = group->size - run->config->comm.servers,
        .servers = run->config->comm.servers,
        .first = true,
    };
    struct dp_memory_plan plan = need_of(run);
    size_t bytes[DP_MEM_PURPOSE_COUNT], wrong = 0;
    struct dp_trainer *trainer = NULL;

    plan.trainers = all.trainers;
    plan.train_count = run->data.train_count;
    if (small_run_trainer(run, group, 1, &trainer) != DP_OK ||
        dp_exchange_barrier(trainer->exchange) != DP_OK) {
        return 1;
    }
    dp_memory_plan_host(&plan, &all, (size_t)run->config->train.micro_batch, bytes);
    for (size_t i = 0; i < sizeof(purposes) / sizeof(purposes[0]); i++) {
        const size_t taken = dp_mem_bytes(purposes[i]), foreseen_bytes = bytes[purposes[i]];
        /* Running statistics and sums of norms come on top. Messages of a strategy have any size,
         * and codes need a little less if none is copied from a GPU. */
        const bool comm = purposes[i] == DP_MEM_COMM;
        const size_t beside = comm ? SIZE_MAX / 2 : (size_t)group->size * 16384;
        const size_t less = comm ? foreseen_bytes / 64 : 64;
        if (group->rank == 0 &&
            (taken + less < foreseen_bytes || taken > foreseen_bytes + beside)) {
            DP_WARN("%s: %zu bytes, foreseen %zu", dp_purpose_text(purposes[i]), taken,
                    foreseen_bytes);
            wrong++;
        }
    }
    wrong += dp_exchange_barrier(trainer->exchange) != DP_OK;
    dp_trainer_destroy(trainer);
    return wrong;
}

static void a_trainer_allocates_on_the_host_what_was_predicted(void **state)
{
    static const struct {
        int ranks;
        const char *sets[4];
    } ways[] = {
        {1, {"train.precision=fp32", NULL}},
        {1, {"train.precision=bf16", "device.name=cpu", NULL}},
        {2, {"comm.strategy=auto", "optimizer.name=adamw", NULL}},
        {3, {"comm.strategy=ring", "train.precision=bf16", NULL}},
        {3, {"comm.strategy=zero1:over=ring", NULL}},
        {2, {"train.precision=bf16", "comm.strategy=zero1", NULL}},
        {3, {"comm.strategy=ps", "comm.servers=1", NULL}},
        {2, {"comm.strategy=ps", NULL}},
        {2, {"train.lanes=4", NULL}},
        {2, {"comm.compressor=topk", "train.micro_batch=4", NULL}},
        {2, {"comm.compressor=int8", NULL}},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct small_run run;
        assert_int_equal(small_run_create(&run, small_own_norm, ways[i].sets), 0);
        if (!run.device->host_memory) {
            small_run_destroy(&run);
            skip(); /* some of it is the device's */
        }
        if (on_local_ranks(ways[i].ranks, take_host, &run) != 0) {
            fail_msg("%d ranks, %s", ways[i].ranks, ways[i].sets[0]);
        }
        small_run_destroy(&run);
    }
}

/* The run that comes after it needs not fail, and its stderr has no error. */
static void a_prediction_without_memory_says_nothing(void **state)
{
    struct small_run run;
    struct dp_memory_plan need;
    size_t whole, least;
    (void)state;

    assert_int_equal(small_run_create(&run, small_own_norm,
                                      (const char *[]){"comm.compressor=topk:ratio=0.1", NULL}),
                     0);
    need = need_of(&run);
    need.trainers = 2;
    whole = least = sum_of(&need, 0);
    for (int nth = 1; nth < 20; nth++) {
        stderr_begin();
        dp_mem_fail_nth(nth);
        const size_t sum = sum_of(&need, 0);
        dp_mem_fail_nth(0);
        stderr_end();
        assert_string_equal(stderr_text, "");
        least = sum < least ? sum : least;
    }
    assert_true(least < whole); /* allocations did fail */
    small_run_destroy(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_just_fits_passes_and_a_byte_less_is_refused),
        cmocka_unit_test(the_advice_is_the_fewest_passes_that_fit),
        cmocka_unit_test(a_synchronised_model_is_advised_a_smaller_batch),
        cmocka_unit_test(ranks_on_one_device_share_it_and_leave_the_workspace),
        cmocka_unit_test(a_host_refuses_only_what_cannot_fit),
        cmocka_unit_test(a_host_has_one_data_set_and_one_copy_of_shared_weights),
        cmocka_unit_test(every_rank_of_a_host_has_its_libraries),
        cmocka_unit_test(the_advice_of_a_host_fits),
        cmocka_unit_test(a_prediction_without_memory_says_nothing),
        cmocka_unit_test(a_trainer_allocates_what_was_predicted),
        cmocka_unit_test(a_trainer_allocates_on_the_host_what_was_predicted),
    };

    return cmocka_run_group_tests_name("memory_plan", tests, NULL, NULL);
}
