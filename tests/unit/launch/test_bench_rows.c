/*
 * test_bench_rows.c - what ddp_bench prints: one table of columns in three formats, and the verdict
 * on the rows.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "launch/bench/bench.h"

static const char keys[] =
    "size,count,type,strategy,compressor,ranks,min_us,median_us,p99_us,algbw,busbw,wrong,"
    "wire_bytes,max_ulp,rel_l2,predicted_us";

static struct dp_bench_row make_row(const char *strategy, const char *compressor, double size,
                                    double us)
{
    struct dp_bench_row row;

    dp_bench_row_init(&row);
    row.strategy = strategy;
    row.compressor = compressor;
    row.size = size;
    row.count = size / 4.0;
    row.ranks = 2.0;
    row.median_us = us;
    row.wrong = 0.0;
    return row;
}

/* Prints two rows into `text`. */
static void print(const struct dp_bench_options *options, char *text, size_t size)
{
    FILE *file = tmpfile();
    struct dp_bench_rows rows;
    struct dp_bench_row a = make_row("shm", "none", 1048576.0, 12.5);
    struct dp_bench_row b = make_row("hier:inner=shm,outer=ring", "none", 1048576.0, 1.0 / 3.0);

    assert_non_null(file);
    a.min_us = 11.25;
    a.predicted_us = 10.0;
    a.max_ulp = 0.5;
    b.wrong = 3.0;
    dp_bench_rows_begin(&rows, options, file);
    assert_int_equal(dp_bench_rows_add(&rows, &a), DP_OK);
    assert_int_equal(dp_bench_rows_add(&rows, &b), DP_OK);
    assert_int_equal(dp_bench_rows_end(&rows), DP_OK);
    assert_int_equal(rows.count, 2);
    dp_bench_rows_destroy(&rows);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    (void)fclose(file);
}

static void csv_has_the_documented_columns(void **state)
{
    const struct dp_bench_options options = {.format = DP_BENCH_CSV};
    char text[2048];
    (void)state;

    print(&options, text, sizeof(text));
    assert_memory_equal(text, keys, strlen(keys));
    assert_string_equal(text + strlen(keys),
                        "\n1048576,262144,float,shm,none,2,11.25,12.5,,,,0,,0.5,,10\n"
                        "1048576,262144,float,\"hier:inner=shm,outer=ring\",none,2,,0.3333333333,,,"
                        ",3,,,,\n");
}

static void json_has_the_documented_keys_and_nulls(void **state)
{
    const struct dp_bench_options options = {.format = DP_BENCH_JSON};
    char text[4096], found[512] = "";
    struct dp_json_member member = {0};
    struct dp_json *json = NULL;
    const struct dp_json *row;
    int64_t whole = 0;
    double real = 0.0;
    (void)state;

    print(&options, text, sizeof(text));
    assert_int_equal(dp_json_parse(text, strlen(text), "bench", &json), DP_OK);
    assert_true(dp_json_is_array(json) && dp_json_length(json) == 2);
    row = dp_json_at(json, 0);
    while (dp_json_next(row, &member)) {
        (void)snprintf(found + strlen(found), sizeof(found) - strlen(found), "%s%s",
                       found[0] == '\0' ? "" : ",", member.key);
    }
    assert_string_equal(found, keys);
    assert_true(dp_json_int(dp_json_get(row, "size"), &whole) && whole == 1048576);
    assert_true(dp_json_real(dp_json_get(row, "median_us"), &real) && real == 12.5);
    assert_false(dp_json_real(dp_json_get(row, "rel_l2"), &real));
    assert_true(dp_json_int(dp_json_get(dp_json_at(json, 1), "wrong"), &whole) && whole == 3);
    dp_json_destroy(json);
}

static void the_table_begins_with_a_comment_and_lines_up(void **state)
{
    const struct dp_bench_options options = {.format = DP_BENCH_TABLE, .bound = true};
    char text[4096];
    (void)state;

    print(&options, text, sizeof(text));
    assert_true(text[0] == '#');
    assert_non_null(strstr(text, "meas/pred"));
    assert_non_null(strstr(text, "bound_us"));
    assert_null(strstr(text, "exposed_us"));
    const char *second = strchr(text, '\n') + 1;
    assert_int_equal(strchr(second, '\n') - second, second - 1 - text);
}

static void an_empty_result_is_still_json(void **state)
{
    const struct dp_bench_options options = {.format = DP_BENCH_JSON};
    FILE *file = tmpfile();
    struct dp_bench_rows rows;
    char text[16] = "";
    (void)state;

    dp_bench_rows_begin(&rows, &options, file);
    assert_int_equal(dp_bench_rows_end(&rows), DP_OK);
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    (void)fclose(file);
    assert_string_equal(text, "[\n]\n");
}

static void rows_survive_a_failed_allocation(void **state)
{
    const struct dp_bench_options options = {.format = DP_BENCH_TABLE};
    const struct dp_bench_row row = make_row("shm", "none", 64.0, 1.0);
    const size_t live = dp_mem_live();
    struct dp_bench_rows rows;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    dp_bench_rows_begin(&rows, &options, NULL);
    dp_mem_fail_nth(1);
    assert_int_equal(dp_bench_rows_add(&rows, &row), DP_ERR_NOMEM);
    dp_mem_fail_nth(0);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(dp_bench_rows_add(&rows, &row), DP_OK);
    }
    assert_int_equal(rows.count, 100);
    dp_log_set_level(DP_LOG_INFO);
    dp_bench_rows_destroy(&rows);
    assert_int_equal(dp_mem_live(), live);
}

/* The verdict of rows that end with one of size 0. */
static void check_verdict(const struct dp_bench_options *options, const struct dp_bench_row *row,
                          const char *expected)
{
    char *verdict = NULL;
    struct dp_bench_rows rows;

    dp_bench_rows_begin(&rows, options, NULL);
    for (; row->size > 0.0; row++) {
        assert_int_equal(dp_bench_rows_add(&rows, row), DP_OK);
    }
    assert_int_equal(dp_bench_verdict(&rows, &verdict), DP_OK);
    assert_string_equal(verdict, expected);
    dp_free(verdict);
    dp_bench_rows_destroy(&rows);
}

static void the_verdict_names_a_winner_for_each_stretch_of_sizes(void **state)
{
    const struct dp_bench_options options = {.format = DP_BENCH_TABLE};
    struct dp_bench_row rows[] = {
        make_row("ring", "none", 1024.0, 10.0),
        make_row("mpi", "none", 1024.0, 5.0),
        make_row("ring", "none", 65536.0, 20.0),
        make_row("mpi", "none", 65536.0, 50.0),
        make_row("ring", "none", 1048576.0, 100.0),
        make_row("mpi", "none", 1048576.0, 190.0),
        make_row("", "", 0.0, 0.0),
    };
    (void)state;

    rows[4].bound_us = 83.0;
    check_verdict(&options, rows,
                  "mpi is fastest at 1K: 2.0x over ring; ring is fastest from 64K to 1M: 2.2x over "
                  "mpi, at 83 % of the copy bound");
    rows[4].predicted_us = 110.0; /* 10 % off */
    rows[5].predicted_us = 247.0; /* 30 % off */
    rows[0].predicted_us = 1.0;   /* too small to count */
    check_verdict(&options, rows,
                  "mpi is fastest at 1K: 2.0x over ring; ring is fastest from 64K to 1M: 2.2x over "
                  "mpi, at 83 % of the copy bound; predictions from 64K up are off by 20 % (median "
                  "of 2)");
    rows[4].bound = "wire";
    rows[0].bound_us = rows[1].bound_us = 1.0; /* of sizes where latencies decide */
    check_verdict(
        &options, rows,
        "mpi is fastest at 1K: 2.0x over ring; ring is fastest from 64K to 1M: 2.2x over "
        "mpi, at 83 % of the wire; predictions from 64K up are off by 20 % (median of 2)");
    rows[4].bound_us = 104.0; /* 100.0 were measured */
    check_verdict(
        &options, rows,
        "mpi is fastest at 1K: 2.0x over ring; ring is fastest from 64K to 1M: 2.2x over "
        "mpi, as fast as the wire; predictions from 64K up are off by 20 % (median of 2)");
    rows[4].bound_us = 140.0;
    rows[4].bound = "copy bound";
    check_verdict(
        &options, rows,
        "mpi is fastest at 1K: 2.0x over ring; ring is fastest from 64K to 1M: 2.2x over "
        "mpi, beats the copy bound: 1.4x; predictions from 64K up are off by 20 % (median of 2)");
    rows[4].wrong = 2.0; /* no winner at 1M any more */
    check_verdict(&options, rows,
                  "ring is WRONG; mpi is fastest at 1K: 2.0x over ring; ring is fastest at 64K: "
                  "2.5x over mpi; mpi is fastest at 1M; predictions from 64K up are off by 20 % "
                  "(median of 2)");
}

static void the_verdict_says_whether_compression_pays(void **state)
{
    const struct dp_bench_options options = {.format = DP_BENCH_TABLE};
    struct dp_bench_row rows[] = {
        make_row("ring", "none", 1048576.0, 100.0),
        make_row("ring", "half", 1048576.0, 160.0),
        make_row("", "", 0.0, 0.0),
    };
    (void)state;

    rows[1].wrong = 9.0; /* of a compressor that is no shame */
    rows[1].rel_l2 = 0.0004;
    check_verdict(&options, rows,
                  "ring is fastest at 1M; off is faster here: the best compressor, half over ring, "
                  "takes 1.6x the time of ring (relative error 0.0004)");
    rows[1].median_us = 50.0;
    check_verdict(&options, rows,
                  "ring is fastest at 1M; half over ring is 2.0x over ring without (relative error "
                  "0.0004)");
    check_verdict(&options, rows + 1,
                  "half over ring is fastest at 1M (relative error 0.0004); whether compressing "
                  "pays is not known: put none among --compressors");
}

static void the_verdict_of_a_model_uses_exposed_time(void **state)
{
    const struct dp_bench_options options = {
        .buckets = "model.cfg", .train_steps = 5, .iterations = 3};
    struct dp_bench_row rows[] = {
        make_row("ring", "none", 4096.0, 1.0), /* a bucket alone */
        make_row("ring", "none", 8192.0, 300.0),
        make_row("ring", "half", 8192.0, 200.0),
        make_row("shm", "none", 8192.0, 400.0),
        make_row("shm", "half", 8192.0, 400.0),
        make_row("", "", 0.0, 0.0),
    };
    (void)state;

    (void)snprintf(rows[0].bucket, sizeof(rows[0].bucket), "0");
    for (int i = 1; i < 5; i++) {
        (void)snprintf(rows[i].bucket, sizeof(rows[i].bucket), "sum");
        rows[i].loss = 0.5;
    }
    rows[1].exposed_us = 2000.0;
    rows[2].exposed_us = 500.0;
    rows[3].exposed_us = 900.0;
    rows[1].accuracy = 0.9;
    rows[2].accuracy = 0.892;
    rows[3].accuracy = 0.9;
    rows[4].accuracy = 0.893; /* printed once, the most */
    rows[4].exposed_us = 950.0;
    check_verdict(
        &options, rows,
        "shm makes a step least longer, by 0.90 ms, ring by 2.00 ms; half over ring makes "
        "a step 0.40 ms shorter; half loses 0.8 points of accuracy");
}

/* Another winner at each size: one clause for each, including the last. */
static void a_verdict_of_any_length_is_printed_whole(void **state)
{
    const struct dp_bench_options options = {.format = DP_BENCH_TABLE};
    const size_t live = dp_mem_live();
    struct dp_bench_rows rows;
    char *verdict = NULL;
    int clauses = 1;
    (void)state;

    dp_bench_rows_begin(&rows, &options, NULL);
    for (int i = 0; i < 40; i++) {
        const struct dp_bench_row ring = make_row("ring", "none", 1024.0 * (i + 1), 1.0 + i % 2);
        const struct dp_bench_row shm = make_row("shm", "none", 1024.0 * (i + 1), 1.5);
        assert_int_equal(dp_bench_rows_add(&rows, &ring), DP_OK);
        assert_int_equal(dp_bench_rows_add(&rows, &shm), DP_OK);
    }
    dp_log_set_level(DP_LOG_NONE);
    dp_mem_fail_nth(2);
    assert_int_equal(dp_bench_verdict(&rows, &verdict), DP_ERR_NOMEM);
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(dp_bench_verdict(&rows, &verdict), DP_OK);
    for (const char *at = verdict; (at = strchr(at, ';')) != NULL; at++) {
        clauses++;
    }
    assert_int_equal(clauses, 40);
    assert_non_null(strstr(verdict, "; shm is fastest at 40K: 1.3x over ring"));
    dp_free(verdict);
    dp_bench_rows_destroy(&rows);
    assert_int_equal(dp_mem_live(), live);
}

static void expose(struct dp_bench_row *row, double low, double us, double high)
{
    (void)snprintf(row->bucket, sizeof(row->bucket), "sum");
    row->exposed_us = us;
    row->exposed_range = (struct dp_stats_range){low, high};
}

static void noise_is_not_a_difference_between_ways(void **state)
{
    struct dp_bench_options options = {.buckets = "model.cfg", .iterations = 9};
    struct dp_bench_row rows[] = {
        make_row("zero1", "none", 8192.0, 400.0),
        make_row("ring", "none", 8192.0, 300.0),
        make_row("shm", "none", 8192.0, 300.0),
        make_row("zero1", "half", 8192.0, 300.0),
        make_row("", "", 0.0, 0.0),
    };
    (void)state;

    expose(&rows[0], 800.0, 900.0, 1000.0);
    expose(&rows[1], 900.0, 1100.0, 1200.0);
    expose(&rows[2], 1500.0, 1600.0, 1700.0);
    expose(&rows[3], 700.0, 890.0, 1000.0);
    check_verdict(&options, rows,
                  "zero1 makes a step least longer, by 0.90 ms, ring by 1.10 ms (no difference "
                  "that could be measured), shm by 1.60 ms; compressing makes no difference that "
                  "could be measured: the best is half over zero1");
    /* A negative time is not a gain, neither of sharing nor of compressing. */
    expose(&rows[0], -40000.0, -38460.0, -37000.0);
    expose(&rows[1], -10.0, 100.0, 250.0);
    expose(&rows[3], -20.0, 270.0, 300.0);
    check_verdict(&options, rows,
                  "zero1 is hidden: it makes a step no longer that could be measured, ring is "
                  "hidden, too, shm makes it 1.60 ms longer; compressing makes no difference that "
                  "could be measured: the best is half over zero1");
    expose(&rows[3], 400.0, 500.0, 600.0);
    check_verdict(&options, rows,
                  "zero1 is hidden: it makes a step no longer that could be measured, ring is "
                  "hidden, too, shm makes it 1.60 ms longer; off is faster here: the best "
                  "compressor, half over zero1, makes a step 0.50 ms longer");
    options.iterations = 2;
    check_verdict(&options, rows,
                  "what sharing adds to a step cannot be told from so few: give -n 3 or more");
}

static void a_diverged_training_has_no_accuracy_loss(void **state)
{
    const struct dp_bench_options options = {.buckets = "model.cfg", .iterations = 2};
    struct dp_bench_row rows[] = {
        make_row("ring", "none", 8192.0, 300.0),
        make_row("ring", "half", 8192.0, 300.0),
        make_row("shm", "none", 8192.0, 300.0),
        make_row("shm", "half", 8192.0, 300.0),
        make_row("", "", 0.0, 0.0),
    };
    static const char few[] =
        "what sharing adds to a step cannot be told from so few: give -n 3 or more";
    char expected[512];
    (void)state;

    for (int i = 0; i < 4; i++) {
        expose(&rows[i], 1.0, 2.0, 3.0);
        rows[i].accuracy = i % 2 == 0 ? 0.9 : 0.1;
        rows[i].loss = i % 2 == 0 ? 0.5 : (double)NAN;
    }
    (void)snprintf(expected, sizeof(expected),
                   "%s; half diverged over ring, shm: its loss is no number", few);
    check_verdict(&options, rows, expected);
    rows[3].loss = 0.6;
    rows[3].accuracy = 0.85;
    rows[0].loss = (double)INFINITY;
    (void)snprintf(expected, sizeof(expected),
                   "%s; training without compressor diverged over ring: its loss is no number; "
                   "half diverged over ring: its loss is no number; half loses 5.0 points of "
                   "accuracy",
                   few);
    check_verdict(&options, rows, expected);
}

static void scatter(struct dp_bench_row *row, double part)
{
    row->median_range =
        (struct dp_stats_range){row->median_us * (1.0 - part), row->median_us * (1.0 + part)};
}

/* If two ways are fastest in turns, but within noise, one is named for all sizes. */
static void noise_does_not_split_a_range_of_sizes(void **state)
{
    const struct dp_bench_options options = {.format = DP_BENCH_TABLE};
    struct dp_bench_row rows[] = {
        make_row("ring", "none", 1024.0, 10.0),  make_row("mpi", "none", 1024.0, 12.0),
        make_row("ring", "none", 4096.0, 24.0),  make_row("mpi", "none", 4096.0, 20.0),
        make_row("ring", "none", 16384.0, 40.0), make_row("mpi", "none", 16384.0, 44.0),
        make_row("ring", "half", 16384.0, 36.0), make_row("", "", 0.0, 0.0),
    };
    (void)state;

    for (int i = 0; i < 7; i++) {
        scatter(&rows[i], 0.15);
    }
    check_verdict(&options, rows,
                  "ring is fastest from 1K to 16K: about as fast as mpi; compressing makes no "
                  "difference that could be measured: the best is half over ring");
    for (int i = 0; i < 7; i++) {
        scatter(&rows[i], 0.04);
    }
    check_verdict(&options, rows,
                  "ring is fastest at 1K: 1.2x over mpi; mpi is fastest at 4K: 1.2x over ring; "
                  "ring is fastest at 16K: 1.1x over mpi; half over ring is 1.1x over ring "
                  "without");
}

static void one_rank_has_nothing_to_compare(void **state)
{
    const struct dp_bench_options options = {.format = DP_BENCH_TABLE};
    struct dp_bench_row rows[] = {make_row("ring", "none", 64.0, 1.0), make_row("", "", 0.0, 0.0)};
    (void)state;

    rows[0].ranks = 1.0;
    check_verdict(&options, rows, "one rank shares nothing: run under mpirun");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_has_the_documented_columns),
        cmocka_unit_test(json_has_the_documented_keys_and_nulls),
        cmocka_unit_test(the_table_begins_with_a_comment_and_lines_up),
        cmocka_unit_test(an_empty_result_is_still_json),
        cmocka_unit_test(rows_survive_a_failed_allocation),
        cmocka_unit_test(the_verdict_names_a_winner_for_each_stretch_of_sizes),
        cmocka_unit_test(the_verdict_says_whether_compression_pays),
        cmocka_unit_test(the_verdict_of_a_model_uses_exposed_time),
        cmocka_unit_test(a_verdict_of_any_length_is_printed_whole),
        cmocka_unit_test(noise_is_not_a_difference_between_ways),
        cmocka_unit_test(a_diverged_training_has_no_accuracy_loss),
        cmocka_unit_test(noise_does_not_split_a_range_of_sizes),
        cmocka_unit_test(one_rank_has_nothing_to_compare),
    };
    return cmocka_run_group_tests_name("bench_rows", tests, NULL, NULL);
}
