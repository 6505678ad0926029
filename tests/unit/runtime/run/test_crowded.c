/*
 * test_crowded.c - shared memory that is used up at some point: training gives the same weights, by
 * messages if necessary, or is refused on all ranks.
 */
#include "tests/support/arrays.h"

#include <math.h>
#include <string.h>

#include "tests/support/local_world.h"
#include "tests/support/small_run.h"
#include "tests/support/stderr_text.h"

enum { RANKS = 4, STEPS = 4, REQUESTS = 8 /* more than a training makes */ };

static int all_room(void **state)
{
    (void)state;
    local_world_room(-1);
    return 0;
}

/* Trains with this much shared memory. Returns whether it could; messages are in stderr_text. */
static bool trains(const char *const *sets, int room, struct outcome *out)
{
    struct small_run run;
    size_t wrong;

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    local_world_room(room);
    stderr_begin();
    wrong = small_train(&run, RANKS, STEPS, NULL, out);
    stderr_end();
    local_world_room(-1);
    small_run_destroy(&run);
    return wrong == 0;
}

static void assert_close(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_true(fabsf(a[i] - b[i]) < 1e-5F);
    }
}

/* With any amount of shared memory: the same weights, except for the order of sums of the strategy
 * that `auto` chooses. Returns the number of refusals. */
static int check_all(const char *const *sets, bool same_bits)
{
    struct outcome plain, crowded;
    int refused = 0;

    assert_true(trains(sets, -1, &plain));
    for (int room = 0; room < REQUESTS; room++) {
        if (trains(sets, room, &crowded)) {
            assert_int_equal(outcome_split(&crowded, RANKS, STEPS), 0);
            assert_close(crowded.weights, plain.weights, plain.trained);
            if (same_bits) {
                assert_same_bits(crowded.weights, plain.weights, plain.trained);
            }
        } else {
            refused++;
            assert_non_null(strstr(stderr_text, "shared memory"));
            assert_null(strstr(stderr_text, "internal error"));
        }
        outcome_fini(&crowded);
    }
    outcome_fini(&plain);
    return refused;
}

static void without_shared_memory_weights_are_gathered_by_messages(void **state)
{
    static const char *const named[] = {"comm.strategy=zero1:over=shm", NULL};
    static const char *const over_any[] = {"comm.strategy=zero1", NULL};
    static const char *const any[] = {"comm.strategy=auto", NULL};
    static const char *const direct[] = {"comm.strategy=zero1:over=direct", NULL};
    (void)state;

    assert_int_equal(check_all(named, true), 2); /* without gradients, or flags, that all reach */
    assert_int_equal(check_all(direct, true), 0);
    assert_int_equal(check_all(over_any, false), 1); /* without flags */
    assert_int_equal(check_all(any, false), 1);
}

/* Compressors that sum their own memory cannot run, and report it once; others send messages. */
static void compressors_train_or_are_refused_with_any_shared_memory(void **state)
{
    static const struct {
        const char *compressor, *strategy;
        int refused;
    } cases[] = {
        {"comm.compressor=randomk:ratio=0.1", "comm.strategy=shm", 3},
        {"comm.compressor=powersgd:rank=2", "comm.strategy=shm", 3},
        {"comm.compressor=randomk:ratio=0.1", "comm.strategy=zero1:over=shm", 4},
        {"comm.compressor=randomk:ratio=0.1", "comm.strategy=direct", 0},
        {"comm.compressor=topk:ratio=0.1", "comm.strategy=shm", 2},
        {"comm.compressor=int8", "comm.strategy=shm", 2},
    };
    (void)state;

    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        const char *const sets[] = {cases[i].compressor, cases[i].strategy, NULL};
        assert_int_equal(check_all(sets, true), cases[i].refused);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(without_shared_memory_weights_are_gathered_by_messages, all_room),
        cmocka_unit_test_teardown(compressors_train_or_are_refused_with_any_shared_memory,
                                  all_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
