/*
 * test_schedule.c - the learning rate of every step, against PyTorch's schedulers.
 *
 * The numbers come from torch.optim.lr_scheduler with SGD(lr=0.05): StepLR(3, 0.5),
 * CosineAnnealingLR(10, eta_min=0.001), LinearLR(1, 0.001 / 0.05, 10), and with a warm-up
 * SequentialLR([LambdaLR(lambda s: (s + 1) / 4), scheduler], milestones=[4]). PyTorch computes step
 * by step, we use the closed form: 1e-12 is above the rounding of both and far below float32.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "runtime/optim/optimizer.h"

enum { LENGTH = 10, WARMUP = 4 };

static const double warm[WARMUP] = {0.012500000000000001, 0.025000000000000001,
                                    0.037500000000000006, 0.050000000000000003};

static const struct row {
    const char *schedule;
    double lr[LENGTH];
} rows[] = {
    {"constant", {0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05}},
    {"step:step_size=3,gamma=0.5",
     {0.050000000000000003, 0.050000000000000003, 0.050000000000000003, 0.025000000000000001,
      0.025000000000000001, 0.025000000000000001, 0.012500000000000001, 0.012500000000000001,
      0.012500000000000001, 0.0062500000000000003}},
    {"cosine:eta_min=0.001",
     {0.050000000000000003, 0.048800884649231269, 0.045320916362186214, 0.039900738681165594,
      0.03307091636218621, 0.025499999999999998, 0.01792908363781379, 0.011099261318834409,
      0.0056790836378137893, 0.0021991153507687385}},
    {"linear:eta_min=0.001",
     {0.050000000000000003, 0.045100000000000001, 0.0402, 0.035299999999999998,
      0.030399999999999996, 0.025499999999999995, 0.020599999999999997, 0.015699999999999999,
      0.010800000000000001, 0.0058999999999999999}},
};

static void *options; /* owned: of the schedule that config_of() has made last */

/* A rate of 0.05 and a schedule, as "step:step_size=3". */
static struct dp_optimizer_config config_of(const char *schedule, int warmup)
{
    struct dp_optimizer_config config = {.lr = 0.05, .schedule = {.warmup_steps = warmup}};
    char problem[256];

    if (dp_plugin_create(&dp_schedules, schedule, &config.schedule.chosen.plugin, &options, problem,
                         sizeof(problem)) != DP_OK) {
        fail_msg("%s", problem);
    }
    config.schedule.chosen.state = options;
    return config;
}

static void release(void)
{
    dp_free(options);
}

static void assert_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-12)) {
        fail_msg("%.17g is not %.17g", a, b);
    }
}

static void every_schedule_gives_the_rates_of_pytorch(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct dp_optimizer_config config = config_of(rows[i].schedule, 0);
        for (uint64_t step = 0; step < LENGTH; step++) {
            assert_near(dp_optimizer_lr(&config, step, LENGTH), rows[i].lr[step]);
        }
        release();
    }
}

static void a_schedule_begins_after_the_warm_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct dp_optimizer_config config = config_of(rows[i].schedule, WARMUP);
        for (uint64_t step = 0; step < WARMUP + LENGTH; step++) {
            assert_near(dp_optimizer_lr(&config, step, WARMUP + LENGTH),
                        step < WARMUP ? warm[step] : rows[i].lr[step - WARMUP]);
        }
        release();
    }
}

static void after_the_last_step_the_rate_stays(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct dp_optimizer_config config = config_of(rows[i].schedule, 0);
        for (uint64_t step = LENGTH; step < (uint64_t)3 * LENGTH; step++) {
            assert_near(dp_optimizer_lr(&config, step, LENGTH), rows[i].lr[LENGTH - 1]);
        }
        release();
    }
}

static void a_warm_up_longer_than_the_run_still_gives_a_rate(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct dp_optimizer_config config = config_of(rows[i].schedule, WARMUP);
        assert_near(dp_optimizer_lr(&config, 1, 2), warm[1]);
        assert_near(dp_optimizer_lr(&config, WARMUP + 9, 2), 0.05);
        release();
    }
}

/* Warm-up and schedule alike; a batch of the base's size changes nothing. */
static void the_rate_follows_the_batch_as_configured(void **state)
{
    static const struct {
        int scale_lr, batch;
        double factor;
    } cases[] = {
        {DP_SCALE_LR_NONE, 1024, 1}, {DP_SCALE_LR_LINEAR, 1024, 4}, {DP_SCALE_LR_LINEAR, 64, 0.25},
        {DP_SCALE_LR_SQRT, 1024, 2}, {DP_SCALE_LR_SQRT, 64, 0.5},   {DP_SCALE_LR_SQRT, 256, 1},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dp_optimizer_config config = config_of(rows[0].schedule, WARMUP);
        config.scale_lr = cases[i].scale_lr;
        config.base_batch = 256;
        config.global_batch = cases[i].batch;
        assert_near(dp_optimizer_lr_factor(&config), cases[i].factor);
        for (uint64_t step = 0; step < WARMUP + 1; step++) {
            const double plain = step < WARMUP ? warm[step] : 0.05;
            assert_near(dp_optimizer_lr(&config, step, WARMUP + LENGTH), cases[i].factor * plain);
        }
        release();
    }
}

/* Every option of a schedule at a value of its range: integers 3, numbers `number` (below 0: their
 * default). */
static void spell(const struct dp_plugin *plugin, double number, char *text, size_t size)
{
    const char *before = ":";
    size_t used = (size_t)snprintf(text, size, "%s", plugin->name);

    for (const struct dp_option *row = plugin->options; row != NULL && row->kind != DP_OPTION_END;
         row++) {
        const bool whole = row->kind == DP_OPTION_INT;
        if (whole || (row->kind == DP_OPTION_DOUBLE && number >= 0.0)) {
            const double wanted = whole ? 3.0 : number;
            used += (size_t)snprintf(text + used, size - used, "%s%s=%g", before, row->name,
                                     fmin(fmax(wanted, row->low), row->high));
            before = ",";
        }
    }
}

/* Whether the rates depend on the length of the run. */
static bool check_rates(const struct dp_optimizer_config *config)
{
    bool stretches = false;

    for (uint64_t step = 0; step < WARMUP; step++) {
        assert_near(dp_optimizer_lr(config, step, WARMUP + LENGTH), warm[step]);
    }
    assert_near(dp_optimizer_lr(config, WARMUP, WARMUP + LENGTH), 0.05);
    for (uint64_t step = WARMUP; step < (uint64_t)2 * LENGTH; step++) {
        const double lr = dp_optimizer_lr(config, step, WARMUP + LENGTH);
        const uint64_t last = WARMUP + LENGTH - 1;
        assert_true(lr >= 0.0 && isfinite(lr));
        assert_true(step <= last || lr == dp_optimizer_lr(config, last, last + 1));
        stretches |= step <= last && lr != dp_optimizer_lr(config, step, 3 * last);
    }
    return stretches;
}

/* Checks for every schedule, also those that PyTorch does not have. */
static void every_schedule_begins_at_lr_and_stays_after_its_end(void **state)
{
    static const double numbers[] = {-1.0, 0.001};
    const struct dp_plugin *plugin;
    (void)state;

    for (int i = 0; (plugin = dp_plugin_at(&dp_schedules, i)) != NULL; i++) {
        bool stretches = false;
        print_message("schedule %s\n", plugin->name);
        assert_true(plugin->help != NULL && strlen(plugin->help) > 0);
        for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++) {
            struct dp_optimizer_config config;
            char text[256];
            spell(plugin, numbers[k], text, sizeof(text));
            config = config_of(text, WARMUP);
            stretches |= check_rates(&config);
            release();
        }
        /* Whether resuming with another length is reported. */
        assert_int_equal(stretches, ((const struct dp_schedule *)plugin)->stretches);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_gives_the_rates_of_pytorch),
        cmocka_unit_test(every_schedule_begins_at_lr_and_stays_after_its_end),
        cmocka_unit_test(a_schedule_begins_after_the_warm_up),
        cmocka_unit_test(after_the_last_step_the_rate_stays),
        cmocka_unit_test(a_warm_up_longer_than_the_run_still_gives_a_rate),
        cmocka_unit_test(the_rate_follows_the_batch_as_configured),
    };
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
