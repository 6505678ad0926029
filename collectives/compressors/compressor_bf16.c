/*
 * compressor_bf16.c - half as many bytes: every number as a bfloat16 (8 significant bits, the range
 * of float32).
 *
 * Summed in float32 at the owner, and rounded once more before the result is sent back. No float32
 * overflows or underflows; NaN and infinity are kept. The rounding error, at most 2^-8 of a number,
 * is not fed back.
 *
 * Source: Kalamkar et al., "A study of BFLOAT16 for deep learning training", arXiv:1905.12322,
 * section 2 (the format).
 */
#include "collectives/compressors/codec_sum.h"

static size_t bf16_bytes(const void *context, size_t count)
{
    (void)context;
    return count * sizeof(uint16_t);
}

static dp_status bf16_encode(const void *context, struct dp_stream *stream, void *code, float *x,
                             size_t count, const struct dp_key *key)
{
    (void)context;
    (void)key;
    return stream->ops->narrow(stream, code, x, count, DP_TYPE_BF16);
}

static dp_status bf16_decode(const void *context, struct dp_stream *stream, float *y,
                             const void *code, size_t count, struct dp_range part)
{
    (void)context;
    (void)count;
    return stream->ops->widen(stream, y, (const uint16_t *)code + part.begin, part.count,
                              DP_TYPE_BF16);
}

static const struct dp_codec codec = {NULL, bf16_bytes, bf16_encode, bf16_decode};

static size_t bf16_codes(const void *state, const struct dp_bucket_plan *plan, int ranks)
{
    (void)state;
    return dp_codec_sum_bytes(&codec, plan->largest, ranks);
}

static dp_status bf16_open(void *state, struct dp_comm *comm, const struct dp_bucket_plan *plan)
{
    return dp_codec_sum_open(state, comm, &codec, plan->largest);
}

static double bf16_cost(const void *state, const struct dp_cost *cost, const struct dp_group *group,
                        const char *strategy, const struct dp_bucket *bucket)
{
    (void)state;
    (void)strategy;
    return dp_codec_sum_cost(&codec, cost, group, bucket->range.count);
}

const struct dp_compressor dp_compressor_bf16 = {
    .plugin = {.name = "bf16",
               .help = "8 digits and the range of float32 on the wire, summed in float32",
               .state_bytes = sizeof(struct dp_codec_sum)},
    .elementwise = true,
    .codes = bf16_codes,
    .open = bf16_open,
    .wire = dp_codec_sum_wire,
    .cost = bf16_cost,
    .work = dp_codec_sum_work,
    .sum = dp_codec_sum_run,
    .close = dp_codec_sum_close,
};
