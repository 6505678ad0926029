/* test_machine.c - cpusets, cores and threads, on this machine and on described ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/system/machine.h"
#include "tests/support/scratch.h"

#define TWO_SOCKETS "package:2 [numa] l3:1(size=33554432) l2:4(size=1048576) core:1 pu:2"

static struct dp_machine *described(const char *topology, const char *cpus)
{
    const struct dp_machine_text text = {topology, cpus, NULL};
    struct dp_machine *machine = NULL;

    assert_int_equal(dp_machine_create_from(&text, &machine), DP_OK);
    assert_non_null(machine);
    return machine;
}

static void a_described_machine_is_counted_in_cores_not_in_hardware_threads(void **state)
{
    struct dp_machine *machine = described(TWO_SOCKETS, NULL);
    (void)state;

    assert_string_equal(machine->cpus, "0-15");
    assert_int_equal(machine->cores, 8);
    assert_int_equal(machine->threads, 16);
    assert_int_equal(machine->numa_nodes, 2);
    assert_int_equal(machine->l2_bytes, 1 << 20);
    assert_int_equal(machine->l3_bytes, 32 << 20);
    assert_string_equal(machine->isa, "generic");
    assert_string_equal(machine->model, "unknown");
    dp_machine_destroy(machine);
}

static void only_cores_of_the_cpuset_are_counted(void **state)
{
    struct dp_machine *machine = described(TWO_SOCKETS, "0-3,5");
    (void)state;

    assert_string_equal(machine->cpus, "0-3,5");
    assert_int_equal(machine->cores, 3); /* 0 and 1, 2 and 3, half of the third */
    assert_int_equal(machine->threads, 5);
    assert_int_equal(machine->numa_nodes, 1);
    dp_machine_destroy(machine);
}

static void a_machine_without_caches_reports_zero(void **state)
{
    struct dp_machine *machine = described("pu:3", NULL);
    (void)state;

    assert_int_equal(machine->cores, 3);
    assert_int_equal(machine->l2_bytes, 0);
    assert_int_equal(machine->l3_bytes, 0);
    dp_machine_destroy(machine);
}

static void ranks_divide_the_cores_and_get_at_least_one_thread(void **state)
{
    struct dp_machine *machine = described(TWO_SOCKETS, NULL);
    static const int sharing[] = {0, 1, 2, 3, 8, 9, 1000};
    static const int threads[] = {8, 8, 4, 2, 1, 1, 1};
    (void)state;

    for (size_t i = 0; i < sizeof(sharing) / sizeof(sharing[0]); i++) {
        assert_int_equal(dp_machine_threads(machine, sharing[i]), threads[i]);
    }
    dp_machine_destroy(machine);
}

static void ranks_that_share_cores_find_each_other_by_their_cpusets(void **state)
{
    static const char *const cpus[] = {"0-3", "4-7", "0-3", "3-4", "15"};
    static const int sharing[] = {3, 2, 3, 4, 1};
    static const int parts[] = {0, 0, 1, 3, 0};
    unsigned char sets[5][DP_CPUSET_BYTES];
    (void)state;

    for (int i = 0; i < 5; i++) {
        struct dp_machine *machine = described(TWO_SOCKETS, cpus[i]);
        dp_machine_cpuset_bytes(machine, sets[i]);
        dp_machine_destroy(machine);
    }
    assert_int_equal(sets[0][0], 0x0f);
    assert_int_equal(sets[3][0], 0x18);
    assert_int_equal(sets[4][1], 0x80);
    for (int i = 0; i < 5; i++) {
        int part = -1;
        assert_int_equal(dp_machine_sharing(sets[0], 5, i, &part), sharing[i]);
        assert_int_equal(part, parts[i]);
    }
    assert_int_equal(dp_machine_sharing(sets[0], 1, 0, NULL), 1);
}

static void put_device(const char *text)
{
    (void)mkdir(scratch_path("0000:1b:00.0"), 0700);
    scratch_write(scratch_path("0000:1b:00.0/local_cpulist"), text, strlen(text));
}

static void a_device_of_another_socket_is_far(void **state)
{
    struct dp_machine *machine = described(TWO_SOCKETS, "0-3");
    char near[32];
    (void)state;

    assert_string_equal(machine->numa, "0");
    assert_false(dp_machine_far(machine, scratch_folder, "0000:1B:00.0", near, sizeof(near)));
    put_device("0-7\n");
    assert_false(dp_machine_far(machine, scratch_folder, "0000:1B:00.0", near, sizeof(near)));
    assert_string_equal(near, "");
    put_device("\n");
    assert_false(dp_machine_far(machine, scratch_folder, "0000:1B:00.0", near, sizeof(near)));
    put_device("8-15\n");
    assert_true(dp_machine_far(machine, scratch_folder, "0000:1B:00.0", near, sizeof(near)));
    assert_string_equal(near, "8-15");
    dp_machine_destroy(machine);
}

static void cpus_beyond_the_bitmap_are_left_out_of_it(void **state)
{
    struct dp_machine *machine = described("core:1030 pu:1", "1023-1029");
    unsigned char set[DP_CPUSET_BYTES];
    (void)state;

    dp_machine_cpuset_bytes(machine, set);
    for (int i = 0; i < DP_CPUSET_BYTES; i++) {
        assert_int_equal(set[i], i == DP_CPUSET_BYTES - 1 ? 0x80 : 0);
    }
    dp_machine_destroy(machine);
}

static void the_instruction_set_is_the_best_one_listed(void **state)
{
    static const struct {
        const char *cpuinfo, *isa, *model;
    } cases[] = {
        {"processor\t: 0\nmodel name\t: Fast One\nflags\t\t: fpu sse2 avx avx2 avx512f "
         "avx512_bf16\n",
         "avx512-bf16", "Fast One"},
        {"flags: avx512f avx512_bf16 amx_bf16 amx_tile", "amx-bf16", "unknown"},
        {"model name: A\nflags: fpu sse2 avx avx2 avx512f", "avx512", "A"},
        {"model name : B\nflags : avx2 avx sse2\n\nmodel name : C\nflags : avx512f\n", "avx2", "B"},
        {"flags : sse2 avx2x xavx2\n", "sse2", "unknown"},
        {"Features\t: fp asimd crc32\n", "neon", "unknown"},
        {"Features\t: fp asimd sve\n", "sve", "unknown"},
        {"flags :\nmodel name :\n", "generic", ""},
        {"flagship : avx2\n", "generic", "unknown"},
        {"", "generic", "unknown"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct dp_machine_text text = {"pu:1", NULL, cases[i].cpuinfo};
        struct dp_machine *machine = NULL;
        assert_int_equal(dp_machine_create_from(&text, &machine), DP_OK);
        assert_string_equal(machine->isa, cases[i].isa);
        assert_string_equal(machine->model, cases[i].model);
        dp_machine_destroy(machine);
    }
}

static void texts_that_describe_nothing_are_refused(void **state)
{
    static const struct dp_machine_text texts[] = {
        {"no such machine", NULL, NULL}, {"pu:4", "4-9", NULL}, {"pu:4", "two", NULL}};
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct dp_machine *machine = NULL;
        assert_int_equal(dp_machine_create_from(&texts[i], &machine), DP_ERR_ARG);
        assert_null(machine);
    }
    dp_log_set_level(DP_LOG_INFO);
}

static void nothing_is_bound_on_a_machine_that_is_only_described(void **state)
{
    struct dp_machine *machine = described(TWO_SOCKETS, NULL);
    (void)state;

    assert_false(dp_machine_bind_self(machine, 0, 2));
    assert_false(dp_machine_bind_thread(machine, 0));
    assert_string_equal(machine->cpus, "0-15");
    dp_machine_destroy(machine);
}

static void this_machine_is_read_fast(void **state)
{
    clock_t least = CLOCKS_PER_SEC;
    (void)state;

    for (int i = 0; i < 3; i++) {
        struct dp_machine *machine = NULL;
        const clock_t begin = clock();
        assert_int_equal(dp_machine_create(&machine), DP_OK);
        const clock_t took = clock() - begin;
        least = took < least ? took : least;
        assert_true(machine->cores >= 1 && machine->threads >= machine->cores);
        assert_true(machine->numa_nodes >= 1);
        assert_true(machine->host[0] != '\0' && machine->cpus[0] != '\0');
        assert_true(machine->model[0] != '\0');
        dp_machine_destroy(machine);
    }
    /* Time of the processor, which other programs do not use up: a machine of the usual kind takes
     * 3 ms, sanitizers some times that. */
    assert_true(least < CLOCKS_PER_SEC * 3 / 10);
}

/* Last of this machine's tests, since binding lasts for the rest of the program. */
static void binding_narrows_this_process_to_its_part(void **state)
{
    struct dp_machine *machine = NULL, *again = NULL;
    int cores;
    (void)state;

    assert_int_equal(dp_machine_create(&machine), DP_OK);
    cores = machine->cores;
    assert_false(dp_machine_bind_self(machine, 0, cores + 1));
    assert_false(dp_machine_bind_self(machine, -1, cores));
    assert_false(dp_machine_bind_self(machine, cores, cores));
    assert_int_equal(machine->cores, cores);
    if (!dp_machine_bind_self(machine, cores - 1, cores)) {
        dp_machine_destroy(machine);
        print_message("skipped: this system refuses to bind a process\n");
        skip();
    }
    assert_int_equal(machine->cores, 1);
    assert_int_equal(dp_machine_threads(machine, 1), 1);
    assert_int_equal(dp_machine_create(&again), DP_OK);
    assert_string_equal(again->cpus, machine->cpus);
    assert_int_equal(again->cores, 1);
    assert_true(dp_machine_bind_thread(again, 5));
    assert_false(dp_machine_bind_thread(again, -1));
    dp_machine_destroy(again);
    dp_machine_destroy(machine);
}

static void survives_every_failed_allocation(void **state)
{
    const struct dp_machine_text text = {TWO_SOCKETS, "1-4", NULL};
    const size_t live = dp_mem_live();
    dp_status status = DP_ERR_NOMEM;
    int nth = 0;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    while (status != DP_OK) {
        struct dp_machine *machine = NULL;
        dp_mem_fail_nth(++nth);
        status = dp_machine_create_from(&text, &machine);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((machine != NULL) == (status == DP_OK));
        dp_machine_destroy(machine);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
    assert_true(nth > 1); /* at least one failed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_described_machine_is_counted_in_cores_not_in_hardware_threads),
        cmocka_unit_test(only_cores_of_the_cpuset_are_counted),
        cmocka_unit_test(a_machine_without_caches_reports_zero),
        cmocka_unit_test(ranks_divide_the_cores_and_get_at_least_one_thread),
        cmocka_unit_test(ranks_that_share_cores_find_each_other_by_their_cpusets),
        cmocka_unit_test_setup_teardown(a_device_of_another_socket_is_far, scratch_create,
                                        scratch_destroy),
        cmocka_unit_test(cpus_beyond_the_bitmap_are_left_out_of_it),
        cmocka_unit_test(the_instruction_set_is_the_best_one_listed),
        cmocka_unit_test(texts_that_describe_nothing_are_refused),
        cmocka_unit_test(nothing_is_bound_on_a_machine_that_is_only_described),
        cmocka_unit_test(this_machine_is_read_fast),
        cmocka_unit_test(survives_every_failed_allocation),
        cmocka_unit_test(binding_narrows_this_process_to_its_part),
    };
    return cmocka_run_group_tests_name("machine", tests, NULL, NULL);
}
