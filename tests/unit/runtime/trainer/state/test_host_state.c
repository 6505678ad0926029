/* test_host_state.c - the host has a copy of all state of a device with memory of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "runtime/trainer/state/host_state.h"
#include "tests/support/stderr_text.h"

enum { TRAINED = 40, OWNED = 24, STATISTICS = 6, ARRAYS = 6 };

/* What a rank of that kind has: with 0, 1 or 2 slots, maybe an average; narrow: bfloat weights. */
struct kind {
    bool narrow, averages;
    int slots;
};

/* The arrays that the device has, in the order of place(). */
struct memory {
    unsigned char bytes[ARRAYS][TRAINED * sizeof(float)];
};

/* Bytes of each array; 0: there is none. */
static void sizes_of(const struct kind *kind, size_t sizes[ARRAYS])
{
    const size_t all = TRAINED * sizeof(float), part = OWNED * sizeof(float);
    const size_t found[ARRAYS] = {kind->narrow ? all / 2 : all, STATISTICS * sizeof(float),
                                  kind->narrow ? part : 0,      kind->slots > 0 ? part : 0,
                                  kind->slots > 1 ? part : 0,   kind->averages ? all : 0};

    memcpy(sizes, found, sizeof(found));
}

static void place(const struct kind *kind, struct memory *memory, struct dp_flat *flat)
{
    float *at[ARRAYS];

    for (int i = 0; i < ARRAYS; i++) {
        at[i] = (float *)(void *)memory->bytes[i];
    }
    *flat =
        (struct dp_flat){.trained = TRAINED,
                         .total = TRAINED,
                         .owned = OWNED,
                         .type = kind->narrow ? DP_TYPE_BF16 : DP_TYPE_F32,
                         .weights = at[0],
                         .running = at[1],
                         .master = kind->narrow ? at[2] : at[0],
                         .slots = {kind->slots > 0 ? at[3] : NULL, kind->slots > 1 ? at[4] : NULL},
                         .average = kind->averages ? at[5] : NULL};
}

static void list(const struct dp_flat *flat, void *arrays[ARRAYS])
{
    void *const found[ARRAYS] = {flat->weights,  flat->running,  flat->master,
                                 flat->slots[0], flat->slots[1], flat->average};

    memcpy(arrays, found, sizeof(found));
}

static void fill(struct memory *memory, unsigned char seed)
{
    for (size_t i = 0; i < sizeof(memory->bytes); i++) {
        memory->bytes[i / sizeof(memory->bytes[0])][i % sizeof(memory->bytes[0])] =
            (unsigned char)(seed + 7 * i);
    }
}

/* Both ways, all bytes of what there is, and none of what follows it. */
static void check_kind(const struct dp_stream *plain, const struct kind *kind)
{
    struct dp_device far = *plain->device;
    struct dp_stream stream = *plain;
    struct memory there = {.bytes = {{0}}}, before;
    struct dp_host_state *h = NULL;
    struct dp_flat flat;
    size_t sizes[ARRAYS];
    void *arrays[ARRAYS];

    far.host_memory = false;
    stream.device = &far;
    place(kind, &there, &flat);
    sizes_of(kind, sizes);
    assert_int_equal(dp_host_state_create(&flat, STATISTICS, &stream, &h), DP_OK);
    assert_false(h->same);
    list(&h->flat, arrays);
    fill(&there, 1);
    assert_int_equal(dp_host_state_fetch(h), DP_OK);
    for (int i = 0; i < ARRAYS; i++) {
        assert_ptr_not_equal(arrays[i], there.bytes[i]);
        if (sizes[i] > 0) {
            assert_memory_equal(arrays[i], there.bytes[i], sizes[i]);
        } else {
            assert_true(arrays[i] == NULL || arrays[i] == arrays[0]);
        }
    }
    before = there;
    fill(&there, 100);
    assert_int_equal(dp_host_state_put(h), DP_OK);
    for (int i = 0; i < ARRAYS; i++) {
        assert_memory_equal(there.bytes[i], before.bytes[i], sizes[i]);
        if (sizes[i] < sizeof(there.bytes[i])) {
            assert_memory_not_equal(there.bytes[i] + sizes[i], before.bytes[i] + sizes[i], 1);
        }
    }
    dp_host_state_destroy(h);
}

static void all_arrays_are_copied_both_ways(void **state)
{
    const struct dp_device *device = NULL;
    struct dp_stream *stream = NULL;
    const size_t live = dp_mem_live();
    (void)state;

    assert_int_equal(dp_device_find("ref", &device), DP_OK);
    assert_int_equal(device->stream_create(device, 1, &stream), DP_OK);
    for (int i = 0; i < 12; i++) {
        const struct kind kind = {i % 2 == 1, i / 2 % 2 == 1, i / 4};
        check_kind(stream, &kind);
    }
    device->stream_destroy(stream);
    assert_int_equal(dp_mem_live(), live);
}

/* What the device has is released by nobody, and what lacks is named, with its size. */
static void memory_that_lacks_is_named(void **state)
{
    static const char *const lacks[] = {"state for the host",
                                        "weights need 3 MB of",
                                        "weights need 3 MB of",
                                        "weights need 3 MB of",
                                        "optimizer state needs 2 MB of",
                                        "optimizer state needs 2 MB of",
                                        "the average of the weights needs 6 MB of"};
    enum { MEGA = 1 << 20, NAMED = sizeof(lacks) / sizeof(lacks[0]) };
    const struct kind kind = {true, true, 2};
    const struct dp_device *device = NULL;
    struct dp_stream *stream = NULL;
    struct memory there = {.bytes = {{0}}};
    struct dp_flat flat;
    (void)state;

    assert_int_equal(dp_device_find("ref", &device), DP_OK);
    assert_int_equal(device->stream_create(device, 1, &stream), DP_OK);
    struct dp_device far = *device;
    far.host_memory = false;
    stream->device = &far;
    place(&kind, &there, &flat);
    flat.trained = 3 * MEGA / 2;
    flat.owned = MEGA / 2;
    for (int i = 0; i < NAMED; i++) {
        const size_t live = dp_mem_live();
        struct dp_host_state *h = NULL;
        stderr_begin();
        dp_mem_fail_nth(i + 1);
        assert_int_equal(dp_host_state_create(&flat, STATISTICS, stream, &h), DP_ERR_NOMEM);
        dp_mem_fail_nth(0);
        stderr_end();
        assert_non_null(strstr(stderr_text, lacks[i]));
        assert_int_equal(dp_mem_live(), live);
    }
    stream->device = device;
    device->stream_destroy(stream);
}

static void a_part_of_the_weights_is_copied_alone(void **state)
{
    const struct dp_range part = {5, 11};
    const struct dp_device *device = NULL;
    struct dp_stream *stream = NULL;
    (void)state;

    assert_int_equal(dp_device_find("ref", &device), DP_OK);
    assert_int_equal(device->stream_create(device, 1, &stream), DP_OK);
    for (int narrow = 0; narrow < 2; narrow++) {
        const struct kind kind = {narrow == 1, false, 0};
        const size_t width = narrow == 1 ? 2 : sizeof(float), end = part.begin + part.count;
        struct dp_device far = *device;
        struct dp_host_state *h = NULL;
        struct memory there = {.bytes = {{0}}}, before;
        struct dp_flat flat;
        far.host_memory = false;
        stream->device = &far;
        place(&kind, &there, &flat);
        assert_int_equal(dp_host_state_create(&flat, STATISTICS, stream, &h), DP_OK);
        fill(&there, 1);
        assert_int_equal(dp_host_state_fetch(h), DP_OK);
        before = there;
        fill(&there, 100);
        assert_int_equal(dp_host_state_fetch_weights(h, part), DP_OK);
        const unsigned char *here = h->flat.weights;
        assert_memory_equal(here, before.bytes[0], part.begin * width);
        assert_memory_equal(here + part.begin * width, there.bytes[0] + part.begin * width,
                            part.count * width);
        assert_memory_equal(here + end * width, before.bytes[0] + end * width,
                            (TRAINED - end) * width);
        dp_host_state_destroy(h);
        stream->device = device;
    }
    device->stream_destroy(stream);
}

static void a_device_that_uses_the_hosts_memory_has_no_copy(void **state)
{
    const struct kind kind = {true, true, 2};
    const struct dp_device *device = NULL;
    struct dp_stream *stream = NULL;
    struct dp_host_state *h = NULL;
    struct memory there = {.bytes = {{0}}};
    struct dp_flat flat;
    void *arrays[ARRAYS];
    (void)state;

    assert_int_equal(dp_device_find("ref", &device), DP_OK);
    assert_int_equal(device->stream_create(device, 1, &stream), DP_OK);
    place(&kind, &there, &flat);
    assert_int_equal(dp_host_state_create(&flat, STATISTICS, stream, &h), DP_OK);
    assert_true(h->same);
    list(&h->flat, arrays);
    for (int i = 0; i < ARRAYS; i++) {
        assert_ptr_equal(arrays[i], there.bytes[i]);
    }
    assert_int_equal(dp_host_state_fetch(h), DP_OK);
    assert_int_equal(dp_host_state_put(h), DP_OK);
    assert_int_equal(dp_host_state_fetch_weights(h, (struct dp_range){0, 3}), DP_OK);
    dp_host_state_destroy(h);
    device->stream_destroy(stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_arrays_are_copied_both_ways),
        cmocka_unit_test(memory_that_lacks_is_named),
        cmocka_unit_test(a_part_of_the_weights_is_copied_alone),
        cmocka_unit_test(a_device_that_uses_the_hosts_memory_has_no_copy),
    };

    return cmocka_run_group_tests_name("host_state", tests, NULL, NULL);
}
