/*
 * compressor_topk.c - sends only the largest numbers of each bucket, and keeps the rest for later.
 *
 * Each rank sends ratio * count pairs (index, value) to all others; all add the pairs of all ranks,
 * in rank order. What is not sent is added to the next gradient. A NaN counts as the largest
 * number, so it is sent immediately. Where ranks reach each other's memory they read pairs from
 * there: alternately from two slots, so that one barrier is enough.
 *
 * With `momentum` above 0 velocities are kept instead of gradients, u = momentum u + g, and are
 * reset where they have been sent; the optimizer's own momentum must then be 0. During
 * `warmup_steps` more is sent: a quarter, then a quarter of that, in four stages.
 *
 * Sources: Stich, Cordonnier and Jaggi, "Sparsified SGD with memory", arXiv:1809.07599, algorithm
 * 1; Lin, Han, Mao, Wang and Dally, "Deep gradient compression", ICLR 2018, sections 3.2 (momentum
 * correction) and 3.3 (momentum factor masking, warm-up).
 */
#include "collectives/compressors/bounce_buffer.h"
#include "collectives/compressors/compressor.h"

struct topk {
    double ratio, momentum;
    int warmup_steps;
    struct dp_comm *comm;         /* borrowed */
    struct dp_bounce_buffer mine; /* [2] slots: indices, then values of the largest bucket */
    struct dp_bounce_buffer all;  /* [size] slots: those of all ranks */
    size_t slot_bytes;            /* bytes of a slot */
    uint64_t turn;                /* its lowest bit is the next slot to write */
    bool shared;                  /* ranks read each other's slots */
    float *stopped; /* owned; device memory; velocities to reset; NULL without momentum */
};

enum { PAIR = sizeof(uint32_t) + sizeof(float) };

/* The ratio of a step, in four stages of equal length; exact, so that it is the same on all
 * ranks. */
static double ratio_in(const struct topk *t, uint64_t step)
{
    const uint64_t steps = (uint64_t)t->warmup_steps;
    double ratio = 0.25;

    if (step >= steps) {
        return t->ratio;
    }
    for (uint64_t stage = 4 * step / steps; stage > 0; stage--) {
        ratio /= 4.0;
    }
    return ratio > t->ratio ? ratio : t->ratio;
}

/* At least one pair unless the bucket is empty; at most all, since the ratio is at most 1. */
static size_t pairs_of(double ratio, size_t count)
{
    const size_t pairs = (size_t)(ratio * (double)count);

    return pairs == 0 && count > 0 ? 1 : pairs;
}

static int topk_residuals(const void *state)
{
    return ((const struct topk *)state)->momentum > 0.0 ? 2 : 1;
}

static void topk_close(void *state)
{
    struct topk *t = state;

    dp_bounce_buffer_close(&t->mine);
    dp_bounce_buffer_close(&t->all);
    dp_codes_release(t->comm, t->stopped);
}

/* Bytes of a slot. */
static size_t slot_bytes_of(size_t pairs)
{
    return dp_round_up(pairs * PAIR, DP_MEM_ALIGN);
}

static size_t topk_codes(const void *state, const struct dp_bucket_plan *plan, int ranks)
{
    const struct topk *t = state;
    const size_t pairs = pairs_of(ratio_in(t, 0), plan->largest);

    return (2 + (size_t)ranks) * slot_bytes_of(pairs) +
           (t->momentum > 0.0 ? pairs * sizeof(float) : 0);
}

static dp_status topk_open(void *state, struct dp_comm *comm, const struct dp_bucket_plan *plan)
{
    struct topk *t = state;
    const size_t pairs = pairs_of(ratio_in(t, 0), plan->largest);
    dp_status status;

    if (plan->largest > UINT32_MAX) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "comm.compressor topk: a bucket of %zu numbers; the most is "
                       "4294967295",
                       plan->largest);
    }
    t->comm = comm;
    t->slot_bytes = slot_bytes_of(pairs);
    status = dp_bounce_buffer_open(&t->mine, comm, 2 * t->slot_bytes, true);
    if (status == DP_OK) {
        t->shared = dp_group_reaches(comm->group, t->mine.host);
        status =
            dp_bounce_buffer_open(&t->all, comm, (size_t)comm->group->size * t->slot_bytes, false);
    }
    if (status == DP_OK && t->momentum > 0.0) {
        t->stopped = dp_codes_alloc(comm, pairs * sizeof(float));
        status = t->stopped != NULL ? DP_OK : DP_ERR_NOMEM;
    }
    if (status != DP_OK) {
        dp_group_leave(comm->group, status);
        topk_close(t);
        return DP_FAIL(status, "topk: %zu pairs of %d ranks", pairs, comm->group->size);
    }
    return DP_OK;
}

/* Every message of a ring of ranks is the pairs of one of them. */
static uint64_t topk_wire(const void *state, const struct dp_bucket *bucket, enum dp_keep keep)
{
    const struct topk *t = state;

    (void)keep;
    return (uint64_t)(t->comm->group->size - 1) * pairs_of(t->ratio, bucket->range.count) * PAIR;
}

static double topk_cost(const void *state, const struct dp_cost *cost, const struct dp_group *group,
                        const char *strategy, const struct dp_bucket *bucket)
{
    const struct topk *t = state;
    const size_t pairs = pairs_of(t->ratio, bucket->range.count);

    (void)strategy;
    return dp_group_one_node(group) && cost->peer.count > 0
               ? cost->flags_s
               : (group->size - 1) * dp_cost_neighbour(cost, group, (double)(pairs * PAIR));
}

/* Every rank adds the pairs of all. */
static struct dp_coding_work topk_work(const void *state, int ranks)
{
    (void)state;
    return (struct dp_coding_work){1.0, ranks};
}

/* Adds the gradient to the unsent numbers, through the velocity. */
static dp_status accumulate(const struct topk *t, struct dp_stream *s,
                            const struct dp_compressed_bucket *p)
{
    const float *come = p->grad.data;

    if (t->momentum > 0.0) {
        DP_TRY(
            s->ops->scale_add(s, p->residual[1], p->grad.data, (float)t->momentum, p->grad.count));
        come = p->residual[1];
    }
    return s->ops->add(s, p->residual[0], come, p->grad.count);
}

/* Takes the k pairs that this rank sends, and makes room for the sum. */
static dp_status topk_encode(const struct topk *t, const struct dp_compressed_bucket *p,
                             uint32_t *index, size_t k)
{
    struct dp_stream *s = t->comm->codes;
    DP_CODING(p, encode_ns);

    DP_TRY(accumulate(t, s, p));
    DP_TRY(s->ops->take_largest(s, index, (float *)(void *)index + k, p->residual[0], k,
                                p->grad.count));
    if (t->momentum > 0.0) {
        DP_TRY(s->ops->take_at(s, t->stopped, p->residual[1], index, k));
    }
    return s->ops->zero(s, p->grad.data, p->grad.count * sizeof(float));
}

static dp_status topk_decode(const struct topk *t, const struct dp_compressed_bucket *p, size_t k)
{
    struct dp_stream *s = t->comm->codes;
    DP_CODING(p, decode_ns);

    for (int rank = 0; rank < t->comm->group->size; rank++) {
        const void *pairs = t->all.there + (size_t)rank * k * PAIR;
        DP_TRY(s->ops->add_at(s, p->grad.data, pairs, (const float *)pairs + k, k));
    }
    return DP_OK;
}

static dp_status topk_sum(void *state, const struct dp_compressed_bucket *p, enum dp_keep keep)
{
    struct topk *t = state;
    const struct dp_group *group = t->comm->group;
    const size_t k = pairs_of(ratio_in(t, p->step_params->step), p->grad.count);
    const size_t slot = (t->turn & 1) * t->slot_bytes;

    (void)keep; /* every rank needs all pairs anyway */
    DP_TRY(topk_encode(t, p, (uint32_t *)(void *)(t->mine.there + slot), k));
    DP_TRY(dp_bounce_buffer_out(&t->mine, slot, k * PAIR));
    DP_TRY(dp_bounce_buffer_wait(&t->mine));
    DP_TRY(dp_bounce_buffer_gather(&t->mine, slot, k * PAIR, t->shared, t->all.host));
    t->turn += t->shared;
    DP_TRY(dp_bounce_buffer_in(&t->all, 0, (size_t)group->size * k * PAIR));
    return topk_decode(t, p, k);
}

#define TOPK struct topk

/* clang-format off */
static const struct dp_option topk_options[] = {
    DP_DOUBLE(TOPK, ratio,        "0.01", 1e-6, 1, "part of the numbers that is sent"),
    DP_DOUBLE(TOPK, momentum,     "0",    0, 0.9999,
              "of what is kept; then optimizer.momentum is 0"),
    DP_INT(   TOPK, warmup_steps, "0",    0, 1000000000, "steps that send more, in four stages"),
    {0},
};
/* clang-format on */

const struct dp_compressor dp_compressor_topk = {
    .plugin = {.name = "topk",
               .help = "the largest numbers alone; the rest is sent later",
               .options = topk_options,
               .state_bytes = sizeof(struct topk)},
    .residuals = topk_residuals,
    .codes = topk_codes,
    .open = topk_open,
    .wire = topk_wire,
    .cost = topk_cost,
    .work = topk_work,
    .sum = topk_sum,
    .close = topk_close,
};
