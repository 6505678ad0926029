/*
 * test_verify_sums.c - sums of buckets, made once more: a wrong one is found in the step that
 * checks its bucket, and named; right ones never are, whatever adds them up.
 */
#include "tests/support/arrays.h"

#include "base/log.h"
#include "collectives/core/transport.h"
#include "collectives/exchange/exchange_calls.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"
#include "tests/support/stderr_text.h"

enum { STEPS = 12, RANKS = 3, MOST_SPOTS = 2 };

/* Elements of the sum of a bucket that change before anybody uses it. */
static struct {
    int bucket, rank;     /* rank -1: on all, so that no comparison of ranks sees it */
    uint64_t first, last; /* the steps in which it happens, from 2 */
    int spots;            /* 0: none */
    size_t at[MOST_SPOTS];
    bool least; /* changed to the next number; else by 1 */
    bool nan;   /* changed to none */
    /* What it was, on the lowest of these ranks, in the last step. */
    float before, after;
} damage;

/* Of a bucket: where its last tensor begins; and its name. */
static size_t last_tensor(const struct dp_trainer *t, int b, const char **name)
{
    const struct dp_bucket *bucket = &dp_exchange_plan(t->exchange)->buckets[b];
    const struct dp_tensor *tensor = &bucket->tensors[bucket->tensor_count - 1];

    *name = tensor->name;
    return tensor->begin - bucket->range.begin;
}

static void do_damage(void *context, struct dp_trainer *t, int bucket, bool summed)
{
    const struct dp_range range = dp_exchange_plan(t->exchange)->buckets[bucket].range;
    const uint64_t step = t->state.step + 1;
    (void)context;

    if (!summed || bucket != damage.bucket || step < damage.first || step > damage.last ||
        (damage.rank >= 0 && damage.rank != t->group->rank)) {
        return;
    }
    for (int i = damage.spots - 1; i >= 0; i--) {
        float *sum = &t->state.flat.grad[range.begin + damage.at[i]];
        const float before = *sum;
        *sum = damage.nan ? NAN : damage.least ? nextafterf(before, INFINITY) : before + 1.0f;
        if (t->group->rank == (damage.rank >= 0 ? damage.rank : 0)) {
            damage.before = before;
            damage.after = *sum;
        }
    }
}

/* An interlude. */
static dp_status arm(struct dp_trainer *t)
{
    dp_trainer_on_bucket(t, do_damage, NULL);
    return DP_OK;
}

/* Returns how many ranks failed; what they said is in stderr_text. */
static size_t train(const char *layers, const char *const *sets, int ranks, struct outcome *out)
{
    struct small_run run;
    size_t wrong;

    assert_int_equal(small_run_create(&run, layers, sets), 0);
    stderr_begin();
    wrong = small_train(&run, ranks, STEPS, arm, out);
    stderr_end();
    small_run_destroy(&run);
    return wrong;
}

static int no_damage(void **state)
{
    (void)state;
    memset(&damage, 0, sizeof(damage));
    damage.rank = -1;
    damage.first = 2;
    damage.last = STEPS;
    return 0;
}

static void assert_said(const char *expected)
{
    const char *end = strchr(stderr_text, '\n');

    if (strstr(stderr_text, expected) == NULL || end == NULL || end[1] != '\0') {
        fail_msg("expected '%s' alone in '%s'", expected, stderr_text);
    }
}

/* What is known of the plan of small_dense: asked of a trainer of one rank. */
struct plan {
    int buckets; /* without the tail */
    size_t at[8], count[8];
    char name[8][128];
};

static struct plan plan_of_small_dense(void)
{
    struct plan plan;
    struct dp_group *alone = NULL;
    struct dp_trainer *t = NULL;
    struct small_run run;
    const char *name;

    memset(&plan, 0, sizeof(plan));
    assert_int_equal(small_run_create(&run, small_dense, NULL), 0);
    assert_int_equal(dp_local_alone(&alone), DP_OK);
    assert_int_equal(small_run_trainer(&run, alone, 1, &t), DP_OK);
    plan.buckets = dp_exchange_plan(t->exchange)->count - 1;
    assert_in_range(plan.buckets, 2, 8);
    for (int b = 0; b < plan.buckets; b++) {
        plan.at[b] = last_tensor(t, b, &name);
        plan.count[b] = dp_exchange_plan(t->exchange)->buckets[b].range.count;
        (void)snprintf(plan.name[b], sizeof(plan.name[b]), "%s", name);
    }
    dp_trainer_destroy(t);
    dp_group_destroy(alone);
    small_run_destroy(&run);
    return plan;
}

/* In each step another bucket is checked, from the first on: the damage of a bucket is found in
 * the first such step. */
static void a_wrong_sum_is_found_in_the_step_that_checks_its_bucket(void **state)
{
    static const char *const sets[] = {"comm.strategy=direct", "train.verify_sums=1", NULL};
    const struct plan plan = plan_of_small_dense();
    char expected[300];
    struct outcome out;
    (void)state;

    damage.spots = 1;
    for (int b = 0; b < plan.buckets; b++) {
        const int found = b > 0 ? b + 1 : plan.buckets + 1; /* not in step 1 */
        damage.bucket = b;
        damage.at[0] = plan.at[b];
        assert_int_equal(train(small_dense, sets, RANKS, &out), RANKS);
        (void)snprintf(expected, sizeof(expected),
                       "lockstep: error: after step %d rank 0 (here) and others have a wrong sum "
                       "of bucket %d, tensor %s: element %zu of the bucket is %.9g instead of %.9g "
                       "(1 of %zu elements differ); ",
                       found, b, plan.name[b], plan.at[b], (double)damage.after,
                       (double)damage.before, plan.count[b]);
        assert_said(expected);
        assert_true(out.hash[found - 2][0] != 0 && out.hash[found - 1][0] == 0);
        outcome_fini(&out);
    }
}

/* Every third step: bucket 0 in step 3, bucket 1 in step 6. */
static void sums_are_checked_every_few_steps(void **state)
{
    static const char *const sets[] = {"comm.strategy=direct", "train.verify_sums=3", NULL};
    struct outcome out;
    (void)state;

    damage.spots = 1;
    damage.bucket = 1;
    assert_int_equal(train(small_dense, sets, RANKS, &out), RANKS);
    assert_said("after step 6 rank 0 (here) and others have a wrong sum of bucket 1, tensor ");
    outcome_fini(&out);
    damage.first = damage.last = 5; /* between two checks */
    assert_int_equal(train(small_dense, sets, RANKS, &out), 0);
    assert_string_equal(stderr_text, "");
    outcome_fini(&out);
}

/* The control: a wrong sum that all ranks share is seen by nothing else. */
static void without_it_nobody_notices(void **state)
{
    static const char *const sets[] = {"comm.strategy=direct", "train.check_every=1", NULL};
    struct outcome plain, out;
    (void)state;

    assert_int_equal(train(small_dense, sets, RANKS, &plain), 0);
    damage.spots = 1;
    assert_int_equal(train(small_dense, sets, RANKS, &out), 0);
    assert_string_equal(stderr_text, "");
    assert_int_equal(outcome_split(&out, RANKS, STEPS), 0);
    assert_true(out.hash[STEPS - 1][0] != plain.hash[STEPS - 1][0]);
    outcome_fini(&plain);
    outcome_fini(&out);
}

/* Where the order of the tree is kept, no bit may differ; else roundings may. */
static void what_may_differ_depends_on_the_order_of_adding(void **state)
{
    static const char *const ordered[] = {"comm.strategy=direct", "train.verify_sums=1", NULL};
    static const char *const any[] = {"comm.strategy=ring", "train.verify_sums=1", NULL};
    const struct plan plan = plan_of_small_dense();
    struct outcome out;
    (void)state;

    damage.spots = 1;
    damage.least = true;
    damage.at[0] = plan.at[0]; /* the bias of the last layer: never zero */
    assert_int_equal(train(small_dense, ordered, RANKS, &out), RANKS);
    assert_said(" a wrong sum of bucket 0, tensor 5.bias: ");
    outcome_fini(&out);
    assert_int_equal(train(small_dense, any, RANKS, &out), 0);
    assert_string_equal(stderr_text, "");
    outcome_fini(&out);
    damage.least = false;
    assert_int_equal(train(small_dense, any, RANKS, &out), RANKS);
    assert_said(" a wrong sum of bucket 0, tensor 5.bias: ");
    outcome_fini(&out);
}

static void what_is_no_number_is_wrong_where_the_sum_is_one(void **state)
{
    static const char *const ways[][3] = {{"comm.strategy=direct", "train.verify_sums=1", NULL},
                                          {"comm.strategy=ring", "train.verify_sums=1", NULL}};
    struct outcome out;
    (void)state;

    damage.spots = 1;
    damage.nan = true;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(train(small_dense, ways[i], RANKS, &out), RANKS);
        assert_said("element 0 of the bucket is nan instead of ");
        outcome_fini(&out);
    }
}

/* What a rank itself says; others read it from rank 0's lines. */
static size_t says_it_alone(struct dp_group *group, const void *run)
{
    struct dp_log_capture capture;
    struct dp_step_report report;
    struct dp_trainer *t = NULL;
    dp_status status = DP_OK;
    size_t wrong;

    if (small_run_trainer(run, group, STEPS, &t) != DP_OK) {
        return 1;
    }
    dp_trainer_on_bucket(t, do_damage, NULL);
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    for (int step = 0; step < STEPS && status == DP_OK; step++) {
        status = dp_trainer_step(t, &report);
    }
    dp_log_capture_end(&capture, DP_LOG_DROP);
    wrong =
        status != DP_ERR_DISAGREE || (dp_log_captured(&capture)[0] != '\0') != (group->rank == 0);
    dp_trainer_destroy(t);
    return wrong;
}

static void rank_0_reports_for_all(void **state)
{
    static const char *const sets[] = {"comm.strategy=direct", "train.verify_sums=1",
                                       "comm.overlap=off", NULL};
    struct small_run run;
    (void)state;

    damage.spots = 1;
    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    assert_int_equal(on_local_ranks(RANKS, says_it_alone, &run), 0);
    small_run_destroy(&run);
}

/* With zero1 a rank sums its part of a bucket alone: it is the one that is named. */
static void the_rank_that_summed_is_named(void **state)
{
    static const char *const sets[] = {"comm.strategy=zero1:over=direct", "train.verify_sums=1",
                                       NULL};
    const struct plan plan = plan_of_small_dense();
    const int last = plan.buckets - 1;
    struct outcome out;
    (void)state;

    damage.spots = 1;
    damage.bucket = last;
    damage.rank = RANKS - 1;
    damage.at[0] = plan.count[last] - 1; /* of the last rank's part */
    assert_int_equal(train(small_dense, sets, RANKS, &out), RANKS);
    assert_said(" rank 2 (here) has a wrong sum of bucket ");
    outcome_fini(&out);
    damage.rank = 0;
    damage.at[0] = 0;
    assert_int_equal(train(small_dense, sets, RANKS, &out), RANKS);
    assert_said(" rank 0 (here) has a wrong sum of bucket ");
    outcome_fini(&out);
}

/* They are gathered piece by piece. The first of a later piece, and one of the last. */
static void large_buckets_are_compared_whole(void **state)
{
    static const char layers[] = "[flatten: {}, dense: {units: 600}, relu: {}, dense: {units: 5}]";
    static const char *const sets[] = {"comm.strategy=direct", "train.verify_sums=1",
                                       "comm.bucket_mb=1", "comm.first_bucket_mb=1", NULL};
    struct outcome out;
    (void)state;

    damage.spots = 2;
    damage.at[0] = 16384;
    damage.at[1] = 43000;
    assert_int_equal(train(layers, sets, 2, &out), 2);
    assert_said("tensor 1.weight: element 16384 of the bucket is ");
    assert_non_null(strstr(stderr_text, " (2 of "));
    outcome_fini(&out);
}

static void right_sums_are_never_called_wrong_and_nothing_changes(void **state)
{
    static const char *const ways[][4] = {
        {"comm.strategy=shm", NULL},
        {"comm.strategy=ring", NULL},
        {"comm.strategy=tree", "comm.overlap=on", NULL},
        {"comm.strategy=zero1:over=ring", NULL},
        {"comm.strategy=shm", "train.local_steps=3", "train.local_after=4", NULL},
        {"comm.strategy=none", NULL}};
    (void)state;

    for (size_t i = 0; i < DP_COUNT(ways); i++) {
        const int ranks = i % 2 == 0 ? 5 : 2;
        struct outcome outs[2];
        for (int on = 0; on < 2; on++) {
            const char *sets[5] = {on == 1 ? "train.verify_sums=1" : "train.verify_sums=0"};
            for (int k = 0; ways[i][k] != NULL; k++) {
                sets[k + 1] = ways[i][k];
            }
            assert_int_equal(train(small_dense, sets, ranks, &outs[on]), 0);
            assert_string_equal(stderr_text, "");
        }
        assert_memory_equal(outs[1].hash, outs[0].hash, sizeof(outs[0].hash));
        outcome_fini(&outs[0]);
        outcome_fini(&outs[1]);
    }
    assert_int_equal(dp_mem_live(), 0);
}

static void sums_that_cannot_be_made_again_are_refused(void **state)
{
    static const char *const compressed[] = {"comm.strategy=ring", "train.verify_sums=1",
                                             "comm.compressor=topk", NULL};
    static const char *const served[] = {"comm.strategy=ps", "comm.servers=1",
                                         "train.verify_sums=1", NULL};
    static const char *const local[] = {"train.local_steps=2", "train.verify_sums=1", NULL};
    static const char *const later_local[] = {"train.local_steps=2", "train.local_after=3",
                                              "train.verify_sums=1", NULL};
    struct outcome out;
    (void)state;

    assert_int_equal(train(small_dense, compressed, 2, &out), 2);
    assert_non_null(strstr(stderr_text, "cannot go with comm.compressor, whose sums are not"));
    outcome_fini(&out);
    assert_int_equal(train(small_dense, served, RANKS, &out), RANKS);
    assert_non_null(strstr(stderr_text, "cannot go with comm.servers, whose ranks have no"));
    outcome_fini(&out);
    assert_int_equal(train(small_dense, local, 2, &out), 2);
    assert_non_null(strstr(stderr_text, "cannot go with train.local_steps from the first step on"));
    outcome_fini(&out);
    assert_int_equal(train(small_dense, later_local, 2, &out), 0);
    outcome_fini(&out);
}

static size_t count_deferred(struct dp_group *group, const void *run)
{
    struct dp_trainer *t = NULL;
    size_t count = small_run_trainer(run, group, 1, &t) == DP_OK ? 0 : 1000;

    for (int b = 0; t != NULL && b < dp_trainer_plan(t)->count; b++) {
        count += dp_trainer_plan(t)->buckets[b].deferred;
    }
    dp_trainer_destroy(t);
    return count;
}

/* Between nodes a part of each large tensor would be summed after its step. */
static void each_bucket_has_its_turn_on_several_nodes(void **state)
{
    static const char layers[] = "[flatten: {}, dense: {units: 24}, relu: {}, dense: {units: 64}, "
                                 "relu: {}, dense: {units: 24}, relu: {}, dense: {units: 5}]";
    static const char *const sets[] = {"comm.strategy=ring", "comm.overlap=on",
                                       "train.verify_sums=1", NULL};
    static const char *const plain[] = {"comm.strategy=ring", "comm.overlap=on", NULL};
    static const int node_of[] = {0, 1};
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, layers, plain), 0);
    assert_true(on_local_nodes(2, node_of, count_deferred, &run) > 0);
    small_run_destroy(&run);
    assert_int_equal(small_run_create(&run, layers, sets), 0);
    assert_int_equal(on_local_nodes(2, node_of, count_deferred, &run), 0);
    small_run_destroy(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_wrong_sum_is_found_in_the_step_that_checks_its_bucket, no_damage),
        cmocka_unit_test_setup(sums_are_checked_every_few_steps, no_damage),
        cmocka_unit_test_setup(without_it_nobody_notices, no_damage),
        cmocka_unit_test_setup(what_may_differ_depends_on_the_order_of_adding, no_damage),
        cmocka_unit_test_setup(what_is_no_number_is_wrong_where_the_sum_is_one, no_damage),
        cmocka_unit_test_setup(rank_0_reports_for_all, no_damage),
        cmocka_unit_test_setup(the_rank_that_summed_is_named, no_damage),
        cmocka_unit_test_setup(large_buckets_are_compared_whole, no_damage),
        cmocka_unit_test_setup(right_sums_are_never_called_wrong_and_nothing_changes, no_damage),
        cmocka_unit_test(each_bucket_has_its_turn_on_several_nodes),
        cmocka_unit_test_setup(sums_that_cannot_be_made_again_are_refused, no_damage),
    };

    dp_log_set_identity(0, 1, "here");
    return cmocka_run_group_tests_name("verify_sums", tests, NULL, NULL);
}
