/*
 * compressor_onebit.c - one bit a number: its sign, times the mean magnitude of its block of 64.
 *
 * What a code leaves out is added to the next gradient: by each rank for what it sends, and by the
 * owner of a chunk for the sum that it sends back. A NaN or an infinity spreads over its block.
 * Residuals grow with the spread of magnitudes inside a block, and too much delay harms training;
 * so blocks are small, and begin where tensors do. The gaps between tensors would become +-scale:
 * they are set to 0 again.
 *
 * Source: Seide, Fu, Droppo, Li and Yu, "1-bit stochastic gradient descent and its application to
 * data-parallel distributed training of speech DNNs", Interspeech 2014, section 3; one scale for
 * both signs and the feedback at both ends as in Tang et al., "1-bit Adam", ICML 2021, section 4.
 */
#include "collectives/compressors/codec_sum.h"

static size_t onebit_bytes(const void *context, size_t count)
{
    (void)context;
    return (count + DP_SIGNS - 1) / DP_SIGNS * sizeof(struct dp_signs);
}

static dp_status onebit_encode(const void *context, struct dp_stream *stream, void *code, float *x,
                               size_t count, const struct dp_key *key)
{
    (void)context;
    (void)key;
    return stream->ops->take_signs(stream, code, x, count);
}

static dp_status onebit_decode(const void *context, struct dp_stream *stream, float *y,
                               const void *code, size_t count, struct dp_range part)
{
    const struct dp_signs *signs = code;

    (void)context;
    (void)count;
    return stream->ops->put_signs(stream, y, signs + part.begin / DP_SIGNS, part.count);
}

static int onebit_residuals(const void *state)
{
    (void)state;
    return 2;
}

static const struct dp_codec codec = {NULL, onebit_bytes, onebit_encode, onebit_decode};

static size_t onebit_codes(const void *state, const struct dp_bucket_plan *plan, int ranks)
{
    (void)state;
    return dp_codec_sum_bytes(&codec, plan->largest, ranks);
}

static dp_status onebit_open(void *state, struct dp_comm *comm, const struct dp_bucket_plan *plan)
{
    return dp_codec_sum_open(state, comm, &codec, plan->largest);
}

static dp_status onebit_sum(void *state, const struct dp_compressed_bucket *p, enum dp_keep keep)
{
    struct dp_stream *stream = ((struct dp_codec_sum *)state)->comm->codes;

    DP_TRY(dp_codec_sum_run(state, p, keep));
    DP_TRY(dp_compressor_clear_gaps(stream, p->bucket, p->grad.data));
    DP_TRY(dp_compressor_clear_gaps(stream, p->bucket, p->residual[0]));
    return dp_compressor_clear_gaps(stream, p->bucket, p->residual[1]);
}

static double onebit_cost(const void *state, const struct dp_cost *cost,
                          const struct dp_group *group, const char *strategy,
                          const struct dp_bucket *bucket)
{
    (void)state;
    (void)strategy;
    return dp_codec_sum_cost(&codec, cost, group, bucket->range.count);
}

const struct dp_compressor dp_compressor_onebit = {
    .plugin = {.name = "onebit",
               .help = "signs and a scale per 64, what is left out is sent later",
               .state_bytes = sizeof(struct dp_codec_sum)},
    .residuals = onebit_residuals,
    .owners = true,
    .codes = onebit_codes,
    .open = onebit_open,
    .wire = dp_codec_sum_wire,
    .cost = onebit_cost,
    .work = dp_codec_sum_work,
    .sum = onebit_sum,
    .close = dp_codec_sum_close,
};
