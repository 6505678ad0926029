#include "runtime/data/split.h"

#include <assert.h>
#include <stdint.h>

#include "base/random.h"

struct dp_split dp_split_of(size_t count, double fraction)
{
    const size_t wanted = (size_t)((double)count * fraction + 0.5);
    const size_t least = wanted < 1 ? 1 : wanted;

    assert(count >= 2);
    return (struct dp_split){count, least < count ? least : count - 1};
}

/* Where stretch `i` begins; the first ones may be longer by one sample. */
static size_t begin_of(const struct dp_split *split, size_t i)
{
    const size_t whole = split->count / split->test, rest = split->count % split->test;

    return i * whole + (i < rest ? i : rest);
}

size_t dp_split_test_row(const struct dp_split *split, size_t i)
{
    const size_t begin = begin_of(split, i), length = begin_of(split, i + 1) - begin;
    const uint64_t number = dp_random_u32(split->count, DP_RANDOM_SPLIT, (uint32_t)split->test, i);

    return begin + (size_t)(number * (uint64_t)length >> 32);
}

size_t dp_split_train_row(const struct dp_split *split, size_t i)
{
    size_t low = 0, high = split->test;

    /* How many of the held-out samples come before it: sample j does if at most i others come
     * before it. */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (dp_split_test_row(split, middle) - middle <= i) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return i + low;
}
