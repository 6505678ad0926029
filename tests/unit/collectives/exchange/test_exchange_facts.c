/* test_exchange_facts.c - what an exchange tells of itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collectives/exchange/exchange.h"
#include "tests/support/local_world.h"

enum { TENSORS = 3, TRAINED = 1024, TOTAL = TRAINED + DP_BLOCK };

static const struct dp_tensor tensors[TENSORS] = {
    {.begin = 0, .count = 256}, {.begin = 256, .count = 704}, {.begin = 960, .count = 64}};

struct setup {
    const char *strategy, *compressor; /* NULL: none */
    bool deferred;
};

static dp_status create(struct dp_group *group, const struct setup *s, struct dp_exchange **out)
{
    struct dp_flat flat = {.tensors = tensors,
                           .tensor_count = TENSORS,
                           .trained = TRAINED,
                           .total = TOTAL,
                           .owned = TRAINED};
    struct dp_exchange_config config = {.strategy = s->strategy,
                                        .compressor = s->compressor,
                                        .bucket_bytes = 1024 * sizeof(float),
                                        .first_bucket_bytes = 64 * sizeof(float),
                                        .run = DP_RUN_AT_WAIT,
                                        .deferred = s->deferred,
                                        .threads = 1};

    DP_TRY(dp_device_find("ref", &config.device));
    return dp_exchange_create(group, &config, &flat, out);
}

/* The second tensor alone is large, and not the first. */
static size_t defers(struct dp_group *group, const void *setup)
{
    const bool can = ((const struct setup *)setup)->deferred;
    struct dp_exchange *e = NULL;
    size_t wrong;

    if (create(group, setup, &e) != DP_OK) {
        return 1;
    }
    wrong = dp_exchange_plan(e)->deferred != can;
    wrong += dp_exchange_defers(e);
    dp_exchange_defer(e, true);
    wrong += dp_exchange_defers(e) != can;
    dp_exchange_defer(e, false);
    wrong += dp_exchange_defers(e);
    dp_exchange_destroy(e);
    return wrong;
}

static void one_deferred_bucket_can_be_deferred(void **state)
{
    static const struct setup setups[] = {{"ring", NULL, true}, {"ring", NULL, false}};
    static const int nodes[] = {0, 1};
    (void)state;

    assert_int_equal(on_local_nodes(2, nodes, defers, &setups[0]), 0);
    assert_int_equal(on_local_nodes(2, nodes, defers, &setups[1]), 0);
}

/* Codes have half the bytes; the tail is as it is. */
static size_t tells_its_wire(struct dp_group *group, const void *setup)
{
    const bool compresses = ((const struct setup *)setup)->compressor != NULL;
    struct dp_exchange *e = NULL;
    uint64_t with = 1, without = 2;
    size_t wrong;

    if (create(group, setup, &e) != DP_OK) {
        return 1;
    }
    wrong = dp_exchange_compressed_wire(e, &with, &without) != compresses;
    wrong += compresses ? with * 2 != without || with < TRAINED : with != 1 || without != 2;
    dp_exchange_destroy(e);
    return wrong;
}

static void bytes_are_compared_where_there_is_a_compressor(void **state)
{
    static const struct setup setups[] = {{"ring", "fp16", false}, {"ring", NULL, false}};
    (void)state;

    assert_int_equal(on_local_ranks(2, tells_its_wire, &setups[0]), 0);
    assert_int_equal(on_local_ranks(2, tells_its_wire, &setups[1]), 0);
}

static size_t shares_weights(struct dp_group *group, const void *setup)
{
    struct dp_exchange *e = NULL;
    bool one;

    if (create(group, setup, &e) != DP_OK) {
        return 1;
    }
    one = dp_exchange_has_one_copy(e);
    dp_exchange_destroy(e);
    return one != (group->size > 1);
}

static void a_rank_alone_has_no_copy_for_others(void **state)
{
    static const struct setup setup = {"zero1:over=shm", NULL, false};
    (void)state;

    assert_int_equal(on_local_ranks(1, shares_weights, &setup), 0);
    assert_int_equal(on_local_ranks(2, shares_weights, &setup), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_deferred_bucket_can_be_deferred),
        cmocka_unit_test(bytes_are_compared_where_there_is_a_compressor),
        cmocka_unit_test(a_rank_alone_has_no_copy_for_others),
    };

    return cmocka_run_group_tests_name("exchange_facts", tests, NULL, NULL);
}
