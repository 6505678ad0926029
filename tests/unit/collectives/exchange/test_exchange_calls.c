/* test_exchange_calls.c - what ranks do together between steps: means, parts, agreement. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/exchange/exchange.h"
#include "collectives/exchange/exchange_calls.h"
#include "tests/support/local_world.h"

enum { RANKS = 4, TRAINED = 640, TOTAL = TRAINED + DP_BLOCK };

static const struct dp_tensor tensors[] = {{.begin = 0}, {.begin = 256}, {.begin = 320}};

static dp_status create(struct dp_group *group, const char *strategy, struct dp_flat *flat,
                        struct dp_exchange **out)
{
    struct dp_exchange_config config = {.strategy = strategy,
                                        .bucket_bytes = 128 * sizeof(float),
                                        .first_bucket_bytes = 64 * sizeof(float),
                                        .run = DP_RUN_ON_THREAD,
                                        .threads = 1};

    *flat = (struct dp_flat){.tensors = tensors,
                             .tensor_count = 3,
                             .trained = TRAINED,
                             .total = TOTAL,
                             .owned = TRAINED};
    DP_TRY(dp_device_find("ref", &config.device));
    return dp_exchange_create(group, &config, flat, out);
}

/* Powers of two, so that means of four ranks are exact. */
static size_t takes_means(struct dp_group *group, const void *strategy)
{
    struct dp_exchange *e = NULL;
    struct dp_flat flat;
    float data[TRAINED + 1];
    size_t wrong = 0;

    if (create(group, strategy, &flat, &e) != DP_OK) {
        return 1;
    }
    for (size_t i = 0; i <= TRAINED; i++) {
        data[i] = (float)(i + (1u << group->rank));
    }
    for (size_t i = TRAINED; i < TOTAL; i++) {
        flat.grad[i] = -1.0f; /* of the tail, which is none of its business */
    }
    wrong += dp_exchange_mean(e, data) != DP_OK;
    for (size_t i = 0; i < TRAINED; i++) {
        wrong += data[i] != (float)i + 3.75f;
    }
    wrong += data[TRAINED] != (float)(TRAINED + (1u << group->rank));
    for (size_t i = TRAINED; i < TOTAL; i++) {
        wrong += flat.grad[i] != -1.0f;
    }
    dp_exchange_destroy(e);
    return wrong;
}

static void a_mean_is_that_of_all_ranks(void **state)
{
    (void)state;
    assert_int_equal(on_local_ranks(RANKS, takes_means, "ring"), 0);
    assert_int_equal(on_local_ranks(RANKS, takes_means, "shm"), 0);
}

/* Each rank updates its parts of all buckets: with `zero1` a part, else all of them. */
static size_t collects(struct dp_group *group, const void *strategy)
{
    struct dp_exchange *e = NULL;
    struct dp_flat flat;
    float owned[TRAINED], whole[TRAINED + 1] = {[TRAINED] = -1.0f};
    size_t wrong = 0, parts = 0;

    if (create(group, strategy, &flat, &e) != DP_OK) {
        return 1;
    }
    const struct dp_bucket_plan *plan = dp_exchange_plan(e);
    for (int b = 0; b < plan->count; b++) {
        const struct dp_range mine = dp_exchange_mine(e, b);
        for (size_t i = 0; i < mine.count && !plan->buckets[b].exact; i++) {
            owned[plan->buckets[b].owned_at + i] = (float)(mine.begin + i);
            parts++;
        }
    }
    wrong += parts != flat.owned;
    wrong += dp_exchange_collect(e, owned, group->rank == 2 ? NULL : whole) != DP_OK;
    for (size_t i = 0; i < TRAINED && group->rank != 2; i++) {
        wrong += whole[i] != (float)i;
    }
    wrong += whole[TRAINED] != -1.0f;
    dp_exchange_destroy(e);
    return wrong;
}

static void parts_of_all_ranks_make_the_whole(void **state)
{
    (void)state;
    assert_int_equal(on_local_ranks(RANKS, collects, "ring"), 0);
    assert_int_equal(on_local_ranks(RANKS, collects, "zero1:over=ring"), 0);
    assert_int_equal(on_local_ranks(RANKS, collects, "zero1:over=shm"), 0);
}

static dp_status add_index(void *arg, int index)
{
    *(int *)arg += index;
    return DP_OK;
}

static size_t agrees(struct dp_group *group, const void *strategy)
{
    struct dp_exchange *e = NULL;
    struct dp_flat flat;
    int number = 5;
    size_t wrong = 0;

    if (create(group, strategy, &flat, &e) != DP_OK) {
        return 1;
    }
    wrong += dp_exchange_agree(e, DP_OK) != DP_OK;
    wrong += dp_exchange_barrier(e) != DP_OK;
    wrong += dp_exchange_call(e, add_index, &number, 7) != DP_OK || number != 12;
    /* Last: an engine does nothing after a failure. */
    wrong += dp_exchange_agree(e, group->rank == 1 ? DP_ERR_DATA : DP_OK) != DP_ERR_DATA;
    dp_exchange_destroy(e);
    return wrong;
}

static void all_agree_on_what_one_has_found(void **state)
{
    (void)state;
    assert_int_equal(on_local_ranks(RANKS, agrees, "ring"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mean_is_that_of_all_ranks),
        cmocka_unit_test(parts_of_all_ranks_make_the_whole),
        cmocka_unit_test(all_agree_on_what_one_has_found),
    };

    return cmocka_run_group_tests_name("exchange_calls", tests, NULL, NULL);
}
