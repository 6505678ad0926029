/*
 * test_bounce_buffer.c - codes of a device with memory of its own, in memory of the host: what is
 * pinned for their copies.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "collectives/compressors/bounce_buffer.h"
#include "tests/support/local_world.h"

enum { BYTES = 1000 };

/* Of one rank, which is a thread. */
static _Thread_local struct {
    void *memory;
    size_t bytes;
    int pins, unpins;
} noted;

static void note_pin(void *memory, size_t bytes)
{
    noted.memory = memory;
    noted.bytes = bytes;
    noted.pins++;
}

static void note_unpin(void *memory)
{
    noted.unpins += memory == noted.memory;
}

/* Memory that ranks share is no device's own, whose memory of the host is pinned from the start. */
static size_t opens_buffers(struct dp_group *group, const void *arg)
{
    struct dp_device far = *group->stream->device;
    struct dp_stream codes = *group->stream;
    struct dp_comm comm = {.group = group, .codes = &codes};
    size_t wrong = 0;
    (void)arg;

    far.host_memory = false;
    far.pin = note_pin;
    far.unpin = note_unpin;
    codes.device = &far;
    for (int shared = 0; shared < 2; shared++) {
        struct dp_bounce_buffer bounce;
        noted.pins = noted.unpins = 0;
        if (dp_bounce_buffer_open(&bounce, &comm, BYTES, shared != 0) != DP_OK) {
            return 1;
        }
        wrong += noted.pins != shared;
        wrong += shared && (noted.memory != bounce.host || noted.bytes != BYTES);
        dp_bounce_buffer_close(&bounce);
        wrong += noted.unpins != shared;
    }
    return wrong;
}

static void only_memory_that_ranks_share_is_pinned(void **state)
{
    const size_t live = dp_mem_live();
    (void)state;

    assert_int_equal(on_local_ranks(2, opens_buffers, NULL), 0);
    assert_int_equal(dp_mem_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_memory_that_ranks_share_is_pinned),
    };
    return cmocka_run_group_tests_name("bounce_buffer", tests, NULL, NULL);
}
