/*
 * same_blocks.h - for tests: two sets of records have the same blocks, byte for byte.
 */
#ifndef DP_TESTS_SUPPORT_SAME_BLOCKS_H
#define DP_TESTS_SUPPORT_SAME_BLOCKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/data/buffer.h"
#include "runtime/data/records/records.h"

static inline void assert_same_blocks(struct dp_records *a, struct dp_records *b)
{
    struct dp_buffer memory[4] = {{NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}};
    struct dp_block_view one, two;

    for (int set = 0; set < DP_SETS; set++) {
        const size_t count = dp_records_blocks(a, (enum dp_set)set);
        assert_int_equal(dp_records_blocks(b, (enum dp_set)set), count);
        for (size_t i = 0; i < count; i++) {
            const struct dp_records_block *block = dp_records_block(a, (enum dp_set)set, i);
            assert_int_equal(dp_records_read(a, block, &memory[0], &memory[1], &one), DP_OK);
            block = dp_records_block(b, (enum dp_set)set, i);
            assert_int_equal(dp_records_read(b, block, &memory[2], &memory[3], &two), DP_OK);
            assert_memory_equal(memory[0].data, memory[2].data, block->block.stored);
        }
    }
    for (int i = 0; i < 4; i++) {
        dp_buffer_release(&memory[i]);
    }
}

#endif
