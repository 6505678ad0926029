/*
 * engine.h - the queue of communication jobs, and when they run.
 *
 * All communication of a running job goes through one engine, in the order submitted. That is
 * program order and hence equal on all ranks. A job is collective and may block.
 */
#ifndef DP_COLLECTIVES_CORE_ENGINE_H
#define DP_COLLECTIVES_CORE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/trace_ring.h"
#include "collectives/core/group.h"

enum dp_run {
    DP_RUN_ON_THREAD, /* the strategy blocks, overlap on: on the engine's thread */
    DP_RUN_AT_WAIT    /* the strategy blocks, overlap off: inside dp_engine_wait */
};

enum dp_job_state { DP_JOB_IDLE, DP_JOB_SUBMITTED, DP_JOB_ISSUED };

/* IDLE -> SUBMITTED -> ISSUED -> IDLE. Owned by the caller; zeroed before its first use. */
struct dp_job {
    dp_status (*run)(void *arg, int index);
    void *arg;
    int index;
    enum dp_trace_job what; /* for a trace */
    uint64_t number;        /* of the jobs submitted so far */
    enum dp_job_state state;
    dp_status status;
    uint64_t ready_ns, begin_ns, end_ns; /* submitted, started, done */
};

struct dp_engine;

/* Takes over the communication of `group` (borrowed): from now on only jobs may call its functions.
 * The thread sleeps while the queue is empty. Errors: DP_ERR_NOMEM (also when no thread can be
 * started). */
DP_CHECKED dp_status dp_engine_create(struct dp_group *group, enum dp_run run,
                                      struct dp_engine **out);

/* Stops the thread. Every job must have been waited for, or the group cancelled. */
void dp_engine_destroy(struct dp_engine *engine);

/* Changes when jobs run. Call it only while none is submitted. */
void dp_engine_set_run(struct dp_engine *engine, enum dp_run run);
enum dp_run dp_engine_run(const struct dp_engine *engine);

/* Returns the group's wire_bytes after the last finished job. Callable from any thread, also while
 * jobs run. */
uint64_t dp_engine_wire(struct dp_engine *engine);

/* Queues a job. At most DP_ENGINE_QUEUE jobs may be submitted at a time. */
enum { DP_ENGINE_QUEUE = 4096 };
DP_CHECKED dp_status dp_engine_submit(struct dp_engine *engine, struct dp_job *job);

/* Returns the job's status when it is done; the job is IDLE again. Earlier jobs may still have to
 * be waited for. When one job fails, all later ones fail with DP_ERR_CANCELLED. */
DP_CHECKED dp_status dp_engine_wait(struct dp_engine *engine, struct dp_job *job);

/*
 * Sets what the engine also does: `run` is called beside the jobs, never while one of them runs,
 * whenever dp_engine_poke() asks for it, and then every millisecond while it sets *more. It must
 * not block. After an error of it all later jobs fail with that error. NULL: nothing. Its calls of
 * MPI are then in turn with those of the jobs.
 */
struct dp_errand {
    dp_status (*run)(void *arg, bool *more);
    void *arg;
};
void dp_engine_set_errand(struct dp_engine *engine, struct dp_errand errand);
void dp_engine_poke(struct dp_engine *engine);

/* Waits until no engine of this process runs a job, for at most `most_ns`. Returns whether none
 * does. What the jobs wait for must have been cancelled. */
bool dp_engines_rest(uint64_t most_ns);

/* Submits a job and waits for it. */
DP_CHECKED dp_status dp_engine_call(struct dp_engine *engine,
                                    dp_status (*run)(void *arg, int index), void *arg);

#endif
