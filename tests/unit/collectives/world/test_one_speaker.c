/* test_one_speaker.c - of ranks that find an error at the same time one reports it. */
#include "tests/support/arrays.h"

#include <pthread.h>

#include "collectives/world/one_speaker.h"

static const uint64_t long_ns = 60000000000, short_ns = 1000000;

static void the_first_rank_speaks_and_later_ones_do_not(void **state)
{
    struct dp_one_speaker one = {.who = 0};
    (void)state;

    assert_true(dp_one_speaker_begin(&one, 2, long_ns));
    dp_one_speaker_end(&one);
    assert_false(dp_one_speaker_begin(&one, 0, long_ns));
    assert_false(dp_one_speaker_begin(&one, 2, long_ns));
}

struct later {
    struct dp_one_speaker *one;
    bool speaks;
};

static void *come_later(void *arg)
{
    struct later *later = arg;

    later->speaks = dp_one_speaker_begin(later->one, 1, long_ns);
    return NULL;
}

static void a_later_rank_waits_until_the_first_has_spoken(void **state)
{
    struct dp_one_speaker one = {.who = 0};
    struct later later = {&one, true};
    pthread_t thread;
    (void)state;

    assert_true(dp_one_speaker_begin(&one, 0, long_ns));
    assert_int_equal(pthread_create(&thread, NULL, come_later, &later), 0);
    dp_one_speaker_end(&one);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(later.speaks);
}

static void where_the_first_rank_dies_before_it_has_spoken_another_one_does(void **state)
{
    struct dp_one_speaker one = {.who = 0};
    (void)state;

    assert_true(dp_one_speaker_begin(&one, 0, long_ns));
    assert_true(dp_one_speaker_begin(&one, 1, short_ns));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_rank_speaks_and_later_ones_do_not),
        cmocka_unit_test(a_later_rank_waits_until_the_first_has_spoken),
        cmocka_unit_test(where_the_first_rank_dies_before_it_has_spoken_another_one_does),
    };

    return cmocka_run_group_tests_name("one speaker", tests, NULL, NULL);
}
