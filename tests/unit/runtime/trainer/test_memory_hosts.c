/* test_memory_hosts.c - the ranks of each host must fit into its memory, and what is listed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "runtime/trainer/prepare/memory_check.h"
#include "tests/support/local_world.h"
#include "tests/support/scratch.h"
#include "tests/support/small_run.h"
#include "tests/support/stderr_text.h"

enum { RANKS = 4 };

static const int in_pairs[RANKS] = {0, 0, 1, 1};
static const int *node_of = in_pairs;

static struct dp_memory_plan plan_of(const struct small_run *run, int trainers)
{
    return (struct dp_memory_plan){.config = run->config,
                                   .model = run->model,
                                   .device = run->device,
                                   .trainers = trainers,
                                   .threads = 1,
                                   .ranks_per_device = 1,
                                   .data_bytes = (size_t)1 << 30};
}

/* A folder for what memory there is, a run, and the plan of its trainers. */
static struct dp_memory_plan begin(struct small_run *run, const char *const *sets, int trainers)
{
    assert_int_equal(mkdir(scratch_path("proc"), 0700), 0);
    assert_int_equal(small_run_create(run, small_own_norm, sets), 0);
    return plan_of(run, trainers);
}

struct asked {
    const struct dp_memory_plan *plan;
    dp_status expected;
};

static size_t ask(struct dp_group *group, const void *arg)
{
    const struct asked *asked = arg;

    return dp_memory_check_hosts(asked->plan, group, scratch_folder) != asked->expected;
}

/* What ranks of two hosts say that have so much memory each is in stderr_text. */
static void check_hosts(const struct dp_memory_plan *plan, size_t bytes, dp_status expected)
{
    const struct asked asked = {plan, expected};
    const size_t kb = (bytes + 1023) / 1024;
    char text[128];
    size_t wrong;

    (void)snprintf(text, sizeof(text), "MemTotal: %zu kB\nMemAvailable: %zu kB\n", kb, kb);
    scratch_write(scratch_path("proc/meminfo"), text, strlen(text));
    stderr_begin();
    wrong = on_local_nodes(RANKS, node_of, ask, &asked);
    stderr_end();
    assert_int_equal(wrong, 0);
}

static int count_of(const char *what)
{
    const char *at = stderr_text;
    int count = 0;

    while ((at = strstr(at, what)) != NULL) {
        at++;
        count++;
    }
    return count;
}

/* Four ranks would not fit into either. */
static void the_ranks_of_a_host_count_and_no_others(void **state)
{
    const struct dp_memory_ranks pair = {.trainers = 2, .first = true, .leads = true};
    size_t bytes[DP_MEM_PURPOSE_COUNT];
    struct small_run run;
    struct dp_memory_plan plan;
    (void)state;

    plan = begin(&run, NULL, RANKS);
    dp_memory_plan_host(&plan, &pair, 0, bytes);
    check_hosts(&plan, dp_memory_plan_sum(bytes), DP_OK);
    assert_string_equal(stderr_text, "");
    check_hosts(&plan, dp_memory_plan_sum(bytes) - bytes[DP_MEM_OTHER] / 2, DP_OK);
    assert_non_null(strstr(stderr_text, "available: 2 ranks will need about "));
    check_hosts(&plan, (size_t)1 << 29, DP_ERR_UNAVAILABLE);
    assert_non_null(strstr(stderr_text, " available for 2 ranks: data need 1.0 GiB, "));
    small_run_destroy(&run);
}

static void one_rank_of_each_host_warns(void **state)
{
    const struct dp_memory_ranks pair = {.trainers = 2, .first = true, .leads = true};
    size_t bytes[DP_MEM_PURPOSE_COUNT];
    struct small_run run;
    struct dp_memory_plan plan;
    (void)state;

    plan = begin(&run, NULL, RANKS);
    plan.data_bytes = 0; /* which are the first one's: all ranks expect as much */
    dp_memory_plan_host(&plan, &pair, 0, bytes);
    check_hosts(&plan, dp_memory_plan_sum(bytes) - bytes[DP_MEM_OTHER] / 2, DP_OK);
    assert_int_equal(count_of("available: 2 ranks will need about "), 2);
    small_run_destroy(&run);
}

struct fitting {
    const struct dp_memory_plan *plan;
    size_t need[2]; /* of a host */
    size_t left;    /* what both have */
};

static size_t try_fitting(struct dp_group *group, const void *arg)
{
    const struct fitting *f = arg;

    return dp_memory_fits_host(f->plan, group, scratch_folder) !=
           (f->need[in_pairs[group->rank]] <= f->left);
}

static void a_host_knows_whether_its_trainers_and_servers_fit(void **state)
{
    static const char *const sets[] = {"comm.strategy=ps", "comm.servers=1", NULL};
    const struct dp_memory_ranks hosts[2] = {
        {.trainers = 2, .first = true, .leads = true},
        {.trainers = 1, .servers = 1, .first = true, .leads = true},
    };
    struct small_run run;
    struct dp_memory_plan plan;
    struct fitting f = {.plan = &plan};
    (void)state;

    plan = begin(&run, sets, RANKS - 1);
    for (int i = 0; i < 2; i++) {
        size_t bytes[DP_MEM_PURPOSE_COUNT];
        dp_memory_plan_host(&plan, &hosts[i], 0, bytes);
        f.need[i] = dp_memory_plan_sum(bytes);
    }
    assert_int_not_equal(f.need[0], f.need[1]);
    for (int i = 0; i < 4; i++) {
        const size_t kb = (f.need[i / 2] + 1023) / 1024 - (size_t)i % 2;
        char text[128];
        f.left = kb * 1024;
        (void)snprintf(text, sizeof(text), "MemTotal: %zu kB\nMemAvailable: %zu kB\n", kb, kb);
        scratch_write(scratch_path("proc/meminfo"), text, strlen(text));
        assert_int_equal(on_local_nodes(RANKS, in_pairs, try_fitting, &f), 0);
    }
    small_run_destroy(&run);
}

/* What may be loaded already counts only where all must fit; the system's figures may be wrong by
 * a 32nd of all memory. */
static void memory_is_tight_between_what_fits_and_what_lacks(void **state)
{
    static const struct {
        size_t sure, other;
        enum dp_memory_fit expected;
    } needs[] = {
        {0, 0, DP_MEMORY_FITS},      {900, 100, DP_MEMORY_FITS},  {0, 1000, DP_MEMORY_FITS},
        {901, 100, DP_MEMORY_TIGHT}, {900, 101, DP_MEMORY_TIGHT}, {0, 9999, DP_MEMORY_TIGHT},
        {1001, 0, DP_MEMORY_TIGHT},  {1051, 0, DP_MEMORY_TIGHT},  {1250, 0, DP_MEMORY_TIGHT},
        {1250, 1, DP_MEMORY_TIGHT},  {1251, 0, DP_MEMORY_LACKS},  {1251, 1, DP_MEMORY_LACKS},
    };
    const struct dp_memory_limit limit = {.total = 6400, .available = 1000, .swap = 50};
    (void)state;

    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
        size_t bytes[DP_MEM_PURPOSE_COUNT] = {0};
        bytes[DP_MEM_OTHER] = needs[i].other;
        bytes[DP_MEM_GRADIENTS] = needs[i].sure;
        assert_int_equal(dp_memory_fit(bytes, &limit), needs[i].expected);
    }
}

/* One trains on the first host; one trains, one reads and one evaluates on the second. */
static void ranks_that_do_not_train_count_on_their_host(void **state)
{
    static const char *const sets[] = {"data.input_ranks=1", "train.eval_rank=true", NULL};
    static const int one_and_three[RANKS] = {0, 1, 1, 1};
    const struct dp_memory_ranks three = {
        .trainers = 1, .readers = 1, .evaluators = 1, .first = true};
    size_t bytes[DP_MEM_PURPOSE_COUNT];
    struct small_run run;
    struct dp_memory_plan plan;
    (void)state;

    plan = begin(&run, sets, RANKS - 2);
    plan.data_bytes = 0;
    dp_memory_plan_host(&plan, &three, 0, bytes);
    node_of = one_and_three;
    check_hosts(&plan, dp_memory_plan_sum(bytes), DP_OK);
    assert_string_equal(stderr_text, "");
    check_hosts(&plan, dp_memory_plan_sum(bytes) - bytes[DP_MEM_OTHER] / 6, DP_OK);
    assert_non_null(strstr(stderr_text, "available: 3 ranks will need about "));
    node_of = in_pairs;
    small_run_destroy(&run);
}

static void every_need_of_a_host_is_listed(void **state)
{
    const struct dp_memory_ranks all = {.trainers = 2, .first = true, .leads = true};
    const struct dp_memory_limit limit = {.total = 1 << 20, .available = 1 << 20};
    size_t bytes[DP_MEM_PURPOSE_COUNT];
    struct small_run run;
    struct dp_memory_plan plan;
    (void)state;

    assert_int_equal(
        small_run_create(&run, small_own_norm, (const char *[]){"comm.compressor=topk", NULL}), 0);
    plan = plan_of(&run, 2);
    plan.saves = true;
    dp_memory_plan_host(&plan, &all, 0, bytes);
    stderr_begin();
    assert_int_equal(dp_memory_check_host(&plan, &all, &limit), DP_ERR_NOMEM);
    stderr_end();
    assert_true(bytes[DP_MEM_OTHER] > 0 && bytes[DP_MEM_RESIDUALS] > 0);
    for (int i = 0; i < DP_MEM_PURPOSE_COUNT; i++) {
        const char *text = dp_purpose_text((enum dp_purpose)i);
        assert_int_equal(strstr(stderr_text, text) != NULL, bytes[i] > 0);
    }
    small_run_destroy(&run);
}

/* With a sixteenth to spare, of which the advice keeps half. */
static void a_rank_less_is_advised_where_that_fits(void **state)
{
    struct dp_memory_ranks ranks = {.trainers = 3, .first = true, .leads = true};
    struct dp_memory_limit limit = {0};
    size_t bytes[DP_MEM_PURPOSE_COUNT];
    struct small_run run;
    struct dp_memory_plan plan;
    (void)state;

    assert_int_equal(small_run_create(&run, small_own_norm, NULL), 0);
    run.model->trained = (size_t)1 << 30;
    plan = plan_of(&run, 3);
    dp_memory_plan_host(&plan, &ranks, 0, bytes);
    limit.total = limit.available = dp_memory_plan_sum(bytes) / 16 * 17;
    plan = plan_of(&run, 4);
    ranks.trainers = 4;
    stderr_begin();
    assert_int_equal(dp_memory_check_host(&plan, &ranks, &limit), DP_ERR_NOMEM);
    stderr_end();
    assert_non_null(strstr(stderr_text, "; 3 ranks here would fit (now 4)"));
    small_run_destroy(&run);
}

/* It sums nothing, so that a compressor remembers nothing. */
static void a_rank_alone_has_no_residuals(void **state)
{
    size_t bytes[DP_MEM_PURPOSE_COUNT];
    struct small_run run;
    struct dp_memory_plan plan;
    (void)state;

    assert_int_equal(
        small_run_create(&run, small_own_norm, (const char *[]){"comm.compressor=topk", NULL}), 0);
    for (int ranks = 1; ranks <= 2; ranks++) {
        plan = plan_of(&run, ranks);
        dp_memory_plan_device(&plan, 0, bytes);
        assert_int_equal(bytes[DP_MEM_RESIDUALS] == 0, ranks == 1);
    }
    small_run_destroy(&run);
}

/* Of each number: the weight, its gradient and two moments; of 2-byte weights those of 4, too. */
static void state_is_counted_by_the_number_of_weights(void **state)
{
    static const struct {
        const char *precision;
        size_t bytes;
    } cases[] = {{"train.precision=fp32", 16}, {"train.precision=bf16", 18}};
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *const sets[] = {"optimizer.name=adamw", cases[i].precision, NULL};
        struct small_run run;
        struct dp_memory_plan plan;

        assert_int_equal(small_run_create(&run, small_dense, sets), 0);
        plan = plan_of(&run, 1);
        assert_int_equal(dp_memory_plan_state(&plan), run.model->trained * cases[i].bytes);
        small_run_destroy(&run);
    }
}

/* A device with memory of its own has inputs beside activations: bytes and a label for each row;
 * the labels of the next batch, too, unless lanes take theirs when they begin. */
static void inputs_are_counted_where_the_device_has_memory_of_its_own(void **state)
{
    enum { ROWS = 32 };
    static const char *const one_lane[] = {"train.lanes=1", NULL};
    (void)state;

    for (size_t lanes = 0; lanes < 2; lanes++) {
        size_t near[DP_MEM_PURPOSE_COUNT], there[DP_MEM_PURPOSE_COUNT];
        struct small_run run;
        assert_int_equal(small_run_create(&run, small_own_norm, lanes > 0 ? one_lane : NULL), 0);
        struct dp_device far = *run.device;
        struct dp_memory_plan plan = plan_of(&run, 1);
        far.host_memory = true;
        plan.device = &far;
        dp_memory_plan_device(&plan, 0, near);
        far.host_memory = false;
        dp_memory_plan_device(&plan, 0, there);
        assert_int_equal(
            there[DP_MEM_ACTIVATIONS] - near[DP_MEM_ACTIVATIONS],
            ROWS * (dp_model_sample_bytes(run.model) + (lanes > 0 ? 1 : 2) * sizeof(int32_t)));
        small_run_destroy(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_ranks_of_a_host_count_and_no_others, scratch_create,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(one_rank_of_each_host_warns, scratch_create,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(a_host_knows_whether_its_trainers_and_servers_fit,
                                        scratch_create, scratch_destroy),
        cmocka_unit_test(memory_is_tight_between_what_fits_and_what_lacks),
        cmocka_unit_test_setup_teardown(ranks_that_do_not_train_count_on_their_host, scratch_create,
                                        scratch_destroy),
        cmocka_unit_test(every_need_of_a_host_is_listed),
        cmocka_unit_test(a_rank_less_is_advised_where_that_fits),
        cmocka_unit_test(a_rank_alone_has_no_residuals),
        cmocka_unit_test(state_is_counted_by_the_number_of_weights),
        cmocka_unit_test(inputs_are_counted_where_the_device_has_memory_of_its_own),
    };

    return cmocka_run_group_tests_name("memory_hosts", tests, NULL, NULL);
}
