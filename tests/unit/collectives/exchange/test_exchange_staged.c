/*
 * test_exchange_staged.c - gradients of a device that has memory of its own: which part of the
 * host's is pinned for them, and that sums come back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "collectives/exchange/exchange.h"
#include "collectives/exchange/staging.h"
#include "tests/support/local_world.h"
#include "tests/support/strategies/strategy_checks.h"

/* Two buckets of which the first in memory is the last to be sent, and has three pieces. */
enum {
    TENSORS = 2,
    LARGE = 2 * DP_STAGING_PIECE + DP_BLOCK,
    TRAINED = LARGE + 2 * DP_BLOCK,
    TOTAL = TRAINED + 2 * DP_BLOCK,
    MADE = 10, /* of the tail, on the device */
    SCRATCH = 100
};

static const struct dp_tensor tensors[TENSORS] = {{.begin = 0}, {.begin = LARGE}};

/* What this rank pins last: of its gradient, once all routes are known. */
static _Thread_local struct {
    void *begin;
    size_t bytes;
    int pins, unpins;
} pinned;

static void note_pin(void *memory, size_t bytes)
{
    pinned.begin = memory;
    pinned.bytes = bytes;
    pinned.pins++;
}

static void note_unpin(void *memory)
{
    (void)memory;
    pinned.unpins++;
}

static struct dp_device far; /* the reference, in other memory than the host's */

struct setup {
    int ranks;
    const char *strategy, *compressor;
    size_t begin; /* of what crosses the host */
    bool sums;    /* all of it, for each rank */
};

static float value(int rank, size_t i)
{
    return (float)((i * 5 + 3 * (size_t)rank) % 23);
}

/* One step. Returns what was wrong. */
static size_t step(struct dp_exchange *e, float *grad, bool sums)
{
    const struct dp_group *group = dp_exchange_group(e);
    const struct dp_bucket_plan *plan = dp_exchange_plan(e);
    float *host = dp_exchange_host_gradient(e);
    size_t wrong = 0;

    for (size_t i = 0; i < TOTAL; i++) {
        (i < TRAINED + MADE ? grad : host)[i] = value(group->rank, i);
    }
    dp_exchange_begin(e, false);
    for (int t = TENSORS - 1; t >= 0; t--) {
        wrong += dp_exchange_ready(e, t) != DP_OK;
    }
    wrong += dp_exchange_ready_tail(e) != DP_OK;
    for (int b = 0; b < plan->count; b++) {
        wrong += dp_exchange_wait(e, b) != DP_OK;
    }
    for (size_t i = 0; i < TOTAL && wrong == 0; i++) {
        const bool summed = sums || i >= TRAINED;
        const float found = (i < TRAINED + MADE ? grad : host)[i];
        wrong += found != (summed ? tree_sum(0, group->size, i, value) : value(group->rank, i));
    }
    return wrong;
}

static size_t shares(struct dp_group *group, const void *arg)
{
    const struct setup *s = arg;
    const struct dp_exchange_config config = {.strategy = s->strategy,
                                              .compressor = s->compressor,
                                              .bucket_bytes = DP_BLOCK * sizeof(float),
                                              .first_bucket_bytes = DP_BLOCK * sizeof(float),
                                              .run = DP_RUN_ON_THREAD,
                                              .scratch_count = SCRATCH,
                                              .tail_made = MADE,
                                              .device = &far,
                                              .threads = 1};
    struct dp_flat flat = {.tensors = tensors,
                           .tensor_count = TENSORS,
                           .trained = TRAINED,
                           .total = TOTAL,
                           .owned = TRAINED};
    struct dp_stream *stream = NULL;
    struct dp_exchange *e = NULL;
    size_t wrong = 0;

    memset(&pinned, 0, sizeof(pinned));
    if (far.stream_create(&far, 1, &stream) != DP_OK ||
        dp_exchange_create(group, &config, &flat, &e) != DP_OK) {
        return 1;
    }
    dp_exchange_follow(e, stream, NULL);
    wrong += flat.grad == dp_exchange_host_gradient(e);
    wrong += pinned.begin != dp_exchange_host_gradient(e) + s->begin;
    wrong += pinned.bytes != (TOTAL + SCRATCH - s->begin) * sizeof(float);
    if (!dp_exchange_is_sharded(e) && s->compressor == NULL) {
        wrong += step(e, flat.grad, s->sums);
    }
    dp_exchange_destroy(e);
    far.stream_destroy(stream);
    return wrong + (pinned.pins != pinned.unpins);
}

static void what_crosses_the_host_is_pinned_and_comes_back(void **state)
{
    static const struct setup cases[] = {
        {1, "ring", NULL, TRAINED, true}, /* the tail and what is after it, in any case */
        {2, "none", NULL, TRAINED, false},
        {2, "ring", "fp16", TRAINED, true},
        {2, "ring", NULL, 0, true},
        {3, "direct", NULL, 0, true},
        {2, "zero1:over=ring", NULL, 0, true},
    };
    const size_t live = dp_mem_live();
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (on_local_ranks(cases[i].ranks, shares, &cases[i]) != 0) {
            fail_msg("case %zu, %s on %d ranks", i, cases[i].strategy, cases[i].ranks);
        }
        assert_int_equal(dp_mem_live(), live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_crosses_the_host_is_pinned_and_comes_back),
    };
    const struct dp_device *ref = NULL;

    if (dp_device_find("ref", &ref) != DP_OK) {
        return 1;
    }
    far = *ref;
    far.host_memory = false;
    far.pin = note_pin;
    far.unpin = note_unpin;
    return cmocka_run_group_tests_name("exchange_staged", tests, NULL, NULL);
}
