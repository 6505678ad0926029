/* test_exchange.c - gradients in, sums out: buckets, their order, and both ways to run them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/core/transport.h"
#include "collectives/exchange/exchange.h"
#include "collectives/exchange/exchange_calls.h"
#include "collectives/exchange/strategy_select.h"
#include "collectives/strategies/strategy.h"
#include "tests/support/local_world.h"
#include "tests/support/share_of_cases.h"
#include "tests/support/stderr_text.h"
#include "tests/support/strategies/strategy_checks.h"

enum { TENSORS = 5, TRAINED = 1920, TOTAL = TRAINED + DP_BLOCK, SCRATCH = 100 };

/* Counts 1000, 10, 640, 64, 100. */
static const struct dp_tensor tensors[TENSORS] = {
    {.begin = 0}, {.begin = 1024}, {.begin = 1088}, {.begin = 1728}, {.begin = 1792}};

struct setup {
    const char *strategy;
    enum dp_run run;
    size_t bucket, first;            /* elements */
    const struct dp_tensor *tensors; /* NULL: those above */
    const char *item;                /* NULL: none */
};

static dp_status create(struct dp_group *group, const struct setup *s, struct dp_flat *flat,
                        struct dp_exchange **out)
{
    struct dp_exchange_config config = {
        .strategy = s->strategy,
        .bucket_bytes = s->bucket * sizeof(float),
        .first_bucket_bytes = s->first * sizeof(float),
        .run = s->run,
        .scratch_count = SCRATCH,
        .threads = 1,
    };

    const struct dp_consistency_item item =
        dp_consistency_text("colour", s->item == NULL ? "" : s->item);
    config.items = &item;
    config.item_count = s->item == NULL ? 0 : 1;
    *flat = (struct dp_flat){.tensors = s->tensors == NULL ? tensors : s->tensors,
                             .tensor_count = TENSORS,
                             .trained = TRAINED,
                             .total = TOTAL,
                             .owned = TRAINED};
    DP_TRY(dp_device_find("ref", &config.device));
    return dp_exchange_create(group, &config, flat, out);
}

/* Integers, so that sums are exact in any order; other ones in every step. */
static float value(int rank, size_t i)
{
    return (float)((i * 5 + 3 * (size_t)rank) % 23);
}

/* One step: tensors become ready from the last to the first. Returns what was wrong. */
static size_t step(struct dp_exchange *e, float *grad, uint64_t number)
{
    const struct dp_group *group = dp_exchange_group(e);
    const struct dp_bucket_plan *plan = dp_exchange_plan(e);
    const int rank = group->rank, count = plan->count;
    const bool sums = dp_exchange_sums(e);
    size_t wrong = 0;

    dp_exchange_begin(e, false);
    for (int t = TENSORS - 1; t >= 0; t--) {
        const size_t end = t + 1 < TENSORS ? tensors[t + 1].begin : TRAINED;
        for (size_t i = tensors[t].begin; i < end; i++) {
            grad[i] = value(rank, i + number);
        }
        const uint64_t order = dp_exchange_order(e);
        const bool last = plan->buckets[plan->bucket_of[t]].tensors == &tensors[t];
        wrong += dp_exchange_ready(e, t) != DP_OK;
        /* A bucket is submitted when its first tensor, which is the last one computed, is ready. */
        wrong += (dp_exchange_order(e) != order) != last;
        wrong += dp_exchange_hands_over(e, t) != (last && group->size > 1);
        wrong += dp_exchange_deferred_part(e, t) != 0;
    }
    for (size_t i = TRAINED; i < TOTAL; i++) {
        grad[i] = value(rank, i + number);
    }
    wrong += dp_exchange_ready_tail(e) != DP_OK;
    for (int b = 0; b < count; b++) {
        const struct dp_range range = plan->buckets[b].range, mine = dp_exchange_mine(e, b);
        wrong += dp_exchange_wait(e, b) != DP_OK;
        wrong += mine.begin != range.begin || mine.count != range.count;
        for (size_t i = range.begin; i < range.begin + range.count; i++) {
            const bool summed = sums || plan->buckets[b].exact;
            const float expected =
                summed ? tree_sum(0, group->size, i + number, value) : value(rank, i + number);
            wrong += grad[i] != expected;
        }
        wrong += dp_exchange_publish(e, b) != DP_OK;
    }
    return wrong;
}

/* What all buckets took so far, as each of them is recorded. */
static uint64_t ns_of_buckets(const struct dp_exchange *e)
{
    const struct dp_bucket_times *times = dp_exchange_times(e);
    uint64_t sum = 0;

    for (int b = 0; b < times->count; b++) {
        sum += times->sums[b].done_ns - times->sums[b].sent_ns;
    }
    return sum;
}

/* Between steps: sums of batch norm, gathering, broadcasts, a barrier. */
static size_t between(struct dp_exchange *e, uint64_t number)
{
    float data[SCRATCH];
    int all[8] = {0}, rank = dp_exchange_group(e)->rank, size = dp_exchange_group(e)->size;
    size_t wrong = 0;

    for (size_t i = 0; i < SCRATCH; i++) {
        data[i] = value(rank, i + number);
    }
    wrong += dp_exchange_sum(e, data, SCRATCH - 1) != DP_OK;
    for (size_t i = 0; i < SCRATCH; i++) {
        const float expected =
            i < SCRATCH - 1 ? tree_sum(0, size, i + number, value) : value(rank, i + number);
        wrong += data[i] != expected;
    }
    wrong += dp_exchange_gather(e, &rank, sizeof(rank), all) != DP_OK;
    for (int i = 0; i < size; i++) {
        wrong += all[i] != i;
    }
    for (int root = 0; root < size; root++) {
        int text = rank;
        wrong += dp_exchange_broadcast(e, &text, sizeof(text), root) != DP_OK || text != root;
    }
    return wrong + (dp_exchange_barrier(e) != DP_OK);
}

static size_t trains(struct dp_group *group, const void *arg)
{
    struct dp_exchange *e = NULL;
    struct dp_flat flat;
    uint64_t orders[8] = {0};
    const char *why_not = NULL;
    size_t wrong = 0;

    if (dp_strategy_select_supports(group, ((const struct setup *)arg)->strategy, &why_not) !=
        DP_OK) {
        return 1;
    }
    if (why_not != NULL) {
        return 0; /* MPI: mpi_collectives; gradients on GPUs: test_gpu_peers */
    }
    if (create(group, arg, &flat, &e) != DP_OK) {
        return 1;
    }
    wrong += flat.grad != dp_exchange_host_gradient(e) ||
             dp_exchange_plan(e)->bucket_of[TENSORS - 1] != 0;
    for (uint64_t number = 0; number < 20; number++) {
        if (number % 5 == 4) { /* as the overlap chooser does */
            dp_exchange_set_run(e, number % 2 == 0 ? DP_RUN_ON_THREAD : DP_RUN_AT_WAIT);
        }
        const uint64_t order = dp_exchange_order(e);
        wrong += step(e, flat.grad, number);
        wrong += dp_exchange_order(e) == order;
        wrong += between(e, number);
    }
    wrong += dp_exchange_comm_ns(e) != ns_of_buckets(e);
    const uint64_t order = dp_exchange_order(e);
    wrong += dp_exchange_gather(e, &order, sizeof(order), orders) != DP_OK;
    for (int i = 0; i < group->size; i++) {
        wrong += orders[i] != order; /* equal on all ranks */
    }
    dp_exchange_destroy(e);
    return wrong + group->guarded;
}

/* All run modes and some bucket sizes, or those that follow from `number`. */
static void check_strategy_on(const char *strategy, int size, size_t number)
{
    static const size_t buckets[][2] = {{768, 192}, {1, 1}, {100000, 100000}};
    static const enum dp_run runs[] = {DP_RUN_ON_THREAD, DP_RUN_AT_WAIT};
    const size_t live = dp_mem_live();

    for (size_t n = 0; n < 6; n++) {
        if (!in_share(number + n)) {
            continue;
        }
        const struct setup setup = {strategy,          runs[n % 2], buckets[n / 2][0],
                                    buckets[n / 2][1], NULL,        NULL};
        const size_t wrong = on_local_ranks(size, trains, &setup);
        if (wrong != 0) {
            fail_msg("%s, %d ranks, buckets of %zu: %zu wrong", strategy, size, setup.bucket,
                     wrong);
        }
        assert_int_equal(dp_mem_live(), live);
    }
}

/* ThreadSanitizer takes ten times as long, and threads meet alike on other numbers of ranks. */
#ifdef DP_TSAN
static const int sizes[] = {2, 3};
#else
static const int sizes[] = {1, 2, 3, 8};
#endif

static void every_strategy_sums_every_bucket_with_and_without_a_thread(void **state)
{
    const struct dp_plugin *plugin;
    (void)state;

    for (int s = 0; (plugin = dp_plugin_at(&dp_strategies, s)) != NULL; s++) {
        for (size_t n = 0; n < sizeof(sizes) / sizeof(sizes[0]); n++) {
            check_strategy_on(plugin->name, sizes[n], (size_t)s + n);
        }
    }
}

static size_t order_after(struct dp_group *group, const void *arg)
{
    struct dp_exchange *e = NULL;
    struct dp_flat flat;
    float data[4] = {0};
    const bool sums = *(const bool *)arg;
    const struct setup setup = {"ring", DP_RUN_AT_WAIT, 768, 192, NULL, NULL};
    size_t wrong;

    if (create(group, &setup, &flat, &e) != DP_OK) {
        return 1;
    }
    wrong = step(e, flat.grad, 0);
    const uint64_t before = dp_exchange_order(e);
    wrong += sums && dp_exchange_sum(e, data, 4) != DP_OK;
    wrong += (dp_exchange_order(e) != before) != sums;
    wrong += dp_exchange_sum(e, data, 3) != DP_OK;
    wrong += dp_exchange_order(e) == before;
    dp_exchange_destroy(e);
    return wrong;
}

static void the_hash_of_jobs_depends_on_their_order(void **state)
{
    static const bool sums[] = {false, true};
    (void)state;

    assert_int_equal(on_local_ranks(2, order_after, &sums[0]), 0);
    assert_int_equal(on_local_ranks(2, order_after, &sums[1]), 0);
}

/* Neither on the device nor on the host; smaller sums work afterwards. */
static size_t sums_too_much(struct dp_group *group, const void *arg)
{
    struct dp_exchange *e = NULL;
    struct dp_flat flat;
    float data[SCRATCH + 1] = {0};
    size_t wrong;

    if (create(group, arg, &flat, &e) != DP_OK) {
        return 1;
    }
    wrong = dp_exchange_sum(e, data, SCRATCH + 1) != DP_ERR_INTERNAL;
    wrong += dp_exchange_sum_host(e, data, SCRATCH + 1) != DP_ERR_INTERNAL;
    data[0] = 1.0f;
    wrong += dp_exchange_sum_host(e, data, SCRATCH) != DP_OK;
    wrong += data[0] != (float)group->size;
    dp_exchange_destroy(e);
    return wrong;
}

static void a_sum_larger_than_scratch_is_refused(void **state)
{
    const struct setup setup = {"ring", DP_RUN_AT_WAIT, 768, 192, NULL, NULL};
    (void)state;

    stderr_begin();
    const size_t wrong = on_local_ranks(2, sums_too_much, &setup);
    stderr_end();
    assert_int_equal(wrong, 0);
    assert_non_null(strstr(stderr_text, "a sum of 101 numbers"));
    assert_non_null(strstr(stderr_text, "room for 100"));
}

/* Rank 0 leaves in the middle of a step. */
static size_t leaves_a_step(struct dp_group *group, const void *arg)
{
    struct dp_exchange *e = NULL;
    struct dp_flat flat;
    size_t wrong = 0;

    if (create(group, arg, &flat, &e) != DP_OK) {
        return 1;
    }
    wrong += step(e, flat.grad, 0);
    /* After the barrier all have ended their step; some may still be in it when rank 0 leaves. */
    if (dp_exchange_barrier(e) != DP_OK) {
        dp_exchange_destroy(e);
        return wrong + (group->rank == 0);
    }
    dp_exchange_begin(e, false);
    for (int t = TENSORS - 1; t >= (group->rank == 0 ? 3 : 0); t--) {
        wrong += dp_exchange_ready(e, t) != DP_OK;
    }
    if (group->rank == 0) {
        dp_group_leave(group, DP_ERR_INTERNAL);
    } else {
        wrong += dp_exchange_ready_tail(e) != DP_OK;
        for (int b = 0; b < dp_exchange_plan(e)->count; b++) {
            const dp_status status = dp_exchange_wait(e, b);
            wrong += status != DP_ERR_CANCELLED && (b > 0 || status != DP_OK);
        }
    }
    dp_exchange_destroy(e);
    return wrong;
}

static void a_rank_that_leaves_in_a_step_wakes_the_others(void **state)
{
    const size_t live = dp_mem_live();
    static const struct setup setups[] = {{"shm", DP_RUN_ON_THREAD, 768, 192, NULL, NULL},
                                          {"shm", DP_RUN_AT_WAIT, 768, 192, NULL, NULL},
                                          {"ring", DP_RUN_ON_THREAD, 768, 192, NULL, NULL},
                                          {"ring", DP_RUN_AT_WAIT, 768, 192, NULL, NULL}};
    (void)state;

    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(on_local_ranks(3, leaves_a_step, &setups[i]), 0);
        assert_int_equal(dp_mem_live(), live);
    }
}

static void creating_survives_every_failed_allocation(void **state)
{
    static const char *const strategies[] = {"shm", "ring", "none"};
    struct dp_group *group = NULL;
    (void)state;

    assert_int_equal(dp_local_alone(&group), DP_OK);
    const size_t live = dp_mem_live();
    dp_log_set_level(DP_LOG_NONE);
    for (size_t s = 0; s < 3; s++) {
        const struct setup setup = {strategies[s], DP_RUN_ON_THREAD, 768, 192, NULL, NULL};
        dp_status status = DP_ERR_NOMEM;
        for (int nth = 1; status != DP_OK; nth++) {
            struct dp_exchange *e = NULL;
            struct dp_flat flat;
            dp_mem_fail_nth(nth);
            status = create(group, &setup, &flat, &e);
            dp_mem_fail_nth(0);
            assert_true(status == DP_OK || status == DP_ERR_NOMEM);
            assert_true((e != NULL) == (status == DP_OK));
            dp_exchange_destroy(e);
            assert_int_equal(dp_mem_live(), live);
        }
    }
    dp_log_set_level(DP_LOG_INFO);
    dp_group_destroy(group);
}

/* Two nodes of one rank each: `shm` cannot run, with any sharding before it. */
static void strategies_that_cannot_run_are_known_beforehand(void **state)
{
    static const char *const can[] = {"ring", "zero1:over=ring", "auto", "zero1", "none"};
    static const char *const cannot[] = {"shm", "zero1:over=shm", "replicated:over=shm"};
    const size_t live = dp_mem_live();
    const char *why_not = "unset";
    struct dp_group *group = NULL;
    (void)state;

    assert_int_equal(dp_local_alone(&group), DP_OK);
    struct dp_group two_nodes = *group;
    two_nodes.size = two_nodes.nodes = 2;
    for (size_t i = 0; i < sizeof(can) / sizeof(can[0]); i++) {
        assert_int_equal(dp_strategy_select_supports(&two_nodes, can[i], &why_not), DP_OK);
        assert_null(why_not);
    }
    for (size_t i = 0; i < sizeof(cannot) / sizeof(cannot[0]); i++) {
        assert_int_equal(dp_strategy_select_supports(&two_nodes, cannot[i], &why_not), DP_OK);
        assert_non_null(strstr(why_not, "node"));
        assert_int_equal(dp_strategy_select_supports(group, cannot[i], &why_not), DP_OK);
        assert_null(why_not);
    }
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(dp_strategy_select_supports(group, "rnig", &why_not), DP_ERR_CONFIG);
    assert_int_equal(dp_strategy_select_supports(group, "zero1:over=rnig", &why_not),
                     DP_ERR_CONFIG);
    dp_mem_fail_nth(1);
    assert_int_equal(dp_strategy_select_supports(group, "ring", &why_not), DP_ERR_NOMEM);
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
    dp_group_destroy(group);
    assert_int_equal(dp_mem_live(), live);
}

/* Rank 1 of three differs from the others in one thing. */
struct difference {
    struct setup usual, other;
    const char *text; /* of what rank 0 says */
};

static size_t disagrees(struct dp_group *group, const void *arg)
{
    const struct difference *d = arg;
    struct dp_exchange *e = NULL;
    struct dp_flat flat;

    return create(group, group->rank == 1 ? &d->other : &d->usual, &flat, &e) != DP_ERR_DISAGREE ||
           e != NULL;
}

static void differing_ranks_are_reported_before_anything_is_shared(void **state)
{
    static struct dp_tensor renamed[TENSORS], reshaped[TENSORS];
    const struct setup usual = {"ring", DP_RUN_AT_WAIT, 768, 192, NULL, "red"};
    const struct difference differences[] = {
        {usual,
         {"shm", DP_RUN_AT_WAIT, 768, 192, NULL, "red"},
         "has comm.strategy 'shm', rank 0 ("},
        {usual,
         {"ring:segment_kb=4", DP_RUN_AT_WAIT, 768, 192, NULL, "red"},
         "has comm.strategy 'ring:segment_kb=4', rank 0 ("},
        {usual,
         {"ring", DP_RUN_AT_WAIT, 64, 64, NULL, "red"},
         "has bucket plan '6 buckets, largest 1024', rank 0 ("},
        {usual,
         {"ring", DP_RUN_AT_WAIT, 768, 192, renamed, "red"},
         "has another model than rank 0"},
        {usual,
         {"ring", DP_RUN_AT_WAIT, 768, 192, reshaped, "red"},
         "has another model than rank 0"},
        {usual, {"ring", DP_RUN_AT_WAIT, 768, 192, NULL, "blue"}, "has colour 'blue', rank 0 ("},
    };
    const size_t live = dp_mem_live();
    (void)state;

    memcpy(renamed, tensors, sizeof(tensors));
    memcpy(reshaped, tensors, sizeof(tensors));
    (void)strncpy(renamed[2].name, "other", sizeof(renamed[2].name) - 1);
    reshaped[2].dims = 1;
    reshaped[2].shape[0] = 10;
    for (size_t i = 0; i < sizeof(differences) / sizeof(differences[0]); i++) {
        stderr_begin();
        const size_t wrong = on_local_ranks(3, disagrees, &differences[i]);
        stderr_end();
        assert_int_equal(wrong, 0);
        if (strncmp(stderr_text, "lockstep: error: rank 1 (", 25) != 0 ||
            strstr(stderr_text, differences[i].text) == NULL ||
            strchr(stderr_text, '\n') != stderr_text + strlen(stderr_text) - 1) {
            fail_msg("case %zu: %s", i, stderr_text);
        }
        assert_int_equal(dp_mem_live(), live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_strategy_sums_every_bucket_with_and_without_a_thread),
        cmocka_unit_test(a_sum_larger_than_scratch_is_refused),
        cmocka_unit_test(the_hash_of_jobs_depends_on_their_order),
        cmocka_unit_test(a_rank_that_leaves_in_a_step_wakes_the_others),
        cmocka_unit_test(strategies_that_cannot_run_are_known_beforehand),
        cmocka_unit_test(differing_ranks_are_reported_before_anything_is_shared),
        cmocka_unit_test(creating_survives_every_failed_allocation),
    };
    return cmocka_run_group_tests_name("exchange", tests, NULL, NULL);
}
