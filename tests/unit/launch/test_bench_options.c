/*
 * test_bench_options.c - ddp_bench's command line: sizes, flags, lists of names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/strategies/strategy.h"
#include "launch/bench/names.h"
#include "launch/bench/options.h"

static void sizes_are_read_as_nccl_tests_does(void **state)
{
    static const struct {
        const char *text;
        size_t bytes;
    } cases[] = {
        {"4", 4},
        {"65536", 65536},
        {"64K", 65536},
        {"64k", 65536},
        {"1.5M", 1572864},
        {"2G", (size_t)2 << 30},
        {"1T", (size_t)1 << 40},
        {"0.5K", 512},
        {"1M", 1048576},
        {"128m", (size_t)128 << 20},
    };
    static const char *const bad[] = {"",    "K",   "3",    "0",    "-8",  "8B",  "8KB",
                                      "1e6", "1E6", "0x40", "0X40", "inf", "nan", " 8",
                                      "1 K", "2T",  "8K ",  "1.M.", "+8"};
    size_t bytes = 0;
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (!dp_bench_size(cases[i].text, &bytes) || bytes != cases[i].bytes) {
            fail_msg("%s is %zu", cases[i].text, bytes);
        }
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (dp_bench_size(bad[i], &bytes)) {
            fail_msg("'%s' is taken for %zu", bad[i], bytes);
        }
    }
}

enum { WORDS = 12 };

/* Parses the words of a line, with one space between them. */
static dp_status parse(struct dp_bench_options *options, const char *line)
{
    static char program[] = "ddp_bench", text[256];
    char *argv[WORDS + 1] = {program};
    int argc = 1;

    (void)snprintf(text, sizeof(text), "%s", line);
    for (char *word = text; *word != '\0' && argc < WORDS;) {
        char *end = word + strcspn(word, " ");
        argv[argc++] = word;
        word = *end == '\0' ? end : end + 1;
        *end = '\0';
    }
    return dp_bench_parse(argc, argv, true, options);
}

static void flags_have_letters_names_and_defaults(void **state)
{
    struct dp_bench_options o;
    (void)state;

    assert_int_equal(parse(&o, ""), DP_OK);
    assert_int_equal(o.min_bytes, 1024);
    assert_int_equal(o.max_bytes, 16 << 20);
    assert_int_equal(o.factor, 4);
    assert_int_equal(o.iterations, 20);
    assert_int_equal(o.warmups, 5);
    assert_int_equal(o.checks, 1);
    assert_int_equal(o.format, DP_BENCH_TABLE);
    assert_string_equal(o.strategies, "all");
    assert_string_equal(o.compressors, "none");
    assert_int_equal(parse(&o, "-b 8 -e=1M --stepfactor 2 -n 7 -w 0"), DP_OK);
    assert_int_equal(o.min_bytes, 8);
    assert_int_equal(o.max_bytes, 1 << 20);
    assert_int_equal(o.factor, 2);
    assert_int_equal(o.iterations, 7);
    assert_int_equal(o.warmups, 0);
    assert_int_equal(parse(&o, "--format=json --bound -c 0 -h"), DP_OK);
    assert_int_equal(o.format, DP_BENCH_JSON);
    assert_true(o.bound && o.help && o.checks == 0);
}

static void wrong_usage_is_refused(void **state)
{
    static const char *const cases[] = {
        "--byts 8",
        "-b 8x",
        "-b",
        "-b 16M -e 1M",
        "-f 1",
        "-n 0",
        "-w -1",
        "-c x",
        "--format x",
        "--bound=1",
        "model.cfg",
        "--train 3",
        "--set a=1",
        "--format=",
        "-n 2000000",
        "--iters 1.5",
        "--buckets m.cfg -b 1K",
        "--maxbytes 1M --buckets m.cfg",
        "--buckets m.cfg -f 2",
        "--buckets m.cfg --bound",
        "--buckets m.cfg --set comm.strategy=ring",
        "--buckets m.cfg --set comm.compressor=fp16",
    };
    struct dp_bench_options o;
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (parse(&o, cases[i]) != DP_ERR_USAGE) {
            fail_msg("%s is taken", cases[i]);
        }
    }
}

static void a_model_accepts_flags_that_are_not_about_sizes(void **state)
{
    struct dp_bench_options o;
    (void)state;

    assert_int_equal(parse(&o, "--buckets m.cfg -n 5 --set comm.bucket_mb=2 --strategies ring"),
                     DP_OK);
    assert_int_equal(o.set_count, 1);
    assert_null(o.sized);
}

static void check_names(const char *list, int count, const char *first, const char *last)
{
    struct dp_bench_names names;

    assert_int_equal(dp_bench_names_create(list, &dp_strategies, &names), DP_OK);
    assert_int_equal(names.count, count);
    assert_string_equal(names.at[0], first);
    assert_string_equal(names.at[count - 1], last);
    dp_bench_names_destroy(&names);
}

static void lists_are_cut_between_plug_ins_not_between_options(void **state)
{
    const size_t live = dp_mem_live();
    int all = 0;
    (void)state;

    while (dp_plugin_at(&dp_strategies, all) != NULL) {
        all++;
    }
    check_names("ring", 1, "ring", "ring");
    check_names("ring,shm", 2, "ring", "shm");
    check_names("hier:inner=shm,outer=ring,mpi", 2, "hier:inner=shm,outer=ring", "mpi");
    check_names("zero1:over=ring,zero1:over=shm", 2, "zero1:over=ring", "zero1:over=shm");
    check_names("x:a=1,b=2,c=3", 1, "x:a=1,b=2,c=3", "x:a=1,b=2,c=3");
    check_names("all", all, dp_plugin_at(&dp_strategies, 0)->name,
                dp_plugin_at(&dp_strategies, all - 1)->name);
    assert_int_equal(dp_mem_live(), live);
}

static void empty_names_are_refused(void **state)
{
    static const char *const bad[] = {"", ",", "ring,", ",ring", "ring,,shm"};
    const size_t live = dp_mem_live();
    struct dp_bench_names names;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(dp_bench_names_create(bad[i], &dp_strategies, &names), DP_ERR_USAGE);
    }
    for (int nth = 1; nth <= 2; nth++) {
        dp_mem_fail_nth(nth);
        assert_int_equal(dp_bench_names_create("ring", &dp_strategies, &names), DP_ERR_NOMEM);
        dp_mem_fail_nth(0);
    }
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(dp_mem_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_read_as_nccl_tests_does),
        cmocka_unit_test(flags_have_letters_names_and_defaults),
        cmocka_unit_test(wrong_usage_is_refused),
        cmocka_unit_test(a_model_accepts_flags_that_are_not_about_sizes),
        cmocka_unit_test(lists_are_cut_between_plug_ins_not_between_options),
        cmocka_unit_test(empty_names_are_refused),
    };
    return cmocka_run_group_tests_name("bench_options", tests, NULL, NULL);
}
