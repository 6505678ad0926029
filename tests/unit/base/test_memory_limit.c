/*
 * test_memory_limit.c - a host's free memory is read from its files in /proc and /sys.
 *
 * Each machine is a folder with the files that Linux would have there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/system/memory_limit.h"
#include "tests/support/scratch.h"

static const size_t gib = (size_t)1 << 30, mib = (size_t)1 << 20;

static const char meminfo[] = "MemTotal:       33554432 kB\n"
                              "MemFree:         1048576 kB\n"
                              "MemAvailable:   25165824 kB\n"
                              "SwapTotal:       4194304 kB\n"
                              "SwapFree:        2097152 kB\n";

/* A file of the machine, with all folders on its way. */
static void put(const char *path, const char *text)
{
    char whole[512];
    FILE *file;

    (void)snprintf(whole, sizeof(whole), "%s%s", scratch_folder, path);
    for (char *at = whole + strlen(scratch_folder) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        (void)mkdir(whole, 0700);
        *at = '/';
    }
    file = fopen(whole, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static struct dp_memory_limits seen(void)
{
    struct dp_memory_limits limits;

    dp_memory_limits_read(scratch_folder, &limits);
    return limits;
}

static void without_system_files_there_is_no_limit(void **state)
{
    (void)state;
    assert_int_equal(seen().count, 0);
    put("/proc/meminfo", "MemTotal: 1 kB\n"); /* before Linux 3.14 */
    assert_int_equal(seen().count, 0);
}

static void the_host_has_available_memory_and_swap(void **state)
{
    struct dp_memory_limits limits;
    (void)state;

    put("/proc/meminfo", meminfo);
    limits = seen();
    assert_int_equal(limits.count, 1);
    assert_int_equal(limits.limit[0].id, 0);
    assert_string_equal(limits.limit[0].name, "");
    assert_int_equal(limits.limit[0].total, 32 * gib);
    assert_int_equal(limits.limit[0].available, 24 * gib);
    assert_int_equal(limits.limit[0].swap, 2 * gib);
}

static void put_group(const char *folder, const char *most, const char *used, const char *swap)
{
    char path[256];

    (void)snprintf(path, sizeof(path), "/cg%s/memory.max", folder);
    put(path, most);
    (void)snprintf(path, sizeof(path), "/cg%s/memory.current", folder);
    put(path, used);
    (void)snprintf(path, sizeof(path), "/cg%s/memory.swap.max", folder);
    put(path, swap);
    (void)snprintf(path, sizeof(path), "/cg%s/memory.swap.current", folder);
    put(path, "1048576\n");
    (void)snprintf(path, sizeof(path), "/cg%s/memory.stat", folder);
    put(path, "anon 12345\nfile 99999999\ninactive_file 268435456\nactive_file 134217728\n"
              "slab_reclaimable 134217728\nworkingset_refault_file 7\n");
}

/* File cache counts as free: 2 GiB used, half a GiB of it as cache. */
static void groups_count_from_the_innermost_up_and_file_cache_is_free(void **state)
{
    struct dp_memory_limits limits;
    (void)state;

    put("/proc/meminfo", meminfo);
    put("/proc/self/cgroup", "0::/job/step\n");
    put("/proc/self/mountinfo", "24 1 0:22 / /proc rw - proc proc rw\n"
                                "30 1 0:26 / /cg rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
    put_group("/job/step", "max\n", "1\n", "max\n");
    put_group("/job", "4294967296\n", "2147483648\n", "104857600\n");
    limits = seen();
    assert_int_equal(limits.count, 2);
    assert_int_equal(limits.limit[1].total, 4 * gib);
    assert_int_equal(limits.limit[1].available, 2 * gib + gib / 2);
    assert_int_equal(limits.limit[1].swap, 99 * mib);
    assert_string_equal(limits.limit[1].name, "control group /cg/job");
    assert_true(limits.limit[1].id != 0);

    put_group("/job/step", "1073741824\n", "2147483648\n", "max\n"); /* over its limit already */
    limits = seen();
    assert_int_equal(limits.count, 3);
    assert_string_equal(limits.limit[1].name, "control group /cg/job/step");
    assert_int_equal(limits.limit[1].available, 0);
    assert_int_equal(limits.limit[1].swap, 2 * gib);
    assert_string_equal(limits.limit[2].name, "control group /cg/job");
    assert_true(limits.limit[1].id != limits.limit[2].id);
}

/* A limit above the host's memory is none: version 1 writes 2^63 less a page for no limit. */
static void version_1_counts_its_memory_controller(void **state)
{
    struct dp_memory_limits limits;
    (void)state;

    put("/proc/meminfo", meminfo);
    put("/proc/self/cgroup", "9:name=systemd:/x\n5:cpu,cpuacct:/\n4:hugetlb,memory:/docker/a\n"
                             "0::/elsewhere\n");
    put("/proc/self/mountinfo", "31 1 0:30 / /cpu rw - cgroup cgroup rw,cpu\n"
                                "32 1 0:31 /docker/a /mem rw - cgroup cgroup rw,memory\n"
                                "33 1 0:32 / /cg rw - cgroup2 cgroup2 rw\n");
    put("/mem/memory.limit_in_bytes", "9223372036854771712\n");
    put("/mem/memory.usage_in_bytes", "1000\n");
    assert_int_equal(seen().count, 1);
    put("/mem/memory.limit_in_bytes", "1073741824\n");
    put("/mem/memory.usage_in_bytes", "536870912\n");
    put("/mem/memory.stat", "inactive_file 1\ntotal_inactive_file 134217728\n"
                            "total_active_file 134217728\n");
    limits = seen();
    assert_int_equal(limits.count, 2);
    assert_string_equal(limits.limit[1].name, "control group /mem");
    assert_int_equal(limits.limit[1].available, gib - gib / 4);
}

/* A container sees its own group as the topmost, whatever the path of its process says. */
static void a_group_outside_the_mount_counts_as_the_mount(void **state)
{
    struct dp_memory_limits limits;
    (void)state;

    put("/proc/meminfo", meminfo);
    put("/proc/self/mountinfo", "33 1 0:32 / /cg rw - cgroup2 cgroup2 rw\n");
    put_group("", "1073741824\n", "536870912\n", "0\n");
    put("/proc/self/cgroup", "0::/\n");
    limits = seen();
    assert_int_equal(limits.count, 2);
    assert_string_equal(limits.limit[1].name, "control group /cg");
    assert_int_equal(limits.limit[1].available, gib);
    assert_int_equal(limits.limit[1].swap, 0);
    put("/proc/self/cgroup", "0::/../other\n");
    assert_int_equal(seen().count, 2);
}

static void address_space_is_what_the_limit_leaves(void **state)
{
    struct rlimit before, limit;
    size_t left;
    char text[64];
    (void)state;

    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    if (before.rlim_max != RLIM_INFINITY) {
        skip();
    }
    assert_int_equal(dp_memory_addresses_left(scratch_folder), SIZE_MAX);
    (void)snprintf(text, sizeof(text), "%ld 5 3\n", (long)(gib / (size_t)sysconf(_SC_PAGESIZE)));
    put("/proc/self/statm", text);
    limit = before;
    limit.rlim_cur = (rlim_t)1 << 50; /* room for a sanitizer */
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    left = dp_memory_addresses_left(scratch_folder);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(left, ((size_t)1 << 50) - gib);
}

static void this_machine_can_be_read(void **state)
{
    struct dp_memory_limits limits;
    (void)state;

    dp_memory_limits_read("", &limits);
    for (int i = 0; i < limits.count; i++) {
        assert_true(limits.limit[i].total > 0);
        assert_true(limits.limit[i].available <= limits.limit[i].total);
    }
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(without_system_files_there_is_no_limit),
        CASE(the_host_has_available_memory_and_swap),
        CASE(groups_count_from_the_innermost_up_and_file_cache_is_free),
        CASE(version_1_counts_its_memory_controller),
        CASE(a_group_outside_the_mount_counts_as_the_mount),
        CASE(address_space_is_what_the_limit_leaves),
        CASE(this_machine_can_be_read),
    };

    return cmocka_run_group_tests_name("memory_limit", tests, NULL, NULL);
}
