/* test_engine.c - the queue of communication jobs: order, run modes, errors. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "collectives/core/backoff.h"
#include "collectives/core/engine.h"
#include "collectives/core/transport.h"
#include "tests/support/local_world.h"

enum { JOBS = 200, NO_JOB = -1 };

static const enum dp_run runs[] = {DP_RUN_ON_THREAD, DP_RUN_AT_WAIT};

/* Notes of jobs; needs no lock, since one job runs at a time. */
struct notes {
    int order[2 * JOBS];
    int count;
    int failing; /* index of the job that fails, or NO_JOB */
};

static dp_status note(void *arg, int index)
{
    struct notes *notes = arg;

    notes->order[notes->count++] = index;
    return index == notes->failing ? DP_ERR_DATA : DP_OK;
}

static void make_jobs(struct dp_job *jobs, int count, struct notes *notes)
{
    for (int i = 0; i < count; i++) {
        jobs[i] = (struct dp_job){.run = note, .arg = notes, .index = i};
    }
}

struct world {
    struct dp_group *group;
    struct dp_engine *engine;
};

static void world_create(struct world *w, enum dp_run run)
{
    assert_int_equal(dp_local_alone(&w->group), DP_OK);
    assert_int_equal(dp_engine_create(w->group, run, &w->engine), DP_OK);
    assert_int_equal(dp_engine_run(w->engine), run);
    assert_true(w->group->guarded);
}

static void world_destroy(struct world *w)
{
    dp_engine_destroy(w->engine);
    assert_false(w->group->guarded);
    dp_group_destroy(w->group);
}

/* Submits some jobs, waits for some of them, and so on, as a step does. */
static void submit_and_wait_in_turns(struct dp_engine *engine, struct dp_job *jobs)
{
    int waited = 0;

    for (int at = 0; at < JOBS; at++) {
        assert_int_equal(dp_engine_submit(engine, &jobs[at]), DP_OK);
        for (; at % 7 == 6 && waited + 3 < at; waited++) {
            assert_int_equal(dp_engine_wait(engine, &jobs[waited]), DP_OK);
            assert_int_equal(jobs[waited].state, DP_JOB_IDLE);
        }
    }
    for (; waited < JOBS; waited++) {
        assert_int_equal(dp_engine_wait(engine, &jobs[waited]), DP_OK);
    }
}

static void jobs_run_once_each_in_the_order_submitted(void **state)
{
    (void)state;
    for (int r = 0; r < 2; r++) {
        struct notes notes = {.failing = NO_JOB};
        struct dp_job jobs[JOBS];
        struct world w;
        world_create(&w, runs[r]);
        make_jobs(jobs, JOBS, &notes);
        submit_and_wait_in_turns(w.engine, jobs);
        assert_int_equal(notes.count, JOBS);
        for (int i = 0; i < JOBS; i++) {
            assert_int_equal(notes.order[i], i);
            assert_true(jobs[i].ready_ns <= jobs[i].begin_ns);
            assert_true(jobs[i].begin_ns <= jobs[i].end_ns);
        }
        world_destroy(&w);
    }
}

static void without_a_thread_jobs_run_in_wait(void **state)
{
    struct notes notes = {.failing = NO_JOB};
    struct dp_job jobs[3];
    struct world w;
    (void)state;

    world_create(&w, DP_RUN_AT_WAIT);
    make_jobs(jobs, 3, &notes);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(dp_engine_submit(w.engine, &jobs[i]), DP_OK);
    }
    assert_int_equal(notes.count, 0);
    /* Waiting for the second runs the first as well, and no more. */
    assert_int_equal(dp_engine_wait(w.engine, &jobs[1]), DP_OK);
    assert_int_equal(notes.count, 2);
    assert_int_equal(dp_engine_wait(w.engine, &jobs[0]), DP_OK);
    assert_int_equal(dp_engine_wait(w.engine, &jobs[2]), DP_OK);
    assert_int_equal(notes.count, 3);
    world_destroy(&w);
}

static void a_job_can_be_reused_in_another_run_mode(void **state)
{
    struct notes notes = {.failing = NO_JOB};
    struct dp_job jobs[4];
    struct world w;
    (void)state;

    world_create(&w, DP_RUN_AT_WAIT);
    make_jobs(jobs, 4, &notes);
    for (int round = 0; round < JOBS / 4; round++) {
        dp_engine_set_run(w.engine, runs[round % 2]);
        assert_int_equal(dp_engine_run(w.engine), runs[round % 2]);
        /* Waits on the engine's thread must not spin, since computing needs the core. */
        assert_int_equal(w.group->spin_ns, round % 2 == 0 ? 0 : DP_SPIN_NS);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(dp_engine_submit(w.engine, &jobs[i]), DP_OK);
        }
        for (int i = 0; i < 4; i++) {
            assert_int_equal(dp_engine_wait(w.engine, &jobs[i]), DP_OK);
        }
    }
    assert_int_equal(notes.count, JOBS);
    for (int i = 0; i < JOBS; i++) {
        assert_int_equal(notes.order[i], i % 4);
    }
    world_destroy(&w);
}

static void a_failing_job_reports_its_status_and_cancels_later_ones(void **state)
{
    (void)state;
    for (int r = 0; r < 2; r++) {
        struct notes notes = {.failing = 2};
        struct dp_job jobs[6];
        struct world w;
        world_create(&w, runs[r]);
        make_jobs(jobs, 6, &notes);
        for (int i = 0; i < 6; i++) {
            assert_int_equal(dp_engine_submit(w.engine, &jobs[i]), DP_OK);
        }
        for (int i = 0; i < 6; i++) {
            const dp_status expected = i < 2 ? DP_OK : i == 2 ? DP_ERR_DATA : DP_ERR_CANCELLED;
            assert_int_equal(dp_engine_wait(w.engine, &jobs[i]), expected);
        }
        assert_int_equal(notes.count, 3);
        assert_int_equal(dp_engine_call(w.engine, note, &notes), DP_ERR_CANCELLED);
        assert_int_equal(notes.count, 3);
        world_destroy(&w);
    }
}

static void an_engine_with_pending_jobs_can_be_destroyed(void **state)
{
    (void)state;
    for (int r = 0; r < 2; r++) {
        struct notes notes = {.failing = 0};
        struct dp_job jobs[JOBS];
        struct world w;
        world_create(&w, runs[r]);
        make_jobs(jobs, JOBS, &notes);
        for (int i = 0; i < JOBS; i++) {
            assert_int_equal(dp_engine_submit(w.engine, &jobs[i]), DP_OK);
        }
        world_destroy(&w);
        assert_in_range(notes.count, 0, 1);
    }
    dp_engine_destroy(NULL);
}

static void a_full_queue_refuses_another_job(void **state)
{
    struct dp_job *jobs = dp_zalloc(DP_ENGINE_QUEUE + 1, sizeof(*jobs));
    struct notes notes = {.failing = 0};
    struct world w;
    (void)state;

    assert_non_null(jobs);
    world_create(&w, DP_RUN_AT_WAIT);
    make_jobs(jobs, DP_ENGINE_QUEUE + 1, &notes);
    for (int i = 0; i < DP_ENGINE_QUEUE; i++) {
        assert_int_equal(dp_engine_submit(w.engine, &jobs[i]), DP_OK);
    }
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(dp_engine_submit(w.engine, &jobs[DP_ENGINE_QUEUE]), DP_ERR_INTERNAL);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(jobs[DP_ENGINE_QUEUE].state, DP_JOB_IDLE);
    world_destroy(&w);
    dp_free(jobs);
}

static dp_status barrier_job(void *group, int index)
{
    (void)index;
    return *dp_group_in_job() ? dp_group_barrier(group) : DP_ERR_INTERNAL;
}

/* Ranks submit the same jobs, and wait for them at different times: the barriers inside find each
 * other. */
static size_t meets_in_jobs(struct dp_group *group, const void *run)
{
    struct dp_engine *engine = NULL;
    struct dp_job jobs[50];
    size_t wrong = 0;
    int waited = 0;

    if (dp_engine_create(group, *(const enum dp_run *)run, &engine) != DP_OK) {
        return 1;
    }
    for (int i = 0; i < 50; i++) {
        jobs[i] = (struct dp_job){.run = barrier_job, .arg = group, .index = i};
        wrong += dp_engine_submit(engine, &jobs[i]) != DP_OK;
        for (; i % (group->rank + 2) == 0 && waited <= i; waited++) {
            wrong += dp_engine_wait(engine, &jobs[waited]) != DP_OK;
        }
    }
    for (; waited < 50; waited++) {
        wrong += dp_engine_wait(engine, &jobs[waited]) != DP_OK;
    }
    wrong += *dp_group_in_job() || dp_trace_open_spans() != 0;
    dp_engine_destroy(engine);
    return wrong;
}

/* Rank 0 fails outside of the engine: the others' jobs end. */
static size_t is_woken_in_a_job(struct dp_group *group, const void *run)
{
    struct dp_engine *engine = NULL;
    size_t wrong = 1;

    if (group->rank == 0 || dp_engine_create(group, *(const enum dp_run *)run, &engine) != DP_OK) {
        return 1;
    }
    wrong = dp_engine_call(engine, barrier_job, group) != DP_ERR_CANCELLED;
    wrong += dp_engine_call(engine, barrier_job, group) != DP_ERR_CANCELLED;
    dp_engine_destroy(engine);
    return wrong;
}

static void jobs_synchronise_ranks_and_a_failing_rank_wakes_the_others(void **state)
{
    (void)state;
    for (int r = 0; r < 2; r++) {
        for (int size = 1; size <= 4; size++) {
            assert_int_equal(on_local_ranks(size, meets_in_jobs, &runs[r]), 0);
        }
        assert_int_equal(on_local_ranks(3, is_woken_in_a_job, &runs[r]), 1);
    }
}

static void creating_survives_every_failed_allocation(void **state)
{
    dp_status status = DP_ERR_NOMEM;
    struct dp_group *group = NULL;
    (void)state;

    assert_int_equal(dp_local_alone(&group), DP_OK);
    const size_t live = dp_mem_live();
    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_engine *engine = NULL;
        dp_mem_fail_nth(nth);
        status = dp_engine_create(group, DP_RUN_ON_THREAD, &engine);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((engine != NULL) == (status == DP_OK));
        dp_engine_destroy(engine);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_log_set_level(DP_LOG_INFO);
    dp_group_destroy(group);
}

static atomic_int begun, may_end;

static dp_status wait_for_leave(void *arg, int index)
{
    (void)arg;
    (void)index;
    atomic_store(&begun, 1);
    while (atomic_load(&may_end) == 0) {
        (void)sched_yield();
    }
    return DP_OK;
}

static void engines_rest_after_their_jobs(void **state)
{
    struct dp_job job = {.run = wait_for_leave};
    struct dp_engine *engine = NULL;
    struct dp_group *group = NULL;
    (void)state;

    assert_int_equal(dp_local_alone(&group), DP_OK);
    assert_int_equal(dp_engine_create(group, DP_RUN_ON_THREAD, &engine), DP_OK);
    assert_true(dp_engines_rest(0));
    assert_int_equal(dp_engine_submit(engine, &job), DP_OK);
    while (atomic_load(&begun) == 0) {
        (void)sched_yield();
    }
    assert_false(dp_engines_rest(1000000)); /* no longer than it is asked to wait */
    atomic_store(&may_end, 1);
    assert_true(dp_engines_rest(60000000000u));
    assert_int_equal(dp_engine_wait(engine, &job), DP_OK);
    dp_engine_destroy(engine);
    dp_group_destroy(group);
}

/* An errand, and jobs that look whether it runs meanwhile. */
struct beside {
    atomic_int inside; /* errand or job */
    atomic_int calls, clashes;
    atomic_int until; /* calls after which nothing is left; then it fails, if it is to */
    dp_status end;
};

static void enter(struct beside *b)
{
    if (atomic_fetch_add(&b->inside, 1) != 0) {
        atomic_fetch_add(&b->clashes, 1);
    }
    (void)sched_yield();
    atomic_fetch_sub(&b->inside, 1);
}

static dp_status errand(void *arg, bool *more)
{
    struct beside *b = arg;

    enter(b);
    *more = atomic_fetch_add(&b->calls, 1) + 1 < atomic_load(&b->until);
    return *more ? DP_OK : b->end;
}

static dp_status job_beside(void *arg, int index)
{
    (void)index;
    enter(arg);
    return DP_OK;
}

static void await_calls(struct beside *b, int calls)
{
    struct dp_backoff backoff = {.spin_ns = 0};

    while (atomic_load(&b->calls) < calls) {
        (void)dp_backoff_wait(&backoff);
    }
}

static void an_errand_is_called_beside_jobs_and_never_within_one(void **state)
{
    (void)state;

    for (int r = 0; r < 2; r++) {
        struct beside b = {.until = 20, .end = DP_OK};
        struct world w;
        world_create(&w, runs[r]);
        dp_engine_poke(w.engine); /* none is set: nothing happens */
        dp_engine_set_errand(w.engine, (struct dp_errand){errand, &b});
        dp_engine_poke(w.engine);
        while (atomic_load(&b.calls) < 10) {
            assert_int_equal(dp_engine_call(w.engine, job_beside, &b), DP_OK);
        }
        await_calls(&b, 20); /* it comes again, as long as it has more to do */
        atomic_store(&b.until, 0);
        dp_engine_poke(w.engine); /* and when it is asked for */
        await_calls(&b, 21);
        dp_engine_set_errand(w.engine, (struct dp_errand){NULL, NULL});
        dp_engine_poke(w.engine);
        assert_int_equal(dp_engine_call(w.engine, job_beside, &b), DP_OK);
        assert_int_equal(atomic_load(&b.calls), 21);
        assert_int_equal(atomic_load(&b.clashes), 0);
        world_destroy(&w);
    }
}

static void after_an_errand_that_fails_jobs_fail_with_its_error(void **state)
{
    struct beside b = {.until = 1, .end = DP_ERR_MPI};
    struct world w;
    (void)state;

    world_create(&w, DP_RUN_ON_THREAD);
    dp_engine_set_errand(w.engine, (struct dp_errand){errand, &b});
    dp_engine_poke(w.engine);
    await_calls(&b, 1);
    dp_engine_set_errand(w.engine, (struct dp_errand){NULL, NULL}); /* it has returned */
    assert_int_equal(dp_engine_call(w.engine, job_beside, &b), DP_ERR_MPI);
    world_destroy(&w);
}

#ifndef NDEBUG
/* In a child: communicates while an engine owns the group. The group is cancelled, so an allowed
 * call returns at once. */
static void talk(bool in_job)
{
    struct dp_local_hub *hub = NULL;
    struct dp_engine *engine = NULL;
    struct dp_group *group = NULL;
    dp_status status;

    if (freopen("/dev/null", "w", stderr) == NULL || dp_local_hub_create(2, &hub) != DP_OK ||
        dp_local_join(hub, 0, &group) != DP_OK ||
        dp_engine_create(group, DP_RUN_AT_WAIT, &engine) != DP_OK) {
        _exit(3);
    }
    dp_local_cancel(hub);
    status = in_job ? dp_engine_call(engine, barrier_job, group) : dp_group_barrier(group);
    _exit(status == DP_ERR_CANCELLED ? 0 : 4);
}

/* Returns how such a child ended: its exit code, or minus the signal. */
static int end_of_talk(bool in_job)
{
    int status = 0;
    const pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        talk(in_job);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}
#endif

static void communicating_outside_a_job_aborts_a_debug_build(void **state)
{
    (void)state;
#ifdef NDEBUG
    skip(); /* asserts are off */
#else
    assert_int_equal(end_of_talk(true), 0);
    assert_int_equal(end_of_talk(false), -SIGABRT);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(communicating_outside_a_job_aborts_a_debug_build),
        cmocka_unit_test(jobs_run_once_each_in_the_order_submitted),
        cmocka_unit_test(without_a_thread_jobs_run_in_wait),
        cmocka_unit_test(a_job_can_be_reused_in_another_run_mode),
        cmocka_unit_test(a_failing_job_reports_its_status_and_cancels_later_ones),
        cmocka_unit_test(an_engine_with_pending_jobs_can_be_destroyed),
        cmocka_unit_test(a_full_queue_refuses_another_job),
        cmocka_unit_test(jobs_synchronise_ranks_and_a_failing_rank_wakes_the_others),
        cmocka_unit_test(engines_rest_after_their_jobs),
        cmocka_unit_test(an_errand_is_called_beside_jobs_and_never_within_one),
        cmocka_unit_test(after_an_errand_that_fails_jobs_fail_with_its_error),
        cmocka_unit_test(creating_survives_every_failed_allocation),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
