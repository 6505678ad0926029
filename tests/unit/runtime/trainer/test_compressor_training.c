/*
 * test_compressor_training.c - training with each compressor learns about as well as without: on
 * ranks as threads, with weights that are equal on all of them after every step. Runs again on
 * device cuda, where codes are made by the device.
 */
#include "tests/support/arrays.h"

#include "collectives/compressors/compressor.h"
#include "tests/support/local_world.h"
#include "tests/support/share_of_cases.h"
#include "tests/support/small_run.h"

enum { RANKS = 3, LAST = 9 }; /* the last nine steps: two epochs, so that every row counts */

/* A compressor, and by how much its loss may be above that without: 40 steps take the loss from 1.6
 * to 0.007 here, but numbers that are sent later have less effect. */
struct kind {
    const char *text;
    double more;
    const char *sets[3]; /* ends with NULL */
};

/* Closer bounds than kind_at()'s, or options for few steps. */
static const struct kind rows[] = {
    {"fp16", 0.001, {NULL}},
    {"bf16", 0.005, {NULL}},
    {"int8", 0.01, {NULL}},
    {"onebit", 0.01, {NULL}},
    {"topk:ratio=0.1", 0.01, {NULL}},
    {"randomk:ratio=0.25", 0.04, {NULL}},
    {"powersgd:rank=2", 0.01, {NULL}},
    /* A velocity is reset when it is sent, so steps are shorter than those of sgd. */
    {"topk:ratio=0.1,momentum=0.9,warmup_steps=8",
     0.01,
     {"optimizer.momentum=0", "optimizer.lr=0.3"}},
};

/* Kind i: all rows, then registered compressors without a row, with their defaults. Their loss must
 * halve, which a gradient of noise, or of another rank, does not achieve. False after the last. */
static bool kind_at(size_t i, struct kind *kind)
{
    const struct dp_plugin *plugin;

    if (i < DP_COUNT(rows)) {
        *kind = rows[i];
        return true;
    }
    i -= DP_COUNT(rows);
    for (int p = 1; (plugin = dp_plugin_at(&dp_compressors, p)) != NULL; p++) {
        bool found = false;
        for (size_t k = 0; k < DP_COUNT(rows); k++) {
            found = found || (strncmp(rows[k].text, plugin->name, strlen(plugin->name)) == 0 &&
                              strchr(":", rows[k].text[strlen(plugin->name)]) != NULL);
        }
        if (!found && i-- == 0) {
            *kind = (struct kind){.text = plugin->name, .more = 0.8};
            return true;
        }
    }
    return false;
}

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
    struct kind kind;
    (void)state;

    assert_true(plain < 0.1);
    for (size_t k = 0; kind_at(k, &kind); k++) {
        for (size_t s = 0; s < DP_COUNT(strategies); s++) {
            if (!in_share(k + s)) {
                continue;
            }
            const double loss = last_loss(kind.text, kind.sets, strategies[s]);
            print_message("%s over %s: %.4f, %.4f without\n", kind.text, strategies[s], loss,
                          plain);
            assert_true(loss <= plain + kind.more);
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
    struct kind kind;
    (void)state;

    for (size_t k = 0; kind_at(k, &kind); k++) {
        if (kind.sets[0] == NULL) { /* the others differ in what they set */
            train_some(kind.text, "comm.overlap=on", &on);
            train_some(kind.text, "comm.overlap=off", &off);
            assert_same_bits(on.weights, off.weights, on.trained);
            outcome_fini(&off);
            outcome_fini(&on);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_compressor_learns),
        cmocka_unit_test(overlap_changes_no_bit),
    };

    return cmocka_run_group_tests_name("compressor_training", tests, NULL, NULL);
}
