/*
 * test_world_watch.c - who watches over the ranks of a world, what they are told of each other, and
 * what becomes of them where a rank is lost.
 */
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "tests/support/at_once.h"
#include "tests/support/stderr_text.h"
#include "tests/support/world_stand_in.h"

#define WATCHES "names; liveness; watchdog; gather; "
#define LEAVES "no gather; no watchdog; no liveness; no names; "
#define CREATED "errors return; " WATCHES "detector; started; "
#define DESTROYED "no detector; " LEAVES "no mpi; no last; "

static struct dp_world *created(void)
{
    struct dp_world *world = NULL;

    assert_int_equal(setenv("OMPI_COMM_WORLD_RANK", "0", 1), 0);
    fake.threads = MPI_THREAD_SERIALIZED;
    assert_int_equal(dp_world_create(&world), DP_OK);
    fake.world = world;
    return world;
}

static void destroy(struct dp_world *world)
{
    world->all->size = 1; /* as it is */
    dp_world_destroy(world);
    assert_null(fake.hook);
    assert_int_equal(dp_mem_live(), 0);
}

static void who_watches_is_told_of_the_others(void **state)
{
    struct dp_world *world;
    (void)state;

    fake.failing = -1;
    world = created();
    assert_string_equal(fake.calls, CREATED);
    assert_true(world->mpi && world->mpirun);
    assert_string_equal(world->library, "a stand-in");
    assert_string_equal(world->fabric, "1 nodes");
    dp_trace_beat();
    assert_int_equal(atomic_load(&fake.mark.beats), 1);
    assert_ptr_equal(world->train, world->all);
    assert_int_equal(world->roles.count[DP_ROLE_TRAIN], RANKS);
    assert_ptr_equal(fake.config.cancel, &world->cancel);
    assert_ptr_equal(fake.config.watchdog, &watchdog);
    assert_ptr_equal(fake.config.gather, &gather);
    assert_ptr_equal(fake.config.shrinks, &world->shrinks);
    assert_ptr_equal(fake.config.context, &liveness);
    assert_int_equal(fake.config.lost(fake.config.context).rank, 1);
    assert_int_equal(fake.config.launcher_s, 0); /* where ranks go on, mpirun ends none */
    assert_true(fake.hook != NULL && fake.context == world);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(world->first_rank_of[i], i);
    }
    check_calls(CREATED);
    fake.config.abort(76);
    check_calls("start farewell; farewell; abort 76; ");
    dp_world_allow_hang(world, 7.5, 2.5);
    dp_world_allow_outage(world, 9);
    check_calls("timeout 7.5; unseen 2.5; outage 9; of watchdog 9; ");
    destroy(world);
    check_calls("meet 7.5; " DESTROYED);
}

static void mpirun_gets_time_where_it_ends_the_job(void **state)
{
    struct dp_world *world;
    (void)state;

    fake.failing = -1;
    fake.no_shrink = "this is a test";
    world = created();
    assert_int_equal(fake.config.launcher_s, 30);
    dp_world_allow_shrink(world, true);
    assert_false(atomic_load(&world->shrinks));
    assert_false(dp_world_lost(world));
    destroy(world);
}

static void who_lacks_one_that_watches_leaves_nothing(void **state)
{
    static const char *const wanted[] = {
        "names; started; ",
        "names; liveness; no names; started; ",
        "names; liveness; watchdog; no liveness; no names; started; ",
        WATCHES "no watchdog; no liveness; no names; started; ",
        WATCHES "detector; " LEAVES "started; ",
    };
    (void)state;

    assert_int_equal(setenv("OMPI_COMM_WORLD_RANK", "0", 1), 0);
    fake.threads = MPI_THREAD_SERIALIZED;
    for (int i = 0; i < (int)DP_COUNT(wanted); i++) {
        struct dp_world *world = NULL;
        fake.failing = i;
        assert_int_equal(dp_world_create(&world), DP_ERR_NOMEM);
        assert_null(world);
        assert_null(fake.hook);
        assert_memory_equal(fake.calls, "errors return; ", 15);
        assert_string_equal(fake.calls + 15, wanted[i]);
        fake.calls[0] = '\0';
        dp_world_farewell(); /* of no world */
        check_calls("start farewell; ");
        assert_int_equal(dp_mem_live(), 0);
    }
}

static void note_cause(void *context, const char *cause)
{
    (void)context;
    (void)cause;
}

static void hooks_are_those_of_the_failure_detector(void **state)
{
    struct dp_world *world;
    (void)state;

    fake.failing = -1;
    world = created();
    fake.calls[0] = '\0';
    dp_world_on_hang(world, note_cause, &fake);
    dp_world_on_loss(world, note_cause, &fake);
    check_calls("on hang; on loss; ");
    destroy(world);
}

/* Whether a call of MPI failed since a rank is lost, by what is found out after so many tenths of a
 * second; and how many it took. */
static bool is_lost(int ends, int cancel, int *tenths)
{
    bool lost;

    fake.ends_ns = (uint64_t)ends * TENTH_NS;
    fake.cancel_ns = (uint64_t)cancel * TENTH_NS;
    lost = fake.hook(fake.context);
    *tenths = (int)(fake.waited_ns / TENTH_NS);
    atomic_store(&fake.world->cancel, 0);
    return lost;
}

static void a_failed_call_is_a_loss_once_one_is_found(void **state)
{
    struct dp_world *world;
    int tenths;
    (void)state;

    fake.failing = -1;
    world = created();
    assert_false(is_lost(0, 0, &tenths));
    assert_int_equal(tenths, 80);
    assert_true(is_lost(0, 3, &tenths));
    assert_int_equal(tenths, 3);
    assert_true(is_lost(5, 0, &tenths)); /* the launcher ends this rank */
    assert_int_equal(tenths, 300);
    assert_true(is_lost(5, 200, &tenths));
    assert_int_equal(tenths, 200);
    destroy(world);
}

static void who_was_asked_to_end_before_says_so_later(void **state)
{
    struct dp_world *world;
    (void)state;

    fake.failing = -1;
    dp_world_farewell();
    check_calls("start farewell; ");
    world = created();
    check_calls("errors return; " WATCHES "detector; farewell; started; ");
    destroy(world);
}

static void an_error_ends_all_ranks_once_a_death_may_be_known(void **state)
{
    struct dp_world *world;
    (void)state;

    fake.failing = -1;
    world = created();
    fake.calls[0] = '\0';
    dp_world_abort(NULL, 3);
    check_calls("");
    dp_world_abort(world, 3);
    assert_int_equal(atomic_load(fake.left), 1);
    check_calls("stand by; farewell; abort 3; ");
    fake.hung = true;
    dp_world_abort(world, 3);
    check_calls("stand by; farewell; abort 76; ");
    fake.calls[0] = '\0';
    destroy(world); /* nothing is left but to end */
    check_calls("meet 0; start farewell; farewell; abort 76; " DESTROYED);
}

static void an_mpi_that_takes_one_thread_is_refused(void **state)
{
    struct dp_world *world = NULL;
    (void)state;

    assert_int_equal(setenv("OMPI_COMM_WORLD_RANK", "0", 1), 0);
    fake.threads = MPI_THREAD_FUNNELED;
    stderr_begin();
    assert_int_equal(dp_world_create(&world), DP_ERR_MPI);
    stderr_end();
    assert_non_null(strstr(stderr_text, "MPI_THREAD_SERIALIZED is needed"));
    assert_null(world);
    assert_int_equal(dp_mem_live(), 0);
}

/* ---- who does what ---- */

/* Two ranks train, one serves, and the last one evaluates. */
static void those_that_share_have_a_group_of_their_own(void **state)
{
    const struct dp_roles roles = {
        .count = {[DP_ROLE_TRAIN] = 2, [DP_ROLE_SERVE] = 1, [DP_ROLE_EVALUATE] = 1}};
    const struct dp_roles trains = {.count = {[DP_ROLE_TRAIN] = 3, [DP_ROLE_SERVE] = 1}};
    struct dp_world *world;
    (void)state;

    fake.failing = -1;
    world = created();
    fake.calls[0] = '\0';
    for (int rank = RANKS - 1; rank >= 0; rank--) {
        world->all->rank = rank;
        assert_int_equal(dp_world_divide(world, &roles), DP_OK);
        assert_int_equal(world->role, rank < 2    ? DP_ROLE_TRAIN
                                      : rank == 2 ? DP_ROLE_SERVE
                                                  : DP_ROLE_EVALUATE);
        assert_int_equal(world->roles.count[DP_ROLE_EVALUATE], 1);
        if (rank == 3) {
            assert_null(world->train);
            check_calls("part of 4: 3 out; ");
        } else {
            assert_true(world->train != NULL && world->train != world->all);
            assert_ptr_equal(world->train->cancel, &world->cancel);
        }
        dp_world_unite(world);
        assert_ptr_equal(world->train, world->all);
        assert_int_equal(world->role, DP_ROLE_TRAIN);
        assert_int_equal(world->roles.count[DP_ROLE_TRAIN], RANKS);
    }
    check_calls("part of 4: 2 in; no part; part of 4: 1 in; no part; part of 4: 0 in; no part; ");
    assert_int_equal(dp_world_divide(world, &trains), DP_OK); /* all share */
    assert_ptr_equal(world->train, world->all);
    assert_int_equal(world->roles.count[DP_ROLE_SERVE], 1);
    check_calls("");
    destroy(world);
}

/* ---- ranks that are lost ---- */

static struct dp_world *shrinking(void)
{
    struct dp_world *world;

    fake.failing = -1;
    world = created();
    dp_world_allow_shrink(world, true);
    assert_true(atomic_load(&world->shrinks));
    fake.calls[0] = '\0';
    return world;
}

static void whether_a_rank_is_lost_is_known_within_five_seconds(void **state)
{
    struct dp_world *world = shrinking();
    (void)state;

    assert_false(dp_world_lost(world));
    assert_int_equal(fake.waited_ns, 50ull * TENTH_NS);
    check_calls("");
    assert_int_equal(atomic_load(fake.left), 1);
    fake.ends_ns = 7ull * TENTH_NS; /* MPI knows by then */
    fake.waited_ns = 0;
    assert_true(dp_world_lost(world));
    assert_int_equal(fake.waited_ns, 8ull * TENTH_NS);
    check_calls("expect end; revoke; ");
    fake.ends_ns = 0;
    fake.lost = true;
    assert_true(dp_world_lost(world));
    assert_int_equal(fake.waited_ns, 1ull * TENTH_NS);
    check_calls("expect end; revoke; ");
    dp_world_allow_shrink(world, false);
    assert_false(dp_world_lost(world));
    destroy(world);
}

/* Lanes that 3 ranks do not divide are those of 2. */
static void check_left(int lanes, int rank, const char *calls, int size)
{
    struct dp_world *world = shrinking();
    struct dp_world_loss loss;

    fake.rank = rank;
    assert_int_equal(dp_world_shrink(world, lanes, &loss), size > 0);
    assert_int_equal(loss.count, 1);
    assert_int_equal(loss.ranks[0], 1);
    assert_int_equal(loss.left, LEFT);
    check_calls(calls);
    assert_int_equal(world->all->size, size > 0 ? size : 1);
    assert_ptr_equal(world->train, world->all);
    for (int i = 1; i < size; i++) {
        assert_int_equal(world->first_rank_of[i], i + 1);
    }
    assert_int_equal(world->first_rank_of[0], 0);
    assert_int_equal(fake.hook != NULL, size > 0);
    destroy(world);
    check_calls(size > 0 ? "start farewell; farewell; no detector; " LEAVES
                         : "start farewell; no names; ");
}

static void all_that_are_left_go_on(void **state)
{
    (void)state;
    check_left(0, 2, LEAVES "drop; " WATCHES "no detector; detector; ", LEFT);
}

static void as_many_go_on_as_lanes_can_be_divided_by(void **state)
{
    (void)state;
    check_left(4, 1, LEAVES "drop; part of 3: 1 in; " WATCHES "no detector; detector; ", LEFT - 1);
}

static void who_is_one_too_many_is_alone(void **state)
{
    (void)state;
    check_left(4, 2, LEAVES "drop; part of 3: 2 out; names; no detector; ", 0);
}

static void where_ranks_cannot_go_on_the_job_ends(void **state)
{
    (void)state;

    for (int reports = 0; reports < 2; reports++) {
        struct dp_world *world = shrinking();
        struct dp_world_loss loss;
        fake.shrink_fails = true;
        fake.reports = reports != 0;
        stderr_begin();
        (void)dp_world_shrink(world, 0, &loss);
        stderr_end();
        check_calls("start farewell; farewell; abort 76; ");
        assert_int_equal(strstr(stderr_text, "before the others could go on") != NULL, reports);
        destroy(world);
        fake.calls[0] = '\0';
    }
}

static void who_ends_after_another_one_has_left_says_so(void **state)
{
    (void)state;

    for (int gone = 0; gone < 2; gone++) {
        struct dp_world *world = shrinking();
        struct dp_world_loss loss;
        (void)dp_world_shrink(world, 0, &loss);
        if (gone) {
            dp_group_leave(world->all, DP_ERR_NOMEM); /* the others are not reached */
        } else {
            world->all->size = 1;
        }
        dp_log_set_level(DP_LOG_DEBUG);
        stderr_begin();
        dp_world_destroy(world);
        stderr_end();
        dp_log_set_level(DP_LOG_INFO);
        assert_int_equal(strstr(stderr_text, "another rank has left already") != NULL, gone);
        assert_int_equal(dp_mem_live(), 0);
        fake.calls[0] = '\0';
    }
}

/* They have left the old world, so that nothing is left twice. */
static void who_lacks_one_that_watches_those_that_are_left_ends_the_job(void **state)
{
    static const char *const wanted[] = {
        "names; ",
        "names; liveness; no names; ",
        "names; liveness; watchdog; no liveness; no names; ",
        WATCHES "no watchdog; no liveness; no names; ",
        WATCHES "no detector; detector; " LEAVES,
    };
    (void)state;

    for (int i = 0; i < (int)DP_COUNT(wanted); i++) {
        struct dp_world *world = shrinking();
        struct dp_world_loss loss;
        char calls[256];
        fake.failing = i;
        (void)dp_world_shrink(world, 0, &loss);
        (void)snprintf(calls, sizeof(calls), "%sstart farewell; abort 76; ", wanted[i]);
        assert_memory_equal(fake.calls, LEAVES "drop; ", strlen(LEAVES "drop; "));
        assert_string_equal(fake.calls + strlen(LEAVES "drop; "), calls);
        dp_free(world->first_rank_of);
        dp_free(world);
        assert_int_equal(dp_mem_live(), 0);
        fake.calls[0] = '\0';
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_watches_is_told_of_the_others),
        cmocka_unit_test(mpirun_gets_time_where_it_ends_the_job),
        cmocka_unit_test(who_lacks_one_that_watches_leaves_nothing),
        cmocka_unit_test(hooks_are_those_of_the_failure_detector),
        cmocka_unit_test(a_failed_call_is_a_loss_once_one_is_found),
        cmocka_unit_test(who_was_asked_to_end_before_says_so_later),
        cmocka_unit_test(an_error_ends_all_ranks_once_a_death_may_be_known),
        cmocka_unit_test(an_mpi_that_takes_one_thread_is_refused),
        cmocka_unit_test(those_that_share_have_a_group_of_their_own),
        cmocka_unit_test(whether_a_rank_is_lost_is_known_within_five_seconds),
        cmocka_unit_test(all_that_are_left_go_on),
        cmocka_unit_test(as_many_go_on_as_lanes_can_be_divided_by),
        cmocka_unit_test(who_is_one_too_many_is_alone),
        cmocka_unit_test(where_ranks_cannot_go_on_the_job_ends),
        cmocka_unit_test(who_ends_after_another_one_has_left_says_so),
        cmocka_unit_test(who_lacks_one_that_watches_those_that_are_left_ends_the_job),
    };

    return run_at_once(tests, sizeof(tests) / sizeof(tests[0]));
}
