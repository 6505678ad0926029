/*
 * test_buffer.c - memory that grows: how far depends on the largest size alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/data/buffer.h"

static void the_room_depends_on_the_largest_size_alone(void **state)
{
    static const size_t orders[][3] = {{600000, 610000, 620000}, {620000, 600000, 610000}};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct dp_buffer buffer = {NULL, 0};
        for (int k = 0; k < 3; k++) {
            assert_true(dp_buffer_reserve(&buffer, orders[i][k]));
            memset(buffer.data, 1, orders[i][k]);
        }
        assert_int_equal(buffer.room, dp_buffer_room(620000));
        dp_buffer_release(&buffer);
    }
}

static void the_room_is_an_eighth_more_at_most_and_growing_ends_soon(void **state)
{
    size_t rooms = 0, last = 0;

    (void)state;
    for (size_t bytes = 1; bytes < 1 << 20; bytes++) {
        const size_t room = dp_buffer_room(bytes);
        assert_true(room >= bytes && room - bytes <= bytes / 8 && room >= last);
        rooms += room != last;
        last = room;
    }
    assert_in_range(rooms, 8, 160);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_room_depends_on_the_largest_size_alone),
        cmocka_unit_test(the_room_is_an_eighth_more_at_most_and_growing_ends_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
