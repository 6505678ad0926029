/* test_async_copy.c - arrays that a thread copies while their owner works, and helps. */
#define _GNU_SOURCE /* RUSAGE_THREAD, MAP_ANONYMOUS, RTLD_NEXT */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/system/worker.h"
#include "runtime/checkpoint/async_copy.h"
#include "tests/support/held_mutexes.h"

enum { ARRAYS = 5, LONGEST = 1 << 20, ROUNDS = 40 };

static const size_t lengths[ARRAYS] = {LONGEST, 1, 300001, 0, 131072};

struct arrays {
    unsigned char *from[ARRAYS], *to[ARRAYS];
};

static void arrays_create(struct arrays *a)
{
    for (int i = 0; i < ARRAYS; i++) {
        a->from[i] = dp_zalloc(LONGEST, 1);
        a->to[i] = dp_zalloc(LONGEST, 1);
        assert_non_null(a->from[i]);
        assert_non_null(a->to[i]);
    }
}

static void arrays_destroy(const struct arrays *a)
{
    for (int i = 0; i < ARRAYS; i++) {
        dp_free(a->from[i]);
        dp_free(a->to[i]);
    }
}

static void write_all(const struct arrays *a, int value)
{
    for (int i = 0; i < ARRAYS; i++) {
        memset(a->from[i], value, lengths[i]);
    }
}

static void begin(struct dp_async_copy *c, const struct arrays *a, atomic_ullong *copied)
{
    for (int i = 0; i < ARRAYS; i++) {
        dp_async_copy_add(c, a->to[i], a->from[i], lengths[i]);
    }
    dp_async_copy_start(c, copied);
}

static size_t count_differing(const unsigned char *bytes, size_t count, int value)
{
    size_t differing = 0;

    for (size_t k = 0; k < count; k++) {
        differing += bytes[k] != value;
    }
    return differing;
}

static void assert_copied(const struct arrays *a, int value)
{
    for (int i = 0; i < ARRAYS; i++) {
        assert_int_equal(count_differing(a->to[i], lengths[i], value), 0);
        assert_true(lengths[i] == LONGEST || a->to[i][lengths[i]] == 0);
    }
}

static void changes_after_the_end_are_not_copied(void **state)
{
    struct arrays a;
    atomic_ullong copied = 0;
    (void)state;

    arrays_create(&a);
    for (int threads = 1; threads <= 3; threads += 2) {
        struct dp_async_copy *c = NULL;
        assert_int_equal(dp_async_copy_create(ARRAYS, threads, &c), DP_OK);
        const unsigned long long before = copied;
        for (int round = 1; round <= ROUNDS; round++) {
            write_all(&a, round);
            begin(c, &a, &copied);
            dp_async_copy_finish(c);
            assert_int_equal(copied, before + (unsigned long long)round);
            write_all(&a, 255);
            assert_copied(&a, round);
            assert_true(dp_async_copy_finish_ns(c) > 0);
        }
        dp_async_copy_destroy(c);
    }
    arrays_destroy(&a);
    assert_int_equal(dp_mem_live(), 0);
}

static atomic_int nicest; /* that a thread was made */

/* The linker takes this one, and not libc's. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): theirs begin with __. */
int setpriority(__priority_which_t which, id_t who, int value)
{
    if (value > nicest) {
        nicest = value;
    }
    return (int)syscall(SYS_setpriority, which, who, value);
}

static void the_copy_ends_without_the_owners_help(void **state)
{
    static const struct timespec pause = {0, 1000000};
    struct arrays a;
    struct dp_async_copy *c = NULL;
    atomic_ullong copied = 0;
    (void)state;

    arrays_create(&a);
    write_all(&a, 7);
    assert_int_equal(dp_async_copy_create(ARRAYS, 1, &c), DP_OK);
    begin(c, &a, &copied);
    while (copied == 0) {
        (void)nanosleep(&pause, NULL);
    }
    assert_copied(&a, 7);
    /* Training goes first. */
    assert_int_equal(nicest, getpriority(PRIO_PROCESS, 0) + DP_WORKER_NICE);
    dp_async_copy_destroy(c); /* finishes */
    arrays_destroy(&a);
}

static long faults_of_this_thread(void)
{
    struct rusage usage;

    assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_minflt;
}

/* Whoever copies to new pages is the one whom the system lets wait for them. Of this many rounds
 * the other thread, which must wake up first, cannot do all alone. */
static void the_owner_who_waits_helps(void **state)
{
    enum { PAGES = LONGEST / 4096, LEAST = PAGES / 8 };
    struct dp_async_copy *c = NULL;
    unsigned char *from = dp_zalloc(LONGEST, 1);
    atomic_ullong copied = 0;
    long faults = 0;
    (void)state;

    assert_non_null(from);
    assert_int_equal(dp_async_copy_create(1, 1, &c), DP_OK);
    for (int round = 0; round < ROUNDS; round++) {
        void *to = mmap(NULL, LONGEST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(to != MAP_FAILED);
        (void)madvise(to, LONGEST, MADV_NOHUGEPAGE);
        const long before = faults_of_this_thread();
        dp_async_copy_add(c, to, from, LONGEST);
        dp_async_copy_start(c, &copied);
        dp_async_copy_finish(c);
        faults += faults_of_this_thread() - before;
        (void)munmap(to, LONGEST);
    }
    assert_true(faults >= LEAST);
    dp_async_copy_destroy(c);
    dp_free(from);
    assert_int_equal(dp_mem_live(), 0);
}

static void an_empty_copy_is_done_at_once(void **state)
{
    struct dp_async_copy *c = NULL;
    atomic_ullong copied = 0;
    (void)state;

    assert_int_equal(dp_async_copy_create(ARRAYS, 2, &c), DP_OK);
    dp_async_copy_finish(c); /* of what never began */
    dp_async_copy_add(c, NULL, NULL, 0);
    dp_async_copy_start(c, &copied);
    assert_int_equal(copied, 1);
    dp_async_copy_finish(c);
    assert_int_equal(copied, 1);
    dp_async_copy_destroy(c);
    dp_async_copy_finish(NULL);
    dp_async_copy_destroy(NULL);
}

static void survives_failed_allocations(void **state)
{
    struct dp_async_copy *c = NULL;
    dp_status status = DP_ERR_NOMEM;
    int nth = 0;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    while (status == DP_ERR_NOMEM) {
        dp_mem_fail_nth(++nth);
        status = dp_async_copy_create(ARRAYS, 1, &c);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || dp_mem_live() == 0);
    }
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(status, DP_OK);
    assert_int_equal(nth, 4);
    dp_async_copy_destroy(c);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_after_the_end_are_not_copied),
        cmocka_unit_test(the_copy_ends_without_the_owners_help),
        cmocka_unit_test(the_owner_who_waits_helps),
        cmocka_unit_test(an_empty_copy_is_done_at_once),
        cmocka_unit_test(survives_failed_allocations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
