#include "collectives/compressors/compressor.h"

#include <string.h>

#define DP_COMPRESSOR(name) extern const struct dp_compressor dp_compressor_##name;
#include "collectives/compressors/compressors.def"
#undef DP_COMPRESSOR

/* The strategy alone sums. */
const struct dp_compressor dp_compressor_none = {
    .plugin = {.name = "none", .help = "float32, as it is"}};

static const struct dp_plugin *const registry[] = {
#define DP_COMPRESSOR(name) &dp_compressor_##name.plugin,
#include "collectives/compressors/compressors.def"
#undef DP_COMPRESSOR
};

struct dp_plugin_family dp_compressors = {
    .noun = "compressor", .rows = registry, .count = sizeof(registry) / sizeof(registry[0])};

uint64_t dp_compressor_plain_wire(const struct dp_comm *comm, size_t count, enum dp_keep keep)
{
    const struct dp_group *group = comm->group;
    char here;
    const struct dp_slice data = {&here, count, 0}; /* only lengths matter */
    const int size = group->size, rank = group->rank;
    const size_t mine = dp_slice_chunk(data, size, rank).count;
    const size_t last = dp_slice_chunk(data, size, (rank + 1) % size).count;
    size_t elements = count - mine;

    if (comm->strategy->shared) { /* each rank reads its chunk of all others */
        elements = (size_t)(size - 1) * mine;
    } else if (keep == DP_KEEP_ALL) { /* the last chunk to arrive is not sent on */
        elements += count - last;
    }
    return size == 1 ? 0 : elements * sizeof(float);
}

dp_status dp_compressor_clear_gaps(struct dp_stream *stream, const struct dp_bucket *bucket,
                                   float *x)
{
    for (int i = 0; i < bucket->tensor_count; i++) {
        const struct dp_tensor *tensor = &bucket->tensors[i];
        const size_t begin = tensor->begin + tensor->count - bucket->range.begin;
        const size_t end = i + 1 < bucket->tensor_count
                               ? bucket->tensors[i + 1].begin - bucket->range.begin
                               : bucket->range.count;
        DP_TRY(stream->ops->zero(stream, x + begin, (end - begin) * sizeof(*x)));
    }
    return DP_OK;
}

bool dp_compressor_is_elementwise(const char *text)
{
    const struct dp_compressor *c = text == NULL ? NULL
                                                 : (const struct dp_compressor *)dp_plugin_find(
                                                       &dp_compressors, text, strcspn(text, ":"));

    return text == NULL || (c != NULL && (c->sum == NULL || c->elementwise));
}
