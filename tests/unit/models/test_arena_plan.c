/*
 * test_arena_plan.c - blocks in one arena: those that are used at the same time lie apart, and the
 * arena is small.
 */
#include "models/arena_plan.h"

#include "base/log.h"
#include "tests/support/arrays.h"

enum { BLOCKS = 40, TIMES = 60 };

static struct dp_arena_block block(size_t size, int first, int last)
{
    return (struct dp_arena_block){.size = size, .uses = {{first, last}}, .use_count = 1};
}

static bool has(const struct dp_arena_block *block, int time)
{
    bool is = false;

    for (int u = 0; u < block->use_count; u++) {
        is = is || (block->uses[u].first <= time && time <= block->uses[u].last);
    }
    return is;
}

/* Looks at each pair at each time. */
static void assert_apart(const struct dp_arena_block *blocks, int count, size_t size)
{
    for (int i = 0; i < count * count; i++) {
        const struct dp_arena_block *a = &blocks[i / count], *b = &blocks[i % count];
        const bool apart = a->begin >= b->begin + b->size || b->begin >= a->begin + a->size;
        bool meet = false;
        for (int time = 0; time < TIMES; time++) {
            meet = meet || (has(a, time) && has(b, time));
        }
        assert_int_equal(dp_arena_meet(a, b), meet);
        assert_true(a == b || apart || !meet);
        assert_true(a->use_count == 0 || a->begin + a->size <= size);
    }
}

static int random_below(uint32_t seed, int block, uint32_t number, uint32_t limit)
{
    return (int)(dp_random_u32(seed, DP_RANDOM_TEST, (uint32_t)block, number) % limit);
}

/* Whose best arena is known. */
static void known_arenas_are_as_small_as_can_be(void **state)
{
    struct dp_arena_block after[] = {block(5, 0, 1), block(3, 2, 3), block(4, 4, 4)};
    struct dp_arena_block together[] = {block(5, 0, 2), block(3, 2, 3), block(4, 1, 2)};
    struct dp_arena_block pyramid[] = {block(4, 0, 9), block(6, 1, 8), block(2, 2, 7),
                                       block(7, 3, 6), block(7, 7, 8), block(13, 9, 10)};
    struct dp_arena_block twice[] = {block(8, 0, 9), block(8, 3, 6)};
    static const struct dp_arena_block unused = {.size = 100};
    struct dp_arena_block none[] = {block(1, 0, 0), unused};
    const struct {
        struct dp_arena_block *blocks;
        int count;
        size_t size;
    } cases[] = {{after, 3, 5}, {together, 3, 12}, {pyramid, 6, 19}, {twice, 2, 8}, {none, 2, 1}};
    (void)state;

    twice[0].uses[0] = (struct dp_period){0, 2};
    twice[0].uses[1] = (struct dp_period){7, 9};
    twice[0].use_count = 2;
    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        size_t size = 0, least = 0;
        OK(dp_arena_place(cases[i].blocks, cases[i].count, &size, &least));
        assert_int_equal(least, cases[i].size);
        assert_int_equal(size, cases[i].size);
        assert_apart(cases[i].blocks, cases[i].count, size);
    }
}

/* Random sizes and times, of which some are used twice: 40 of them nearly always fill the arena. */
static void any_blocks_lie_apart_in_little_more_than_they_need(void **state)
{
    size_t sizes = 0, leasts = 0;
    (void)state;

    for (uint32_t seed = 0; seed < 50; seed++) {
        struct dp_arena_block blocks[BLOCKS];
        size_t size = 0, least = 0;
        for (int i = 0; i < BLOCKS; i++) {
            int at[4];
            for (uint32_t k = 0; k < 4; k++) {
                at[k] = random_below(seed, i, k, TIMES / 4);
            }
            blocks[i] = block(1 + (size_t)random_below(seed, i, 4, 100), at[0], at[0] + at[1]);
            blocks[i].uses[1].first = blocks[i].uses[0].last + 1 + at[2];
            blocks[i].uses[1].last = blocks[i].uses[1].first + at[3];
            blocks[i].use_count = 1 + i % 3 / 2;
        }
        OK(dp_arena_place(blocks, BLOCKS, &size, &least));
        assert_true(size >= least);
        assert_apart(blocks, BLOCKS, size);
        sizes += size;
        leasts += least;
    }
    print_message("50 arenas: %zu, of which %zu are used at a time\n", sizes, leasts);
    assert_true((double)sizes <= 1.10 * (double)leasts); /* seen: 1.05 */
}

static void placing_survives_every_failed_allocation(void **state)
{
    struct dp_arena_block blocks[] = {block(5, 0, 1), block(3, 1, 2)};
    const size_t live = dp_mem_live();
    dp_status status = DP_ERR_NOMEM;
    size_t size = 0, least = 0;
    int failed = 0;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        dp_mem_fail_nth(nth);
        status = dp_arena_place(blocks, 2, &size, &least);
        dp_mem_fail_nth(0);
        failed += status == DP_ERR_NOMEM;
        assert_int_equal(dp_mem_live(), live);
    }
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(failed, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_arenas_are_as_small_as_can_be),
        cmocka_unit_test(any_blocks_lie_apart_in_little_more_than_they_need),
        cmocka_unit_test(placing_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
