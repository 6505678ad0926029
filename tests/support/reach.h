/*
 * reach.h - for tests of operations, which pass their own memory to a device: makes that memory
 * reachable for the device, and waits for results before they are compared.
 *
 * On a device that does not use the host's memory run_reached_tests() runs them on a thread whose
 * stack is pinned, and dp_zalloc() and dp_mem_arena() give pinned memory. Constants are not pinned,
 * so tests must not pass them.
 *
 *   DP_TEST_APART=1   each array is an allocation of its own, so that a memory checker sees its end
 */
#ifndef DP_TESTS_SUPPORT_REACH_H
#define DP_TESTS_SUPPORT_REACH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/device.h"

/* In place of cmocka_run_group_tests(). */
#define run_reached_tests(tests, setup, teardown) \
    run_reached(#tests, (tests), sizeof(tests) / sizeof((tests)[0]), (setup), (teardown))

int run_reached(const char *name, const struct CMUnitTest *tests, size_t count,
                CMFixtureFunction setup, CMFixtureFunction teardown);

/* Blocks that tests have allocated and not freed. */
size_t blocks_left(void);

/* Streams whose work wait_for_streams() waits for: all of their devices' that queue it. 16 at most
 * at a time. */
void stream_watch(struct dp_stream *stream);
void stream_forget(const struct dp_stream *stream);
void wait_for_streams(void);

#endif
