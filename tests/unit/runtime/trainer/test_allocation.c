/*
 * test_allocation.c - steps allocate nothing, neither in this program nor in its libraries.
 *
 * This program wraps the C library's allocator, so that calls of all libraries and threads are
 * counted, loader and engine included. Except those of oneDNN, which allocates and frees small
 * blocks whenever it executes.
 */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include <errno.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/compressors/compressor.h"
#include "collectives/exchange/exchange_calls.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"

enum { WARM_STEPS = 6, COUNTED_STEPS = 10 }; /* both with a short batch among them */

static atomic_llong allocations;

/* Sanitizers have their own allocator; these are glibc's names for its own. */
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTS 1

/* Address ranges of oneDNN, and of the C++ library that only it uses. */
static struct {
    uintptr_t begin, end;
} foreign[2];
static int foreign_count;

static int note_library(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    if (foreign_count == 2 || (strstr(info->dlpi_name, "libdnnl") == NULL &&
                               strstr(info->dlpi_name, "libstdc++") == NULL)) {
        return 0;
    }
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0) {
            foreign[foreign_count].begin = info->dlpi_addr + part->p_vaddr;
            foreign[foreign_count].end = foreign[foreign_count].begin + part->p_memsz;
        }
    }
    foreign_count++;
    return 0;
}

static void count(const void *caller)
{
    const uintptr_t from = (uintptr_t)caller;

    for (int i = 0; i < foreign_count; i++) {
        if (from >= foreign[i].begin && from < foreign[i].end) {
            return;
        }
    }
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
}

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): theirs begin with __. */
void *malloc(size_t bytes)
{
    count(__builtin_return_address(0));
    return __libc_malloc(bytes);
}

void *calloc(size_t number, size_t bytes)
{
    count(__builtin_return_address(0));
    return __libc_calloc(number, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    count(__builtin_return_address(0));
    return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    count(__builtin_return_address(0));
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    count(__builtin_return_address(0));
    *memory = __libc_memalign(alignment, bytes);
    return *memory == NULL ? ENOMEM : 0;
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

static int find_libraries(void **state)
{
    (void)state;
    return dl_iterate_phdr(note_library, NULL);
}
#else
#define COUNTS 0

static int find_libraries(void **state)
{
    (void)state;
    return 0;
}
#endif

static dp_status run_steps(struct dp_trainer *t, int steps)
{
    struct dp_step_report report;

    for (int i = 0; i < steps; i++) {
        DP_TRY(dp_trainer_step(t, &report));
    }
    return dp_exchange_barrier(t->exchange);
}

/* Returns the number of allocations in ten steps, counted on rank 0 for all. */
static size_t steps_allocate(struct dp_group *group, const void *run)
{
    struct dp_trainer *t = NULL;
    long long before, after;

    if (small_run_trainer(run, group, WARM_STEPS + COUNTED_STEPS, &t) != DP_OK ||
        run_steps(t, WARM_STEPS) != DP_OK) {
        return 1000;
    }
    before = atomic_load(&allocations);
    if (run_steps(t, COUNTED_STEPS) != DP_OK) {
        return 1000;
    }
    after = atomic_load(&allocations);
    /* No rank destroys its trainer before all have read the count. */
    if (dp_exchange_barrier(t->exchange) != DP_OK) {
        return 1000;
    }
    dp_trainer_destroy(t);
    return group->rank == 0 ? (size_t)(after - before) : 0;
}

static void the_counter_counts(void **state)
{
    (void)state;
#if COUNTS
    const long long before = atomic_load(&allocations);
    void *volatile memory = malloc(10);
    free(memory);
    memory = dp_mem_arena(DP_MEM_OTHER, 10);
    dp_free(memory);
    assert_int_equal(atomic_load(&allocations) - before, 2);
#else
    skip();
#endif
}

static void check_on(int most_ranks, const char *layers, const char *const *sets)
{
    struct small_run run;

    assert_int_equal(small_run_create(&run, layers, sets), 0);
    run.threads = sets[0] != NULL && strcmp(sets[0], "train.lanes=4") == 0 ? 2 : 1;
    for (int ranks = 1; ranks <= most_ranks; ranks += most_ranks - 1) {
        const size_t taken = on_local_ranks(ranks, steps_allocate, &run);
        if (taken != 0) {
            fail_msg("%s, %s, %s: %zu allocations in ten steps of %d ranks", sets[0], sets[1],
                     sets[2], taken, ranks);
        }
    }
    small_run_destroy(&run);
}

static void check_steps(const char *layers, const char *const *sets)
{
    check_on(3, layers, sets);
}

static void ten_steps_allocate_nothing(void **state)
{
    static const char *const devices[] = {"device.name=ref", "device.name=cpu"};
    static const char *const strategies[] = {"comm.strategy=shm", "comm.strategy=ring",
                                             "comm.strategy=none"};
    static const char *const overlaps[] = {"comm.overlap=on", "comm.overlap=off"};
    (void)state;

    for (size_t i = 0; i < 12; i++) {
        const char *const sets[] = {devices[i % 2], strategies[i / 4], overlaps[i / 2 % 2], NULL};
        check_steps(small_dropout, sets);
    }
}

static void no_compressor_allocates(void **state)
{
    const struct dp_plugin *plugin;
    (void)state;

    for (int i = 0; (plugin = dp_plugin_at(&dp_compressors, i)) != NULL; i++) {
        char set[64];
        const char *const sets[] = {set, i % 2 == 0 ? "comm.strategy=ring" : "comm.strategy=zero1",
                                    "comm.overlap=on", "device.name=cpu", NULL};
        (void)snprintf(set, sizeof(set), "comm.compressor=%s", plugin->name);
        check_steps(small_conv, sets);
    }
}

static void clipping_adamw_passes_and_convolutions_do_not_allocate(void **state)
{
    static const char *const clip[] = {"device.name=cpu", "optimizer.clip_norm=0.1",
                                       "comm.overlap=on", NULL};
    static const char *const adamw[] = {"device.name=cpu", "optimizer.name=adamw",
                                        "optimizer.schedule.name=cosine", NULL};
    static const char *const passes[] = {"device.name=cpu", "train.micro_batch=5",
                                         "comm.overlap=on", NULL};
    static const char *const norm[] = {"device.name=cpu", "comm.overlap=on", "comm.strategy=shm",
                                       NULL};
    (void)state;

    check_steps(small_dense, clip);
    check_steps(small_dense, adamw);
    check_steps(small_dense, passes);
    check_steps(small_conv, norm);
}

static void narrow_types_allocate_nothing(void **state)
{
    static const char *const bf16[] = {"device.name=cpu", "train.precision=bf16",
                                       "comm.strategy=zero1:over=ring", NULL};
    static const char *const fp16[] = {"device.name=cpu", "train.precision=fp16",
                                       "train.micro_batch=5", NULL};
    static const char *const lanes[] = {"train.lanes=4", "device.name=cpu", "train.precision=fp16",
                                        NULL};
    (void)state;

    check_steps(small_conv, bf16);
    check_steps(small_dropout, bf16);
    check_steps(small_own_norm, fp16);
    check_on(2, small_own_norm, lanes);
}

static void lanes_allocate_nothing(void **state)
{
    static const char *const lanes[] = {"train.lanes=4", "device.name=cpu", "comm.overlap=on",
                                        NULL};
    (void)state;

    check_on(2, small_dropout, lanes);
    check_on(2, small_own_norm, lanes);
    check_on(2, small_conv, lanes); /* lanes that meet */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_counter_counts),
        cmocka_unit_test(ten_steps_allocate_nothing),
        cmocka_unit_test(no_compressor_allocates),
        cmocka_unit_test(clipping_adamw_passes_and_convolutions_do_not_allocate),
        cmocka_unit_test(lanes_allocate_nothing),
        cmocka_unit_test(narrow_types_allocate_nothing),
    };
    return cmocka_run_group_tests_name("allocation", tests, find_libraries, NULL);
}
