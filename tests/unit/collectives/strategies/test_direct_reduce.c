/* test_direct_reduce.c - some ranks' numbers are summed by some, in segments of their chunks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "collectives/strategies/direct_reduce.h"
#include "tests/support/local_world.h"
#include "tests/support/memory/marked_end.h"
#include "tests/support/strategies/strategy_checks.h"

enum { MOST = 12288 + DP_BLOCK, SEGMENT_KB = 1 };

/* ---- sums ---- */

struct setup {
    int ranks, contributors; /* the first ones */
    int first, owners;       /* who sum */
    size_t count;
};

/* Of very different sizes, so that another order of adding gives other bits. */
static float value(int rank, size_t i)
{
    return (float)((i * 7 + 5 * (size_t)rank) % 101) * (float)(1u << ((i + (size_t)rank) % 20)) /
           3.0f;
}

/* A rank that brings nothing has other numbers. */
static void fill(const struct dp_direct_reduce *d, float *data, size_t count)
{
    const int rank = d->group->rank;

    for (size_t i = 0; i < count; i++) {
        data[i] = rank < d->contributors ? value(rank, i) : -1.0f;
    }
    data[count] = -2.0f;
}

/* In elements [begin, end) of the sums. */
static size_t wrong_sums(const struct setup *s, const float *data, size_t begin, size_t end)
{
    size_t wrong = data[s->count] != -2.0f;

    for (size_t i = begin; i < end; i++) {
        wrong += data[i] != tree_sum(0, s->contributors, i, value);
    }
    return wrong;
}

static size_t reduces(const struct setup *s, const struct dp_direct_reduce *d, float *data)
{
    const struct dp_slice slice = {data, s->count, sizeof(float)};
    const struct dp_slice mine = dp_direct_reduce_mine(d, slice);
    const bool owns = d->group->rank >= s->first && d->group->rank < s->first + s->owners;
    const size_t begin = (size_t)((float *)mine.data - data);
    size_t wrong = !owns && mine.count != 0;

    fill(d, data, s->count);
    wrong += dp_direct_reduce_run(d, slice, DP_DIRECT_REDUCE_REDUCE) != DP_OK;
    wrong += mine.count > 0 ? wrong_sums(s, data, begin, begin + mine.count) : 0;
    wrong += dp_direct_reduce_run(d, slice, DP_DIRECT_REDUCE_SHARE) != DP_OK;
    wrong += wrong_sums(s, data, 0, s->count);
    fill(d, data, s->count);
    wrong +=
        dp_direct_reduce_run(d, slice, DP_DIRECT_REDUCE_REDUCE | DP_DIRECT_REDUCE_SHARE) != DP_OK;
    return wrong + wrong_sums(s, data, 0, s->count);
}

static size_t sums(struct dp_group *group, const void *arg)
{
    const struct setup *s = arg;
    struct dp_direct_reduce d = {
        .group = group, .contributors = s->contributors, .first = s->first, .count = s->owners};
    float *data = dp_group_memory(group, DP_MEM_GRADIENTS, (MOST + 1) * sizeof(float));
    size_t wrong;

    if (data == NULL || dp_direct_reduce_open(&d, MOST, SEGMENT_KB) != DP_OK) {
        return 1;
    }
    wrong = d.incoming_bytes != (size_t)SEGMENT_KB * 1024;
    wrong += reduces(s, &d, data);
    dp_direct_reduce_close(&d);
    dp_group_release(group, data);
    return wrong;
}

/* More segments than are under way at the same time, and fewer; a last one that is shorter. */
static void owners_sum_what_contributors_bring(void **state)
{
    static const struct setup cases[] = {
        {1, 1, 0, 1, MOST},     {2, 2, 0, 2, MOST}, {3, 3, 0, 3, 5000}, {4, 4, 0, 4, 1},
        {5, 5, 0, 5, 0},        {8, 8, 0, 8, MOST}, {4, 3, 3, 1, MOST}, {5, 3, 3, 2, MOST},
        {5, 3, 3, 2, DP_BLOCK}, {3, 1, 1, 2, 3000}, {4, 4, 1, 2, 6000}, {8, 6, 6, 2, 12288},
    };
    (void)state;

    mark_ends(true);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const size_t wrong = on_local_ranks(cases[i].ranks, sums, &cases[i]);
        if (wrong != 0) {
            mark_ends(false);
            fail_msg("case %zu: %zu wrong", i, wrong);
        }
    }
    mark_ends(false);
    assert_int_equal(atomic_load(&marks_lost), 0);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owners_sum_what_contributors_bring),
    };

    return cmocka_run_group_tests_name("direct_reduce", tests, NULL, NULL);
}
