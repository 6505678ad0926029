/* test_usage.c - what a process and its host have used, from files as the kernel writes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/system/usage.h"
#include "tests/support/scratch.h"

static void write_text(const char *name, const char *text)
{
    scratch_write(scratch_path(name), text, strlen(text));
}

static void make_folder(const char *name)
{
    assert_int_equal(mkdir(scratch_path(name), 0777), 0);
}

static void add_task(const char *folder, const char *comm, const char *schedstat)
{
    char path[64];

    make_folder(folder);
    (void)snprintf(path, sizeof(path), "%s/comm", folder);
    write_text(path, comm);
    (void)snprintf(path, sizeof(path), "%s/schedstat", folder);
    write_text(path, schedstat);
}

static void threads_count_by_their_names(void **state)
{
    struct dp_usage usage;
    (void)state;

    make_folder("self");
    make_folder("self/task");
    add_task("self/task/100", "ddp_train\n", "5000 10 3\n");
    add_task("self/task/101", "dp-engine\n", "700 20 3\n");
    add_task("self/task/102", "dp-loader\n", "60 30 3\n");
    add_task("self/task/103", "dp-decode\n", "7 40 3\n");
    add_task("self/task/104", "dp-report\n", "8 50 3\n");
    add_task("self/task/105", "dp-detector\n", "9 60 3\n");
    write_text("self/schedstat", "5000 10 3\n");
    make_folder("self/task/106"); /* it has ended meanwhile */
    dp_usage_read_from(scratch_folder, &usage);
    assert_int_equal(usage.thread_ns[DP_THREAD_COMPUTE], 5000);
    assert_int_equal(usage.thread_ns[DP_THREAD_COMMUNICATION], 700);
    assert_int_equal(usage.thread_ns[DP_THREAD_INPUT], 67);
    assert_int_equal(usage.thread_ns[DP_THREAD_WRITER], 8);
    assert_int_equal(usage.thread_ns[DP_THREAD_OTHER], 9);
    assert_int_equal(usage.queued_ns, 210);
    assert_int_equal(usage.own_queued_ns, 10);
    assert_true(usage.disk_bytes < 0 && usage.net_bytes < 0);
}

static void bytes_of_disks_and_of_the_network_are_summed(void **state)
{
    struct dp_usage usage;
    (void)state;

    make_folder("self");
    make_folder("net");
    write_text("self/io", "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\n"
                          "write_bytes: 8192\ncancelled_write_bytes: 99\n");
    write_text("net/dev", "Inter-|   Receive\n face |bytes packets\n"
                          "    lo: 500 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n"
                          "  eth0: 1000 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n"
                          "eth1:300 1 0 0 0 0 0 0 4 1 0 0 0 0 0 0");
    dp_usage_read_from(scratch_folder, &usage);
    assert_int_equal(usage.disk_bytes, 12288);
    assert_int_equal(usage.net_bytes, 1324);
    /* Loopback alone is a network without bytes, not an unknown one. */
    write_text("net/dev", "    lo: 500 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n");
    dp_usage_read_from(scratch_folder, &usage);
    assert_int_equal(usage.net_bytes, 0);
}

static void processor_time_of_the_cpus_that_are_meant_is_summed(void **state)
{
    const int64_t tick_ns = 1000000000 / sysconf(_SC_CLK_TCK);
    (void)state;

    assert_true(dp_cpus_busy_ns_from(scratch_folder, "0") < 0);
    write_text("stat", "cpu  900 900 900 900 900 0 0 0 0 0\n"
                       "cpu0 100 20 3 5000 70 9 9 9 0 0\n"
                       "cpu1 1000 0 0 5000 70 9 9 9 0 0\n"
                       "cpu12 4 0 0 5000 70 9 9 9 0 0\n"
                       "intr 96658167 0 0\ncpu0 7 7 7 7\n");
    assert_int_equal(dp_cpus_busy_ns_from(scratch_folder, "0"), 123 * tick_ns);
    assert_int_equal(dp_cpus_busy_ns_from(scratch_folder, "0-1,12"), 1127 * tick_ns);
    assert_int_equal(dp_cpus_busy_ns_from(scratch_folder, "2,10-12"), 4 * tick_ns);
    assert_true(dp_cpus_busy_ns_from(scratch_folder, "7") < 0);
    assert_true(dp_cpus_busy_ns_from(scratch_folder, "") < 0);
}

static void this_process_uses_what_it_uses(void **state)
{
    struct dp_usage before, after;
    struct dp_usage_brief brief = {.queued_ns = UINT64_MAX, .stolen_ns = UINT64_MAX};
    (void)state;

    dp_usage_read(&before);
    do {
        dp_usage_read(&after);
    } while (after.cpu_ns - before.cpu_ns < 20000000);
    assert_true(after.minor_faults >= before.minor_faults);
    dp_usage_look(&brief, false);
    assert_true(brief.rss_bytes > 0 && brief.own_bytes <= brief.rss_bytes);
    assert_true(brief.peak_bytes > 0);
    assert_true(brief.queued_ns == UINT64_MAX && brief.stolen_ns == UINT64_MAX);
    dp_usage_look(&brief, true);
    assert_true(brief.queued_ns < UINT64_MAX && brief.stolen_ns < UINT64_MAX);
}

static void a_counter_of_energy_that_begins_again_goes_on(void **state)
{
    struct dp_energy energy;
    (void)state;

    dp_energy_begin(&energy, scratch_folder);
    assert_int_equal(energy.packages, 0);
    dp_energy_add(&energy);
    for (int i = 0; i < 2; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "intel-rapl:%d", i);
        make_folder(name);
        (void)snprintf(name, sizeof(name), "intel-rapl:%d/energy_uj", i);
        write_text(name, "900000\n");
        (void)snprintf(name, sizeof(name), "intel-rapl:%d/max_energy_range_uj", i);
        write_text(name, "1000000\n");
    }
    dp_energy_begin(&energy, scratch_folder);
    assert_int_equal(energy.packages, 2);
    write_text("intel-rapl:0/energy_uj", "950000\n");
    dp_energy_add(&energy);
    assert_float_equal(energy.joules, 0.05, 1e-9);
    write_text("intel-rapl:1/energy_uj", "100000\n");
    dp_energy_add(&energy);
    assert_float_equal(energy.joules, 0.25, 1e-9);
    assert_int_equal(remove(scratch_path("intel-rapl:0/energy_uj")), 0);
    dp_energy_add(&energy);
    assert_float_equal(energy.joules, 0.25, 1e-9);
}

static void the_clock_is_that_of_a_processor(void **state)
{
    const double ghz = dp_clock_ghz();
    (void)state;

    assert_true(ghz == 0.0 || (ghz > 0.01 && ghz < 20.0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(threads_count_by_their_names, scratch_create,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(processor_time_of_the_cpus_that_are_meant_is_summed,
                                        scratch_create, scratch_destroy),
        cmocka_unit_test_setup_teardown(bytes_of_disks_and_of_the_network_are_summed,
                                        scratch_create, scratch_destroy),
        cmocka_unit_test_setup_teardown(a_counter_of_energy_that_begins_again_goes_on,
                                        scratch_create, scratch_destroy),
        cmocka_unit_test(this_process_uses_what_it_uses),
        cmocka_unit_test(the_clock_is_that_of_a_processor),
    };
    return cmocka_run_group_tests_name("usage", tests, NULL, NULL);
}
