/* test_columns.c - into which tiles columns are divided, and how many of their rows lie side by
 * side in one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/cpu/columns.h"

enum { HALF = DP_FOLD_WIDTH / 2 };

static const struct {
    size_t begin, columns, fold, of_tile;
} tiles[] = {
    {0, 1, DP_FOLD_WIDTH, 1}, /* as many rows as a tile has room for */
    {0, 3, DP_FOLD_WIDTH / 3, 3},
    {0, HALF - 1, 2, HALF - 1},
    {0, HALF, 2, HALF}, /* the most of which two rows fit */
    {0, HALF + 1, 1, HALF + 1},
    {0, DP_FOLD_WIDTH, 1, DP_FOLD_WIDTH},
    {0, DP_TILE - 1, 1, DP_TILE - 1}, /* one tile */
    {0, DP_TILE, 1, DP_TILE},
    {0, DP_TILE + 1, 1, DP_TILE}, /* two */
    {DP_TILE, DP_TILE + 1, 1, 1},
    {DP_TILE, 512, 1, DP_TILE},
    {DP_TILE, 768, 1, DP_TILE},
};

static void few_columns_are_folded_and_many_are_divided(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(tiles) / sizeof(tiles[0]); i++) {
        const struct dp_tile tile = dp_tile_at(tiles[i].begin, tiles[i].columns);
        assert_int_equal(tile.begin, tiles[i].begin);
        assert_int_equal(tile.fold, tiles[i].fold);
        assert_int_equal(tile.columns, tiles[i].of_tile);
        assert_int_equal(tile.width, tiles[i].fold * tiles[i].of_tile);
        assert_int_equal(tile.stride, tiles[i].fold * tiles[i].columns);
    }
}

static void values_of_columns_are_repeated_for_each_row(void **state)
{
    const struct dp_tile tile = dp_tile_at(0, 40);
    float values[41], wide[DP_FOLD_WIDTH];
    (void)state;

    for (size_t c = 0; c < 41; c++) {
        values[c] = (float)c + 1.0f;
    }
    for (size_t i = 0; i < DP_FOLD_WIDTH; i++) {
        wide[i] = -1.0f;
    }
    dp_tile_repeat(&tile, wide, values);
    for (size_t i = 0; i < DP_FOLD_WIDTH; i++) {
        assert_true(wide[i] == (i < tile.width ? values[i % 40] : -1.0f));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_columns_are_folded_and_many_are_divided),
        cmocka_unit_test(values_of_columns_are_repeated_for_each_row),
    };

    return cmocka_run_group_tests_name("columns", tests, NULL, NULL);
}
