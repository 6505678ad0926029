/*
 * compressor_powersgd.c - a matrix as the product of two thin ones.
 *
 *      P = sum of M_r Q' over ranks r      M_r [n, m]: this rank's gradient plus its residual
 *      P = orthonormal columns of P        P [n, rank]
 *      Q = sum of P' M_r                   Q [rank, m], kept for the next step (warm start)
 *      the sum of M_r is about P Q;        rank r's residual is M_r - P (P' M_r)
 *
 * The strategy sums rank (n + m) numbers in two parts, instead of n m. A tensor becomes a matrix of
 * its first dimension by all others. Biases, and tensors that would not get smaller, are sent
 * unchanged together with P. The first Q is 0, so the first P is random. A NaN or an infinity
 * spreads over its tensor.
 *
 * Source: Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression for
 * distributed optimization", NeurIPS 2019, algorithms 1 and 2.
 */
#include "collectives/compressors/bounce_buffer.h"
#include "collectives/compressors/compressor.h"
#include "collectives/strategies/strategy.h"

struct powersgd {
    int rank;
    struct dp_comm *comm;         /* borrowed */
    struct dp_bounce_buffer both; /* p, then q: of the bucket with the largest */
    size_t q_at;                  /* offset of q in it, in elements */
    float *mine; /* owned; device memory; as long as q: this rank's contribution to q */
};

/* A tensor as a matrix; rank 0: it is sent unchanged. */
struct factor_matrix {
    size_t rows, cols, rank;
};

static struct factor_matrix matrix_of(const struct powersgd *s, const struct dp_tensor *tensor)
{
    struct factor_matrix m = {tensor->shape[0], 0, (size_t)s->rank};

    m.cols = m.rows == 0 ? 0 : tensor->count / m.rows;
    m.rank = m.rank < m.rows ? m.rank : m.rows;
    m.rank = m.rank < m.cols ? m.rank : m.cols;
    if (tensor->dims < 2 || m.rank * (m.rows + m.cols) >= tensor->count) {
        m.rank = 0;
    }
    return m;
}

/* Elements of a tensor's part of P, and of Q: aligned so that a product can read four at a time. */
static size_t p_count(const struct factor_matrix *m, const struct dp_tensor *tensor)
{
    return dp_round_up(m->rank > 0 ? m->rows * m->rank : tensor->count, 4);
}

static size_t q_count(const struct factor_matrix *m)
{
    return dp_round_up(m->rank * m->cols, 4);
}

/* Elements to be summed in the first round, with P, and in the second, with Q. */
static void count_rounds(const struct powersgd *s, const struct dp_bucket *bucket, size_t *first,
                         size_t *second)
{
    *first = *second = 0;
    for (int i = 0; i < bucket->tensor_count; i++) {
        const struct factor_matrix m = matrix_of(s, &bucket->tensors[i]);
        *first += p_count(&m, &bucket->tensors[i]);
        *second += q_count(&m);
    }
}

static size_t powersgd_warm(const void *state, const struct dp_bucket *bucket)
{
    size_t first, second;

    count_rounds(state, bucket, &first, &second);
    return second;
}

static int powersgd_residuals(const void *state)
{
    (void)state;
    return 1;
}

static void powersgd_close(void *state)
{
    struct powersgd *s = state;

    dp_bounce_buffer_close(&s->both);
    dp_codes_release(s->comm, s->mine);
}

static dp_status prepare_product(struct dp_stream *stream, struct factor_matrix m)
{
    return m.rank == 0 ? DP_OK
                       : stream->ops->dense_prepare(stream, m.rows, m.cols, m.rank,
                                                    DP_DENSE_FORWARD | DP_DENSE_BACKWARD_WEIGHTS);
}

/* Prepares all matrix products of the plan. */
static dp_status prepare(const struct powersgd *s, const struct dp_bucket_plan *plan)
{
    for (int b = 0; b < plan->count; b++) {
        const struct dp_bucket *bucket = &plan->buckets[b];
        for (int i = 0; i < bucket->tensor_count && !bucket->exact; i++) {
            DP_TRY(prepare_product(s->comm->codes, matrix_of(s, &bucket->tensors[i])));
        }
    }
    return DP_OK;
}

/* Elements of the largest P and the largest Q of any bucket. */
static void count_most(const struct powersgd *s, const struct dp_bucket_plan *plan, size_t *most_p,
                       size_t *most_q)
{
    *most_p = *most_q = 0;
    for (int b = 0; b < plan->count; b++) {
        size_t first = 0, second = 0;
        if (!plan->buckets[b].exact) {
            count_rounds(s, &plan->buckets[b], &first, &second);
        }
        *most_p = first > *most_p ? first : *most_p;
        *most_q = second > *most_q ? second : *most_q;
    }
    *most_p = dp_round_up(*most_p, DP_BLOCK);
}

static size_t powersgd_codes(const void *state, const struct dp_bucket_plan *plan, int ranks)
{
    size_t most_p, most_q;

    (void)ranks;
    count_most(state, plan, &most_p, &most_q);
    return (most_p + 2 * most_q) * sizeof(float);
}

static dp_status powersgd_open(void *state, struct dp_comm *comm, const struct dp_bucket_plan *plan)
{
    struct powersgd *s = state;
    size_t most_p, most_q;
    dp_status status;

    count_most(s, plan, &most_p, &most_q);
    s->comm = comm;
    s->q_at = most_p;
    status = dp_bounce_buffer_open(&s->both, comm, (most_p + most_q) * sizeof(float), true);
    status = status == DP_OK ? dp_comm_check_scratch(comm, "comm.compressor powersgd") : status;
    if (status == DP_OK) {
        s->mine = dp_codes_alloc(comm, most_q * sizeof(float));
        status = s->mine != NULL ? prepare(s, plan) : DP_ERR_NOMEM;
    }
    if (status != DP_OK) {
        dp_group_leave(comm->group, status);
        powersgd_close(s);
        return status == DP_ERR_UNAVAILABLE
                   ? status
                   : DP_FAIL(status, "powersgd: matrices of rank %d", s->rank);
    }
    return DP_OK;
}

static uint64_t powersgd_wire(const void *state, const struct dp_bucket *bucket, enum dp_keep keep)
{
    const struct powersgd *s = state;
    size_t first, second;

    (void)keep; /* all ranks need the whole of P and Q */
    count_rounds(s, bucket, &first, &second);
    return dp_compressor_plain_wire(s->comm, first, DP_KEEP_ALL) +
           dp_compressor_plain_wire(s->comm, second, DP_KEEP_ALL);
}

static double powersgd_cost(const void *state, const struct dp_cost *cost,
                            const struct dp_group *group, const char *strategy,
                            const struct dp_bucket *bucket)
{
    size_t first, second;

    count_rounds(state, bucket, &first, &second);
    return dp_strategy_cost(strategy, cost, group, first * sizeof(float)) +
           (second > 0 ? dp_strategy_cost(strategy, cost, group, second * sizeof(float)) : 0.0);
}

/* Addresses of a tensor and its parts in a bucket. */
struct factor_place {
    struct factor_matrix m;
    size_t count;
    float *grad, *kept; /* [rows, cols] */
    float *p;           /* [rows, rank], or [count]: the tensor unchanged */
    float *q, *mine;    /* [rank, cols] */
    float *warm;        /* as q */
};

typedef dp_status visit(struct dp_stream *stream, const struct factor_place *place);

static dp_status each(const struct powersgd *s, const struct dp_compressed_bucket *compressed,
                      visit *visitor)
{
    const struct dp_bucket *bucket = compressed->bucket;
    float *both = (float *)(void *)s->both.there;
    size_t p_at = 0, q_at = 0;
    DP_CODING(compressed, encode_ns); /* all of it: the strategy adds what others send */

    for (int i = 0; i < bucket->tensor_count; i++) {
        const struct dp_tensor *tensor = &bucket->tensors[i];
        const size_t at = tensor->begin - bucket->range.begin;
        const struct factor_place place = {.m = matrix_of(s, tensor),
                                           .count = tensor->count,
                                           .grad = (float *)compressed->grad.data + at,
                                           .kept = compressed->residual[0] + at,
                                           .p = both + p_at,
                                           .q = both + s->q_at + q_at,
                                           .mine = s->mine + q_at,
                                           .warm = compressed->warm + q_at};
        DP_TRY(visitor(s->comm->codes, &place));
        p_at += p_count(&place.m, tensor);
        q_at += q_count(&place.m);
    }
    return DP_OK;
}

static dp_status make_p(struct dp_stream *s, const struct factor_place *t)
{
    const struct factor_matrix *m = &t->m;

    if (m->rank == 0) {
        return s->ops->copy(s, t->p, t->grad, t->count * sizeof(float));
    }
    DP_TRY(s->ops->add(s, t->kept, t->grad, t->count));
    return s->ops->dense_forward(s, t->p, t->kept, t->warm, NULL, m->rows, m->cols, m->rank,
                                 DP_ACT_NONE);
}

static dp_status make_q(struct dp_stream *s, const struct factor_place *t)
{
    const struct factor_matrix *m = &t->m;

    if (m->rank == 0) {
        return s->ops->copy(s, t->grad, t->p, t->count * sizeof(float));
    }
    DP_TRY(s->ops->orthogonalize(s, t->p, m->rows, m->rank));
    DP_TRY(
        s->ops->dense_backward_weights(s, t->mine, t->p, t->kept, m->rows, m->cols, m->rank, 0.0f));
    return s->ops->copy(s, t->q, t->mine, m->rank * m->cols * sizeof(float));
}

static dp_status split(struct dp_stream *s, const struct factor_place *t)
{
    const struct factor_matrix *m = &t->m;

    if (m->rank == 0) {
        return DP_OK;
    }
    DP_TRY(s->ops->copy(s, t->warm, t->q, m->rank * m->cols * sizeof(float)));
    return s->ops->lowrank_split(s, t->grad, t->kept, t->p, t->q, t->mine, m->rows, m->cols,
                                 m->rank);
}

/* Sums `count` elements at `at` over ranks. */
static dp_status sum_part(struct powersgd *s, size_t at, size_t count)
{
    const struct dp_slice part = {(float *)(void *)s->both.host + at, count, sizeof(float)};

    DP_TRY(dp_bounce_buffer_out(&s->both, at * sizeof(float), count * sizeof(float)));
    DP_TRY(dp_bounce_buffer_wait(&s->both));
    DP_TRY(dp_comm_sum(s->comm, part, DP_KEEP_ALL));
    return dp_bounce_buffer_in(&s->both, at * sizeof(float), count * sizeof(float));
}

static dp_status powersgd_sum(void *state, const struct dp_compressed_bucket *compressed,
                              enum dp_keep keep)
{
    struct powersgd *s = state;
    size_t first, second;

    (void)keep;
    count_rounds(s, compressed->bucket, &first, &second);
    DP_TRY(each(s, compressed, make_p));
    DP_TRY(sum_part(s, 0, first));
    DP_TRY(each(s, compressed, make_q));
    if (second > 0) {
        DP_TRY(sum_part(s, s->q_at, second));
    }
    return each(s, compressed, split);
}

#define POWERSGD struct powersgd

/* clang-format off */
static const struct dp_option powersgd_options[] = {
    /* From 16 up the final loss of mlp is in the range of the uncompressed seeds; with 2 to 8 it is
     * not (benchmarks/results/compressor_losses.json). */
    DP_INT(POWERSGD, rank, "16", 1, 256, "columns of the thin matrices"),
    {0},
};
/* clang-format on */

const struct dp_compressor dp_compressor_powersgd = {
    .plugin = {.name = "powersgd",
               .help = "matrices as products of thin ones, what is left out is sent later",
               .options = powersgd_options,
               .state_bytes = sizeof(struct powersgd)},
    .residuals = powersgd_residuals,
    .warm = powersgd_warm,
    .codes = powersgd_codes,
    .open = powersgd_open,
    .wire = powersgd_wire,
    .cost = powersgd_cost,
    .sum = powersgd_sum,
    .close = powersgd_close,
};
