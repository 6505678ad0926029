/*
 * compressor_randomk.c - sends the numbers at a few random places, the same on all ranks.
 *
 * All ranks choose the same places (a function of seed, step and bucket), so places are not sent,
 * and the strategy sums the numbers as it would sum a gradient. What is not sent is added to the
 * next gradient; a NaN is kept until its place is chosen. Places are stratified: one in each of k
 * equal parts of a bucket.
 *
 * Source: Stich, Cordonnier and Jaggi, "Sparsified SGD with memory", arXiv:1809.07599, definition
 * 2.1 (rand_k) and algorithm 1.
 */
#include "base/random.h"
#include "collectives/compressors/bounce_buffer.h"
#include "collectives/compressors/compressor.h"
#include "collectives/strategies/strategy.h"

struct randomk {
    double ratio;
    struct dp_comm *comm;          /* borrowed */
    struct dp_bounce_buffer value; /* of the largest bucket */
    uint32_t *index;               /* owned; device memory */
};

/* At least one place unless the bucket is empty; at most all, since the ratio is at most 1. */
static size_t places_of(const struct randomk *r, size_t count)
{
    const size_t places = (size_t)(r->ratio * (double)count);

    return places == 0 && count > 0 ? 1 : places;
}

static int randomk_residuals(const void *state)
{
    (void)state;
    return 1;
}

static void randomk_close(void *state)
{
    struct randomk *r = state;

    dp_bounce_buffer_close(&r->value);
    dp_codes_release(r->comm, r->index);
}

static size_t randomk_codes(const void *state, const struct dp_bucket_plan *plan, int ranks)
{
    (void)ranks;
    return places_of(state, plan->largest) * (sizeof(float) + sizeof(uint32_t));
}

static dp_status randomk_open(void *state, struct dp_comm *comm, const struct dp_bucket_plan *plan)
{
    struct randomk *r = state;
    const size_t places = places_of(r, plan->largest);
    dp_status status;

    if (plan->largest > UINT32_MAX) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "comm.compressor randomk: a bucket of %zu numbers; the most is 4294967295",
                       plan->largest);
    }
    r->comm = comm;
    status = dp_bounce_buffer_open(&r->value, comm, places * sizeof(float), true);
    status = status == DP_OK ? dp_comm_check_scratch(comm, "comm.compressor randomk") : status;
    if (status == DP_OK) {
        r->index = dp_codes_alloc(comm, places * sizeof(*r->index));
        status = r->index != NULL ? DP_OK : DP_ERR_NOMEM;
    }
    if (status != DP_OK) {
        dp_group_leave(comm->group, status);
        randomk_close(r);
        return status == DP_ERR_UNAVAILABLE ? status
                                            : DP_FAIL(status, "randomk: %zu places", places);
    }
    return DP_OK;
}

static uint64_t randomk_wire(const void *state, const struct dp_bucket *bucket, enum dp_keep keep)
{
    const struct randomk *r = state;

    (void)keep;
    return dp_compressor_plain_wire(r->comm, places_of(r, bucket->range.count), DP_KEEP_ALL);
}

static double randomk_cost(const void *state, const struct dp_cost *cost,
                           const struct dp_group *group, const char *strategy,
                           const struct dp_bucket *bucket)
{
    return dp_strategy_cost(strategy, cost, group,
                            places_of(state, bucket->range.count) * sizeof(float));
}

/* Takes the k numbers that are sent. */
static dp_status randomk_encode(const struct randomk *r, const struct dp_compressed_bucket *p,
                                size_t k)
{
    struct dp_stream *s = r->comm->codes;
    const struct dp_key key = {.seed = p->seed,
                               .first = p->bucket->range.begin,
                               .what = DP_RANDOM_CODE + 0xfffffe,
                               .step = p->step_params->step};
    DP_CODING(p, encode_ns);

    DP_TRY(s->ops->add(s, p->residual[0], p->grad.data, p->grad.count));
    DP_TRY(s->ops->sample(s, r->index, k, p->grad.count, &key));
    return s->ops->take_at(s, (float *)(void *)r->value.there, p->residual[0], r->index, k);
}

/* Puts their sums back, once for all ranks: the strategy has added what these sent. */
static dp_status randomk_decode(const struct randomk *r, const struct dp_compressed_bucket *p,
                                size_t k)
{
    struct dp_stream *s = r->comm->codes;
    DP_CODING(p, decode_ns);

    DP_TRY(s->ops->zero(s, p->grad.data, p->grad.count * sizeof(float)));
    return s->ops->add_at(s, p->grad.data, r->index, (const float *)(void *)r->value.there, k);
}

static dp_status randomk_sum(void *state, const struct dp_compressed_bucket *p, enum dp_keep keep)
{
    struct randomk *r = state;
    const size_t k = places_of(r, p->grad.count);

    (void)keep; /* chunks of the sent numbers are not those of the gradient: every rank needs all */
    DP_TRY(randomk_encode(r, p, k));
    DP_TRY(dp_bounce_buffer_out(&r->value, 0, k * sizeof(float)));
    DP_TRY(dp_bounce_buffer_wait(&r->value));
    DP_TRY(dp_comm_sum(r->comm, (struct dp_slice){r->value.host, k, sizeof(float)}, DP_KEEP_ALL));
    DP_TRY(dp_bounce_buffer_in(&r->value, 0, k * sizeof(float)));
    return randomk_decode(r, p, k);
}

#define RANDOMK struct randomk

/* clang-format off */
static const struct dp_option randomk_options[] = {
    DP_DOUBLE(RANDOMK, ratio, "0.01", 1e-6, 1, "part of the numbers that is sent"),
    {0},
};
/* clang-format on */

const struct dp_compressor dp_compressor_randomk = {
    .plugin = {.name = "randomk",
               .help = "numbers at random places, the same on all ranks",
               .options = randomk_options,
               .state_bytes = sizeof(struct randomk)},
    .residuals = randomk_residuals,
    .codes = randomk_codes,
    .open = randomk_open,
    .wire = randomk_wire,
    .cost = randomk_cost,
    .sum = randomk_sum,
    .close = randomk_close,
};
