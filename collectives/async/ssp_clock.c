#include "collectives/async/ssp_clock.h"

#include <assert.h>

#include "base/mem.h"

/* While one trainer computes step s, any other may begin with as little as s - bound steps and end
 * with s + bound + 1: the first trainer holds the others back. */
size_t dp_ssp_clock_bins(int count, uint64_t bound)
{
    return (size_t)(count - 1) * (2 * (size_t)bound + 1) + 1;
}

dp_status dp_ssp_clock_open(struct dp_ssp_clock *c, int count, uint64_t bound)
{
    *c = (struct dp_ssp_clock){
        .count = count, .bound = bound, .bins = dp_ssp_clock_bins(count, bound)};
    c->ssp_clock = dp_zalloc((size_t)count, sizeof(*c->ssp_clock));
    c->histogram = dp_zalloc(c->bins, sizeof(*c->histogram));
    if (c->ssp_clock == NULL || c->histogram == NULL) {
        dp_ssp_clock_close(c);
        return DP_FAIL(DP_ERR_NOMEM, "clocks of %d trainers", count);
    }
    return DP_OK;
}

void dp_ssp_clock_close(struct dp_ssp_clock *c)
{
    dp_free(c->histogram);
    dp_free(c->ssp_clock);
    *c = (struct dp_ssp_clock){0};
}

void dp_ssp_clock_begin(struct dp_ssp_clock *c, uint64_t step)
{
    for (int i = 0; i < c->count; i++) {
        c->ssp_clock[i] = (struct dp_ssp_trainer){step, c->applied, DP_SSP_COMPUTES};
    }
    c->ended = 0;
}

void dp_ssp_clock_apply(struct dp_ssp_clock *c, int i, bool last)
{
    struct dp_ssp_trainer *clock = &c->ssp_clock[i];
    const uint64_t others = c->applied - clock->seen;

    assert(clock->state == DP_SSP_COMPUTES && others < c->bins);
    c->histogram[others]++;
    c->applied++;
    c->ended += last;
    clock->step++;
    clock->state = last ? DP_SSP_ENDED : DP_SSP_WAITS;
}

bool dp_ssp_clock_may_go(const struct dp_ssp_clock *c, int i)
{
    const struct dp_ssp_trainer *clock = &c->ssp_clock[i];

    return clock->state == DP_SSP_WAITS && clock->step - dp_ssp_clock_slowest(c) <= c->bound;
}

void dp_ssp_clock_go(struct dp_ssp_clock *c, int i)
{
    c->ssp_clock[i].state = DP_SSP_COMPUTES;
    c->ssp_clock[i].seen = c->applied;
}

uint64_t dp_ssp_clock_slowest(const struct dp_ssp_clock *c)
{
    uint64_t slowest = c->ssp_clock[0].step;

    for (int i = 1; i < c->count; i++) {
        slowest = c->ssp_clock[i].step < slowest ? c->ssp_clock[i].step : slowest;
    }
    return slowest;
}

uint64_t dp_ssp_clock_soonest(const struct dp_ssp_clock *c)
{
    static const uint64_t more[] = {[DP_SSP_COMPUTES] = 2, [DP_SSP_WAITS] = 1, [DP_SSP_ENDED] = 0};
    uint64_t soonest = 0;

    for (int i = 0; i < c->count; i++) {
        const uint64_t own = c->ssp_clock[i].step + more[c->ssp_clock[i].state];
        soonest = own > soonest ? own : soonest;
    }
    return soonest;
}
