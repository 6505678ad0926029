/*
 * compressor_fp16.c - half as many bytes: every number as an IEEE half (11 significant bits).
 *
 * Summed in float32 at the owner, and rounded once more before the result is sent back. A number or
 * a sum above 65504 becomes infinity, which makes the loss NaN; up to 3e-8 it becomes 0. NaN and
 * infinity are kept. The rounding error is not fed back: it is at most 2^-11 of a number, and below
 * 6.1e-5 at most 3e-8, which can be the whole of a small number.
 *
 * Source: Micikevicius et al., "Mixed precision training", ICLR 2018, section 3 (the format and its
 * range); the wire format of PyTorch's fp16_compress_hook, which sums elsewhere.
 */
#include "collectives/compressors/codec_sum.h"

static size_t fp16_bytes(const void *context, size_t count)
{
    (void)context;
    return count * sizeof(uint16_t);
}

static dp_status fp16_encode(const void *context, struct dp_stream *stream, void *code, float *x,
                             size_t count, const struct dp_key *key)
{
    (void)context;
    (void)key;
    return stream->ops->narrow(stream, code, x, count, DP_TYPE_F16);
}

static dp_status fp16_decode(const void *context, struct dp_stream *stream, float *y,
                             const void *code, size_t count, struct dp_range part)
{
    (void)context;
    (void)count;
    return stream->ops->widen(stream, y, (const uint16_t *)code + part.begin, part.count,
                              DP_TYPE_F16);
}

static const struct dp_codec codec = {NULL, fp16_bytes, fp16_encode, fp16_decode};

static size_t fp16_codes(const void *state, const struct dp_bucket_plan *plan, int ranks)
{
    (void)state;
    return dp_codec_sum_bytes(&codec, plan->largest, ranks);
}

static dp_status fp16_open(void *state, struct dp_comm *comm, const struct dp_bucket_plan *plan)
{
    return dp_codec_sum_open(state, comm, &codec, plan->largest);
}

static double fp16_cost(const void *state, const struct dp_cost *cost, const struct dp_group *group,
                        const char *strategy, const struct dp_bucket *bucket)
{
    (void)state;
    (void)strategy;
    return dp_codec_sum_cost(&codec, cost, group, bucket->range.count);
}

const struct dp_compressor dp_compressor_fp16 = {
    .plugin = {.name = "fp16",
               .help = "half precision on the wire, summed in float32; overflows beyond 65504",
               .state_bytes = sizeof(struct dp_codec_sum)},
    .elementwise = true,
    .codes = fp16_codes,
    .open = fp16_open,
    .wire = dp_codec_sum_wire,
    .cost = fp16_cost,
    .work = dp_codec_sum_work,
    .sum = dp_codec_sum_run,
    .close = dp_codec_sum_close,
};
