/* test_mem.c - every block is zeroed, aligned and counted, and can be made to fail. */
#define _GNU_SOURCE /* memfd_create, madvise */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"

static void arenas_are_zeroed_and_aligned_and_counted_by_purpose(void **state)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 100000};
    const size_t live = dp_mem_live(), bytes = dp_mem_bytes(DP_MEM_WEIGHTS);
    (void)state;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned char *arena = dp_mem_arena(DP_MEM_WEIGHTS, sizes[i]);
        assert_non_null(arena);
        assert_int_equal((uintptr_t)arena % DP_MEM_ALIGN, 0);
        for (size_t k = 0; k < sizes[i]; k++) {
            assert_int_equal(arena[k], 0);
        }
        memset(arena, 0xff, sizes[i]); /* so that a reused block would show */
        assert_int_equal(dp_mem_bytes(DP_MEM_WEIGHTS), bytes + sizes[i]);
        assert_int_equal(dp_mem_live(), live + 1);
        dp_free(arena);
    }
    assert_int_equal(dp_mem_bytes(DP_MEM_WEIGHTS), bytes);
    assert_int_equal(dp_mem_live(), live);
}

/* Also where the last huge page is not whole: an arena takes no more memory than it says. */
static void large_arenas_begin_at_a_huge_page(void **state)
{
    static const size_t huge = 2097152, sizes[] = {2097152 - DP_MEM_ALIGN, 2097152, 5000000};
    (void)state;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const size_t heap = dp_mem_heap();
        unsigned char *arena = dp_mem_arena(DP_MEM_ACTIVATIONS, sizes[i]);
        assert_non_null(arena);
        assert_int_equal((uintptr_t)arena % huge, DP_MEM_ALIGN);
        assert_in_range(dp_mem_heap() - heap, sizes[i], sizes[i] + (size_t)2 * DP_MEM_ALIGN);
        for (size_t k = 0; k < sizes[i]; k += 997) {
            assert_int_equal(arena[k], 0);
        }
        dp_free(arena);
        assert_int_equal(dp_mem_heap(), heap);
    }
}

static void huge_pages_are_counted_like_other_memory(void **state)
{
    static const size_t huge = 2097152, sizes[] = {1, 2000000, 2097152 - DP_MEM_ALIGN, 5000000};
    const size_t live = dp_mem_live(), bytes = dp_mem_bytes(DP_MEM_CHECKPOINT);
    (void)state;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned char *memory = dp_mem_huge(DP_MEM_CHECKPOINT, sizes[i]);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % huge, DP_MEM_ALIGN);
        for (size_t k = 0; k < sizes[i]; k += 997) {
            assert_int_equal(memory[k], 0);
        }
        memset(memory, 0xff, sizes[i]);
        assert_int_equal(dp_mem_bytes(DP_MEM_CHECKPOINT), bytes + sizes[i]);
        dp_free(memory);
    }
    assert_null(dp_mem_huge(DP_MEM_CHECKPOINT, SIZE_MAX - DP_MEM_ALIGN));
    dp_mem_fail_nth(1);
    assert_null(dp_mem_huge(DP_MEM_CHECKPOINT, 1));
    dp_mem_fail_nth(0);
    assert_int_equal(dp_mem_bytes(DP_MEM_CHECKPOINT), bytes);
    assert_int_equal(dp_mem_live(), live);
}

static void purposes_do_not_mix(void **state)
{
    void *data = dp_mem_arena(DP_MEM_DATA, 1000);
    const size_t comm = dp_mem_bytes(DP_MEM_COMM);
    (void)state;

    assert_non_null(data);
    assert_true(dp_mem_bytes(DP_MEM_DATA) >= 1000);
    assert_int_equal(dp_mem_bytes(DP_MEM_COMM), comm);
    dp_mem_count(DP_MEM_COMM, 500);
    assert_int_equal(dp_mem_bytes(DP_MEM_COMM), comm + 500);
    dp_mem_count(DP_MEM_COMM, -500);
    assert_int_equal(dp_mem_bytes(DP_MEM_COMM), comm);
    dp_free(data);
}

static void an_overflowing_size_gives_no_memory(void **state)
{
    const size_t live = dp_mem_live();
    (void)state;

    assert_null(dp_zalloc(SIZE_MAX / 2, 3));
    assert_null(dp_zalloc(3, SIZE_MAX / 2));
    assert_null(dp_zalloc(1, SIZE_MAX));
    assert_null(dp_mem_arena(DP_MEM_OTHER, SIZE_MAX - 1));
    assert_int_equal(dp_mem_live(), live);
}

static void no_elements_are_a_valid_block(void **state)
{
    void *none = dp_zalloc(0, 8);
    (void)state;

    assert_non_null(none);
    dp_free(none);
    dp_free(NULL);
}

static void a_copied_text_is_equal_and_separate(void **state)
{
    char text[] = "lockstep";
    char *copy = dp_strdup(text);
    (void)state;

    assert_non_null(copy);
    text[0] = 'L';
    assert_string_equal(copy, "lockstep");
    dp_free(copy);
}

static void only_the_chosen_allocation_fails(void **state)
{
    void *first, *third;
    (void)state;

    dp_mem_fail_nth(2);
    first = dp_zalloc(1, 8);
    assert_non_null(first);
    assert_null(dp_strdup("second"));
    third = dp_mem_arena(DP_MEM_DATA, 8);
    assert_non_null(third);
    dp_mem_fail_nth(0);
    dp_free(first);
    dp_free(third);
}

static void every_purpose_has_a_text_of_its_own(void **state)
{
    (void)state;

    for (int i = 0; i < DP_MEM_PURPOSE_COUNT; i++) {
        assert_string_not_equal(dp_purpose_text((enum dp_purpose)i), "unknown");
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(dp_purpose_text((enum dp_purpose)i),
                                    dp_purpose_text((enum dp_purpose)k));
        }
    }
    assert_string_equal(dp_purpose_text(DP_MEM_PURPOSE_COUNT), "unknown");
}

static _Alignas(DP_MEM_ALIGN) char elsewhere[4 * DP_MEM_ALIGN];
static int taken, given;

/* The first time; then there is no more. */
static void *take_once(size_t bytes)
{
    return bytes <= sizeof(elsewhere) && taken++ == 0 ? elsewhere : NULL;
}

static void give_once(void *memory)
{
    given++;
    assert_ptr_equal(memory, elsewhere);
}

static void memory_of_another_allocator_is_returned_to_it(void **state)
{
    char *first, *second;
    (void)state;

    memset(elsewhere, 'x', sizeof(elsewhere));
    dp_mem_take_from(take_once, give_once);
    first = dp_zalloc(1, 10);
    second = dp_zalloc(1, 10);
    dp_mem_take_from(NULL, NULL);
    assert_in_range(first - elsewhere, 0, sizeof(elsewhere) - 10);
    assert_int_equal(first[0] + first[9], 0);
    assert_int_equal(taken, 2);
    dp_free(second);
    assert_int_equal(given, 0);
    dp_free(first);
    assert_int_equal(given, 1);
}

/* After the end of a file there are no pages, as on a full file system. */
static void missing_pages_are_reported(void **state)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const int file = memfd_create("short", 0);
    char *memory;
    (void)state;

    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, (off_t)page), 0);
    memory = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    assert_true(dp_mem_clear(memory + 8, 0));
    memset(memory, 1, page);
    assert_true(dp_mem_clear(memory + 8, page - 8));
    assert_int_equal(memory[7] + memory[8] + memory[page - 1], 1);
    if (madvise(memory, page, MADV_POPULATE_WRITE) == 0) {
        assert_false(dp_mem_clear(memory + 8, page));
        assert_false(dp_mem_clear(memory + page + 100, 1));
    }
    assert_int_equal(munmap(memory, 3 * page), 0);
    assert_int_equal(close(file), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arenas_are_zeroed_and_aligned_and_counted_by_purpose),
        cmocka_unit_test(large_arenas_begin_at_a_huge_page),
        cmocka_unit_test(huge_pages_are_counted_like_other_memory),
        cmocka_unit_test(purposes_do_not_mix),
        cmocka_unit_test(an_overflowing_size_gives_no_memory),
        cmocka_unit_test(no_elements_are_a_valid_block),
        cmocka_unit_test(a_copied_text_is_equal_and_separate),
        cmocka_unit_test(only_the_chosen_allocation_fails),
        cmocka_unit_test(every_purpose_has_a_text_of_its_own),
        cmocka_unit_test(memory_of_another_allocator_is_returned_to_it),
        cmocka_unit_test(missing_pages_are_reported),
    };
    return cmocka_run_group_tests_name("mem", tests, NULL, NULL);
}
