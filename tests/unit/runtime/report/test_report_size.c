/*
 * test_report_size.c - what a run writes about its ranks, for 2 to 1,024 of them: the same files,
 * and bytes that grow no faster than the ranks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/report/files/metrics.h"
#include "runtime/report/files/report_writer.h"
#include "runtime/report/summary_read.h"
#include "tests/support/scratch.h"

enum { RANKS_MOST = 1024, STEPS = 20 };
enum { SLACK = 128 }; /* bytes: times that are measured have more digits, or fewer */

static const char *const names[] = {"run.json", "metrics.jsonl", "report.html"};

struct sizes {
    long files, bytes[3];
};

static long bytes_of(const char *name)
{
    struct stat info;

    assert_int_equal(stat(scratch_path(name), &info), 0);
    return (long)info.st_size;
}

/* A rank, and one that was late, for each; numbers have as many digits on all. */
static void describe(struct dp_run_summary *s, int ranks)
{
    dp_run_summary_clear(s);
    s->schema = DP_SUMMARY_SCHEMA;
    s->name = "sizes";
    s->world_size = ranks;
    s->steps = STEPS;
    assert_int_equal(dp_run_summary_resize(s, DP_TABLE_RANKS, ranks), DP_OK);
    assert_int_equal(dp_run_summary_resize(s, DP_TABLE_STRAGGLERS, ranks), DP_OK);
    for (int i = 0; i < ranks; i++) {
        s->ranks[i].rank = s->stragglers[i].rank = i;
        (void)snprintf(s->ranks[i].host, sizeof(s->ranks[i].host), "host-%04d", i / 8);
        (void)snprintf(s->ranks[i].cpus, sizeof(s->ranks[i].cpus), "%d", i % 8);
        s->ranks[i].samples_per_second = 1234.5;
    }
}

static void write_metrics(const struct dp_run_summary *s)
{
    const struct dp_metrics_start start = {.name = "sizes",
                                           .device = "cpu",
                                           .precision = "fp32",
                                           .strategy = "ring",
                                           .compressor = "none",
                                           .world_size = (int)s->world_size};
    struct dp_metrics metrics;

    assert_int_equal(dp_metrics_open(&metrics, scratch_path("metrics.jsonl"), false), DP_OK);
    assert_int_equal(dp_metrics_start(&metrics, &start), DP_OK);
    for (uint64_t i = 1; i <= STEPS; i++) {
        assert_int_equal(dp_metrics_step(&metrics, &(struct dp_metrics_step){.step = i}), DP_OK);
    }
    assert_int_equal(dp_metrics_end(&metrics, s), DP_OK);
    dp_metrics_close(&metrics);
}

static struct sizes sizes_of(int ranks)
{
    struct dp_run_summary s;
    struct sizes found = {0, {0}};
    DIR *folder = opendir(scratch_folder);

    assert_non_null(folder);
    describe(&s, ranks);
    write_metrics(&s);
    assert_int_equal(dp_run_summary_write(&s, scratch_path("run.json")), DP_OK);
    dp_run_summary_release(&s);
    dp_report_write_now(scratch_folder, true, NULL);
    while (scratch_next(folder) != NULL) {
        found.files++;
    }
    (void)closedir(folder);
    for (int i = 0; i < 3; i++) {
        found.bytes[i] = bytes_of(names[i]);
    }
    return found;
}

static void files_stay_as_many_and_bytes_grow_as_ranks(void **state)
{
    const struct sizes least = sizes_of(2), one = sizes_of(1);
    (void)state;

    (void)printf("ranks  files   run.json  metrics.jsonl  report.html, bytes\n");
    for (int ranks = 2; ranks <= RANKS_MOST; ranks *= 2) {
        const struct sizes found = sizes_of(ranks);
        (void)printf("%5d %6ld %10ld %14ld %12ld\n", ranks, found.files, found.bytes[0],
                     found.bytes[1], found.bytes[2]);
        assert_int_equal(found.files, 3);
        for (int i = 0; i < 3; i++) {
            const long each =
                least.bytes[i] - one.bytes[i]; /* numbers of ranks get three digits more */
            assert_true(found.bytes[i] <=
                        SLACK + least.bytes[i] + (ranks - 2) * (each + each / 4 + 16));
        }
        assert_true(found.bytes[1] <= least.bytes[1] + SLACK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_stay_as_many_and_bytes_grow_as_ranks,
                                        scratch_create_fast, scratch_destroy),
    };
    return cmocka_run_group_tests_name("report_size", tests, NULL, NULL);
}
