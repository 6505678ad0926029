/*
 * test_replica_check.c - ranks whose copies of weights, statistics or optimizer state differ: found
 * at the next comparison, named, and restored.
 */
#include "tests/support/arrays.h"

#include "base/log.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/run/fault_injection.h"
#include "tests/support/share_of_cases.h"
#include "tests/support/small_run.h"
#include "tests/support/stderr_text.h"

enum { STEPS = 12, FLIPPED_BEHIND = 5 };

/* A fault after a step, and the values that the affected ranks saw. */
static struct {
    struct dp_fault *faults;
    int momentum_of; /* a rank whose momentum is changed, too; -1: none */
    float before, after;
    int bucket;
} planted;

static const struct dp_tensor *tensor_named(const struct dp_model *m, const char *name, int *index)
{
    for (int i = 0; i < m->tensor_count; i++) {
        if (strcmp(m->tensors[i].name, name) == 0) {
            *index = i;
            return &m->tensors[i];
        }
    }
    for (int i = 0; i < m->buffer_count; i++) {
        if (strcmp(m->buffers[i].name, name) == 0) {
            *index = -1;
            return &m->buffers[i];
        }
    }
    return NULL;
}

static float value_of(const struct dp_trainer *t, const struct dp_fault *fault)
{
    int index = 0;
    const struct dp_tensor *tensor = tensor_named(t->model, fault->tensor, &index);
    const float *array = index < 0 ? t->state.host->flat.running : t->state.host->flat.master;

    return array[tensor->begin + dp_tensor_index(tensor, (size_t)fault->element)];
}

/* An interlude; records the first fault. */
static dp_status plant(struct dp_trainer *t)
{
    struct dp_fault *first = planted.faults;
    const bool records =
        first != NULL && (uint64_t)first->step == t->state.step && first->rank == t->group->rank;

    if (t->state.step == FLIPPED_BEHIND) { /* all have hashed what they may share */
        DP_TRY(dp_exchange_barrier(t->exchange));
    }
    DP_TRY(dp_host_state_fetch(t->state.host));
    if (records) {
        int index = 0;
        (void)tensor_named(t->model, first->tensor, &index);
        planted.before = value_of(t, first);
        planted.bucket = index < 0 ? dp_exchange_plan(t->exchange)->count - 1
                                   : dp_exchange_plan(t->exchange)->bucket_of[index];
    }
    if (planted.momentum_of == t->group->rank && t->state.step == FLIPPED_BEHIND) {
        DP_TRY(dp_host_state_fetch(t->state.host));
        t->state.host->flat.slots[0][100] += 1.0f;
        DP_TRY(dp_host_state_put(t->state.host));
    }
    DP_TRY(dp_fault_injection_apply(first, t));
    DP_TRY(dp_host_state_fetch(t->state.host));
    if (records) {
        planted.after = value_of(t, first);
    }
    return DP_OK;
}

/* The same, and compares all state at once, as before a checkpoint. */
static dp_status plant_and_compare(struct dp_trainer *t)
{
    DP_TRY(plant(t));
    return t->state.step == FLIPPED_BEHIND ? dp_trainer_compare_replicas(t) : DP_OK;
}

static small_interlude *interlude = plant;

/* Trains with these faults and keeps what was reported in stderr_text; returns how many ranks
 * failed. */
static size_t train_with(const char *faults, const char *layers, const char *const *sets, int ranks,
                         struct outcome *out)
{
    struct small_run run;
    struct dp_fault *first = NULL;
    size_t wrong;

    assert_int_equal(dp_faults_create(faults, &first), DP_OK);
    planted.faults = first;
    assert_int_equal(small_run_create(&run, layers, sets), 0);
    stderr_begin();
    wrong = small_train(&run, ranks, STEPS, interlude, out);
    stderr_end();
    small_run_destroy(&run);
    dp_faults_destroy(first);
    planted.faults = NULL;
    return wrong;
}

static void assert_reported(const char *expected)
{
    if (strstr(stderr_text, expected) == NULL) {
        fail_msg("expected '%s' in '%s'", expected, stderr_text);
    }
}

/* Exactly one line was reported. */
static void assert_one_line(void)
{
    const char *end = strchr(stderr_text, '\n');

    assert_non_null(end);
    assert_string_equal(end, "\n");
}

struct place {
    const char *layers, *tensor;
    int element, count;
};

/* The first element, one inside that lies elsewhere in our layout, a last one, and a statistic. */
static const struct place places[] = {
    {small_dense, "1.weight", 0, 1728},
    {small_conv, "0.weight", 10, 72},
    {small_dense, "5.bias", 4, 5},
    {small_own_norm, "1.running_var", 3, 4},
};

static const char *const private_copies[] = {"comm.strategy=shm", "comm.strategy=ring",
                                             "comm.strategy=zero1:over=ring"};

static void check_found(const struct place *place, const char *strategy, int ranks, int bad)
{
    const char *const sets[] = {strategy, "train.check_every=1", NULL};
    char fault[128], expected[400], who[128];
    struct outcome out;

    (void)snprintf(fault, sizeof(fault), "flip:step=%d,rank=%d,tensor=%s,element=%d,bit=13",
                   FLIPPED_BEHIND, bad, place->tensor, place->element);
    assert_int_equal(train_with(fault, place->layers, sets, ranks, &out), ranks);
    if (ranks == 2) {
        (void)snprintf(who, sizeof(who),
                       "rank 0 (here) and rank 1 (here) differ, and no majority "
                       "of 2 ranks shows which is right");
    } else {
        (void)snprintf(who, sizeof(who), "rank %d (here) differs from the other %d ranks", bad,
                       ranks - 1);
    }
    const bool swapped = ranks == 2 && bad == 1; /* two ranks are reported in their order */
    (void)snprintf(expected, sizeof(expected),
                   "lockstep: error: after step %d %s: bucket %d, tensor %s, element %d is %.9g %s "
                   "%.9g (1 of %d elements differs); test the memory of ",
                   FLIPPED_BEHIND, who, planted.bucket, place->tensor, place->element,
                   (double)(swapped ? planted.before : planted.after),
                   ranks == 2 ? "and" : "instead of",
                   (double)(swapped ? planted.after : planted.before), place->count);
    assert_reported(expected);
    assert_one_line();
    assert_true(out.hash[FLIPPED_BEHIND - 1][0] != 0 && out.hash[FLIPPED_BEHIND][0] == 0);
    outcome_fini(&out);
}

static void a_flipped_bit_is_located_at_the_next_comparison(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) { /* each place with each sharding, and every rank in turn */
        const struct place *place = &places[i % 4];
        const char *strategy = private_copies[i / 4];
        const struct {
            int ranks, bad;
        } tries[] = {{2, i % 4 % 2}, {3, i % 3}, {5, i % 5}};
        for (int n = 0; n < 3; n++) {
            if (in_share((size_t)i + (size_t)n)) {
                check_found(place, strategy, tries[n].ranks, tries[n].bad);
            }
        }
    }
}

/* The slices compared in every step cover weights, which still differ after the update. */
static void slices_alone_find_a_flipped_weight_too(void **state)
{
    static const char *const sets[] = {"comm.strategy=ring", "train.check_every=0", NULL};
    struct outcome out;
    (void)state;

    assert_int_equal(train_with("flip:step=5,rank=2,tensor=3.weight,element=7,bit=20", small_dense,
                                sets, 3, &out),
                     3);
    assert_reported("after step 5 rank 2 (here) differs from the other 2 ranks: bucket ");
    assert_reported("tensor 3.weight, element 7 is ");
    assert_one_line();
    outcome_fini(&out);
}

/* Ranks that train alone for some steps are equal after every fourth; only then can a flip be
 * found. */
static void ranks_are_compared_before_local_steps(void **state)
{
    static const char *const everies[] = {"train.check_every=1", "train.check_every=0"};
    struct outcome out;
    (void)state;

    for (size_t i = 0; i < DP_COUNT(everies); i++) {
        const char *const sets[] = {everies[i], "train.local_steps=4", "train.local_after=1",
                                    "train.on_divergence=restore", NULL};
        assert_int_equal(
            train_with("flip:step=5,rank=1,tensor=1.weight,bit=25", small_dense, sets, 3, &out), 0);
        assert_reported("after step 5 rank 1 (here) differs from the other 2 ranks: bucket ");
        assert_reported("(1 of 1728 elements differs); restored from rank 0\n");
        assert_one_line();
        outcome_fini(&out);
    }
}

/* Tensors and models of more than a slice. */
static void large_tensors_are_compared_in_slices(void **state)
{
    static const char layers[] = "[flatten: {}, dense: {units: 600}, relu: {}, dense: {units: 5}]";
    static const char fault[] = "flip:step=5,rank=1,tensor=1.weight,element=40000,bit=20;"
                                "flip:step=5,rank=1,tensor=1.weight,element=43199,bit=20";
    static const char reported[] = "rank 1 (here) differs from the other 2 ranks: bucket 3, tensor "
                                   "1.weight, element 40000 is ";
    static const char *const everies[] = {"train.check_every=1", "train.check_every=0"};
    struct outcome out;
    (void)state;

    for (size_t i = 0; i < DP_COUNT(everies); i++) {
        const char *const sets[] = {everies[i], "comm.strategy=ring", "train.on_divergence=restore",
                                    NULL};
        assert_int_equal(train_with(fault, layers, sets, 3, &out), 0);
        assert_reported(reported);
        assert_reported("(2 of 43200 elements differ); restored from rank 0\n");
        assert_one_line();
        assert_true(out.hash[STEPS - 1][0] == out.hash[STEPS - 1][1]);
        outcome_fini(&out);
    }
}

/* Publishing repairs a copy, but a gradient was computed from it. */
static void a_difference_overwritten_by_publishing_is_still_reported(void **state)
{
    static const char *const stop[] = {"comm.strategy=zero1:over=ring", "train.check_every=0",
                                       NULL};
    static const char *const go_on[] = {"comm.strategy=zero1:over=ring", "train.check_every=0",
                                        "train.on_divergence=restore", NULL};
    static const char fault[] = "flip:step=5,rank=1,tensor=1.weight,element=1727,bit=20";
    struct outcome out;
    (void)state;

    assert_int_equal(train_with(fault, small_dense, stop, 3, &out), 3);
    assert_reported(
        "lockstep: error: after step 5 rank 1 (here) differs from the other 2 ranks: in "
        "weights that were published anew since then");
    assert_one_line();
    outcome_fini(&out);
    assert_int_equal(train_with(fault, small_dense, go_on, 3, &out), 0);
    assert_reported("lockstep: warning: after step 5 rank 1 (here) differs from the other 2 ranks");
    assert_one_line();
    assert_int_equal(outcome_split(&out, 3, STEPS), 0);
    outcome_fini(&out);
}

static void check_restored(const struct place *place, const char *strategy, int ranks, int bad)
{
    const char *const sets[] = {strategy, "train.check_every=1", "train.on_divergence=restore",
                                NULL};
    const int source = bad == 0 ? 1 : 0;
    char fault[128], expected[128];
    struct outcome out;

    (void)snprintf(fault, sizeof(fault), "flip:step=%d,rank=%d,tensor=%s,element=%d,bit=25",
                   FLIPPED_BEHIND, bad, place->tensor, place->element);
    assert_int_equal(train_with(fault, place->layers, sets, ranks, &out), 0);
    (void)snprintf(expected, sizeof(expected), "after step 5 rank %d (here) differs", bad);
    assert_reported(expected);
    (void)snprintf(expected, sizeof(expected), "; restored from rank %d\n", source);
    assert_reported(expected);
    assert_one_line();
    assert_int_equal(outcome_split(&out, ranks, STEPS), 0);
    assert_true(out.loss[STEPS - 1][0] < out.loss[0][0]); /* training goes on */
    outcome_fini(&out);
}

static void the_majoritys_state_is_restored_and_training_continues(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        if (in_share((size_t)i)) {
            check_restored(&places[i % 4], private_copies[i / 4], 3, i % 3);
        }
        if (in_share((size_t)i + 1)) {
            check_restored(&places[i % 4], private_copies[i / 4], 5, i % 5);
        }
    }
}

/* Narrow weights are rounded again in every step: their master weights must not differ. */
static void master_weights_of_narrow_types_are_compared_and_restored(void **state)
{
    static const char *const everies[] = {"train.check_every=1", "train.check_every=0"};
    static const char fault[] = "flip:step=5,rank=1,tensor=1.weight,element=0,bit=25";
    static const char *const stop[] = {"train.precision=fp16", "comm.strategy=ring",
                                       "train.check_every=1", NULL};
    struct outcome out;
    (void)state;

    assert_int_equal(train_with(fault, small_dense, stop, 3, &out), 3);
    assert_reported("after step 5 rank 1 (here) differs from the other 2 ranks: bucket ");
    assert_reported(", tensor 1.weight, element 0 is ");
    assert_one_line();
    outcome_fini(&out);
    for (size_t i = 0; i < DP_COUNT(everies); i++) {
        const char *const sets[] = {"train.precision=bf16", "comm.strategy=shm", everies[i],
                                    "train.on_divergence=restore", NULL};
        assert_int_equal(train_with(fault, small_dense, sets, 3, &out), 0);
        assert_reported("; restored from rank 0\n");
        assert_one_line();
        assert_true(out.hash[STEPS - 1][0] == out.hash[STEPS - 1][1]);
        outcome_fini(&out);
    }
}

/* Running statistics and momentum do not affect the gradient: restored before they are used, they
 * leave no trace. */
static void a_restored_difference_leaves_no_trace(void **state)
{
    static const char *const sets[] = {"comm.strategy=shm", "train.check_every=1",
                                       "train.on_divergence=restore", NULL};
    struct outcome plain, out;
    (void)state;

    assert_int_equal(train_with("", small_own_norm, sets, 3, &plain), 0);
    assert_string_equal(stderr_text, "");
    planted.momentum_of = 2;
    assert_int_equal(train_with("flip:step=5,rank=1,tensor=1.running_mean,element=2,bit=30",
                                small_own_norm, sets, 3, &out),
                     0);
    planted.momentum_of = -1;
    assert_reported(".momentum, element ");
    assert_reported(", and 1 more tensor); restored from rank 0\n");
    assert_one_line();
    assert_memory_equal(out.hash, plain.hash, sizeof(out.hash));
    assert_memory_equal(out.loss, plain.loss, sizeof(out.loss));
    assert_same_bits(out.weights, plain.weights, plain.trained);
    outcome_fini(&out);
    outcome_fini(&plain);
}

/* Statistics are in no slice: they differ until all state is compared. */
static void other_state_is_compared_every_few_steps_or_when_asked_for(void **state)
{
    static const char *const sets[] = {"comm.strategy=shm", "train.check_every=4",
                                       "train.on_divergence=restore", NULL};
    struct outcome out;
    (void)state;

    for (int asked = 0; asked < 2; asked++) {
        interlude = asked ? plant_and_compare : plant;
        assert_int_equal(train_with("flip:step=5,rank=1,tensor=1.running_mean,element=2,bit=30",
                                    small_own_norm, sets, 3, &out),
                         0);
        interlude = plant;
        assert_reported(asked ? "after step 5 rank 1 (here) differs"
                              : "after step 8 rank 1 (here) differs");
        assert_one_line();
        for (int step = 0; step < STEPS; step++) { /* that of step 6 is the first with the flip */
            assert_int_equal(out.hash[step][0] == out.hash[step][1],
                             asked || step < 5 || step >= 8);
        }
        outcome_fini(&out);
    }
}

/* The control: without comparison ranks differ until the end, as this test's own hashes show. */
static void without_the_comparison_of_all_state_ranks_drift_apart(void **state)
{
    static const char *const sets[] = {"comm.strategy=shm", "train.check_every=0", NULL};
    struct outcome out;
    (void)state;

    assert_int_equal(train_with("flip:step=5,rank=1,tensor=1.running_mean,element=2,bit=30",
                                small_own_norm, sets, 3, &out),
                     0);
    assert_string_equal(stderr_text, "");
    assert_int_equal(outcome_split(&out, 3, STEPS), STEPS - FLIPPED_BEHIND);
    outcome_fini(&out);
}

static void without_a_majority_nothing_is_restored(void **state)
{
    static const char *const sets[] = {"comm.strategy=ring", "train.check_every=1",
                                       "train.on_divergence=restore", NULL};
    static const struct {
        const char *faults;
        int ranks;
        const char *reported;
    } cases[] = {
        {"flip:step=5,rank=1,tensor=3.weight", 2,
         "rank 0 (here) and rank 1 (here) differ, and no majority of 2 ranks"},
        {"flip:step=5,rank=3,tensor=3.weight;flip:step=5,rank=2,tensor=3.weight", 4,
         "rank 0 (here) and rank 2 (here) differ, and no majority of 4 ranks"},
        {"flip:step=5,rank=0,tensor=3.weight;flip:step=5,rank=2,tensor=3.weight,bit=3", 3,
         "rank 0 (here) and rank 1 (here) differ, and no majority of 3 ranks"},
        /* One tensor has a majority, the other has none. */
        {"flip:step=5,rank=0,tensor=5.weight;flip:step=5,rank=1,tensor=1.weight;"
         "flip:step=5,rank=2,tensor=1.weight",
         4, "tensor 1.weight, element 0 is "},
    };
    struct outcome out;
    (void)state;

    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        const int ranks = cases[i].ranks;
        assert_int_equal(train_with(cases[i].faults, small_dense, sets, ranks, &out), ranks);
        assert_reported("lockstep: error: after step 5 ");
        assert_reported(cases[i].reported);
        assert_reported("; test the memory of these hosts");
        assert_one_line();
        outcome_fini(&out);
    }
}

static void several_wrong_ranks_and_tensors_are_reported_in_one_line(void **state)
{
    static const char *const sets[] = {"comm.strategy=shm", "train.check_every=1",
                                       "train.on_divergence=restore", NULL};
    struct outcome out;
    (void)state;

    assert_int_equal(train_with("flip:step=5,rank=1,tensor=3.weight,element=9;"
                                "flip:step=5,rank=4,tensor=3.weight,element=8;"
                                "flip:step=5,rank=2,tensor=1.weight",
                                small_dense, sets, 5, &out),
                     0);
    assert_reported("rank 1 (here) and 1 more differ from the other 3 ranks: bucket ");
    assert_reported("tensor 3.weight, element 9 is ");
    assert_reported("(1 of 384 elements differs, and 1 more tensor); restored from rank 0\n");
    assert_one_line();
    assert_int_equal(outcome_split(&out, 5, STEPS), 0);
    outcome_fini(&out);
}

/* If ranks share one copy of the weights a flip changes it for all: nothing differs. Each has its
 * own statistics. */
static void one_copy_of_the_weights_cannot_differ(void **state)
{
    static const char *const sets[] = {"comm.strategy=zero1:over=shm", "train.check_every=1",
                                       "device.name=ref", NULL};
    struct outcome out;
    (void)state;

    assert_int_equal(train_with("flip:step=5,rank=1,tensor=3.weight,element=7,bit=20", small_dense,
                                sets, 3, &out),
                     0);
    assert_string_equal(stderr_text, "");
    assert_int_equal(outcome_split(&out, 3, STEPS), 0);
    outcome_fini(&out);
    assert_int_equal(
        train_with("flip:step=5,rank=1,tensor=1.running_mean", small_own_norm, sets, 3, &out), 3);
    assert_reported("rank 1 (here) differs from the other 2 ranks");
    assert_reported("tensor 1.running_mean, element 0 is ");
    assert_one_line();
    outcome_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flipped_bit_is_located_at_the_next_comparison),
        cmocka_unit_test(slices_alone_find_a_flipped_weight_too),
        cmocka_unit_test(ranks_are_compared_before_local_steps),
        cmocka_unit_test(large_tensors_are_compared_in_slices),
        cmocka_unit_test(a_difference_overwritten_by_publishing_is_still_reported),
        cmocka_unit_test(the_majoritys_state_is_restored_and_training_continues),
        cmocka_unit_test(master_weights_of_narrow_types_are_compared_and_restored),
        cmocka_unit_test(a_restored_difference_leaves_no_trace),
        cmocka_unit_test(other_state_is_compared_every_few_steps_or_when_asked_for),
        cmocka_unit_test(without_the_comparison_of_all_state_ranks_drift_apart),
        cmocka_unit_test(without_a_majority_nothing_is_restored),
        cmocka_unit_test(several_wrong_ranks_and_tensors_are_reported_in_one_line),
        cmocka_unit_test(one_copy_of_the_weights_cannot_differ),
    };

    planted.momentum_of = -1;
    dp_log_set_identity(0, 1, "here");
    return cmocka_run_group_tests_name("replica_check", tests, NULL, NULL);
}
