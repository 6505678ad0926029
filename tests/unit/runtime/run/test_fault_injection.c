/* test_fault_injection.c - which faults training accepts, and their effects; test_replica_check has
 * the rest. */
#include "tests/support/arrays.h"

#include "base/log.h"
#include "runtime/run/fault_injection.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"
#include "tests/support/stderr_text.h"

struct trial {
    struct small_run run;
    const char *text;
    dp_status expected;
};

static size_t check_fault(struct dp_group *group, const void *arg)
{
    const struct trial *trial = arg;
    struct dp_fault *fault = NULL;
    struct dp_trainer *t = NULL;
    size_t wrong = 1;

    if (small_run_trainer(&trial->run, group, 1, &t) == DP_OK &&
        dp_faults_create(trial->text, &fault) == DP_OK) {
        wrong = dp_fault_injection_check(fault, t) != trial->expected;
    }
    dp_faults_destroy(fault);
    dp_trainer_destroy(t);
    return wrong;
}

static void impossible_faults_are_refused_in_one_line(void **state)
{
    static const struct {
        const char *text, *line;
    } cases[] = {
        {"flip:tensor=1.wieght",
         "lockstep: error: DP_FAULT: flip: the model has no tensor '1.wieght'; its first is "
         "0.weight\n"},
        {"flip:rank=0,step=5", ""}, /* of the first weight */
        {"flip:element=72", "lockstep: error: DP_FAULT: flip: 0.weight has 72 elements, not 73\n"},
        {"flip:tensor=0.weight,element=72",
         "lockstep: error: DP_FAULT: flip: 0.weight has 72 elements, not 73\n"},
        {"flip:tensor=0.weight;flip:tensor=0.weight,rank=1",
         "lockstep: error: DP_FAULT: flip: there is no rank 1: this run has 1\n"},
        {"flip:tensor=0.weight,element=71;flip:tensor=1.running_var,element=3", ""},
    };
    struct trial trial;
    (void)state;

    assert_int_equal(small_run_create(&trial.run, small_own_norm, NULL), 0);
    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        trial.text = cases[i].text;
        trial.expected = cases[i].line[0] == '\0' ? DP_OK : DP_ERR_CONFIG;
        stderr_begin();
        const size_t wrong = on_local_ranks(1, check_fault, &trial);
        stderr_end();
        assert_int_equal(wrong, 0);
        assert_string_equal(stderr_text, cases[i].line);
    }
    small_run_destroy(&trial.run);
}

/* Element 10 of [4, 2, 3, 3]: filter 0, channel 1, row 0, column 1; here channels are last. */
static size_t flip_one(struct dp_group *group, const void *arg)
{
    const struct trial *trial = arg;
    struct dp_fault *fault = NULL;
    struct dp_trainer *t = NULL;
    float before[72];
    size_t wrong = 1;

    if (small_run_trainer(&trial->run, group, 1, &t) == DP_OK &&
        dp_faults_create(trial->text, &fault) == DP_OK) {
        const float *weights = t->state.host->flat.weights;
        memcpy(before, weights, sizeof(before));
        t->state.step = 2;
        wrong = dp_fault_injection_apply(fault, t) != DP_OK;
        for (size_t i = 0; i < 72; i++) {
            wrong += weights[i] != before[i]; /* not after this step */
        }
        t->state.step = 3;
        wrong += dp_fault_injection_apply(fault, t) != DP_OK;
        for (size_t i = 0; i < 72; i++) {
            const bool flipped = group->rank == 1 && i == 3;
            wrong += (weights[i] == -before[i]) != flipped; /* bit 31 is the sign */
        }
    }
    dp_faults_destroy(fault);
    dp_trainer_destroy(t);
    return wrong;
}

static void a_flip_changes_one_bit_of_one_element_of_one_rank_after_one_step(void **state)
{
    struct trial trial = {.text = "flip:step=3,rank=1,tensor=0.weight,element=10,bit=31"};
    (void)state;

    assert_int_equal(small_run_create(&trial.run, small_own_norm, NULL), 0);
    assert_int_equal(on_local_ranks(3, flip_one, &trial), 0);
    small_run_destroy(&trial.run);
}

/* Training can have every fault that base can read. */
static size_t every_kind_is_known(struct dp_group *group, const void *arg)
{
    const struct trial *trial = arg;
    const struct dp_plugin *kind;
    struct dp_trainer *t = NULL;
    size_t wrong = 0;

    if (small_run_trainer(&trial->run, group, 1, &t) != DP_OK) {
        return 1;
    }
    for (int i = 0; (kind = dp_plugin_at(&dp_fault_kinds, i)) != NULL; i++) {
        const struct dp_fault fault = {.kind = kind, .step = 1, .tensor = "0.weight"};
        wrong += dp_fault_injection_check(&fault, t) != DP_OK;
    }
    const struct dp_plugin other = {.name = "other"};
    const struct dp_fault unknown = {.kind = &other, .step = 1, .tensor = "0.weight"};
    wrong += dp_fault_injection_check(&unknown, t) != DP_ERR_CONFIG;
    dp_trainer_destroy(t);
    return wrong;
}

static void every_kind_of_fault_can_happen_in_training(void **state)
{
    struct trial trial = {.text = NULL};
    (void)state;

    assert_int_equal(small_run_create(&trial.run, small_own_norm, NULL), 0);
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(on_local_ranks(1, every_kind_is_known, &trial), 0);
    dp_log_set_level(DP_LOG_INFO);
    small_run_destroy(&trial.run);
}

static void the_next_step_of_a_fault_is_known_beforehand(void **state)
{
    struct dp_fault *first = NULL;
    (void)state;

    assert_true(dp_fault_injection_next(NULL, 0) == UINT64_MAX);
    assert_int_equal(dp_faults_create("kill:step=7;kill:step=3;stop:step=2,bucket=0", &first),
                     DP_OK);
    assert_int_equal(dp_fault_injection_next(first, 0), 3); /* that of a bucket needs no rest */
    assert_int_equal(dp_fault_injection_next(first, 3), 7);
    assert_true(dp_fault_injection_next(first, 7) == UINT64_MAX);
    dp_faults_destroy(first);
    first = NULL;
    assert_int_equal(dp_faults_create("slow:ms=1", &first), DP_OK); /* in every step */
    assert_int_equal(dp_fault_injection_next(first, 41), 42);
    dp_faults_destroy(first);
}

static void after_a_loss_ranks_are_named_by_their_first_numbers(void **state)
{
    static const int first_rank_of[] = {0, 2, 3};
    struct dp_fault *first = NULL;
    (void)state;

    assert_int_equal(
        dp_faults_create("kill:rank=3,step=7;kill:rank=1,step=3;slow:rank=0,ms=1", &first), DP_OK);
    dp_fault_injection_renumber(first, first_rank_of, 3);
    assert_int_equal(first->rank, 2);
    assert_int_equal(first->next->rank, -1); /* it is gone: this never happens */
    assert_int_equal(first->next->next->rank, 0);
    dp_faults_destroy(first);
}

/* What the end of a run with these faults says, which began after step 2. */
static void expect_at_end(const char *faults, bool finished, const char *expected)
{
    struct dp_fault *first = NULL;

    assert_int_equal(dp_faults_create(faults, &first), DP_OK);
    dp_fault_injection_start(first, 1);
    stderr_begin();
    dp_fault_injection_end(first, 1, finished, 2);
    stderr_end();
    dp_faults_destroy(first);
    assert_string_equal(stderr_text, expected);
}

static void a_finished_run_warns_of_what_has_not_happened(void **state)
{
    static const char faults[] = "kill:rank=1,step=7;kill:rank=0,step=7;slow:rank=1,step=2,ms=1;"
                                 "stop:rank=1,step=5,bucket=1;stop:rank=1,beat=3;slow:rank=1,ms=1;"
                                 "eio:rank=1,write=9;nomem:rank=1,alloc=1000";
    (void)state;

    expect_at_end(
        faults, true,
        "lockstep: warning: DP_FAULT: kill has not happened: there was no step 7\n"
        "lockstep: warning: DP_FAULT: stop has not happened: no step 5 waited for bucket 1\n"
        "lockstep: warning: DP_FAULT: stop has not happened: fewer than 3 parts were measured\n"
        "lockstep: warning: DP_FAULT: slow has not happened: there was no step\n"
        "lockstep: warning: DP_FAULT: eio has not happened: 0 calls changed files\n"
        "lockstep: warning: DP_FAULT: nomem has not happened: there were 0 allocations\n");
    expect_at_end(faults, false, "");
}

/* A rank of two that sum in shared memory, or by messages: one of these is to change. */
static size_t miss_a_message(struct dp_group *group, const void *arg)
{
    const struct trial *trial = arg;
    struct dp_step_report report;
    struct dp_fault *first = NULL;
    struct dp_trainer *t = NULL;
    size_t wrong = 1;

    if (small_run_trainer(&trial->run, group, 2, &t) == DP_OK &&
        dp_faults_create(trial->text, &first) == DP_OK) {
        wrong = dp_trainer_init(t) != DP_OK;
        for (int step = 1; step <= 2; step++) {
            wrong += dp_trainer_step(t, &report) != DP_OK;
            wrong += dp_fault_injection_apply(first, t) != DP_OK;
        }
        dp_fault_injection_end(first, group->rank, true, 0);
    }
    dp_trainer_destroy(t);
    dp_faults_destroy(first);
    return wrong;
}

static void a_flip_of_a_message_needs_one(void **state)
{
    static const struct {
        const char *strategy, *said;
    } cases[] = {{"comm.strategy=shm",
                  "lockstep: warning: DP_FAULT: flip has not happened: no message of 256 "
                  "bytes or more came after step 1\n"},
                 {"comm.strategy=direct", ""}};
    (void)state;

    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        struct trial trial = {.text = "flip:what=message,rank=1,bit=0"};
        const char *const sets[] = {cases[i].strategy, NULL};
        assert_int_equal(small_run_create(&trial.run, small_own_norm, sets), 0);
        stderr_begin();
        const size_t wrong = on_local_ranks(2, miss_a_message, &trial);
        stderr_end();
        small_run_destroy(&trial.run);
        assert_int_equal(wrong, 0);
        assert_string_equal(stderr_text, cases[i].said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_faults_are_refused_in_one_line),
        cmocka_unit_test(a_flip_changes_one_bit_of_one_element_of_one_rank_after_one_step),
        cmocka_unit_test(every_kind_of_fault_can_happen_in_training),
        cmocka_unit_test(the_next_step_of_a_fault_is_known_beforehand),
        cmocka_unit_test(after_a_loss_ranks_are_named_by_their_first_numbers),
        cmocka_unit_test(a_finished_run_warns_of_what_has_not_happened),
        cmocka_unit_test(a_flip_of_a_message_needs_one),
    };

    return cmocka_run_group_tests_name("fault_injection", tests, NULL, NULL);
}
