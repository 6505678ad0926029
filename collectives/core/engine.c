#include "collectives/core/engine.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "base/system/thread.h"
#include "base/trace.h"
#include "collectives/core/backoff.h"

struct dp_engine {
    struct dp_group *group; /* borrowed */
    enum dp_run run;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t submitted, issued;
    struct dp_job *queue[DP_ENGINE_QUEUE];
    unsigned head, tail; /* jobs [head, tail) are waiting */
    bool stop, failed;
    uint64_t submitted_jobs; /* so far */
    bool busy;               /* a job or the errand runs */
    uint64_t wire_bytes;     /* the group's count after the last job */
    struct dp_errand errand;
    bool errand_due; /* it is called again, but not before next_ns */
    uint64_t next_ns;
    dp_status errand_status; /* the error with which it ended the jobs; or DP_OK */
};

/* Between two calls of an errand. */
enum { ERRAND_NS = 1000000 };

static atomic_int running; /* running jobs of all engines */

/* Takes the first job, runs it without the mutex, and signals that it is done. Called and left with
 * the mutex held. */
static void engine_turn(struct dp_engine *engine)
{
    struct dp_job *job = engine->queue[engine->head % DP_ENGINE_QUEUE];
    bool *in_job = dp_group_in_job();

    while (engine->busy) { /* with the errand, on the engine's thread */
        (void)pthread_cond_wait(&engine->issued, &engine->mutex);
    }
    engine->busy = true;
    engine->head++;
    (void)pthread_mutex_unlock(&engine->mutex);
    job->status = engine->errand_status != DP_OK ? engine->errand_status : DP_ERR_CANCELLED;
    job->begin_ns = dp_now_ns();
    if (!engine->failed) {
        *in_job = true;
        atomic_fetch_add(&running, 1);
        job->status = job->run(job->arg, job->index);
        atomic_fetch_sub(&running, 1);
        *in_job = false;
    }
    job->end_ns = dp_now_ns();
    if (dp_trace_records()) {
        dp_trace_add_job(job->what, job->index, job->number, job->begin_ns, job->end_ns);
    }
    (void)pthread_mutex_lock(&engine->mutex);
    engine->failed = engine->failed || job->status != DP_OK;
    engine->wire_bytes = engine->group->wire_bytes;
    engine->busy = false;
    job->state = DP_JOB_ISSUED;
    (void)pthread_cond_broadcast(&engine->issued);
}

/* The same for the errand. */
static void errand_turn(struct dp_engine *engine)
{
    const struct dp_errand errand = engine->errand;
    bool *in_job = dp_group_in_job(), more = false;
    dp_status status;

    engine->busy = true;
    engine->errand_due = false; /* unless it is asked for meanwhile */
    (void)pthread_mutex_unlock(&engine->mutex);
    *in_job = true;
    atomic_fetch_add(&running, 1);
    status = errand.run(errand.arg, &more);
    atomic_fetch_sub(&running, 1);
    *in_job = false;
    (void)pthread_mutex_lock(&engine->mutex);
    engine->busy = false;
    if (status != DP_OK) {
        engine->errand_status = status;
        engine->failed = true;
    }
    if (more && !engine->errand_due) {
        engine->errand_due = true;
        engine->next_ns = dp_now_ns() + ERRAND_NS;
    }
    (void)pthread_cond_broadcast(&engine->issued);
}

/* Waits until there may be something to do: of an errand that is due, only until its time. */
static void await_work(struct dp_engine *engine)
{
    const uint64_t now = dp_now_ns();
    const uint64_t until = engine->next_ns > now ? engine->next_ns : now + ERRAND_NS;

    if (engine->errand_due && !engine->failed) {
        dp_cond_wait_until(&engine->submitted, &engine->mutex, until);
    } else {
        (void)pthread_cond_wait(&engine->submitted, &engine->mutex);
    }
}

static void *engine_main(void *arg)
{
    struct dp_engine *engine = arg;

    (void)pthread_mutex_lock(&engine->mutex);
    while (!engine->stop) {
        if (engine->run == DP_RUN_ON_THREAD && engine->head != engine->tail) {
            DP_SPAN(DP_PHASE_REDUCE, engine->head);
            engine_turn(engine);
        } else if (engine->errand_due && !engine->busy && !engine->failed &&
                   dp_now_ns() >= engine->next_ns) {
            errand_turn(engine);
        } else {
            await_work(engine);
        }
    }
    (void)pthread_mutex_unlock(&engine->mutex);
    return NULL;
}

/* A wait on the engine's thread must not spin: computing needs the core. */
static void set_run(struct dp_engine *engine, enum dp_run run)
{
    engine->run = run;
    engine->group->spin_ns = run == DP_RUN_ON_THREAD ? 0 : DP_SPIN_NS;
}

static void release(struct dp_engine *engine)
{
    engine->group->spin_ns = DP_SPIN_NS;
    (void)pthread_cond_destroy(&engine->issued);
    (void)pthread_cond_destroy(&engine->submitted);
    (void)pthread_mutex_destroy(&engine->mutex);
    dp_free(engine);
}

dp_status dp_engine_create(struct dp_group *group, enum dp_run run, struct dp_engine **out)
{
    struct dp_engine *engine = dp_zalloc(1, sizeof(*engine));
    dp_status status;

    if (engine == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "engine");
    }
    engine->group = group;
    engine->wire_bytes = group->wire_bytes;
    set_run(engine, run);
    (void)pthread_mutex_init(&engine->mutex, NULL);
    dp_cond_init(&engine->submitted);
    (void)pthread_cond_init(&engine->issued, NULL);
    status = dp_thread_start(&engine->thread, engine_main, engine, "dp-engine", "shares gradients");
    if (status != DP_OK) {
        release(engine);
        return status;
    }
    group->guarded = true;
    *out = engine;
    return DP_OK;
}

void dp_engine_destroy(struct dp_engine *engine)
{
    if (engine == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&engine->mutex);
    engine->stop = true;
    (void)pthread_cond_broadcast(&engine->submitted);
    (void)pthread_mutex_unlock(&engine->mutex);
    (void)pthread_join(engine->thread, NULL);
    engine->group->guarded = false;
    release(engine);
}

void dp_engine_set_run(struct dp_engine *engine, enum dp_run run)
{
    (void)pthread_mutex_lock(&engine->mutex);
    assert(engine->head == engine->tail);
    set_run(engine, run);
    (void)pthread_mutex_unlock(&engine->mutex);
}

uint64_t dp_engine_wire(struct dp_engine *engine)
{
    uint64_t bytes;

    (void)pthread_mutex_lock(&engine->mutex);
    bytes = engine->wire_bytes;
    (void)pthread_mutex_unlock(&engine->mutex);
    return bytes;
}

enum dp_run dp_engine_run(const struct dp_engine *engine)
{
    return engine->run;
}

/* Lets the engine's thread start a job. It shares a core with the thread that computes. Without
 * this the scheduler starts it only when the computing thread's slice is used up (measured: up to 5
 * ms later), and the wire is idle until then. On one node there is no wire to keep busy. */
static void let_begin(const struct dp_engine *engine)
{
    if (engine->run == DP_RUN_ON_THREAD && engine->group->nodes > 1) {
        (void)sched_yield();
    }
}

dp_status dp_engine_submit(struct dp_engine *engine, struct dp_job *job)
{
    assert(job->state == DP_JOB_IDLE);
    (void)pthread_mutex_lock(&engine->mutex);
    if (engine->tail - engine->head == DP_ENGINE_QUEUE) {
        (void)pthread_mutex_unlock(&engine->mutex);
        return DP_FAIL(DP_ERR_INTERNAL, "more than %d communication jobs", DP_ENGINE_QUEUE);
    }
    job->state = DP_JOB_SUBMITTED;
    job->number = engine->submitted_jobs++;
    job->ready_ns = dp_now_ns();
    if (job->what != DP_TRACE_CALL && dp_trace_records()) {
        dp_trace_add_arrow(job->number, job->ready_ns);
    }
    engine->queue[engine->tail++ % DP_ENGINE_QUEUE] = job;
    if (engine->run == DP_RUN_ON_THREAD) {
        (void)pthread_cond_signal(&engine->submitted);
    }
    (void)pthread_mutex_unlock(&engine->mutex);
    let_begin(engine);
    return DP_OK;
}

dp_status dp_engine_wait(struct dp_engine *engine, struct dp_job *job)
{
    DP_SPAN(DP_PHASE_WAIT, job->index);

    (void)pthread_mutex_lock(&engine->mutex);
    assert(job->state != DP_JOB_IDLE);
    while (job->state != DP_JOB_ISSUED) {
        if (engine->run == DP_RUN_AT_WAIT) {
            engine_turn(engine);
        } else {
            (void)pthread_cond_wait(&engine->issued, &engine->mutex);
        }
    }
    job->state = DP_JOB_IDLE;
    (void)pthread_mutex_unlock(&engine->mutex);
    return job->status;
}

void dp_engine_set_errand(struct dp_engine *engine, struct dp_errand errand)
{
    (void)pthread_mutex_lock(&engine->mutex);
    while (engine->busy) {
        (void)pthread_cond_wait(&engine->issued, &engine->mutex);
    }
    engine->errand = errand;
    engine->errand_due = false;
    (void)pthread_mutex_unlock(&engine->mutex);
}

void dp_engine_poke(struct dp_engine *engine)
{
    (void)pthread_mutex_lock(&engine->mutex);
    engine->errand_due = engine->errand.run != NULL;
    engine->next_ns = 0;
    (void)pthread_cond_signal(&engine->submitted);
    (void)pthread_mutex_unlock(&engine->mutex);
}

bool dp_engines_rest(uint64_t most_ns)
{
    struct dp_backoff backoff = {.spin_ns = 0};

    while (atomic_load(&running) > 0 && backoff.waited_ns < most_ns) {
        (void)dp_backoff_wait(&backoff);
    }
    return atomic_load(&running) == 0;
}

dp_status dp_engine_call(struct dp_engine *engine, dp_status (*run)(void *arg, int index),
                         void *arg)
{
    struct dp_job job = {.run = run, .arg = arg};

    DP_TRY(dp_engine_submit(engine, &job));
    return dp_engine_wait(engine, &job);
}
