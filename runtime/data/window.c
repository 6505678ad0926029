#include "runtime/data/window.h"

#include "base/random.h"

/* Seeds of permutations that have nothing to do with one another. */
static uint64_t seed_of(uint64_t seed, uint32_t epoch, uint64_t window)
{
    uint32_t bits[4];

    dp_random_block(seed, DP_RANDOM_WINDOW, epoch, window, bits);
    return (uint64_t)bits[0] << 32 | bits[1];
}

void dp_window_order_init(struct dp_window_order *order, uint64_t seed, uint32_t epoch, uint64_t n,
                          uint64_t window)
{
    const uint64_t rows = window < n ? window : n;

    *order = (struct dp_window_order){.seed = seed,
                                      .n = n,
                                      .rows = rows,
                                      .first = seed_of(seed, epoch, UINT64_MAX) % n,
                                      .whole = n / rows,
                                      .epoch = epoch};
    dp_permutation_init(&order->windows, seed, epoch, order->whole);
}

uint64_t dp_window_order_at(const struct dp_window_order *o, uint64_t i)
{
    const uint64_t slot = i / o->rows, within = i % o->rows;
    const uint64_t window = slot < o->whole ? dp_permutation_at(&o->windows, slot) : o->whole;
    const uint64_t count = window < o->whole ? o->rows : o->n - o->whole * o->rows;
    struct dp_permutation rows;
    uint64_t row;

    dp_permutation_init(&rows, seed_of(o->seed, o->epoch, window), o->epoch, count);
    row = o->first + window * o->rows + dp_permutation_at(&rows, within);
    return row < o->n ? row : row - o->n;
}
