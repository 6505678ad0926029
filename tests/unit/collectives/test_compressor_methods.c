/*
 * test_compressor_methods.c - each compressor against a second implementation of its method.
 */
#include "tests/support/arrays.h"

#include "collectives/compressors/codec_sum.h"
#include "tests/support/local_world.h"
#include "tests/support/strategies/compressor_lab.h"

enum { RANKS = 3, STEPS = 3 };

static const struct lab_setup *over(const char *compressor, enum dp_keep keep)
{
    static struct lab_setup setup;

    setup = (struct lab_setup){compressor, "ring", keep, keep == DP_KEEP_CHUNK};
    return &setup;
}

/* ---- fp16, bf16 ---- */

/* What the tree over three ranks gives when each piece, and then the sum, is cast to 16 bits. */
static float cast_sum(const struct lab *lab, enum dp_type type, size_t i)
{
    struct dp_stream *s = lab->group->stream;
    float piece[RANKS], sum = 0;
    uint16_t bits;

    for (int rank = 0; rank < RANKS; rank++) {
        const float x = lab_value(rank, lab->step_params.step - 1, i);
        if (s->ops->narrow(s, &bits, &x, 1, type) != DP_OK ||
            s->ops->widen(s, &piece[rank], &bits, 1, type) != DP_OK) {
            return NAN;
        }
    }
    sum = (piece[0] + piece[1]) + piece[2];
    if (lab->setup->keep == DP_KEEP_CHUNK) {
        return sum; /* of 32 bits, at its owner */
    }
    return s->ops->narrow(s, &bits, &sum, 1, type) == DP_OK &&
                   s->ops->widen(s, &sum, &bits, 1, type) == DP_OK
               ? sum
               : NAN;
}

static size_t rounds_once(struct dp_group *group, const void *setup)
{
    struct lab lab;
    size_t wrong = 0;

    if (lab_open(&lab, group, setup) != DP_OK) {
        return 1;
    }
    const enum dp_type type = lab.setup->compressor[0] == 'f' ? DP_TYPE_F16 : DP_TYPE_BF16;
    for (int step = 0; step < STEPS; step++) {
        lab_fill(&lab);
        wrong += lab_step(&lab) != DP_OK;
        for (size_t i = 0; i < LAB_TRAINED; i++) {
            wrong += lab.grad[i] != cast_sum(&lab, type, i);
        }
    }
    lab_close(&lab);
    return wrong;
}

static void sixteen_bits_are_summed_in_float32_and_rounded_once(void **state)
{
    (void)state;
    assert_int_equal(on_local_ranks(RANKS, rounds_once, over("fp16", DP_KEEP_ALL)), 0);
    assert_int_equal(on_local_ranks(RANKS, rounds_once, over("fp16", DP_KEEP_CHUNK)), 0);
    assert_int_equal(on_local_ranks(RANKS, rounds_once, over("bf16", DP_KEEP_ALL)), 0);
    assert_int_equal(on_local_ranks(RANKS, rounds_once, over("bf16", DP_KEEP_CHUNK)), 0);
}

/* By hand: a half overflows, a bfloat does not; either loses what is far below the largest. */
static size_t overflows(struct dp_group *group, const void *setup)
{
    struct lab lab;
    size_t wrong = 0;

    if (lab_open(&lab, group, setup) != DP_OK) {
        return 1;
    }
    const bool half = lab.setup->compressor[0] == 'f';
    lab.grad[0] = 40000;                         /* the sum is beyond halves */
    lab.grad[1] = group->rank == 0 ? -70000 : 1; /* so is a piece */
    lab.grad[2] = 1e-10f;
    wrong += lab_step(&lab) != DP_OK;
    wrong += half ? lab.grad[0] != INFINITY : fabsf(lab.grad[0] - 120000) > 120000 * 0.008f;
    wrong += half ? lab.grad[1] != -INFINITY : fabsf(lab.grad[1] + 69998) > 69998 * 0.008f;
    wrong += half ? lab.grad[2] != 0 : fabsf(lab.grad[2] - 3e-10f) > 3e-10f * 0.008f;
    lab_close(&lab);
    return wrong;
}

static void halves_overflow_and_bfloats_do_not(void **state)
{
    (void)state;
    assert_int_equal(on_local_ranks(RANKS, overflows, over("fp16", DP_KEEP_ALL)), 0);
    assert_int_equal(on_local_ranks(RANKS, overflows, over("bf16", DP_KEEP_ALL)), 0);
}

/* ---- int8 ---- */

/* Encodes `count` numbers with these random numbers and decodes them to y. */
static size_t recode(struct dp_stream *s, float *y, const float *x, size_t count, uint32_t what,
                     uint32_t step, size_t first)
{
    const struct dp_key key = {
        .seed = 5, .first = first, .what = DP_RANDOM_CODE + what, .step = step};
    float scales[LAB_TRAINED / 64];
    int8_t q[LAB_TRAINED];

    return (s->ops->quantize(s, q, scales, x, 64, count, &key) != DP_OK) +
           (s->ops->dequantize(s, y, q, scales, 64, count) != DP_OK);
}

/* Chunk i of a bucket, in the step before. */
static size_t wrong_chunk(const struct lab *lab, const struct dp_bucket *bucket, int i)
{
    struct dp_stream *s = lab->group->stream;
    const uint32_t step = lab->step_params.step - 1;
    const struct dp_slice chunk = dp_slice_chunk(
        (struct dp_slice){lab->grad + bucket->range.begin, bucket->range.count, sizeof(float)},
        RANKS, i);
    const size_t first = (size_t)((float *)chunk.data - lab->grad);
    float x[LAB_TRAINED], piece[RANKS][LAB_TRAINED];
    size_t wrong = 0;

    for (int rank = 0; rank < RANKS; rank++) {
        for (size_t k = 0; k < chunk.count; k++) {
            x[k] = lab_value(rank, step, first + k);
        }
        wrong += recode(s, piece[rank], x, chunk.count, (uint32_t)rank, step, first);
    }
    for (size_t k = 0; k < chunk.count; k++) {
        x[k] = (piece[0][k] + piece[1][k]) + piece[2][k];
    }
    if (lab->setup->keep == DP_KEEP_ALL) {
        wrong += recode(s, x, x, chunk.count, 0xffffff, step, first);
    }
    for (size_t k = 0; k < chunk.count; k++) {
        wrong += lab->grad[first + k] != x[k];
    }
    return wrong;
}

static size_t rounds_at_random(struct dp_group *group, const void *setup)
{
    struct lab lab;
    size_t wrong = 0;

    if (lab_open(&lab, group, setup) != DP_OK) {
        return 1;
    }
    for (int step = 0; step < STEPS; step++) {
        lab_fill(&lab);
        wrong += lab_step(&lab) != DP_OK;
        for (int b = 0; b < lab.plan->count - 1; b++) {
            for (int i = 0; i < RANKS; i++) {
                wrong += wrong_chunk(&lab, &lab.plan->buckets[b], i);
            }
        }
    }
    lab_close(&lab);
    return wrong;
}

static void int8_rounds_by_seed_step_rank_and_place(void **state)
{
    (void)state;
    assert_int_equal(on_local_ranks(RANKS, rounds_at_random, over("int8:block=64", DP_KEEP_ALL)),
                     0);
    assert_int_equal(on_local_ranks(RANKS, rounds_at_random, over("int8:block=64", DP_KEEP_CHUNK)),
                     0);
}

/* ---- onebit ---- */

/* State of three ranks between steps, which every rank computes. */
struct signs_model {
    float kept[RANKS][LAB_TRAINED], owner[LAB_TRAINED], sum[LAB_TRAINED];
};

/* Replaces x by what its signs stand for, and adds to `kept` what they leave out. */
static size_t recode_signs(struct dp_stream *s, float *x, float *kept, size_t count)
{
    struct dp_signs signs[LAB_TRAINED / DP_SIGNS + 1];

    for (size_t k = 0; k < count; k++) {
        kept[k] += x[k];
    }
    return (s->ops->take_signs(s, signs, kept, count) != DP_OK) +
           (s->ops->put_signs(s, x, signs, count) != DP_OK);
}

/* m->sum of one chunk, and what is left of it. */
static size_t model_chunk(struct signs_model *m, const struct lab *lab, size_t first, size_t count)
{
    float piece[RANKS][LAB_TRAINED];
    size_t wrong = 0;

    for (int rank = 0; rank < RANKS; rank++) {
        for (size_t k = 0; k < count; k++) {
            piece[rank][k] = lab_value(rank, lab->step_params.step - 1, first + k);
        }
        wrong += recode_signs(lab->group->stream, piece[rank], m->kept[rank] + first, count);
    }
    for (size_t k = 0; k < count; k++) {
        m->sum[first + k] = (piece[0][k] + piece[1][k]) + piece[2][k];
    }
    if (lab->setup->keep == DP_KEEP_ALL) {
        wrong += recode_signs(lab->group->stream, m->sum + first, m->owner + first, count);
    }
    return wrong;
}

static size_t model_step(struct signs_model *m, const struct lab *lab)
{
    size_t wrong = 0;

    for (int b = 0; b < lab->plan->count - 1; b++) {
        const struct dp_range *range = &lab->plan->buckets[b].range;
        for (int i = 0; i < RANKS; i++) {
            const struct dp_slice chunk = dp_slice_chunk(
                (struct dp_slice){lab->grad + range->begin, range->count, sizeof(float)}, RANKS, i);
            wrong += model_chunk(m, lab, (size_t)((float *)chunk.data - lab->grad), chunk.count);
        }
    }
    for (size_t i = 0; i < LAB_TRAINED; i++) {
        if (lab_value(0, 0, i) == 0) { /* between tensors */
            m->kept[0][i] = m->kept[1][i] = m->kept[2][i] = m->owner[i] = m->sum[i] = 0;
        }
    }
    return wrong;
}

static size_t sends_signs(struct dp_group *group, const void *setup)
{
    struct signs_model *m = dp_zalloc(1, sizeof(*m));
    struct lab lab;
    size_t wrong = 0;

    if (m == NULL || lab_open(&lab, group, setup) != DP_OK) {
        return 1;
    }
    for (int step = 0; step < STEPS; step++) {
        lab_fill(&lab);
        wrong += lab_step(&lab) != DP_OK;
        wrong += model_step(m, &lab);
        for (size_t i = 0; i < LAB_TRAINED; i++) {
            wrong += lab.grad[i] != m->sum[i];
            wrong += lab.compression->residual[0][i] != m->kept[group->rank][i];
        }
    }
    lab_close(&lab);
    dp_free(m);
    return wrong;
}

static void onebit_feeds_back_errors_of_ranks_and_owners(void **state)
{
    (void)state;
    assert_int_equal(on_local_ranks(RANKS, sends_signs, over("onebit", DP_KEEP_ALL)), 0);
    assert_int_equal(on_local_ranks(RANKS, sends_signs, over("onebit", DP_KEEP_CHUNK)), 0);
}

/* ---- topk ---- */

/* Options of the method, and the ranks' state between steps, which every rank computes. */
struct topk_model {
    double ratio, warm_ratio; /* the latter in the first of STEPS steps */
    float momentum;
    float unsent[RANKS][LAB_TRAINED], velocity[RANKS][LAB_TRAINED], sum[LAB_TRAINED];
};

/* Takes one number at a time: the largest remaining, the first of equal ones. */
static size_t largest_of(const float *x, const struct dp_range *range)
{
    size_t at = range->begin;

    for (size_t i = range->begin; i < range->begin + range->count; i++) {
        at = fabsf(x[i]) > fabsf(x[at]) ? i : at;
    }
    return at;
}

static void topk_rank(struct topk_model *m, const struct dp_range *range, int rank, uint32_t step)
{
    float *unsent = m->unsent[rank], *velocity = m->velocity[rank];
    const size_t sent = (size_t)((step == 0 ? m->warm_ratio : m->ratio) * (double)range->count);

    for (size_t i = range->begin; i < range->begin + range->count; i++) {
        velocity[i] = m->momentum * velocity[i] + lab_value(rank, step, i);
        unsent[i] += velocity[i];
    }
    for (size_t k = 0; k < (sent == 0 ? 1 : sent); k++) {
        const size_t at = largest_of(unsent, range);
        m->sum[at] += unsent[at];
        unsent[at] = 0;
        velocity[at] = 0; /* sent; without momentum a velocity ends here anyway */
    }
}

static size_t sends_the_largest(struct dp_group *group, const void *setup)
{
    struct topk_model *m = dp_zalloc(1, sizeof(*m));
    struct lab lab;
    size_t wrong = 0;

    if (m == NULL || lab_open(&lab, group, setup) != DP_OK) {
        return 1;
    }
    const bool corrected = strstr(lab.setup->compressor, "momentum") != NULL;
    m->ratio = corrected ? 0.001 : 0.05;
    m->warm_ratio = corrected ? 0.25 : 0.05;
    m->momentum = corrected ? 0.9f : 0;
    for (int step = 0; step < STEPS; step++) {
        lab_fill(&lab);
        memset(m->sum, 0, sizeof(m->sum));
        for (int b = 0; b < lab.plan->count - 1; b++) {
            for (int rank = 0; rank < RANKS; rank++) {
                topk_rank(m, &lab.plan->buckets[b].range, rank, lab.step_params.step);
            }
        }
        wrong += lab_step(&lab) != DP_OK;
        for (size_t i = 0; i < LAB_TRAINED; i++) {
            wrong += lab.grad[i] != m->sum[i];
            wrong += lab.compression->residual[0][i] != m->unsent[group->rank][i];
        }
    }
    lab_close(&lab);
    dp_free(m);
    return wrong;
}

static void topk_sends_the_largest_unsent_numbers(void **state)
{
    static const char corrected[] = "topk:ratio=0.001,momentum=0.9,warmup_steps=1";
    (void)state;
    assert_int_equal(on_local_ranks(RANKS, sends_the_largest, over("topk:ratio=0.05", DP_KEEP_ALL)),
                     0);
    assert_int_equal(on_local_ranks(RANKS, sends_the_largest, over(corrected, DP_KEEP_CHUNK)), 0);
}

/* 3008 numbers in the largest bucket, the last one before the tail: four stages of two steps, then
 * the ratio. */
static size_t warms_up(struct dp_group *group, const void *setup)
{
    static const size_t pairs[] = {752, 752, 188, 188, 47, 47, 30, 30, 30, 30};
    struct lab lab;
    size_t wrong = 0;

    if (lab_open(&lab, group, setup) != DP_OK) {
        return 1;
    }
    for (size_t step = 0; step < DP_COUNT(pairs); step++) {
        const struct dp_range *range = &lab.plan->buckets[lab.plan->count - 2].range;
        size_t sent = 0;
        lab_fill(&lab);
        wrong += range->count != 3008 || lab_step(&lab) != DP_OK;
        for (size_t i = range->begin; i < range->begin + range->count; i++) {
            sent += lab.compression->residual[0][i] == 0 && lab_value(0, 0, i) != 0;
        }
        wrong += sent != pairs[step];
    }
    lab_close(&lab);
    return wrong;
}

static void topk_sends_more_while_it_warms_up(void **state)
{
    (void)state;
    assert_int_equal(
        on_local_ranks(2, warms_up, over("topk:ratio=0.01,warmup_steps=8", DP_KEEP_ALL)), 0);
}

/* ---- codes that the owner of a chunk decodes in several tiles ---- */

enum { LONG = 3 * DP_CODEC_SUM_TILE }; /* a chunk of two ranks: six times 4096 */

/* Numbers of the same block are alike, so that no method loses much. */
static float long_value(int rank, size_t i)
{
    const size_t block = i / 4096;

    return 1.0f + (float)block + 0.25f * (float)rank;
}

static size_t sums_long_ones(struct dp_group *group, const void *compressor)
{
    static const struct dp_tensor tensor = {.dims = 1, .shape = {LONG}, .count = LONG};
    const struct dp_step_params step_params = {.step = 1};
    const struct dp_compression_config config = {compressor, &step_params, 1};
    const struct dp_bucket_sizes sizes = {LONG, LONG, false};
    float *grad = dp_group_memory(group, DP_MEM_GRADIENTS, (LONG + DP_BLOCK) * sizeof(float));
    struct dp_bucket_plan *plan = NULL;
    struct dp_comm *comm = NULL;
    struct dp_compression *compression = NULL;
    size_t wrong = 1;

    if (grad != NULL &&
        dp_bucket_plan_create(&tensor, 1, LONG, LONG + DP_BLOCK, &sizes, &plan) == DP_OK &&
        dp_comm_create(group, "ring", LONG, DP_BLOCK, &comm) == DP_OK &&
        dp_compression_create(comm, plan, grad, LONG, &config, &compression) == DP_OK) {
        for (size_t i = 0; i < LONG; i++) {
            grad[i] = long_value(group->rank, i);
        }
        wrong = dp_compression_sum(compression, 0, DP_KEEP_ALL) != DP_OK;
        for (size_t i = 0; i < LONG; i++) {
            const float sum = 2 * long_value(0, i) + 0.25f;
            wrong += !(fabsf(grad[i] - sum) <= 0.02f * sum);
        }
    }
    dp_compression_destroy(compression);
    dp_comm_destroy(comm);
    dp_bucket_plan_destroy(plan);
    dp_group_release(group, grad);
    return wrong;
}

static void long_codes_are_decoded_tile_by_tile(void **state)
{
    static const char *const codecs[] = {"fp16", "bf16", "int8:block=4096", "int8:block=64",
                                         "onebit"};
    (void)state;

    for (size_t i = 0; i < DP_COUNT(codecs); i++) {
        assert_int_equal(on_local_ranks(2, sums_long_ones, codecs[i]), 0);
    }
}

/* ---- room ---- */

static size_t two_bytes_each(const void *context, size_t count)
{
    (void)context;
    return 2 * count;
}

/* The last chunk of a slice may be longer than its share by several blocks. */
static void codes_of_the_longest_chunk_have_room(void **state)
{
    const struct dp_codec codec = {.bytes = two_bytes_each};
    const size_t most = (size_t)DP_BLOCK * 1500;
    (void)state;

    for (int ranks = 1; ranks <= 8; ranks++) {
        const size_t tiles = (size_t)ranks * DP_CODEC_SUM_TILE * sizeof(float);
        for (size_t count = DP_BLOCK; count <= most; count += DP_BLOCK) {
            const size_t slots = (dp_codec_sum_bytes(&codec, count, ranks) - tiles) / 3;
            assert_true(slots >= (size_t)ranks * 2 * dp_chunk_longest(count, ranks));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_bits_are_summed_in_float32_and_rounded_once),
        cmocka_unit_test(halves_overflow_and_bfloats_do_not),
        cmocka_unit_test(int8_rounds_by_seed_step_rank_and_place),
        cmocka_unit_test(onebit_feeds_back_errors_of_ranks_and_owners),
        cmocka_unit_test(topk_sends_the_largest_unsent_numbers),
        cmocka_unit_test(topk_sends_more_while_it_warms_up),
        cmocka_unit_test(long_codes_are_decoded_tile_by_tile),
        cmocka_unit_test(codes_of_the_longest_chunk_have_room),
    };

    return cmocka_run_group_tests_name("compressor_methods", tests, NULL, NULL);
}
