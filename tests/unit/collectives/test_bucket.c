/* test_bucket.c - the plan by which the flat gradient is cut into buckets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "collectives/core/bucket.h"

enum { TENSORS_MAX = 60, TAIL = DP_BLOCK };

static struct dp_tensor tensors[TENSORS_MAX];

/* Tensors of these counts, one after the other at multiples of DP_BLOCK. Returns `trained`. */
static size_t lay_out(const size_t *counts, int count)
{
    size_t at = 0;

    memset(tensors, 0, sizeof(tensors));
    for (int i = 0; i < count; i++) {
        tensors[i].begin = at;
        tensors[i].count = counts[i];
        at += dp_round_up(counts[i], DP_BLOCK);
    }
    return at;
}

static dp_status plan_of(int count, size_t trained, size_t total, size_t first, size_t most,
                         struct dp_bucket_plan **plan)
{
    return dp_bucket_plan_create(tensors, count, trained, total,
                                 &(struct dp_bucket_sizes){first, most, false}, plan);
}

static void a_small_model_is_cut_as_worked_out_by_hand(void **state)
{
    static const size_t counts[] = {1000, 10, 640, 64, 100};
    struct dp_bucket_plan *plan = NULL;
    (void)state;

    /* Begins: 0, 1024, 1088, 1728, 1792; trained 1920. */
    assert_int_equal(lay_out(counts, 5), 1920);
    assert_int_equal(plan_of(5, 1920, 1984, 192, 768, &plan), DP_OK);
    assert_int_equal(plan->count, 5);
    /* First: at most 192 elements, so the last two tensors. */
    assert_int_equal(plan->buckets[0].range.begin, 1728);
    assert_int_equal(plan->buckets[0].range.count, 192);
    assert_int_equal(plan->buckets[0].tensor_count, 2);
    assert_ptr_equal(plan->buckets[0].tensors, &tensors[3]);
    /* Then at most 768, which 640 and 64 are; but 640 is more than an eighth of all. */
    assert_int_equal(plan->buckets[1].range.begin, 1088);
    assert_int_equal(plan->buckets[1].range.count, 640);
    assert_int_equal(plan->buckets[2].range.begin, 1024);
    assert_int_equal(plan->buckets[2].range.count, 64);
    /* A tensor larger than a bucket has its own bucket. */
    assert_int_equal(plan->buckets[3].range.begin, 0);
    assert_int_equal(plan->buckets[3].range.count, 1024);
    assert_int_equal(plan->buckets[3].tensor_count, 1);
    assert_true(plan->buckets[4].exact);
    assert_int_equal(plan->buckets[4].range.begin, 1920);
    assert_int_equal(plan->buckets[4].range.count, 64);
    assert_int_equal(plan->largest, 1024);
    dp_bucket_plan_destroy(plan);
}

/* What holds for every plan. */
static void check_plan(const struct dp_bucket_plan *plan, int count, size_t trained, size_t first,
                       size_t most)
{
    const size_t large = trained / 8 > first ? trained / 8 : first;
    size_t end = trained;
    int last = count;

    for (int b = 0; b < plan->count - 1; b++) {
        const struct dp_bucket *bucket = &plan->buckets[b];
        const size_t limit = b == 0 ? first : most;
        assert_int_equal(bucket->range.begin + bucket->range.count, end);
        assert_true(bucket->range.count > 0 && bucket->range.begin % DP_BLOCK == 0);
        assert_true(bucket->range.count <= limit || bucket->tensor_count == 1);
        assert_false(bucket->exact);
        assert_int_equal(bucket->owned_at, bucket->range.begin);
        last -= bucket->tensor_count;
        assert_ptr_equal(bucket->tensors, &tensors[last]);
        assert_int_equal(bucket->range.begin, tensors[last].begin);
        for (int i = last; i < last + bucket->tensor_count; i++) {
            assert_int_equal(plan->bucket_of[i], b);
        }
        /* Only its first tensor may be large; without one it is full: one more would be too
         * much. */
        for (int i = last + 1; i < last + bucket->tensor_count; i++) {
            assert_true(dp_round_up(tensors[i].count, DP_BLOCK) < large);
        }
        assert_true(last == 0 || end - tensors[last - 1].begin > limit ||
                    dp_round_up(tensors[last].count, DP_BLOCK) >= large);
        assert_true(bucket->range.count <= plan->largest);
        end = bucket->range.begin;
    }
    assert_int_equal(last, 0);
    assert_int_equal(end, 0);
    assert_true(plan->buckets[plan->count - 1].exact);
    assert_int_equal(plan->buckets[plan->count - 1].range.begin, trained);
    assert_int_equal(plan->buckets[plan->count - 1].tensor_count, 0);
    assert_ptr_equal(plan->buckets[plan->count - 1].tensors, &tensors[count]);
}

static void every_plan_covers_the_gradient_once_from_its_end(void **state)
{
    size_t counts[TENSORS_MAX];
    (void)state;

    for (uint32_t round = 0; round < 2000; round++) {
        const int count = 1 + (int)(dp_random_u32(5, DP_RANDOM_TEST, round, 0) % TENSORS_MAX);
        struct dp_bucket_plan *plan = NULL;
        for (int i = 0; i < count; i++) {
            const uint32_t bits = dp_random_u32(5, DP_RANDOM_TEST, round, 3 + (size_t)i);
            counts[i] = 1 + (bits >> 4) % (16u << (bits & 7));
        }
        const size_t first = dp_random_u32(5, DP_RANDOM_TEST, round, 1) % 1000;
        const size_t most = 1 + dp_random_u32(5, DP_RANDOM_TEST, round, 2) % 5000;
        const size_t trained = lay_out(counts, count);
        assert_int_equal(plan_of(count, trained, trained + TAIL, first, most, &plan), DP_OK);
        check_plan(plan, count, trained, first, most);
        dp_bucket_plan_destroy(plan);
    }
}

static void check_range(const struct dp_bucket *bucket, size_t begin, size_t count, bool deferred)
{
    assert_int_equal(bucket->range.begin, begin);
    assert_int_equal(bucket->range.count, count);
    assert_int_equal(bucket->owned_at, begin);
    assert_int_equal(bucket->deferred, deferred);
}

/* Of the same model: 640 of 1920 elements are many, and others are before them; 1000 come first. */
static void a_third_of_a_large_tensor_is_deferred_unless_forward_begins_with_it(void **state)
{
    static const size_t counts[] = {1000, 10, 640, 64, 100};
    struct dp_bucket_plan *plan = NULL, *other = NULL;
    (void)state;

    (void)lay_out(counts, 5);
    assert_int_equal(dp_bucket_plan_create(tensors, 5, 1920, 1984,
                                           &(struct dp_bucket_sizes){192, 768, true}, &plan),
                     DP_OK);
    assert_int_equal(plan_of(5, 1920, 1984, 192, 768, &other), DP_OK);
    assert_int_equal(plan->count, 6);
    check_range(&plan->buckets[0], 1728, 192, false);
    check_range(&plan->buckets[1], 1280, 448, false);
    check_range(&plan->buckets[2], 1088, 192, true); /* 640 / 3, in whole blocks */
    check_range(&plan->buckets[3], 1024, 64, false);
    check_range(&plan->buckets[4], 0, 1024, false);
    assert_true(plan->buckets[5].exact);
    assert_int_equal(plan->buckets[1].tensor_count, 1);
    assert_int_equal(plan->buckets[2].tensor_count, 0);
    assert_int_equal(plan->bucket_of[2], 1);
    assert_int_equal(plan->bucket_of[1], 3);
    assert_true(plan->hash != other->hash);
    dp_bucket_plan_destroy(other);
    dp_bucket_plan_destroy(plan);
}

static uint64_t hash_of(size_t first, size_t most)
{
    static const size_t counts[] = {500, 500, 500, 500};
    struct dp_bucket_plan *plan = NULL;
    const size_t trained = lay_out(counts, 4);

    assert_int_equal(plan_of(4, trained, trained + TAIL, first, most, &plan), DP_OK);
    const uint64_t hash = plan->hash;
    dp_bucket_plan_destroy(plan);
    return hash;
}

static void equal_plans_have_equal_hashes_and_others_do_not(void **state)
{
    (void)state;
    assert_true(hash_of(600, 1100) == hash_of(600, 1100));
    assert_true(hash_of(600, 1100) == hash_of(700, 1030)); /* other limits, the same cuts */
    assert_true(hash_of(600, 1100) != hash_of(1100, 1100));
    assert_true(hash_of(600, 1100) != hash_of(600, 600));
}

static void impossible_plans_are_refused(void **state)
{
    static const size_t counts[] = {100};
    struct dp_bucket_plan *plan = NULL;
    const size_t trained = lay_out(counts, 1);
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(plan_of(0, trained, 192, 1, 1, &plan), DP_ERR_ARG);
    assert_int_equal(plan_of(1, trained, trained, 1, 1, &plan), DP_ERR_ARG);
    assert_int_equal(plan_of(1, trained, 192, 1, 0, &plan), DP_ERR_ARG);
    dp_log_set_level(DP_LOG_INFO);
    assert_null(plan);
    dp_bucket_plan_destroy(NULL);
}

static void survives_every_failed_allocation(void **state)
{
    static const size_t counts[] = {10, 20, 30};
    const size_t live = dp_mem_live(), trained = lay_out(counts, 3);
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_bucket_plan *plan = NULL;
        dp_mem_fail_nth(nth);
        status = plan_of(3, trained, trained + TAIL, 64, 64, &plan);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((plan != NULL) == (status == DP_OK));
        dp_bucket_plan_destroy(plan);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_log_set_level(DP_LOG_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_model_is_cut_as_worked_out_by_hand),
        cmocka_unit_test(every_plan_covers_the_gradient_once_from_its_end),
        cmocka_unit_test(a_third_of_a_large_tensor_is_deferred_unless_forward_begins_with_it),
        cmocka_unit_test(equal_plans_have_equal_hashes_and_others_do_not),
        cmocka_unit_test(impossible_plans_are_refused),
        cmocka_unit_test(survives_every_failed_allocation),
    };
    return cmocka_run_group_tests_name("bucket", tests, NULL, NULL);
}
