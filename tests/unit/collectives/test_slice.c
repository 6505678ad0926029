/*
 * test_slice.c - chunks of slices: where ranks divide an array.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collectives/core/group.h"

static void chunks_cover_a_slice_and_are_cut_at_blocks(void **state)
{
    static char base[1];
    (void)state;

    for (size_t count = 0; count < 700; count += count < 130 ? 1 : 13) {
        for (int parts = 1; parts <= 9; parts++) {
            size_t at = 0;
            for (int i = 0; i < parts; i++) {
                const struct dp_slice part =
                    dp_slice_chunk((struct dp_slice){base, count, 1}, parts, i);
                assert_ptr_equal((char *)part.data, base + at);
                assert_true(at % DP_BLOCK == 0 || part.count == 0);
                at += part.count;
            }
            assert_int_equal(at, count);
        }
    }
}

/* Of all counts up to some thousand blocks: even ones, and those that are not. */
static void chunks_are_alike_but_for_the_last(void **state)
{
    static char base[1];
    size_t even = 0;
    (void)state;

    for (size_t count = 0; count < (size_t)3000 * DP_BLOCK; count += (size_t)7 * DP_BLOCK + 5) {
        for (int parts = 1; parts <= 8; parts++) {
            const struct dp_slice slice = {base, count, 1};
            const size_t first = dp_slice_chunk(slice, parts, 0).count;
            size_t longest = first, least = first, others = 0;
            for (int i = 1; i < parts; i++) {
                const size_t mine = dp_slice_chunk(slice, parts, i).count;
                longest = mine > longest ? mine : longest;
                least = mine < least ? mine : least;
                others += i + 1 < parts && mine != first;
            }
            even += others == 0 && longest > least + DP_BLOCK;
            assert_true(longest <= least + DP_BLOCK ||
                        (others == 0 && longest - first <= first / 32));
            assert_true(longest <= dp_chunk_longest(count, parts));
            assert_true(dp_chunk_longest(count, parts) < longest + (size_t)2 * DP_BLOCK);
            assert_true(longest <= dp_chunk_room(count, parts));
            assert_true(longest <= dp_chunk_room(count + (size_t)4 * DP_BLOCK, parts));
        }
    }
    assert_true(even > 100);
}

static void neighbouring_chunks_are_one_slice(void **state)
{
    static char base[1];
    enum { PARTS = 5 };
    (void)state;

    for (size_t count = 0; count < 700; count += 13) {
        const struct dp_slice slice = {base, count, 1};
        for (int i = 0; i < PARTS * PARTS; i++) {
            const int first = i / PARTS, last = i % PARTS > first ? i % PARTS : first;
            const struct dp_slice all = dp_slice_chunks(slice, PARTS, first, last + 1 - first);
            const struct dp_slice end = dp_slice_chunk(slice, PARTS, last);
            assert_ptr_equal(all.data, dp_slice_chunk(slice, PARTS, first).data);
            assert_ptr_equal((char *)all.data + all.count, (char *)end.data + end.count);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_cover_a_slice_and_are_cut_at_blocks),
        cmocka_unit_test(chunks_are_alike_but_for_the_last),
        cmocka_unit_test(neighbouring_chunks_are_one_slice),
    };

    return cmocka_run_group_tests_name("slice", tests, NULL, NULL);
}
