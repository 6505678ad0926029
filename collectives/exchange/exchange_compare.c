/*
 * exchange_compare.c - checks that all ranks have the same configuration before anything is shared.
 * Ranks that differ would wait for each other, or add values that do not belong together.
 */
#include "collectives/exchange/exchange_own.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static struct dp_consistency_item model_item(const struct dp_flat *flat)
{
    struct dp_consistency_item item = {.field = "model"};

    for (int i = 0; i < flat->tensor_count; i++) {
        const struct dp_tensor *tensor = &flat->tensors[i];
        item.hash = XXH3_64bits_withSeed(tensor->name, strlen(tensor->name), item.hash + 1);
        item.hash = XXH3_64bits_withSeed(
            tensor->shape, (size_t)tensor->dims * sizeof(tensor->shape[0]), item.hash);
    }
    (void)snprintf(item.value, sizeof(item.value), "%d tensors of %zu elements", flat->tensor_count,
                   flat->trained);
    return item;
}

dp_status dp_exchange_compare(struct dp_group *group, const struct dp_bucket_plan *plan,
                              const struct dp_exchange_config *config, const struct dp_flat *flat)
{
    struct dp_consistency_item items[DP_EXCHANGE_ITEMS + 3];
    int count = 0;

    assert(config->item_count <= DP_EXCHANGE_ITEMS);
    items[count++] = dp_consistency_text("comm.strategy", config->strategy);
    for (int i = 0; i < config->item_count; i++) {
        items[count++] = config->items[i];
    }
    items[count++] = model_item(flat);
    items[count] = (struct dp_consistency_item){.field = "bucket plan", .hash = plan->hash};
    (void)snprintf(items[count].value, sizeof(items[count].value), "%d buckets, largest %zu",
                   plan->count, plan->largest);
    return dp_consistency_check(group, items, count + 1);
}
