/* test_exchange_probe.c - one bucket at a time: its sum, and which of its elements are sums. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/exchange/exchange.h"
#include "collectives/exchange/exchange_calls.h"
#include "collectives/exchange/exchange_probe.h"
#include "tests/support/local_world.h"

enum { RANKS = 4, TRAINED = 1152, TOTAL = TRAINED + DP_BLOCK };

struct setup {
    const char *strategy;
    enum dp_type type;
    bool part; /* of a bucket's elements, those of this rank's part are sums; else all are */
};

struct shared {
    struct dp_exchange *exchange;
    int bucket;
};

static dp_status share(void *arg, int unused)
{
    const struct shared *s = arg;
    (void)unused;

    DP_TRY(dp_exchange_probe_share(s->exchange, s->bucket));
    return dp_exchange_probe_barrier(s->exchange);
}

/* Of element i; small whole numbers, whose sums are exact. */
static float value(int rank, size_t i)
{
    return (float)((i + 3 * (size_t)rank) % 17);
}

static float sum_of(size_t i)
{
    float sum = 0;

    for (int rank = 0; rank < RANKS; rank++) {
        sum += value(rank, i);
    }
    return sum;
}

/* The part of a bucket that is published, of each rank the same number, is where it owns. */
static size_t wrong_range(struct dp_exchange *e, int b, bool part)
{
    const struct dp_bucket *bucket = &dp_exchange_plan(e)->buckets[b];
    const struct dp_range found = dp_exchange_probe_summed(e, b), mine = dp_exchange_mine(e, b);

    if (part && !bucket->exact) {
        return found.begin + bucket->range.begin != mine.begin || found.count != mine.count ||
               found.count == bucket->range.count;
    }
    return found.begin != 0 || found.count != bucket->range.count;
}

static size_t wrong_bucket(struct dp_exchange *e, float *grad, int b, bool part)
{
    const struct dp_range range = dp_exchange_plan(e)->buckets[b].range;
    const int rank = dp_exchange_group(e)->rank;
    struct shared shared = {e, b};
    struct dp_range seen;
    const float *out = NULL;
    size_t wrong = wrong_range(e, b, part);

    for (size_t i = 0; i < range.count; i++) {
        grad[range.begin + i] = value(rank, range.begin + i);
    }
    if (dp_exchange_call(e, share, &shared, 0) != DP_OK ||
        dp_exchange_probe_read(e, b, NULL, &out) != DP_OK) {
        return wrong + 1;
    }
    seen = dp_exchange_probe_summed(e, b);
    for (size_t i = seen.begin; i < seen.begin + seen.count; i++) {
        wrong += out[i] != sum_of(range.begin + i);
    }
    return wrong;
}

static size_t probes(struct dp_group *group, const void *arg)
{
    static const struct dp_tensor tensors[] = {{.begin = 0}, {.begin = 512}, {.begin = 1024}};
    const struct setup *s = arg;
    struct dp_exchange_config config = {.strategy = s->strategy,
                                        .bucket_bytes = 512 * sizeof(float),
                                        .first_bucket_bytes = 64 * sizeof(float),
                                        .run = DP_RUN_AT_WAIT,
                                        .threads = 1};
    struct dp_flat flat = {.tensors = tensors,
                           .tensor_count = 3,
                           .trained = TRAINED,
                           .total = TOTAL,
                           .owned = TRAINED,
                           .type = s->type};
    struct dp_exchange *e = NULL;
    size_t wrong = 0;

    if (dp_device_find("ref", &config.device) != DP_OK ||
        dp_exchange_create(group, &config, &flat, &e) != DP_OK) {
        return 1;
    }
    wrong += dp_exchange_probe_on_device(e);
    wrong += dp_exchange_probe_publishes(e) != (flat.weights != NULL);
    wrong += dp_exchange_plan(e)->count < 3;
    for (int b = 0; b < dp_exchange_plan(e)->count; b++) {
        wrong += wrong_bucket(e, flat.grad, b, s->part);
    }
    dp_exchange_destroy(e);
    return wrong;
}

/* Narrow weights cannot hold a sum, which a rank has then for its own part alone. */
static void the_range_of_sums_is_relative_to_the_bucket(void **state)
{
    static const struct setup cases[] = {
        {"ring", DP_TYPE_F32, false},           {"ring", DP_TYPE_BF16, false},
        {"shm", DP_TYPE_BF16, false},           {"zero1:over=ring", DP_TYPE_F32, false},
        {"zero1:over=shm", DP_TYPE_F32, false}, {"zero1:over=ring", DP_TYPE_BF16, true},
        {"zero1:over=shm", DP_TYPE_F16, true},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (on_local_ranks(RANKS, probes, &cases[i]) != 0) {
            fail_msg("case %zu: %s", i, cases[i].strategy);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_range_of_sums_is_relative_to_the_bucket),
    };

    return cmocka_run_group_tests_name("exchange_probe", tests, NULL, NULL);
}
