/*
 * test_replica_check_quiet.c - comparing equal ranks gives no alarm, and changes no bit.
 */
#include "tests/support/arrays.h"

#include "collectives/exchange/sharding.h"
#include "tests/support/small_run.h"
#include "tests/support/stderr_text.h"

/* Forty steps, in which nothing may be reported. */
static void train_quietly(const char *layers, const char *const *sets, int ranks,
                          struct outcome *out)
{
    struct small_run run;

    assert_int_equal(small_run_create(&run, layers, sets), 0);
    stderr_begin();
    const size_t wrong = small_train(&run, ranks, SMALL_STEPS, NULL, out);
    stderr_end();
    assert_string_equal(stderr_text, "");
    assert_int_equal(wrong, 0);
    small_run_destroy(&run);
}

/* Some steps compare slices and some all state, with every update rule. */
static void check_quiet(const char *strategy)
{
    static const char *const layers[] = {small_conv, small_own_norm, small_dropout};
    static const char *const clipping[] = {"optimizer.clip_norm=0", "optimizer.clip_norm=0.05"};
    static const char *const overlaps[] = {"comm.overlap=on", "comm.overlap=off"};
    struct outcome out;

    for (size_t i = 0; i < 3; i++) {
        const char *const sets[] = {strategy,
                                    "train.check_every=3",
                                    clipping[(i + 1) % 2],
                                    overlaps[i / 2],
                                    "optimizer.name=adamw",
                                    "optimizer.lr=0.01",
                                    NULL};
        const int ranks = i == 0 ? 5 : 2;
        train_quietly(layers[i], sets, ranks, &out);
        assert_int_equal(outcome_split(&out, ranks, SMALL_STEPS), 0);
        outcome_fini(&out);
    }
}

static void no_sharding_or_strategy_gives_a_false_alarm(void **state)
{
    const struct dp_plugin *sharding;
    char strategy[128];
    (void)state;

    for (int i = 0; (sharding = dp_plugin_at(&dp_shardings, i)) != NULL; i++) {
        static const char *const over[] = {"shm", "ring"}; /* what threads can use */
        for (size_t k = 0; k < DP_COUNT(over); k++) {
            (void)snprintf(strategy, sizeof(strategy), "comm.strategy=%s:over=%s", sharding->name,
                           over[k]);
            check_quiet(strategy);
        }
    }
}

/* Comparing all state delays updates until the sums have arrived, which must not change a bit. */
static void comparing_changes_no_bit(void **state)
{
    static const char *const everies[] = {"train.check_every=0", "train.check_every=1",
                                          "train.check_every=5"};
    static const char *const strategies[] = {"comm.strategy=shm", "comm.strategy=ring",
                                             "comm.strategy=zero1:over=ring"};
    (void)state;

    for (size_t s = 0; s < DP_COUNT(strategies); s++) {
        struct outcome first, out;
        for (size_t i = 0; i < DP_COUNT(everies); i++) {
            const char *const sets[] = {strategies[s], everies[i], "comm.overlap=on", NULL};
            train_quietly(small_conv, sets, 3, i == 0 ? &first : &out);
            if (i > 0) {
                assert_memory_equal(out.hash, first.hash, sizeof(out.hash));
                outcome_fini(&out);
            }
        }
        outcome_fini(&first);
    }
}

/* Ranks that train alone for some steps differ, which is right. */
static void local_steps_give_no_false_alarm(void **state)
{
    static const char *const everies[] = {"train.check_every=0", "train.check_every=1",
                                          "train.check_every=3"};
    static const char *const strategies[] = {"comm.strategy=shm", "comm.strategy=ring"};
    (void)state;

    for (size_t i = 0; i < 6; i++) {
        const char *const sets[] = {everies[i % 3], strategies[i % 2], "train.local_steps=4",
                                    "train.local_after=5", NULL};
        struct outcome out;
        train_quietly(small_own_norm, sets, 2 + (int)i % 2, &out);
        outcome_fini(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_sharding_or_strategy_gives_a_false_alarm),
        cmocka_unit_test(local_steps_give_no_false_alarm),
        cmocka_unit_test(comparing_changes_no_bit),
    };

    return cmocka_run_group_tests_name("replica_check_quiet", tests, NULL, NULL);
}
