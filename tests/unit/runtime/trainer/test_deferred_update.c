/*
 * test_deferred_update.c - updates that wait until the next step's forward needs the weights: the
 * same bits, later.
 */
#include "tests/support/arrays.h"

#include "runtime/measure/overlap.h"
#include "runtime/trainer/update/deferred_update.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"
#include "tests/support/stderr_text.h"

enum { STEPS = 12, LOOK = 5, RANKS = 4 };

/* Its second and third tensors of weights are large, and others come before them. */
static const char layers[] = "[flatten: {}, dense: {units: 24}, relu: {}, dense: {units: 64}, "
                             "dropout: {rate: 0.2}, dense: {units: 24}, relu: {}, "
                             "dense: {units: 5}]";
static const int one_a_node[] = {0, 1, 2, 3}, in_pairs[] = {0, 0, 1, 1};

#define SETS "comm.bucket_mb=0.004", "comm.first_bucket_mb=0.004", "comm.overlap=on"

/* What ranks found, all of them the same. */
struct ends {
    float loss[STEPS][RANKS];
    struct dp_evaluation evaluation[RANKS];
    uint64_t hash[RANKS];
    int stayed[RANKS]; /* steps after which deferred weights were unchanged */
};

struct deferred_case {
    const struct small_run *run;
    bool on;
    struct ends *ends;
};

static size_t deferred_buckets(const struct dp_trainer *t)
{
    size_t count = 0;

    for (int b = 0; b < dp_exchange_plan(t->exchange)->count; b++) {
        count += dp_exchange_plan(t->exchange)->buckets[b].deferred;
    }
    return count;
}

/* Does a step, and checks whether the weights of its deferred buckets are unchanged. */
static dp_status step(struct dp_trainer *t, struct dp_step_report *report, int *stayed)
{
    const struct dp_bucket_plan *plan = dp_exchange_plan(t->exchange);
    float before[RANKS] = {0};
    int count = 0, same = 0;

    for (int b = 0; b < plan->count && count < RANKS; b++) {
        if (plan->buckets[b].deferred) {
            before[count++] = t->state.flat.master[plan->buckets[b].range.begin];
        }
    }
    DP_TRY(dp_trainer_step(t, report));
    for (int b = plan->count - 1, i = count; b >= 0; b--) {
        if (plan->buckets[b].deferred) {
            same += t->state.flat.master[plan->buckets[b].range.begin] == before[--i];
        }
    }
    *stayed += count > 0 && same == count;
    return DP_OK;
}

static dp_status train(const struct deferred_case *c, struct dp_trainer *t)
{
    const int rank = t->group->rank;

    for (int i = 0; i < STEPS; i++) {
        struct dp_step_report report;
        if (i == LOOK) { /* between steps somebody looks at weights */
            DP_TRY(dp_trainer_sync_weights(t));
            DP_TRY(dp_trainer_evaluate(t, &c->ends->evaluation[rank]));
        }
        t->modes.deferred.on = c->on;
        DP_TRY(step(t, &report, &c->ends->stayed[rank]));
        c->ends->loss[i][rank] = report.loss;
    }
    DP_TRY(dp_trainer_sync_weights(t));
    c->ends->hash[rank] = small_hash(t);
    return DP_OK;
}

static size_t train_rank(struct dp_group *group, const void *arg)
{
    const struct deferred_case *c = arg;
    struct dp_trainer *t = NULL;
    dp_status status = small_run_trainer(c->run, group, STEPS, &t);

    if (status == DP_OK) {
        status = train(c, t);
        if (status != DP_OK) {
            dp_group_leave(group, DP_ERR_CANCELLED);
        }
    }
    dp_trainer_destroy(t);
    return status != DP_OK;
}

static void check_bits(const char *const *sets, const int *nodes, int size)
{
    struct small_run run;
    struct ends ends[2];

    memset(ends, 0, sizeof(ends));
    assert_int_equal(small_run_create(&run, layers, sets), 0);
    for (int on = 0; on < 2; on++) {
        const struct deferred_case c = {&run, on != 0, &ends[on]};
        assert_int_equal(on_local_nodes(size, nodes, train_rank, &c), 0);
    }
    for (int rank = 0; rank < size; rank++) {
        assert_int_equal(ends[0].stayed[rank], 0);
        assert_true(ends[1].stayed[rank] > 0);
        assert_true(ends[0].hash[rank] == ends[0].hash[0]);
        assert_true(ends[1].hash[rank] == ends[0].hash[0]);
        assert_true(ends[1].evaluation[rank].loss == ends[0].evaluation[rank].loss);
        for (int i = 0; i < STEPS; i++) {
            assert_true(ends[1].loss[i][rank] == ends[0].loss[i][rank]);
        }
    }
    small_run_destroy(&run);
}

/* Learning rate and number of updates are those of the step that computed the gradient. In some
 * steps all state is compared, before anything is updated. */
static void deferred_updates_give_the_same_bits(void **state)
{
    static const char *const ways[][3] = {
        {"comm.strategy=ring", "optimizer.schedule.name=cosine", "optimizer.momentum=0.9"},
        {"comm.strategy=direct", "optimizer.name=adamw", "optimizer.lr=0.01"},
        {"comm.strategy=hier", "train.precision=bf16", "train.check_every=2"},
        {"comm.strategy=replicated:over=tree", "train.micro_batch=3", "train.check_every=4"},
        {"comm.strategy=rhd", "optimizer.name=adamw", "train.check_every=0"},
        {"comm.strategy=direct", "comm.compressor=bf16", "train.check_every=3"},
    };
    (void)state;

    for (size_t i = 0; i < DP_COUNT(ways); i++) {
        const char *const sets[] = {SETS, ways[i][0], ways[i][1], ways[i][2], NULL};
        check_bits(sets, one_a_node, 2);
        check_bits(sets, in_pairs, 4);
    }
}

static void spoil_deferred_weights(struct dp_trainer *t)
{
    const struct dp_bucket_plan *plan = dp_exchange_plan(t->exchange);

    for (int b = 0; b < plan->count; b++) {
        if (plan->buckets[b].deferred) {
            t->state.flat.master[plan->buckets[b].range.begin] += 1.0f;
        }
    }
}

/* One weight of each deferred bucket, on one rank of three: the others are the majority, in a step
 * whose own deferred updates are pending. */
static dp_status spoil(const struct deferred_case *c, struct dp_trainer *t)
{
    struct dp_step_report report;

    t->modes.deferred.on = true;
    for (int i = 0; i < STEPS; i++) {
        DP_TRY(dp_trainer_step(t, &report));
        if (i == LOOK && t->group->rank == 1) {
            DP_TRY(dp_deferred_update_finish(t));
            spoil_deferred_weights(t);
        }
    }
    DP_TRY(dp_trainer_sync_weights(t));
    c->ends->hash[t->group->rank] = small_hash(t);
    c->ends->stayed[t->group->rank] = (int)t->modes.replica_check->restored;
    return DP_OK;
}

static size_t spoil_rank(struct dp_group *group, const void *arg)
{
    const struct deferred_case *c = arg;
    struct dp_trainer *t = NULL;
    dp_status status = small_run_trainer(c->run, group, STEPS, &t);

    status = status == DP_OK ? spoil(c, t) : status;
    dp_trainer_destroy(t);
    return status != DP_OK;
}

static void a_rank_that_differs_is_restored_while_updates_are_pending(void **state)
{
    static const char *const sets[] = {SETS, "comm.strategy=ring", "train.on_divergence=restore",
                                       "train.check_every=0", NULL};
    struct small_run run;
    struct ends ends;
    const struct deferred_case c = {&run, true, &ends};
    (void)state;

    memset(&ends, 0, sizeof(ends));
    assert_int_equal(small_run_create(&run, layers, sets), 0);
    stderr_begin();
    const size_t wrong = on_local_nodes(3, one_a_node, spoil_rank, &c);
    stderr_end();
    assert_int_equal(wrong, 0);
    assert_non_null(strstr(stderr_text, "rank 1"));
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(ends.stayed[rank], 1);
        assert_true(ends.hash[rank] == ends.hash[0]);
    }
    small_run_destroy(&run);
}

/* The tensor whose rest is this deferred bucket, or another one of the bucket before. */
static int tensor_of(const struct dp_bucket_plan *plan, int deferred)
{
    int i = 0;

    while (plan->bucket_of[i] != deferred - 1) {
        i++;
    }
    return i;
}

static double sum_of_weights(const struct dp_trainer *t, int bucket)
{
    const struct dp_range range = dp_exchange_plan(t->exchange)->buckets[bucket].range;
    double sum = 0;

    for (size_t i = 0; i < range.count; i++) {
        sum += (double)t->state.flat.master[range.begin + i];
    }
    return sum;
}

/* Forward asks for the tensors of one layer after the other. */
static size_t update_one_by_one(struct dp_group *group, const void *arg)
{
    const struct small_run *run = arg;
    struct dp_step_report report;
    struct dp_trainer *t = NULL;
    double before[RANKS];
    int all[RANKS], count = 0;
    size_t wrong = 0;

    if (small_run_trainer(run, group, STEPS, &t) != DP_OK) {
        return 1;
    }
    const struct dp_bucket_plan *plan = dp_exchange_plan(t->exchange);
    t->modes.deferred.on = true;
    wrong += dp_trainer_step(t, &report) != DP_OK; /* which compares ranks, and defers nothing */
    wrong += dp_trainer_step(t, &report) != DP_OK;
    for (int b = plan->count - 1; b >= 0; b--) { /* as forward needs them */
        if (plan->buckets[b].deferred) {
            before[count] = sum_of_weights(t, b);
            all[count++] = b;
        }
    }
    wrong += count != 2;
    for (int i = 0; i < count; i++) {
        wrong += dp_deferred_update_need(t, tensor_of(plan, all[i])) != DP_OK;
        wrong += !dp_deferred_update_pending(t);
        for (int k = 0; k < count; k++) {
            wrong += (sum_of_weights(t, all[k]) == before[k]) != (k > i);
        }
    }
    wrong += dp_deferred_update_need(t, run->model->tensor_count - 1) != DP_OK;
    wrong += dp_deferred_update_pending(t);
    dp_trainer_destroy(t);
    return wrong;
}

static void only_what_a_layer_needs_is_waited_for(void **state)
{
    static const char *const sets[] = {SETS, "comm.strategy=direct", NULL};
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, layers, sets), 0);
    assert_int_equal(on_local_nodes(2, one_a_node, update_one_by_one, &run), 0);
    small_run_destroy(&run);
}

struct plan_case {
    const struct small_run *run;
    size_t expected; /* deferred buckets */
};

static size_t count_deferred(struct dp_group *group, const void *arg)
{
    const struct plan_case *c = arg;
    struct dp_trainer *t = NULL;
    size_t wrong = 1;

    if (small_run_trainer(c->run, group, STEPS, &t) == DP_OK) {
        dp_exchange_defer(t->exchange, true);
        wrong = deferred_buckets(t) != c->expected;
        wrong += dp_exchange_defers(t->exchange) != (c->expected > 0);
    }
    dp_trainer_destroy(t);
    return wrong;
}

/* Trials defer, too. Each pair ends with all updates done, and only that step of a pair counts
 * which has deferred buckets of the previous one. */
static size_t try_overlap(struct dp_group *group, const void *arg)
{
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    struct dp_overlap o = {.trying = false};
    size_t wrong = 0, deferred = 0;
    dp_status status = small_run_trainer(arg, group, SMALL_STEPS, &t);

    if (status == DP_OK) {
        dp_overlap_begin(&o, t, SMALL_STEPS);
    }
    for (int i = 0; status == DP_OK && o.trying; i++) {
        dp_overlap_before(&o, t);
        wrong += !t->modes.deferred.on && t->modes.deferred.end != 0;
        status = dp_trainer_step(t, &report);
        deferred += t->modes.deferred.end != 0;
        status = status == DP_OK
                     ? dp_overlap_after(&o, t, t->modes.deferred.on ? 1 + (uint64_t)i : 1000)
                     : status;
    }
    wrong += deferred != DP_OVERLAP_TRIALS || o.tried[1] != DP_OVERLAP_TRIALS / 2 || !o.on;
    status = status == DP_OK ? dp_trainer_sync_weights(t) : status;
    dp_trainer_destroy(t);
    return wrong + (status != DP_OK);
}

static void overlap_is_tried_with_deferred_updates(void **state)
{
    static const char *const sets[] = {SETS, "comm.overlap=auto", "comm.strategy=direct", NULL};
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, layers, sets), 0);
    assert_int_equal(on_local_nodes(2, one_a_node, try_overlap, &run), 0);
    small_run_destroy(&run);
}

static void check_plan(const char *set, const int *nodes, size_t expected)
{
    const char *const sets[] = {SETS, "comm.strategy=direct", set, NULL};
    struct small_run run;
    const struct plan_case c = {&run, expected};

    assert_int_equal(small_run_create(&run, layers, sets), 0);
    assert_int_equal(on_local_nodes(2, nodes, count_deferred, &c), 0);
    small_run_destroy(&run);
}

static void nothing_is_deferred_where_updates_need_more_than_their_bucket(void **state)
{
    static const char *const never[] = {
        "optimizer.clip_norm=1", "train.precision=fp16",
        "train.lanes=2",         "train.local_steps=2",
        "comm.overlap=off",      "comm.compressor=int8",
        "comm.strategy=none",    "comm.strategy=zero1:over=ring",
    };
    static const int together[] = {0, 0};
    (void)state;

    check_plan("train.seed=1", one_a_node, 2);
    check_plan("train.seed=1", together, 0);
    check_plan("comm.strategy=replicated:over=ring", one_a_node, 2);
    check_plan("comm.strategy=auto", one_a_node, 2); /* whose bits depend on what was fastest */
    for (size_t i = 0; i < DP_COUNT(never); i++) {
        check_plan(never[i], one_a_node, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deferred_updates_give_the_same_bits),
        cmocka_unit_test(a_rank_that_differs_is_restored_while_updates_are_pending),
        cmocka_unit_test(only_what_a_layer_needs_is_waited_for),
        cmocka_unit_test(overlap_is_tried_with_deferred_updates),
        cmocka_unit_test(nothing_is_deferred_where_updates_need_more_than_their_bucket),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
