/*
 * test_copy_state.c - a trainer that has copied another one's state goes on as that one does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/core/transport.h"
#include "runtime/trainer/state/state.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"

enum { BEFORE = 3, AFTER = 3 };

static bool same(const void *a, const void *b, size_t bytes)
{
    return (a == NULL && b == NULL) || (a != NULL && b != NULL && memcmp(a, b, bytes) == 0);
}

/* How many arrays differ. Master weights are those of the layers, made wide. */
static size_t differ(const struct dp_trainer *a, const struct dp_trainer *b)
{
    const struct dp_flat *f = &a->state.flat, *g = &b->state.flat;
    const size_t numbers = f->trained * sizeof(float);
    size_t wrong = 0;

    wrong += !same(f->weights, g->weights, f->trained * dp_type_bytes(f->type));
    wrong += !same(f->running, g->running, a->model->statistics * sizeof(float));
    wrong += !same(f->slots[0], g->slots[0], f->owned * sizeof(float));
    wrong += !same(f->slots[1], g->slots[1], f->owned * sizeof(float));
    wrong += !same(f->average, g->average, numbers);
    if (f->type == DP_TYPE_BF16) {
        const uint16_t *narrow = f->weights;
        const uint32_t *wide = (const uint32_t *)(const void *)g->master;
        for (size_t i = 0; i < f->trained; i++) {
            wrong += wide[i] != (uint32_t)narrow[i] << 16;
        }
    }
    return wrong;
}

/* Copies to a trainer that has trained nothing, in a group of its own. */
static size_t copy(const struct small_run *run, struct dp_trainer *from)
{
    struct dp_group *group = NULL;
    struct dp_trainer *to = NULL;
    size_t wrong;

    if (dp_local_alone(&group) != DP_OK || small_run_trainer(run, group, BEFORE, &to) != DP_OK) {
        return 1;
    }
    wrong = differ(from, to) == 0;
    from->state.scaler.scale = 32.0;
    wrong += dp_trainer_copy_state(to, from) != DP_OK;
    wrong += differ(from, to);
    wrong += to->state.step != BEFORE;
    wrong += to->state.step_params->applied != BEFORE;
    wrong += to->state.scaler.scale != 32.0;
    dp_trainer_destroy(to);
    dp_group_destroy(group);
    return wrong;
}

/* The same to one that begins there, and trains both. */
static size_t go_on(const struct small_run *run, struct dp_trainer *from)
{
    struct dp_step_report report = {0}, other = {0};
    struct small_run later = *run;
    struct dp_group *group = NULL;
    struct dp_trainer *to = NULL;
    size_t wrong = 0;

    later.first_step = BEFORE;
    if (dp_local_alone(&group) != DP_OK ||
        small_run_trainer(&later, group, BEFORE + AFTER, &to) != DP_OK) {
        return 1;
    }
    wrong += dp_trainer_copy_state(to, from) != DP_OK;
    for (int step = 0; step < AFTER; step++) {
        wrong += dp_trainer_step(from, &report) != DP_OK || dp_trainer_step(to, &other) != DP_OK;
        wrong += other.loss != report.loss;
        wrong += differ(from, to);
    }
    dp_trainer_destroy(to);
    dp_group_destroy(group);
    return wrong;
}

static size_t copy_and_go_on(struct dp_group *group, const void *arg)
{
    const struct small_run *run = arg;
    const bool narrow = run->config->train.precision != DP_PRECISION_FP32;
    struct dp_trainer *from = NULL;
    struct dp_step_report report;
    size_t wrong = 0;

    if (small_run_trainer(run, group, BEFORE + AFTER, &from) != DP_OK) {
        return 1;
    }
    for (int step = 0; step < BEFORE; step++) {
        wrong += dp_trainer_step(from, &report) != DP_OK;
    }
    wrong += copy(run, from);
    wrong += narrow ? 0 : go_on(run, from); /* from rounded weights it goes another way */
    dp_trainer_destroy(from);
    return wrong;
}

static void a_copy_has_all_state_and_goes_on_with_it(void **state)
{
    static const struct {
        const char *layers;
        const char *sets[4];
    } runs[] = {
        {small_own_norm, {"optimizer.momentum=0", NULL}},
        {small_own_norm, {"train.ema=0.9", NULL}},
        {small_dense, {"optimizer.name=adamw", "optimizer.lr=0.01", NULL}},
        {small_own_norm, {"train.precision=bf16", "optimizer.name=adamw", "train.ema=0.9", NULL}},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        struct small_run run;
        assert_int_equal(small_run_create(&run, runs[i].layers, runs[i].sets), 0);
        assert_int_equal(on_local_ranks(1, copy_and_go_on, &run), 0);
        small_run_destroy(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_has_all_state_and_goes_on_with_it),
    };

    return cmocka_run_group_tests_name("copy_state", tests, NULL, NULL);
}
