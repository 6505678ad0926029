/* test_cli.c - the command line: durations, -h. tests/runs/training/modes.py tests the effect of
 * flags. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/run/cli.h"
#include "tests/support/stderr_text.h"

/* Seconds of --max-time, or below 0: refused. */
static double max_time(const char *text)
{
    char name[] = "ddp_train", config[] = "model.cfg", flag[] = "--max-time", value[32];
    char *arguments[] = {name, config, flag, value, NULL};
    struct dp_cli cli;

    (void)snprintf(value, sizeof(value), "%s", text);
    return dp_cli_parse(4, arguments, true, &cli) == DP_OK ? cli.run.max_time_s : -1.0;
}

static void durations_are_seconds_or_falling_units(void **state)
{
    (void)state;
    assert_true(max_time("55m") == 3300.0);
    assert_true(max_time("90s") == 90.0);
    assert_true(max_time("1h30m") == 5400.0);
    assert_true(max_time("3600") == 3600.0);
    assert_true(max_time("1d2h3m4s") == 93784.0);
    assert_true(max_time("1.5h") == 5400.0);
    assert_true(max_time("0.5") == 0.5);
    assert_true(max_time("100m") == 6000.0);
}

static void bad_durations_are_refused(void **state)
{
    static const char *const bad[] = {
        "0",   "0s",     "-5m", "5x",   "m",   "5m1h", "5m5m", "1h30", "1 h",
        " 1h", "5m ",    "1e3", "0x10", "inf", "nan",  "1..5", "1.5.", "9999999999999",
        "+5m", "300000d" /* more nanoseconds than there are numbers */};
    (void)state;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (max_time(bad[i]) >= 0.0) {
            fail_msg("'%s' is taken for %g s", bad[i], max_time(bad[i]));
        }
    }
}

static void help_has_a_short_flag(void **state)
{
    char name[] = "ddp_train", letter[] = "-h", other[] = "-x";
    char *with[] = {name, letter, NULL}, *without[] = {name, other, NULL};
    struct dp_cli cli;
    (void)state;

    assert_int_equal(dp_cli_parse(2, with, true, &cli), DP_OK);
    assert_true(cli.help);
    assert_int_equal(dp_cli_parse(2, without, true, &cli), DP_ERR_USAGE);
}

/* Forgetting a value must not make a folder of the next flag's name. */
static void a_flag_is_no_value_of_another(void **state)
{
    char name[] = "ddp_train", config[] = "model.cfg", out[] = "--out", trace[] = "--trace";
    char explain[] = "--explain", set[] = "--set=train.steps=5", file[] = "-x.json";
    char *lacks[] = {name, config, out, set, NULL}, *alone[] = {name, config, trace, NULL};
    char *followed[] = {name, config, trace, explain, NULL};
    char *given[] = {name, config, trace, file, NULL};
    struct dp_cli cli;
    (void)state;

    assert_int_equal(dp_cli_parse(4, lacks, true, &cli), DP_ERR_USAGE);
    assert_int_equal(dp_cli_parse(3, alone, true, &cli), DP_OK);
    assert_true(cli.run.trace.on);
    assert_string_equal(cli.run.trace.path, "");
    assert_int_equal(dp_cli_parse(4, followed, true, &cli), DP_OK);
    assert_true(cli.run.explain);
    assert_string_equal(cli.run.trace.path, "");
    assert_int_equal(dp_cli_parse(4, given, true, &cli), DP_OK);
    assert_string_equal(cli.run.trace.path, file);
}

static void flags_of_other_tools_are_answered_with_ours(void **state)
{
    static const struct {
        const char *flag, *meant;
    } cases[] = {
        {"--batch-size", "--set train.global_batch=..."},
        {"--lr", "--set optimizer.lr=..."},
        {"--epochs=3", "--set train.epochs=..."},
        {"--strategy", "--set comm.strategy=..."},
        {"--num-threads", "--threads N"},
        {"--stesp", "--steps"},
    };
    char name[] = "ddp_train", config[] = "model.cfg", flag[32], value[] = "3", expected[128];
    char *arguments[] = {name, config, flag, value, NULL};
    struct dp_cli cli;
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void)snprintf(flag, sizeof(flag), "%s", cases[i].flag);
        (void)snprintf(expected, sizeof(expected),
                       "lockstep: error: unknown flag %.*s (did you mean %s?)\n",
                       (int)strcspn(flag, "="), flag, cases[i].meant);
        stderr_begin();
        const dp_status status = dp_cli_parse(4, arguments, false, &cli);
        stderr_end();
        assert_int_equal(status, DP_ERR_USAGE);
        assert_string_equal(stderr_text, expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_are_seconds_or_falling_units),
        cmocka_unit_test(bad_durations_are_refused),
        cmocka_unit_test(help_has_a_short_flag),
        cmocka_unit_test(a_flag_is_no_value_of_another),
        cmocka_unit_test(flags_of_other_tools_are_answered_with_ours),
    };
    return cmocka_run_group_tests_name("cli", tests, NULL, NULL);
}
