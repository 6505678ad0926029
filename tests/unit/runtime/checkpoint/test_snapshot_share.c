/* test_snapshot_share.c - a snapshot in memory that the ranks of a node fill together. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/core/transport.h"
#include "runtime/checkpoint/snapshot.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"
#include "tests/support/stderr_text.h"

enum { STEPS = 4, PLANNED = 2 * STEPS };

/* Whether both have the same bytes in all rows that this rank reaches. */
static size_t differing_rows(const struct dp_snapshot *a, const struct dp_snapshot *b)
{
    size_t wrong = a->rows.count != b->rows.count;

    for (int i = 0; i < a->rows.count; i++) {
        const struct dp_state_entry *x = &a->rows.rows[i], *y = &b->rows.rows[i];
        wrong += x->bytes != y->bytes || memcmp(x->data, y->data, x->bytes) != 0;
    }
    return wrong;
}

/* Takes the state after each step twice: by rank 0 alone, and by all ranks, which train while it is
 * copied. */
static dp_status compare_takes(struct dp_trainer *t, const struct dp_state_dict *state_dict,
                               struct dp_snapshot *alone, struct dp_snapshot *shared, size_t *wrong)
{
    struct dp_step_report report;

    t->modes.async_copies[DP_ASYNC_COPY_SNAPSHOT] = shared->async_copy;
    for (int step = 0; step < STEPS; step++) {
        DP_TRY(dp_trainer_step(t, &report));
        DP_TRY(dp_trainer_fetch(t));
        DP_TRY(dp_snapshot_take(alone, state_dict, t->exchange));
        DP_TRY(dp_snapshot_take(shared, state_dict, t->exchange));
        DP_TRY(dp_trainer_step(t, &report));
        if (alone != NULL) {
            DP_TRY(dp_snapshot_wait(shared));
            *wrong += differing_rows(alone, shared);
            *wrong += strcmp(alone->names[alone->slot_count - 1],
                             shared->names[shared->slot_count - 1]) != 0;
        }
    }
    return DP_OK;
}

static dp_status take_both_ways(struct dp_trainer *t, size_t *wrong)
{
    const struct dp_group *group = t->group;
    struct dp_state_dict state_dict = {.count = 0};
    struct dp_snapshot *alone = NULL, *shared = NULL;
    dp_status status;

    dp_trainer_add_state(t, &state_dict);
    DP_TRY(dp_snapshot_share(&state_dict, &t->state.flat, t->exchange, 3, &shared));
    *wrong += shared->peers != (group->nodes == 1 ? group->size : 2);
    *wrong += (shared->place >= 0) != (group->node_of[group->rank] == 0);
    status = group->rank == 0 ? dp_snapshot_create(&state_dict, &t->state.flat, group->size, &alone)
                              : DP_OK;
    if (status == DP_OK) {
        status = compare_takes(t, &state_dict, alone, shared, wrong);
    }
    dp_snapshot_destroy(alone);
    dp_snapshot_destroy(shared);
    return status;
}

static _Atomic(const struct dp_transport *) beneath; /* the same on all ranks */
static atomic_int beyond; /* questions for memory of a rank that there is not */

static void *peer_of_rank(const struct dp_group *group, const void *mine, int peer)
{
    if (peer < 0 || peer >= group->size) {
        atomic_fetch_add(&beyond, 1);
        return NULL;
    }
    return atomic_load(&beneath)->peer(group, mine, peer);
}

struct taking {
    const struct small_run *run;
    dp_status (*take)(struct dp_trainer *t, size_t *wrong);
};

static size_t take_rank(struct dp_group *group, const void *arg)
{
    const struct taking *taking = arg;
    struct dp_transport checking = *group->transport;
    struct dp_trainer *t = NULL;
    dp_status status;
    size_t wrong = 0;

    atomic_store(&beneath, group->transport);
    checking.peer = peer_of_rank;
    group->transport = &checking;
    status = small_run_trainer(taking->run, group, PLANNED, &t);
    if (status == DP_OK) {
        status = taking->take(t, &wrong);
    }
    if (status != DP_OK) {
        dp_group_leave(group, DP_ERR_CANCELLED);
    }
    dp_trainer_destroy(t);
    group->transport = atomic_load(&beneath);
    return wrong + (status != DP_OK);
}

static void check_shared(const char *strategy, const char *more)
{
    static const int node_of[] = {0, 1, 0, 1};
    const char *const sets[] = {strategy, "optimizer.name=adamw", "comm.bucket_mb=0.01", more,
                                NULL};
    struct small_run run;
    const struct taking taking = {&run, take_both_ways};

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    for (int ranks = 1; ranks <= 4; ranks++) {
        assert_int_equal(on_local_ranks(ranks, take_rank, &taking), 0);
    }
    if (strstr(strategy, "shm") == NULL) {
        assert_int_equal(on_local_nodes(4, node_of, take_rank, &taking), 0);
    }
    small_run_destroy(&run);
}

static void parts_copied_by_ranks_equal_what_one_rank_gathers(void **state)
{
    (void)state;
    check_shared("comm.strategy=ring", NULL);
    check_shared("comm.strategy=shm", NULL);
    check_shared("comm.strategy=zero1:over=shm", NULL);
    check_shared("comm.strategy=zero1:over=ring", NULL);
    check_shared("comm.strategy=zero1:over=ring", "train.precision=bf16");
    check_shared("comm.strategy=ring", "comm.compressor=onebit");
    check_shared("comm.strategy=ring", "comm.compressor=powersgd:rank=2");
    check_shared("comm.strategy=ps", NULL);
    assert_int_equal(dp_mem_live(), 0);
    assert_int_equal(atomic_load(&beyond), 0);
}

/* As if shared memory suffices for weights but not for a snapshot: only rank 0 has it. */
static void keep_apart(struct dp_snapshot *s)
{
    const bool first = s->group->rank == 0;

    s->peers = 1;
    s->place = first ? 0 : -1;
    s->copied = first ? s->copied : NULL;
    for (int i = 0; i < s->rows.count && !first; i++) {
        s->rows.rows[i].data = NULL;
    }
}

/* Number of times that a copy was unfinished when training could continue. */
static dp_status take_apart(struct dp_trainer *t, size_t *wrong)
{
    const bool one_copy = dp_exchange_has_one_copy(t->exchange);
    struct dp_state_dict state_dict = {.count = 0};
    struct dp_step_report report;
    struct dp_snapshot *s = NULL;
    dp_status status;

    dp_trainer_add_state(t, &state_dict);
    DP_TRY(dp_snapshot_share(&state_dict, &t->state.flat, t->exchange, 1, &s));
    keep_apart(s);
    t->modes.async_copies[DP_ASYNC_COPY_SNAPSHOT] = s->async_copy;
    *wrong += !one_copy && t->device->host_memory; /* GPUs have weights of their own */
    status = dp_trainer_fetch(t);
    for (int step = 0; step < STEPS && status == DP_OK; step++) {
        status = dp_snapshot_take(s, &state_dict, t->exchange);
        *wrong += one_copy && s->copied != NULL && atomic_load(s->copied) != s->takes;
        if (status == DP_OK) {
            status = dp_trainer_step(t, &report);
        }
    }
    dp_snapshot_destroy(s);
    return status;
}

static void weights_that_others_update_are_copied_immediately(void **state)
{
    static const char *const strategies[] = {"comm.strategy=zero1:over=shm", "comm.strategy=ps"};
    (void)state;

    for (size_t i = 0; i < sizeof(strategies) / sizeof(strategies[0]); i++) {
        const char *const sets[] = {strategies[i], NULL};
        struct small_run run;
        const struct taking taking = {&run, take_apart};
        assert_int_equal(small_run_create(&run, small_dense, sets), 0);
        for (int ranks = 2; ranks <= 4; ranks++) {
            assert_int_equal(on_local_ranks(ranks, take_rank, &taking), 0);
        }
        small_run_destroy(&run);
    }
    assert_int_equal(dp_mem_live(), 0);
}

struct bad_share {
    const struct small_run *run;
    int nth;                     /* allocation, which fails */
    pthread_barrier_t *together; /* of two ranks; it allocates nothing */
};

/* With one rank, so that no others wait. The seventh allocation is the memory itself: the engine
 * survives. */
static size_t share_badly(struct dp_group *group, const void *arg)
{
    const struct bad_share *bad = arg;
    struct dp_trainer *t = NULL;
    struct dp_state_dict state_dict = {.count = 0};
    struct dp_snapshot *s = NULL;
    size_t live, wrong = 0;

    if (small_run_trainer(bad->run, group, PLANNED, &t) != DP_OK) {
        return 1;
    }
    dp_trainer_add_state(t, &state_dict);
    live = dp_mem_live();
    dp_mem_fail_nth(bad->nth);
    wrong += dp_snapshot_share(&state_dict, &t->state.flat, t->exchange, 1, &s) != DP_ERR_NOMEM;
    dp_mem_fail_nth(0);
    wrong += s != NULL || dp_mem_live() != live;
    if (bad->nth == 7) {
        wrong += dp_snapshot_share(&state_dict, &t->state.flat, t->exchange, 1, &s) != DP_OK;
        dp_snapshot_destroy(s);
    }
    dp_trainer_destroy(t);
    return wrong;
}

static void survives_failed_allocations(void **state)
{
    struct small_run run;
    struct bad_share bad = {&run, 0, NULL};
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, NULL), 0);
    dp_log_set_level(DP_LOG_NONE);
    for (bad.nth = 1; bad.nth <= 7; bad.nth++) {
        assert_int_equal(on_local_ranks(1, share_badly, &bad), 0);
    }
    dp_log_set_level(DP_LOG_INFO);
    small_run_destroy(&run);
    assert_int_equal(dp_mem_live(), 0);
}

/* Of two ranks one cannot have its memory: that is one error. */
static size_t share_badly_on_both(struct dp_group *group, const void *arg)
{
    const struct bad_share *bad = arg;
    struct dp_trainer *t = NULL;
    struct dp_state_dict state_dict = {.count = 0};
    struct dp_snapshot *s = NULL;
    size_t wrong = 0;

    if (small_run_trainer(bad->run, group, PLANNED, &t) != DP_OK) {
        return 1;
    }
    dp_trainer_add_state(t, &state_dict);
    (void)pthread_barrier_wait(bad->together);
    if (group->rank == 0) {
        dp_mem_fail_nth(bad->nth);
    }
    (void)pthread_barrier_wait(bad->together);
    wrong += dp_snapshot_share(&state_dict, &t->state.flat, t->exchange, 1, &s) != DP_ERR_NOMEM;
    wrong += s != NULL;
    (void)pthread_barrier_wait(bad->together);
    if (group->rank == 0) {
        dp_mem_fail_nth(0);
    }
    dp_trainer_destroy(t);
    return wrong;
}

static void no_memory_on_one_rank_is_one_error(void **state)
{
    struct small_run run;
    pthread_barrier_t together;
    struct bad_share bad = {&run, 0, &together};
    (void)state;

    assert_int_equal(pthread_barrier_init(&together, NULL, 2), 0);
    assert_int_equal(small_run_create(&run, small_dense, NULL), 0);
    for (bad.nth = 1; bad.nth <= 13; bad.nth++) {
        const char *line;

        stderr_begin();
        assert_int_equal(on_local_ranks(2, share_badly_on_both, &bad), 0);
        stderr_end();
        line = strstr(stderr_text, "error: ");
        assert_non_null(line);
        assert_null(strstr(line + 1, "error: "));
    }
    (void)pthread_barrier_destroy(&together);
    small_run_destroy(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_copied_by_ranks_equal_what_one_rank_gathers),
        cmocka_unit_test(weights_that_others_update_are_copied_immediately),
        cmocka_unit_test(survives_failed_allocations),
        cmocka_unit_test(no_memory_on_one_rank_is_one_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
