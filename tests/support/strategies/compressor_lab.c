#include "tests/support/strategies/compressor_lab.h"

#include <math.h>
#include <string.h>

#include "base/random.h"
#include "tests/support/tested_device.h"

const struct dp_tensor lab_tensors[LAB_TENSORS] = {
    {.dims = 2, .shape = {50, 60}, .count = 3000, .begin = 0},
    {.dims = 1, .shape = {10}, .count = 10, .begin = 3008},
    {.dims = 4, .shape = {10, 4, 4, 4}, .count = 640, .begin = 3072},
    {.dims = 1, .shape = {64}, .count = 64, .begin = 3712},
    {.dims = 2, .shape = {10, 10}, .count = 100, .begin = 3776},
};

static dp_status lab_create(struct lab *lab)
{
    const struct lab_setup *s = lab->setup;
    const struct dp_device *device = NULL;
    const struct dp_compression_config config = {s->compressor, &lab->step_params, 5};

    lab->grad = dp_group_memory(lab->group, DP_MEM_GRADIENTS, LAB_TOTAL * sizeof(float));
    if (lab->grad == NULL) {
        return DP_ERR_NOMEM;
    }
    lab->group->unshared = s->messages;
    DP_TRY(dp_bucket_plan_create(lab_tensors, LAB_TENSORS, LAB_TRAINED, LAB_TOTAL,
                                 &(struct dp_bucket_sizes){192, 768, false}, &lab->plan));
    DP_TRY(dp_comm_create(lab->group, s->strategy, lab->plan->largest, DP_BLOCK, &lab->comm));
    DP_TRY(dp_device_find(tested_device_or("ref"), &device));
    DP_TRY(device->stream_create(device, 1, &lab->codes));
    lab->comm->codes = lab->codes;
    return dp_compression_create(lab->comm, lab->plan, lab->grad, LAB_TRAINED, &config,
                                 &lab->compression);
}

dp_status lab_open(struct lab *lab, struct dp_group *group, const struct lab_setup *setup)
{
    dp_status status;

    *lab = (struct lab){.setup = setup, .group = group, .step_params = {.factor = 1}};
    status = lab_create(lab);
    if (status != DP_OK) {
        dp_group_leave(group, status);
        lab_close(lab);
    }
    return status;
}

void lab_close(struct lab *lab)
{
    dp_compression_destroy(lab->compression);
    dp_comm_destroy(lab->comm);
    if (lab->codes != NULL) {
        lab->codes->device->stream_destroy(lab->codes);
    }
    dp_bucket_plan_destroy(lab->plan);
    dp_group_release(lab->group, lab->grad);
    lab->compression = NULL;
}

static bool in_tensor(size_t i)
{
    for (int t = 0; t < LAB_TENSORS; t++) {
        if (i >= lab_tensors[t].begin && i < lab_tensors[t].begin + lab_tensors[t].count) {
            return true;
        }
    }
    return false;
}

float lab_value(int rank, uint32_t step, size_t i)
{
    const uint32_t bits = dp_random_u32(11, DP_RANDOM_TEST + (uint32_t)rank, step, i);
    const float x = 2 * dp_random_unit(bits) - 1;
    const float all = sinf(0.01f * (float)i); /* what the ranks have in common */

    return in_tensor(i) ? 0.1f * all + x * x * x : 0;
}

void lab_fill(struct lab *lab)
{
    for (size_t i = 0; i < LAB_TRAINED; i++) {
        lab->grad[i] = lab_value(lab->group->rank, lab->step_params.step, i);
    }
}

dp_status lab_step(struct lab *lab)
{
    for (int b = 0; b < lab->plan->count - 1; b++) {
        const struct dp_range *range = &lab->plan->buckets[b].range;
        const struct dp_slice grad = {lab->grad + range->begin, range->count, sizeof(float)};
        DP_TRY(lab->compression == NULL
                   ? dp_comm_sum(lab->comm, grad, lab->setup->keep)
                   : dp_compression_sum(lab->compression, b, lab->setup->keep));
        if (lab->setup->keep == DP_KEEP_CHUNK) {
            const uint64_t wire = lab->group->wire_bytes;
            DP_TRY(dp_comm_gather(lab->comm, grad));
            lab->group->wire_bytes = wire;
        }
    }
    lab->step_params.step++;
    return DP_OK;
}

size_t lab_split(const struct lab *lab)
{
    uint64_t hash = 0xcbf29ce484222325u, all[64];
    const unsigned char *bytes = (const unsigned char *)lab->grad;

    for (size_t i = 0; i < LAB_TRAINED * sizeof(float); i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3u; /* FNV-1a */
    }
    if (dp_group_allgather(lab->group, &hash, sizeof(hash), all) != DP_OK) {
        return 1;
    }
    for (int i = 0; i < lab->group->size; i++) {
        if (all[i] != hash) {
            return 1;
        }
    }
    return 0;
}
