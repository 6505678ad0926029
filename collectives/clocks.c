#include "collectives/clocks.h"

#include <assert.h>

#include "base/mem.h"

/* While one trainer computes step s, any other may begin with as little as s - bound steps and end
 * with s + bound + 1: the first one holds the rest back. */
size_t dp_clocks_bins(int count, uint64_t bound)
{
    return (size_t)(count - 1) * (2 * (size_t)bound + 1) + 1;
}

dp_status dp_clocks_open(struct dp_clocks *c, int count, uint64_t bound)
{
    *c = (struct dp_clocks){.count = count, .bound = bound, .bins = dp_clocks_bins(count, bound)};
    c->clocks = dp_zalloc((size_t)count, sizeof(*c->clocks));
    c->histogram = dp_zalloc(c->bins, sizeof(*c->histogram));
    if (c->clocks == NULL || c->histogram == NULL) {
        dp_clocks_close(c);
        return DP_FAIL(DP_ERR_NOMEM, "clocks of %d trainers", count);
    }
    return DP_OK;
}

void dp_clocks_close(struct dp_clocks *c)
{
    dp_free(c->histogram);
    dp_free(c->clocks);
    *c = (struct dp_clocks){0};
}

void dp_clocks_begin(struct dp_clocks *c, uint64_t step)
{
    for (int i = 0; i < c->count; i++) {
        c->clocks[i] = (struct dp_clock){step, c->applied, DP_PACE_COMPUTES};
    }
    c->ended = 0;
}

void dp_clocks_apply(struct dp_clocks *c, int i, bool last)
{
    struct dp_clock *clock = &c->clocks[i];
    const uint64_t others = c->applied - clock->seen;

    assert(clock->state == DP_PACE_COMPUTES && others < c->bins);
    c->histogram[others]++;
    c->applied++;
    c->ended += last;
    clock->step++;
    clock->state = last ? DP_PACE_ENDED : DP_PACE_WAITS;
}

bool dp_clocks_may_go(const struct dp_clocks *c, int i)
{
    const struct dp_clock *clock = &c->clocks[i];

    return clock->state == DP_PACE_WAITS && clock->step - dp_clocks_slowest(c) <= c->bound;
}

void dp_clocks_go(struct dp_clocks *c, int i)
{
    c->clocks[i].state = DP_PACE_COMPUTES;
    c->clocks[i].seen = c->applied;
}

uint64_t dp_clocks_slowest(const struct dp_clocks *c)
{
    uint64_t slowest = c->clocks[0].step;

    for (int i = 1; i < c->count; i++) {
        slowest = c->clocks[i].step < slowest ? c->clocks[i].step : slowest;
    }
    return slowest;
}

uint64_t dp_clocks_soonest(const struct dp_clocks *c)
{
    static const uint64_t more[] = {
        [DP_PACE_COMPUTES] = 2, [DP_PACE_WAITS] = 1, [DP_PACE_ENDED] = 0};
    uint64_t soonest = 0;

    for (int i = 0; i < c->count; i++) {
        const uint64_t own = c->clocks[i].step + more[c->clocks[i].state];
        soonest = own > soonest ? own : soonest;
    }
    return soonest;
}
