/*
 * test_conv_amx.c - convolutions by tiles are those of the definition but for rounding, of float32
 * and of bfloat16, and planes hold just what the definition reads.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS, in memory_end.h */
#include "tests/support/tiles/conv_by_tiles.h"

#include "kernels/cpu/amx/conv_amx.h"
#include "kernels/cpu/amx/conv_grid.h"

static const struct shape shapes[] = {
    {3, 14, 14, 64, 96, 3, 3, 1, 1},
    {4, 7, 7, 32, 64, 3, 3, 1, 1},   /* images that end within blocks of 32 pixels */
    {2, 15, 13, 32, 32, 3, 3, 2, 1}, /* planes of unequal size */
    {3, 16, 15, 32, 64, 1, 1, 2, 0}, /* pixels that nothing reads */
    {2, 9, 8, 32, 32, 1, 1, 1, 0},
    {2, 8, 8, 64, 32, 5, 5, 1, 2}, /* as many kernel positions as there may be */
    {1, 9, 11, 32, 32, 5, 5, 2, 1},
    {2, 6, 5, 32, 64, 2, 3, 2, 0}, /* a kernel that is not square */
    {1, 5, 4, 32, 32, 3, 2, 1, 3}, /* outputs of padding alone */
    {2, 3, 3, 32, 32, 3, 3, 1, 0}, /* one output */
    {5, 2, 2, 32, 32, 3, 3, 2, 1},
    {3, 1, 1, 32, 32, 3, 3, 1, 1},  /* one pixel */
    {2, 10, 7, 32, 32, 3, 3, 2, 0}, /* rows and columns that nothing reads */
    {1, 56, 56, 64, 32, 3, 3, 2, 1},
    {5, 40, 40, 32, 32, 3, 3, 1, 1},  /* gradients sum 2, 2 and 1 images, or one at a time */
    {160, 1, 2, 512, 32, 3, 3, 1, 1}, /* results of some images after those of others */
    {160, 1, 2, 32, 512, 3, 3, 1, 1}, /* gradients of x of them */
    {2, 4, 4, 128, 160, 5, 5, 1, 2},  /* 5 blocks of weights: 3 and 2, or one at a time */
    {2, 1, 1, 33824, 32, 1, 1, 2, 0}, /* 1057 blocks, for the gradient of x; large images */
};

/* Measured are, in roundings, at most 2.8 for results and gradients of x, and 6.4 for gradients of
 * weights where each block of 32 pixels has just one or two: it takes as many roundings as a full
 * one. Roots are 0.42 to 0.63 of those of plain sums, and there up to 1.9. */
static struct way wide = {dp_conv_amx_can,  dp_conv_amx_bytes, dp_conv_amx, shapes,
                          DP_COUNT(shapes), DP_TYPE_F32,       {4, 4, 9},   {0.8, 0.8, 2.5}};

/* Measured are at most 0.30, and 1.9 for gradients of weights, which are float32; roots at most
 * 0.02, and 1. */
static struct way narrow = {dp_conv_amx_can,  dp_conv_amx_bytes, dp_conv_amx,   shapes,
                            DP_COUNT(shapes), DP_TYPE_BF16,      {0.6, 0.6, 3}, {0.04, 0.04, 1.2}};

static void other_convolutions_are_left_to_others(void **state)
{
    const struct dp_window good = window_of(&shapes[0]);
    struct dp_window others[7];
    (void)state;

    for (size_t i = 0; i < DP_COUNT(others); i++) {
        others[i] = good;
        assert_true(dp_conv_amx_can(&others[i]));
    }
    others[0].stride = 3;
    others[1].groups = 2;
    others[2].in_c += 16;
    others[3].out_c += 16;
    others[4].kernel_h = others[4].kernel_w = 7;
    others[5].kernel_h = 1, others[5].kernel_w = DP_CONV_TAPS + 1;
    others[6].in_c = others[6].out_c = 1;
    for (size_t i = 0; i < DP_COUNT(others); i++) {
        assert_false(dp_conv_amx_can(&others[i]));
    }
    others[1].groups = 0; /* one */
    assert_true(dp_conv_amx_can(&others[1]));
    others[5].kernel_w = DP_CONV_TAPS;
    assert_true(dp_conv_amx_can(&others[5]));
}

/* ---- planes ---- */

enum { MOST_SIDE = 9, MOST_KERNEL = 5, MOST_PLACES = 4096, NONE = -1 };

static struct dp_conv_grid grid;
static int where[MOST_PLACES];

/* The pixel that output (or, if `back`, input) (y, x) reads for a kernel position. */
static int pixel_of(const struct dp_window *w, bool back, size_t y, size_t x, size_t at)
{
    const size_t ky = at / w->kernel_w, kx = at % w->kernel_w;
    size_t from_y, from_x;

    if (back) {
        return dp_window_source(w, y, ky, w->out_h, &from_y) &&
                       dp_window_source(w, x, kx, w->out_w, &from_x)
                   ? (int)(from_y * w->out_w + from_x)
                   : NONE;
    }
    from_y = y * w->stride + ky, from_x = x * w->stride + kx;
    return from_y >= w->padding && from_y < w->padding + w->in_h && from_x >= w->padding &&
                   from_x < w->padding + w->in_w
               ? (int)((from_y - w->padding) * w->in_w + from_x - w->padding)
               : NONE;
}

/* What a pass reads for its output (i, j): all that it should, and nothing else. */
static void check_output(const struct dp_window *w, bool back, const struct dp_conv_pass *pass,
                         size_t i, size_t j)
{
    const size_t y = pass->y + i * grid.step, x = pass->x + j * grid.step;
    int found[DP_CONV_TAPS];

    for (size_t at = 0; at < DP_CONV_TAPS; at++) {
        found[at] = NONE;
    }
    for (size_t t = 0; t < pass->count; t++) {
        const struct dp_conv_tap *tap = &pass->tap[t];
        found[tap->at] = where[tap->plane * grid.rows + i * grid.width + j + tap->row];
    }
    for (size_t at = 0; at < w->kernel_h * w->kernel_w; at++) {
        assert_int_equal(found[at], pixel_of(w, back, y, x, at));
    }
}

/* What passes read of a kernel, and the planes that they need for it. */
struct needs {
    size_t planes, width, panels, rows;
    bool top, left; /* whether the first row is read, and the first column */
    unsigned taps;
};

static void need(size_t *most, size_t some)
{
    *most = *most > some ? *most : some;
}

/* Kernel positions are different ones; what is read for 32 outputs at a time is in a plane. */
static void add_needs(struct needs *n, const struct dp_conv_pass *pass)
{
    need(&n->width, pass->width);
    need(&n->panels, ((pass->height - 1) * grid.width + pass->width + 31) / 32);
    for (size_t t = 0; t < pass->count; t++) {
        const struct dp_conv_tap *tap = &pass->tap[t];
        assert_true((n->taps >> tap->at & 1) == 0);
        n->taps |= 1u << tap->at;
        need(&n->planes, tap->plane + 1);
        need(&n->width, tap->row % grid.width + pass->width);
        need(&n->rows, tap->row);
        n->top = n->top || tap->row < grid.width;
        n->left = n->left || tap->row % grid.width == 0;
    }
}

/* Planes have just the size that they must have, where any pixel is read. */
static void check_needs(const struct needs *n, const struct dp_window *w, bool back)
{
    assert_true(grid.width >= n->width);
    if (n->taps != 0) {
        assert_int_equal(grid.width, n->width);
        assert_int_equal(grid.planes, n->planes);
        assert_true((n->top || grid.pad_y == 0) && (n->left || grid.pad_x == 0));
    }
    assert_int_equal(grid.panels, n->panels);
    assert_int_equal(grid.rows, n->panels * 32 + n->rows);
    if (!back) {
        assert_int_equal(n->taps, (1u << w->kernel_h * w->kernel_w) - 1);
    }
}

static void check_grid(const struct dp_window *w, bool back)
{
    int passes[(MOST_SIDE + 2 * MOST_KERNEL) * (MOST_SIDE + 2 * MOST_KERNEL)] = {0};
    struct needs needs = {0};

    dp_conv_grid_set(&grid, w, back);
    assert_true(dp_conv_grid_can(w) && grid.planes * grid.rows <= MOST_PLACES);
    dp_conv_grid_places(&grid, where);
    for (size_t p = 0; p < grid.passes; p++) {
        const struct dp_conv_pass *pass = &grid.pass[p];
        add_needs(&needs, pass);
        for (size_t i = 0; i < pass->height * pass->width; i++) {
            const size_t y = i / pass->width, x = i % pass->width;
            passes[(pass->y + y * grid.step) * grid.to_w + pass->x + x * grid.step]++;
            check_output(w, back, pass, y, x);
        }
    }
    check_needs(&needs, w, back);
    assert_int_equal(grid.to_h * grid.to_w, back ? w->in_h * w->in_w : w->out_h * w->out_w);
    for (size_t i = 0; i < grid.to_h * grid.to_w; i++) {
        assert_int_equal(passes[i], 1);
    }
}

static void check_sizes(const struct shape *kernel)
{
    for (size_t i = 0; i < (size_t)MOST_SIDE * MOST_SIDE; i++) {
        struct shape s = *kernel;
        struct dp_window w;
        s.height = i / MOST_SIDE + 1, s.width = i % MOST_SIDE + 1;
        if (s.height + 2 * s.padding < s.kernel_h || s.width + 2 * s.padding < s.kernel_w) {
            continue;
        }
        w = window_of(&s);
        check_grid(&w, false);
        check_grid(&w, true);
    }
}

static void check_strides(struct shape s)
{
    for (s.stride = 1; s.stride <= DP_CONV_STRIDE; s.stride++) {
        for (s.padding = 0; s.padding <= s.kernel_h || s.padding <= s.kernel_w; s.padding++) {
            check_sizes(&s);
        }
    }
}

static void planes_and_passes_are_those_of_the_definition(void **state)
{
    struct shape s = {.rows = 1, .in_c = 32, .out_c = 32};
    (void)state;

    for (s.kernel_h = 1; s.kernel_h <= MOST_KERNEL; s.kernel_h++) {
        for (s.kernel_w = 1; s.kernel_w <= MOST_KERNEL; s.kernel_w++) {
            check_strides(s);
        }
    }
}

#define OF_TYPE(test, way)                            \
    {                                                 \
#test " (" #way ")", test, NULL, NULL, &(way) \
    }

int main(void)
{
    const struct CMUnitTest planes[] = {
        cmocka_unit_test(planes_and_passes_are_those_of_the_definition),
    };
    const struct CMUnitTest tests[] = {
        OF_TYPE(errors_are_at_most_those_of_plain_sums, wide),
        OF_TYPE(errors_are_at_most_those_of_plain_sums, narrow),
        OF_TYPE(bits_do_not_depend_on_threads, wide),
        OF_TYPE(bits_do_not_depend_on_threads, narrow),
        OF_TYPE(an_image_does_not_depend_on_others, wide),
        OF_TYPE(an_image_does_not_depend_on_others, narrow),
        OF_TYPE(gradients_are_added_where_that_is_wanted, wide),
        OF_TYPE(gradients_are_added_where_that_is_wanted, narrow),
        OF_TYPE(nothing_after_an_array_is_touched, wide),
        OF_TYPE(nothing_after_an_array_is_touched, narrow),
        OF_TYPE(tiles_are_shaped_as_before, wide),
        OF_TYPE(tiles_are_shaped_as_before, narrow),
        cmocka_unit_test(other_convolutions_are_left_to_others),
    };
    const int failed = cmocka_run_group_tests_name("conv_grid", planes, NULL, NULL);

    return dp_amx_has() ? failed + cmocka_run_group_tests_name("conv_amx", tests, NULL, NULL)
                        : failed;
}
