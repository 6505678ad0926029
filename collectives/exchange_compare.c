/*
 * exchange_compare.c - whether all ranks mean the same before anything is shared: those that differ
 * would wait for each other, or add what does not belong together.
 */
#include "collectives/exchange.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static struct dp_claim model_claim(const struct dp_flat *flat)
{
    struct dp_claim claim = {.field = "model"};

    for (int i = 0; i < flat->tensor_count; i++) {
        const struct dp_tensor *tensor = &flat->tensors[i];
        claim.hash = XXH3_64bits_withSeed(tensor->name, strlen(tensor->name), claim.hash + 1);
        claim.hash = XXH3_64bits_withSeed(
            tensor->shape, (size_t)tensor->dims * sizeof(tensor->shape[0]), claim.hash);
    }
    (void)snprintf(claim.value, sizeof(claim.value), "%d tensors of %zu elements",
                   flat->tensor_count, flat->trained);
    return claim;
}

dp_status dp_exchange_compare(struct dp_exchange *e, const struct dp_exchange_config *config,
                              const struct dp_flat *flat)
{
    struct dp_claim claims[DP_EXCHANGE_CLAIMS + 3];
    int count = 0;

    assert(config->claim_count <= DP_EXCHANGE_CLAIMS);
    claims[count++] = dp_claim_text("comm.strategy", config->strategy);
    for (int i = 0; i < config->claim_count; i++) {
        claims[count++] = config->claims[i];
    }
    claims[count++] = model_claim(flat);
    claims[count] = (struct dp_claim){.field = "bucket plan", .hash = e->plan->hash};
    (void)snprintf(claims[count].value, sizeof(claims[count].value), "%d buckets, largest %zu",
                   e->plan->count, e->plan->largest);
    return dp_claims_compare(e->group, claims, count + 1);
}
