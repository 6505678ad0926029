/*
 * test_pointwise_amx.c - convolutions of 1 x 1 by tiles are those of the definition but for
 * rounding, and closer to them than float32 sums of one product after the other. Their bits depend
 * neither on threads nor on other images.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS, in memory_end.h */
#include "tests/support/tiles/conv_by_tiles.h"

#include "kernels/cpu/amx/pointwise_amx.h"

static const struct shape shapes[] = {
    {3, 7, 7, 64, 96, 1, 1, 1, 0},     /* images that end within blocks of 32 pixels */
    {2, 4, 4, 32, 32, 1, 1, 1, 0},     /* one block of everything */
    {1, 5, 4, 96, 32, 1, 1, 1, 0},     /* fewer pixels than a block has */
    {5, 13, 17, 96, 64, 1, 1, 1, 0},   /* 35 blocks of pixels: 12, 12 and 11 are summed */
    {2, 15, 16, 288, 288, 1, 1, 1, 0}, /* 15 blocks: 8 and 7, for their channels */
    {1, 6, 6, 2048, 96, 1, 1, 1, 0},   /* 3 blocks of weights: 2 and 1 for the result */
    {1, 3, 11, 64, 4160, 1, 1, 1, 0},  /* 130: 44, 44 and 42 for it, 1 and 1 for gradients of x */
};

/* Measured are 3.8 roundings at most, and of the roots 0.42 to 0.55, or 0.72 where few pixels are
 * summed: a block of one more pixel takes as many roundings as one of 32. */
static struct way way = {dp_pointwise_amx_can,
                         dp_pointwise_amx_bytes,
                         dp_pointwise_amx,
                         shapes,
                         DP_COUNT(shapes),
                         DP_TYPE_F32,
                         {6, 6, 6},
                         {0.8, 0.8, 0.8}};

static size_t scratch_of(const struct shape *s, size_t rows, unsigned use)
{
    const struct dp_window w = window_of(s);
    const struct dp_conv_call call = {.w = &w, .rows = rows, .use = use};

    return dp_pointwise_amx_bytes(&call, 2);
}

/* What is kept of them is a part of the pixels, however many there are; or one block. */
static void scratch_does_not_grow_with_pixels(void **state)
{
    static const struct shape small = {2, 16, 16, 64, 96, 1, 1, 1, 0};
    static const struct shape large = {1, 4, 8, 4160, 4128, 1, 1, 1, 0};
    (void)state;

    for (size_t u = 0; u < DP_COUNT(uses); u++) {
        const unsigned use = uses[u].use;
        assert_int_equal(scratch_of(&small, 200, use), scratch_of(&small, small.rows, use));
        assert_int_equal(scratch_of(&large, 100, use), scratch_of(&large, large.rows, use));
    }
}

static void other_convolutions_are_left_to_others(void **state)
{
    const struct dp_window good = window_of(&shapes[0]);
    struct dp_window others[8];
    (void)state;

    for (size_t i = 0; i < DP_COUNT(others); i++) {
        others[i] = good;
        assert_true(dp_pointwise_amx_can(&others[i]));
    }
    others[0].kernel_h = 3;
    others[1].kernel_w = 3;
    others[2].stride = 2;
    others[3].padding = 1;
    others[4].groups = 2;
    others[5].in_c += 16;
    others[6].out_c += 16;
    others[7].in_c = others[7].out_c = 1;
    for (size_t i = 0; i < DP_COUNT(others); i++) {
        assert_false(dp_pointwise_amx_can(&others[i]));
    }
    others[4].groups = 0; /* one */
    assert_true(dp_pointwise_amx_can(&others[4]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(errors_are_at_most_those_of_plain_sums, &way),
        cmocka_unit_test_prestate(bits_do_not_depend_on_threads, &way),
        cmocka_unit_test_prestate(an_image_does_not_depend_on_others, &way),
        cmocka_unit_test_prestate(gradients_are_added_where_that_is_wanted, &way),
        cmocka_unit_test_prestate(nothing_after_an_array_is_touched, &way),
        cmocka_unit_test_prestate(tiles_are_shaped_as_before, &way),
        cmocka_unit_test(scratch_does_not_grow_with_pixels),
        cmocka_unit_test(other_convolutions_are_left_to_others),
    };

    if (!dp_amx_has()) {
        puts("skipped: this processor has no AMX, or a virtual machine hides it");
        return 77;
    }
    return cmocka_run_group_tests_name("pointwise_amx", tests, NULL, NULL);
}
