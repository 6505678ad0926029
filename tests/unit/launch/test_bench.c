/*
 * test_bench.c - ddp_bench from its options to its verdict, as one rank: what it prints, and that
 * a failed allocation anywhere ends it and leaves nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "collectives/strategies/comm.h"
#include "launch/bench/bench.h"
#include "tests/support/scratch.h"

static const char model[] = "data: {source: synthetic, samples: 16, test_samples: 4}\n"
                            "train: {global_batch: 8, steps: 4}\n"
                            "model: {input: [4], layers: [dense: {units: 3}]}\n";

/* A strategy whose sums are wrong, also of one rank. */
struct liar {
    double by;
};

static bool liar_supports(const struct dp_group *group, const char **why_not)
{
    (void)group;
    (void)why_not;
    return true;
}

static dp_status liar_open(void *state, struct dp_group *group, size_t max_count)
{
    (void)state;
    (void)group;
    (void)max_count;
    return DP_OK;
}

static dp_status liar_sum(void *state, struct dp_slice data, enum dp_keep keep)
{
    (void)keep;
    *(float *)data.data += (float)((const struct liar *)state)->by;
    return DP_OK;
}

static void liar_close(void *state)
{
    (void)state;
}

#define LIAR struct liar

static const struct dp_option liar_options[] = {
    DP_DOUBLE(LIAR, by, "1", 0, 1, "what is added to a sum"),
    {0},
};

static const struct dp_strategy liar = {
    .plugin = {.name = "liar",
               .help = "for tests",
               .options = liar_options,
               .state_bytes = sizeof(struct liar)},
    .supports = liar_supports,
    .open = liar_open,
    .sum = liar_sum,
    .close = liar_close,
};

/* Returns what a run prints; stderr is dropped. */
static dp_status run_bench(const struct dp_bench_options *options, char *text, size_t size)
{
    const int real = dup(STDOUT_FILENO), errors = dup(STDERR_FILENO);
    FILE *file = tmpfile();
    struct dp_world *world = NULL;
    dp_status status;
    ssize_t length;

    assert_non_null(file);
    (void)fflush(stdout);
    (void)dup2(fileno(file), STDOUT_FILENO);
    assert_non_null(freopen("/dev/null", "w", stderr));
    status = dp_world_create(&world);
    if (status == DP_OK) {
        status = dp_bench_main(options, world);
        dp_world_destroy(world);
    }
    (void)fflush(stdout);
    (void)dup2(real, STDOUT_FILENO);
    (void)close(real);
    (void)dup2(errors, STDERR_FILENO);
    (void)close(errors);
    length = pread(fileno(file), text, size - 1, 0);
    text[length < 0 ? 0 : length] = '\0';
    (void)fclose(file);
    return status;
}

static bool here; /* gradients are the host's */

static struct dp_bench_options quick(void)
{
    return (struct dp_bench_options){
        .min_bytes = 256,
        .max_bytes = 1024,
        .factor = 4,
        .iterations = 2,
        .warmups = 1,
        .checks = 1,
        .strategies = "ring,shm",
        .compressors = "none",
        .format = DP_BENCH_CSV,
    };
}

static int lines_of(const char *text)
{
    int lines = 0;

    for (; *text != '\0'; text++) {
        lines += *text == '\n';
    }
    return lines;
}

static void a_sweep_prints_a_row_for_each_size_and_strategy(void **state)
{
    const struct dp_bench_options options = quick();
    char text[4096];
    (void)state;

    assert_int_equal(run_bench(&options, text, sizeof(text)), DP_OK);
    assert_int_equal(lines_of(text), 1 + 2 * 2);
    assert_non_null(strstr(text, "\n256,64,float,ring,none,1,"));
    assert_non_null(strstr(text, "\n1024,256,float,shm,none,1,"));
}

static void wrong_sums_fail_the_program_after_all_rows(void **state)
{
    struct dp_bench_options options = quick();
    char text[4096];
    (void)state;

    if (!here) {
        skip(); /* one rank sums nothing */
    }
    options.strategies = "liar,ring";
    options.format = DP_BENCH_TABLE;
    assert_int_equal(run_bench(&options, text, sizeof(text)), DP_ERR_INTERNAL);
    assert_non_null(strstr(text, " ring "));
    assert_non_null(strstr(text, "# verdict: liar is WRONG"));
    options.checks = 0; /* then nobody knows */
    assert_int_equal(run_bench(&options, text, sizeof(text)), DP_OK);
}

static void names_of_any_length_are_printed_whole(void **state)
{
    static char strategy[200] = "liar:by=0.", compressor[200] = "fp16,topk:ratio=0.5";
    struct dp_bench_options options = quick();
    char text[8192];
    (void)state;

    memset(strategy + strlen(strategy), '0', sizeof(strategy) - 1 - strlen(strategy));
    memset(compressor + strlen(compressor), '0', sizeof(compressor) - 1 - strlen(compressor));
    options.strategies = strategy;
    options.compressors = compressor;
    for (int format = DP_BENCH_TABLE; format <= DP_BENCH_JSON; format++) {
        options.format = format;
        assert_int_equal(run_bench(&options, text, sizeof(text)), DP_OK);
        assert_non_null(strstr(text, strategy));
        assert_non_null(strstr(text, strchr(compressor, ',') + 1));
    }
}

static void a_model_prints_a_row_for_each_bucket_and_their_sum(void **state)
{
    struct dp_bench_options options = quick();
    char text[4096];
    (void)state;

    options.buckets = scratch_path("model.cfg");
    scratch_write(options.buckets, model, strlen(model));
    options.train_steps = 3;
    assert_int_equal(run_bench(&options, text, sizeof(text)), DP_OK);
    assert_int_equal(lines_of(text), 1 + 2 * 3);
    assert_non_null(strstr(text, "\n0,512,128,float,ring,none,1,"));
    assert_non_null(strstr(text, "\ntail,"));
    assert_non_null(strstr(text, "\nsum,"));
}

/* The output of a failed run is an array, or empty. */
static void check_json(const char *text)
{
    struct dp_json *json = NULL;

    if (text[0] != '\0') {
        assert_int_equal(dp_json_parse(text, strlen(text), "stdout", &json), DP_OK);
        assert_true(dp_json_is_array(json));
        dp_json_destroy(json);
    }
}

/* Every allocation of a run fails once, in turn. */
static void check_every_allocation(const struct dp_bench_options *options)
{
    const size_t live = dp_mem_live();
    dp_status status = DP_ERR_NOMEM;
    char text[4096];
    int nth = 1;

    for (; status != DP_OK; nth++) {
        dp_mem_fail_nth(nth);
        status = run_bench(options, text, sizeof(text));
        dp_mem_fail_nth(0);
        if (status != DP_OK && status != DP_ERR_NOMEM) {
            fail_msg("allocation %d: %s", nth, dp_status_text(status));
        }
        assert_int_equal(dp_mem_live(), live);
        if (options->format == DP_BENCH_JSON) {
            check_json(text);
        }
        assert_in_range(nth, 1, 5000);
    }
    assert_true(nth > 20);
}

static void a_sweep_survives_every_failed_allocation(void **state)
{
    struct dp_bench_options options = quick();
    (void)state;

    options.bound = true;
    options.max_bytes = 256;
    check_every_allocation(&options);
    options.format = DP_BENCH_JSON;
    check_every_allocation(&options);
}

static void a_model_survives_every_failed_allocation(void **state)
{
    struct dp_bench_options options = quick();
    (void)state;

    if (!here) {
        skip(); /* a trainer's allocations are those of test_trainer.c */
    }
    options.buckets = scratch_path("model.cfg");
    scratch_write(options.buckets, model, strlen(model));
    options.train_steps = 1;
    options.iterations = 1;
    check_every_allocation(&options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sweep_prints_a_row_for_each_size_and_strategy),
        cmocka_unit_test(wrong_sums_fail_the_program_after_all_rows),
        cmocka_unit_test(names_of_any_length_are_printed_whole),
        cmocka_unit_test(a_model_prints_a_row_for_each_bucket_and_their_sum),
        cmocka_unit_test(a_sweep_survives_every_failed_allocation),
        cmocka_unit_test(a_model_survives_every_failed_allocation),
    };
    const struct dp_device *device;

    if (dp_device_find("auto", &device) != DP_OK) {
        return 1;
    }
    here = device->host_memory;
    return dp_plugin_add(&dp_strategies, &liar.plugin) != DP_OK ||
           cmocka_run_group_tests_name("bench", tests, scratch_create, scratch_destroy);
}
