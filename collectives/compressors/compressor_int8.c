/*
 * compressor_int8.c - a quarter of the bytes: multiples of 1/127 of the largest number of a block.
 *
 * Numbers are rounded up or down at random, so that their mean is right and no residual is needed.
 * The random numbers are a function of seed, step, rank and place in the gradient, so a run is
 * reproducible. Sums are added in float32 at the owner, and rounded the same way before they are
 * sent back. A NaN or an infinity makes its whole block NaN. A block without a number above 1.5e-36
 * becomes 0.
 *
 * Source: Alistarh, Grubic, Li, Tomioka and Vojnovic, "QSGD: communication-efficient SGD via
 * gradient quantization and encoding", NIPS 2017, sections 3.1 and 4.
 */
#include "collectives/compressors/codec_sum.h"

struct int8 {
    struct dp_codec_sum codec_sum; /* first: see codec_sum.h */
    int block;                     /* choice */
};

static size_t int8_block(const void *context)
{
    return (size_t)DP_BLOCK << ((const struct int8 *)context)->block;
}

/* A scale for each block, then a byte for each number. */
static size_t int8_bytes(const void *context, size_t count)
{
    const size_t block = int8_block(context);

    return (count + block - 1) / block * sizeof(float) + count;
}

static dp_status int8_encode(const void *context, struct dp_stream *stream, void *code, float *x,
                             size_t count, const struct dp_key *key)
{
    const size_t block = int8_block(context);
    float *scales = code;
    int8_t *numbers = (int8_t *)(scales + (count + block - 1) / block);

    return stream->ops->quantize(stream, numbers, scales, x, block, count, key);
}

static dp_status int8_decode(const void *context, struct dp_stream *stream, float *y,
                             const void *code, size_t count, struct dp_range part)
{
    const size_t block = int8_block(context);
    const float *scales = code;
    const int8_t *numbers = (const int8_t *)(scales + (count + block - 1) / block);

    return stream->ops->dequantize(stream, y, numbers + part.begin, scales + part.begin / block,
                                   block, part.count);
}

static struct dp_codec codec_of(const void *state)
{
    return (struct dp_codec){state, int8_bytes, int8_encode, int8_decode};
}

static size_t int8_codes(const void *state, const struct dp_bucket_plan *plan, int ranks)
{
    const struct dp_codec codec = codec_of(state);

    return dp_codec_sum_bytes(&codec, plan->largest, ranks);
}

static dp_status int8_open(void *state, struct dp_comm *comm, const struct dp_bucket_plan *plan)
{
    const struct dp_codec codec = codec_of(state);

    return dp_codec_sum_open(state, comm, &codec, plan->largest);
}

static double int8_cost(const void *state, const struct dp_cost *cost, const struct dp_group *group,
                        const char *strategy, const struct dp_bucket *bucket)
{
    const struct dp_codec codec = codec_of(state);

    (void)strategy;
    return dp_codec_sum_cost(&codec, cost, group, bucket->range.count);
}

#define INT8 struct int8

/* clang-format off */
static const struct dp_option int8_options[] = {
    DP_CHOICE(INT8, block, "256", "64|128|256|512|1024|2048|4096", "numbers that share a scale"),
    {0},
};
/* clang-format on */

const struct dp_compressor dp_compressor_int8 = {
    .plugin = {.name = "int8",
               .help = "8 bits and a scale per block, rounded at random, summed in float32",
               .options = int8_options,
               .state_bytes = sizeof(struct int8)},
    .codes = int8_codes,
    .open = int8_open,
    .wire = dp_codec_sum_wire,
    .cost = int8_cost,
    .work = dp_codec_sum_work,
    .sum = dp_codec_sum_run,
    .close = dp_codec_sum_close,
};
