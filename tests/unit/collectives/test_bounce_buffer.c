/*
 * test_bounce_buffer.c - codes of a device with memory of its own, in memory of the host: what is
 * pinned for their copies, and where those of others land.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "collectives/compressors/codec_sum.h"
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

/* A device, and a stream of it for codes. */
struct far {
    struct dp_device device;
    struct dp_stream codes;
    struct dp_comm comm;
};

static void begin_far(struct far *far, struct dp_group *group)
{
    far->device = *group->stream->device;
    far->device.host_memory = false;
    far->device.pin = note_pin;
    far->device.unpin = note_unpin;
    far->codes = *group->stream;
    far->codes.device = &far->device;
    far->comm = (struct dp_comm){.group = group, .codes = &far->codes};
}

/* Memory that ranks share is no device's own, whose memory of the host is pinned from the start. */
static size_t opens_buffers(struct dp_group *group, const void *arg)
{
    struct far far;
    size_t wrong = 0;
    (void)arg;

    begin_far(&far, group);
    for (int shared = 0; shared < 2; shared++) {
        struct dp_bounce_buffer bounce;
        noted.pins = noted.unpins = 0;
        if (dp_bounce_buffer_open(&bounce, &far.comm, BYTES, shared != 0) != DP_OK) {
            return 1;
        }
        wrong += noted.pins != shared;
        wrong += shared && (noted.memory != bounce.host || noted.bytes != BYTES);
        dp_bounce_buffer_close(&bounce);
        wrong += noted.unpins != shared;
    }
    return wrong;
}

static size_t bytes_of_code(const void *context, size_t count)
{
    (void)context;
    return count;
}

static size_t opens_sum_of_codes(struct dp_group *group, const void *arg)
{
    static const struct dp_codec codec = {.bytes = bytes_of_code};
    struct dp_codec_sum sum;
    struct far far;
    size_t wrong;
    (void)arg;

    begin_far(&far, group);
    if (dp_codec_sum_open(&sum, &far.comm, &codec, BYTES) != DP_OK) {
        return 1;
    }
    wrong = sum.landed == NULL || sum.landed == sum.mine.host;
    dp_codec_sum_close(&sum);
    return wrong;
}

static void codes_of_others_land_in_memory_of_the_device(void **state)
{
    const size_t live = dp_mem_live();
    (void)state;

    assert_int_equal(on_local_ranks(2, opens_sum_of_codes, NULL), 0);
    assert_int_equal(dp_mem_live(), live);
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
        cmocka_unit_test(codes_of_others_land_in_memory_of_the_device),
        cmocka_unit_test(only_memory_that_ranks_share_is_pinned),
    };
    return cmocka_run_group_tests_name("bounce_buffer", tests, NULL, NULL);
}
