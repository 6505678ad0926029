/*
 * test_compressor_methods.c - each compressor against its method, written down here once more.
 */
#include "tests/arrays.h"

#include "tests/compressor_lab.h"
#include "tests/local_world.h"

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
        const float x = lab_value(rank, lab->knobs.step - 1, i);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_bits_are_summed_in_float32_and_rounded_once),
        cmocka_unit_test(halves_overflow_and_bfloats_do_not),
    };

    return cmocka_run_group_tests_name("compressor_methods", tests, NULL, NULL);
}
