/*
 * exchange_memory.c - memory that ranks share: gradients, scratch for small sums, weights.
 */
#include "collectives/exchange/exchange_own.h"
#include "collectives/gpu/gpu_peers.h"

dp_status dp_exchange_take_gradients(struct dp_exchange *e, const struct dp_exchange_config *config,
                                     struct dp_flat *flat)
{
    const size_t count = flat->total + dp_round_up(config->scratch_count, DP_BLOCK);

    e->group->unshared =
        false; /* memory that could not be shared before does not matter for sums */
    e->grad = dp_group_memory(e->group, DP_MEM_GRADIENTS, count * sizeof(float));
    if (e->grad == NULL) {
        return DP_GROUP_FAIL(e->group, DP_ERR_NOMEM, "gradients need %zu MB",
                             count * sizeof(float) >> 20);
    }
    e->scratch = e->grad + flat->total;
    e->scratch_count = config->scratch_count;
    flat->grad = e->grad;
    if (!config->device->host_memory) {
        const struct dp_staging_config staging = {
            .device = config->device,
            .plan = e->plan,
            .host = e->grad,
            .total = flat->total,
            .tail = config->tail_made,
        };
        DP_TRY(dp_staging_create(e->group, &staging, &e->staging));
        flat->grad = dp_staging_gradient(e->staging);
    }
    return DP_OK;
}

/* Makes one copy of the weights for all ranks, unless memory cannot be shared: then none. */
static dp_status one_copy(struct dp_exchange *e, size_t bytes)
{
    DP_TRY(dp_group_node_memory(e->group, DP_MEM_WEIGHTS, bytes, &e->one_copy));
    if (!dp_group_reaches(e->group, e->one_copy.handle)) {
        dp_group_release_node(e->group, &e->one_copy);
    }
    e->weights = e->one_copy.data;
    return DP_OK;
}

/* Where weights are published on GPUs they lie in memory that all of those reach. */
static dp_status take_gpu_weights(struct dp_exchange *e, struct dp_flat *flat, size_t bytes)
{
    const struct dp_device *device = dp_staging_device(e->staging);

    e->gpu_weights = dp_gpu_peers_memory(e->group, device, DP_MEM_WEIGHTS, bytes);
    flat->weights = e->gpu_weights;
    return e->gpu_weights != NULL
               ? DP_OK
               : DP_FAIL(DP_ERR_NOMEM, "weights need %zu MB of the device", bytes >> 20);
}

/* Where ranks update parts of the weights for each other, one copy on the node is enough. It also
 * takes less of the caches. */
dp_status dp_exchange_take_weights(struct dp_exchange *e, struct dp_flat *flat)
{
    const size_t bytes = flat->trained * dp_type_bytes(flat->type);

    e->width = dp_type_bytes(flat->type);
    if (e->sharding->gather == NULL || (e->group->size == 1 && e->staging != NULL)) {
        return DP_OK; /* nothing of the device's weights crosses the host */
    }
    if (e->gpus != NULL) {
        return take_gpu_weights(e, flat, bytes);
    }
    /* Not with servers: one may write while another, which has no gradients to sum, still reads. */
    if (e->comm->strategy->shared && e->group->size > 1 && e->servers == 0 && e->staging == NULL) {
        DP_TRY(one_copy(e, bytes));
    }
    if (e->weights == NULL) {
        e->weights = dp_group_memory(e->group, DP_MEM_WEIGHTS, bytes);
    }
    if (e->weights == NULL) {
        return DP_GROUP_FAIL(e->group, DP_ERR_NOMEM, "weights need %zu MB", bytes >> 20);
    }
    if (e->staging == NULL) {
        flat->weights = e->weights;
    } else { /* they are the device's own, which crosses the host */
        dp_staging_device(e->staging)->pin(e->weights, bytes);
    }
    return DP_OK;
}

void dp_exchange_release_memory(struct dp_exchange *e)
{
    if (e->gpu_weights != NULL) {
        dp_gpu_peers_release(e->group, dp_staging_device(e->staging), e->gpu_weights);
    }
    if (e->weights != NULL && e->staging != NULL) {
        dp_staging_device(e->staging)->unpin(e->weights);
    }
    if (e->one_copy.data != NULL) {
        dp_group_release_node(e->group, &e->one_copy);
    } else {
        dp_group_release(e->group, e->weights);
    }
    dp_staging_destroy(e->staging);
    dp_group_release(e->group, e->grad);
}
