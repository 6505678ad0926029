#include "collectives/core/bucket.h"

#include <xxhash.h>

#include "base/mem.h"

void dp_bucket_plan_destroy(struct dp_bucket_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    dp_free(plan->bucket_of);
    dp_free(plan->buckets);
    dp_free(plan);
}

static size_t tensor_end(const struct dp_tensor *tensors, int count, size_t trained, int i)
{
    return i + 1 < count ? tensors[i + 1].begin : trained;
}

/* Takes tensors from `last` downwards until the bucket is full or holds a large tensor, which is
 * sent while backward computes the tensors before it. Returns the first tensor inside. */
static int bucket_fill(struct dp_bucket *bucket, const struct dp_tensor *tensors, int last,
                       size_t end, size_t max_count, size_t large)
{
    int first = last;
    size_t first_end = end;

    while (first > 0 && first_end - tensors[first].begin < large &&
           end - tensors[first - 1].begin <= max_count) {
        first_end = tensors[first].begin;
        first--;
    }
    bucket->range = (struct dp_range){tensors[first].begin, end - tensors[first].begin};
    bucket->tensors = tensors + first;
    bucket->tensor_count = last - first + 1;
    bucket->owned_at = bucket->range.begin;
    return first;
}

/* If the bucket's first tensor is large and others are before it, cuts off its end and makes a
 * deferred bucket of that. */
static void cut_deferred(struct dp_bucket *bucket, struct dp_bucket *deferred, size_t tensor_count,
                         size_t large)
{
    const size_t rest = tensor_count / DP_DEFERRED_PART / DP_BLOCK * DP_BLOCK;

    if (bucket->range.begin == 0 || tensor_count < large || rest == 0) {
        return;
    }
    *deferred = (struct dp_bucket){.range = {bucket->range.begin, rest},
                                   .tensors = bucket->tensors,
                                   .owned_at = bucket->range.begin,
                                   .deferred = true};
    bucket->range.begin += rest;
    bucket->range.count -= rest;
    bucket->owned_at += rest;
}

static void plan_fill(struct dp_bucket_plan *plan, const struct dp_tensor *tensors, int count,
                      size_t trained, size_t total, const struct dp_bucket_sizes *sizes)
{
    const size_t eighth = trained / 8;
    const size_t large = eighth > sizes->first_count ? eighth : sizes->first_count;

    for (int last = count - 1; last >= 0;) {
        struct dp_bucket *bucket = &plan->buckets[plan->count];
        const int first =
            bucket_fill(bucket, tensors, last, tensor_end(tensors, count, trained, last),
                        plan->count == 0 ? sizes->first_count : sizes->max_count, large);
        for (int i = first; i <= last; i++) {
            plan->bucket_of[i] = plan->count;
        }
        plan->count++;
        if (sizes->deferred) {
            cut_deferred(bucket, bucket + 1,
                         tensor_end(tensors, count, trained, first) - tensors[first].begin, large);
            plan->count += bucket[1].deferred;
            plan->deferred += bucket[1].deferred;
        }
        last = first - 1;
    }
    plan->buckets[plan->count++] = (struct dp_bucket){
        .range = {trained, total - trained}, .tensors = tensors + count, .exact = true};
    for (int i = 0; i < plan->count; i++) {
        const struct dp_range *range = &plan->buckets[i].range;
        plan->largest = range->count > plan->largest ? range->count : plan->largest;
        plan->hash = XXH3_64bits_withSeed(range, sizeof(*range), plan->hash);
    }
}

dp_status dp_bucket_plan_create(const struct dp_tensor *tensors, int tensor_count, size_t trained,
                                size_t total, const struct dp_bucket_sizes *sizes,
                                struct dp_bucket_plan **out)
{
    struct dp_bucket_plan *plan;

    if (tensor_count < 1 || total <= trained || sizes->max_count == 0) {
        return DP_FAIL(DP_ERR_ARG, "bucket plan: %d tensors, tail of %zu, buckets of %zu",
                       tensor_count, total - trained, sizes->max_count);
    }
    plan = dp_zalloc(1, sizeof(*plan));
    if (plan == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "bucket plan");
    }
    plan->buckets = dp_zalloc(2 * (size_t)tensor_count + 1, sizeof(*plan->buckets));
    plan->bucket_of = dp_zalloc((size_t)tensor_count, sizeof(*plan->bucket_of));
    if (plan->buckets == NULL || plan->bucket_of == NULL) {
        dp_bucket_plan_destroy(plan);
        return DP_FAIL(DP_ERR_NOMEM, "bucket plan of %d tensors", tensor_count);
    }
    plan_fill(plan, tensors, tensor_count, trained, total, sizes);
    *out = plan;
    return DP_OK;
}
