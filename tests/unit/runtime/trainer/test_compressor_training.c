/*
 * test_compressor_training.c - training with each compressor learns about as well as without: on
 * ranks as threads, with weights that are equal on all of them after every step. Runs again on
 * device cuda, where codes are made by the device.
 */
#include "tests/support/arrays.h"

#include "collectives/compressors/compressor.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"

enum { RANKS = 3, LAST = 9 }; /* the last nine steps: two epochs, so that every row counts */

/* A compressor, and by how much its loss may be above that without: 40 steps take the loss from
 * 1.6 to 0.007 here, but what is sent late has less time to work. */
static const struct {
    const char *text;
    double more;
    const char *sets[3]; /* ends with NULL */
} kinds[] = {
    {"fp16", 0.001, {NULL}},
    {"bf16", 0.005, {NULL}},
    {"int8", 0.01, {NULL}},
    {"onebit", 0.01, {NULL}},
    {"topk:ratio=0.1", 0.01, {NULL}},
    {"randomk:ratio=0.25", 0.04, {NULL}},
    {"powersgd:rank=2", 0.01, {NULL}},
    /* A velocity ends where it has been sent, so the steps are shorter than those of sgd. */
    {"topk:ratio=0.1,momentum=0.9,warmup_steps=8",
     0.01,
     {"optimizer.momentum=0", "optimizer.lr=0.3"}},
};

static double last_loss(const char *compressor, const char *const *set, const char *strategy)
{
    char sets[2][96];
    const char *const all[] = {sets[0], sets[1], set[0], set[0] == NULL ? NULL : set[1], NULL};
    struct small_run run;
    struct outcome out;
    double sum = 0;

    (void)snprintf(sets[0], sizeof(sets[0]), "comm.compressor=%s", compressor);
    (void)snprintf(sets[1], sizeof(sets[1]), "comm.strategy=%s", strategy);
    assert_int_equal(small_run_create(&run, small_dense, all), 0);
    assert_int_equal(small_train(&run, RANKS, SMALL_STEPS, NULL, &out), 0);
    assert_int_equal(outcome_split(&out, RANKS, SMALL_STEPS), 0);
    for (int step = SMALL_STEPS - LAST; step < SMALL_STEPS; step++) {
        sum += (double)out.loss[step][0];
    }
    outcome_fini(&out);
    small_run_destroy(&run);
    return sum / LAST;
}

static void every_compressor_learns(void **state)
{
    static const char *const strategies[] = {"shm", "ring", "zero1:over=ring"};
    static const char *const nothing[] = {NULL};
    const double plain = last_loss("none", nothing, "shm");
    (void)state;

    assert_true(plain < 0.1);
    for (size_t k = 0; k < DP_COUNT(kinds); k++) {
        for (size_t s = 0; s < DP_COUNT(strategies); s++) {
            const double loss = last_loss(kinds[k].text, kinds[k].sets, strategies[s]);
            print_message("%s over %s: %.4f, %.4f without\n", kinds[k].text, strategies[s], loss,
                          plain);
            assert_true(loss <= plain + kinds[k].more);
        }
    }
}

static void train_some(const char *compressor, const char *overlap, struct outcome *out)
{
    char set[96], device[32];
    const char *const sets[] = {set, overlap, "comm.strategy=ring", device, NULL};
    struct small_run run;

    (void)snprintf(set, sizeof(set), "comm.compressor=%s", compressor);
    (void)snprintf(device, sizeof(device), "device.name=%s", tested_device());
    assert_int_equal(small_run_create(&run, small_conv, sets), 0);
    assert_int_equal(small_train(&run, RANKS, LAST, NULL, out), 0);
    assert_int_equal(outcome_split(out, RANKS, LAST), 0);
    small_run_destroy(&run);
}

static void overlap_changes_no_bit(void **state)
{
    struct outcome on, off;
    (void)state;

    for (size_t k = 0; k < DP_COUNT(kinds); k++) {
        if (kinds[k].sets[0] == NULL) { /* the others differ in what they set */
            train_some(kinds[k].text, "comm.overlap=on", &on);
            train_some(kinds[k].text, "comm.overlap=off", &off);
            assert_same_bits(on.weights, off.weights, on.trained);
            outcome_fini(&off);
            outcome_fini(&on);
        }
    }
}

static void no_compressor_is_left_out_here(void **state)
{
    const struct dp_plugin *plugin;
    (void)state;

    for (int i = 1; (plugin = dp_plugin_at(&dp_compressors, i)) != NULL; i++) {
        size_t found = 0;
        for (size_t k = 0; k < DP_COUNT(kinds); k++) {
            found += strncmp(kinds[k].text, plugin->name, strlen(plugin->name)) == 0;
        }
        assert_true(found > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_compressor_learns),
        cmocka_unit_test(overlap_changes_no_bit),
        cmocka_unit_test(no_compressor_is_left_out_here),
    };

    return cmocka_run_group_tests_name("compressor_training", tests, NULL, NULL);
}
