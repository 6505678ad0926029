/*
 * test_schedule.c - the learning rate of every step, against PyTorch's schedulers.
 *
 * The numbers come from torch.optim.lr_scheduler with SGD(lr=0.05): StepLR(3, 0.5),
 * CosineAnnealingLR(10, eta_min=0.001), LinearLR(1, 0.001 / 0.05, 10), and with a warm-up
 * SequentialLR([LambdaLR(lambda s: (s + 1) / 4), scheduler], milestones=[4]). PyTorch goes from
 * step to step, we use the closed form: 1e-12 is above the rounding of both and far below float32.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/optim/schedule.h"

enum { LENGTH = 10, WARMUP = 4 };

static const double warm[WARMUP] = {0.012500000000000001, 0.025000000000000001,
                                    0.037500000000000006, 0.050000000000000003};

static const struct row {
    int name;
    double lr[LENGTH];
} rows[] = {
    {DP_SCHEDULE_CONSTANT, {0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05}},
    {DP_SCHEDULE_STEP,
     {0.050000000000000003, 0.050000000000000003, 0.050000000000000003, 0.025000000000000001,
      0.025000000000000001, 0.025000000000000001, 0.012500000000000001, 0.012500000000000001,
      0.012500000000000001, 0.0062500000000000003}},
    {DP_SCHEDULE_COSINE,
     {0.050000000000000003, 0.048800884649231269, 0.045320916362186214, 0.039900738681165594,
      0.03307091636218621, 0.025499999999999998, 0.01792908363781379, 0.011099261318834409,
      0.0056790836378137893, 0.0021991153507687385}},
    {DP_SCHEDULE_LINEAR,
     {0.050000000000000003, 0.045100000000000001, 0.0402, 0.035299999999999998,
      0.030399999999999996, 0.025499999999999995, 0.020599999999999997, 0.015699999999999999,
      0.010800000000000001, 0.0058999999999999999}},
};

static struct dp_optimizer_config config_of(const struct row *row, int warmup)
{
    return (struct dp_optimizer_config){
        .lr = 0.05,
        .schedule = {.name = row->name,
                     .warmup_steps = warmup,
                     .step_size = 3,
                     .gamma = 0.5,
                     .eta_min = row->name == DP_SCHEDULE_COSINE || row->name == DP_SCHEDULE_LINEAR
                                    ? 0.001
                                    : 0.0}};
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
        const struct dp_optimizer_config config = config_of(&rows[i], 0);
        for (uint64_t step = 0; step < LENGTH; step++) {
            assert_near(dp_schedule_lr(&config, step, LENGTH), rows[i].lr[step]);
        }
    }
}

static void a_warm_up_comes_first_and_the_schedule_takes_the_other_steps(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct dp_optimizer_config config = config_of(&rows[i], WARMUP);
        for (uint64_t step = 0; step < WARMUP + LENGTH; step++) {
            assert_near(dp_schedule_lr(&config, step, WARMUP + LENGTH),
                        step < WARMUP ? warm[step] : rows[i].lr[step - WARMUP]);
        }
    }
}

static void behind_the_last_step_the_rate_stays(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct dp_optimizer_config config = config_of(&rows[i], 0);
        for (uint64_t step = LENGTH; step < (uint64_t)3 * LENGTH; step++) {
            assert_near(dp_schedule_lr(&config, step, LENGTH), rows[i].lr[LENGTH - 1]);
        }
    }
}

static void a_warm_up_longer_than_the_run_still_gives_a_rate(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct dp_optimizer_config config = config_of(&rows[i], WARMUP);
        assert_near(dp_schedule_lr(&config, 1, 2), warm[1]);
        assert_near(dp_schedule_lr(&config, WARMUP + 9, 2), 0.05);
    }
}

/* What holds for every schedule, also those that PyTorch has not. */
static void every_schedule_begins_at_lr_and_stays_after_its_end(void **state)
{
    static const double etas[] = {0.0, 0.001};
    (void)state;

    for (int name = 0; name < DP_SCHEDULE_COUNT; name++) {
        struct row row = {.name = name};
        struct dp_optimizer_config config = config_of(&row, WARMUP);
        bool stretches = false;
        for (size_t i = 0; i < 2; i++) {
            config.schedule.eta_min = etas[i];
            for (uint64_t step = 0; step < WARMUP; step++) {
                assert_near(dp_schedule_lr(&config, step, WARMUP + LENGTH), warm[step]);
            }
            assert_near(dp_schedule_lr(&config, WARMUP, WARMUP + LENGTH), 0.05);
            for (uint64_t step = WARMUP; step < (uint64_t)2 * LENGTH; step++) {
                const double lr = dp_schedule_lr(&config, step, WARMUP + LENGTH);
                const uint64_t last = WARMUP + LENGTH - 1;
                assert_true(lr >= 0.0 && isfinite(lr));
                assert_true(step <= last || lr == dp_schedule_lr(&config, last, last + 1));
                stretches |= step <= last && lr != dp_schedule_lr(&config, step, 3 * last);
            }
        }
        /* A resumed run of another length is told of it where this says so. */
        assert_int_equal(stretches, dp_schedule_of(&config)->stretches);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_gives_the_rates_of_pytorch),
        cmocka_unit_test(every_schedule_begins_at_lr_and_stays_after_its_end),
        cmocka_unit_test(a_warm_up_comes_first_and_the_schedule_takes_the_other_steps),
        cmocka_unit_test(behind_the_last_step_the_rate_stays),
        cmocka_unit_test(a_warm_up_longer_than_the_run_still_gives_a_rate),
    };
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
