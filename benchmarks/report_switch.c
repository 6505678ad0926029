/*
 * report_switch.c - ddp_train that leaves out all reporting in every other block of its steps, and
 * notes what each block took: for benchmarks/report_blocks.
 *
 *   REPORT_SWITCH=FIRST:STEPS:BLOCKS:FILE build/train_switched model.cfg ...
 *
 * After the first FIRST steps come BLOCKS blocks of STEPS steps each; rank r writes FILE.r, a line
 * of JSON for each block. Pairs of blocks are on-off or off-on by the Thue-Morse sequence, so that
 * drifts cancel, and alike on all ranks. The linker puts these functions in front of the program's
 * own (--wrap in CMakeLists.txt). Off means: no spans, ledger, looks at resources, lines of
 * metrics, progress, pages, times of buckets, or looks of the watchdog.
 */
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/mem.h"
#include "base/system/usage.h"
#include "base/trace.h"
#include "collectives/core/shm_barrier.h"
#include "collectives/exchange/bucket_times.h"
#include "collectives/world/launched.h"
#include "collectives/world/watchdog.h"
#include "runtime/run/results/figures.h"
#include "runtime/trainer/trainer.h"

#include <mpi.h>

/* `name` is called in place of the program's function, and real_`name` is that. */
#define DP_WRAP(result, name, function, args)     \
    result name args __asm__("__wrap_" function); \
    result real_##name args __asm__("__real_" function)

DP_WRAP(dp_status, take_step, "dp_trainer_step", (struct dp_trainer *, struct dp_step_report *));
DP_WRAP(void, open_span, "dp_span_open", (struct dp_span *, enum dp_phase, int64_t));
DP_WRAP(void, close_span, "dp_span_close", (struct dp_span *));
DP_WRAP(void, time_step, "dp_figures_time_step", (struct dp_figures *, const struct dp_run_job *));
DP_WRAP(dp_status, add_step, "dp_figures_add_step",
        (struct dp_figures *, const struct dp_run_job *, const struct dp_step_result *));
DP_WRAP(enum dp_watchdog_finding, look_at_ranks, "dp_watchdog_look",
        (struct dp_watchdog *, uint64_t));
DP_WRAP(void, bucket_began, "dp_bucket_times_begin", (struct dp_bucket_times *, uint64_t));
DP_WRAP(void, bucket_submitted, "dp_bucket_times_submitted", (struct dp_bucket_times *, int));
DP_WRAP(void, bucket_summed, "dp_bucket_times_summed",
        (struct dp_bucket_times *, int, const struct dp_bucket_time *, uint64_t, uint64_t));
DP_WRAP(void, bucket_exposed, "dp_bucket_times_exposed", (struct dp_bucket_times *, int, uint64_t));
DP_WRAP(dp_status, meet, "dp_shm_barrier_wait", (struct dp_shm_barrier *));
DP_WRAP(int, isend, "MPI_Isend",
        (const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *));
DP_WRAP(int, irecv, "MPI_Irecv", (void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *));
DP_WRAP(int, iallreduce, "MPI_Iallreduce",
        (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *));
DP_WRAP(int, allreduce, "MPI_Allreduce",
        (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm));
DP_WRAP(int, bcast, "MPI_Bcast", (void *, int, MPI_Datatype, int, MPI_Comm));
DP_WRAP(int, allgather, "MPI_Allgather",
        (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm));

/* What is counted, in its order in a line. */
enum {
    WALL_NS,
    CPU_NS,
    MAIN_NS,
    WRITER_NS,
    OTHER_NS,
    SWITCHES,
    MESSAGES,
    BARRIERS,
    SPANS,
    MAIN_SPANS,
    LEDGER_NS,
    LINES_NS,
    COUNTS
};
static const char *const names[COUNTS] = {"wall_ns",  "cpu_ns",     "main_ns",   "writer_ns",
                                          "other_ns", "switches",   "messages",  "barriers",
                                          "spans",    "main_spans", "ledger_ns", "lines_ns"};

enum { SPAN_LOOPS = 20000 };

static atomic_bool on = true;
static atomic_ullong counted[COUNTS];
static _Thread_local bool is_main;

static struct {
    long long first, steps, blocks, step; /* `step`: how many have begun */
    char path[512];
    uint64_t begin[COUNTS];
    uint64_t *step_ns, last_ns; /* of the steps of a block, from each one's begin to the next */
    FILE *out;
} plan;

static void count(int what, uint64_t by)
{
    (void)atomic_fetch_add_explicit(&counted[what], by, memory_order_relaxed);
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- blocks ---- */

static void read_counts(uint64_t now[COUNTS])
{
    struct dp_usage usage;

    dp_usage_read(&usage);
    for (int i = 0; i < COUNTS; i++) {
        now[i] = atomic_load(&counted[i]);
    }
    now[WRITER_NS] = usage.thread_ns[DP_THREAD_WRITER];
    now[OTHER_NS] = usage.thread_ns[DP_THREAD_OTHER];
    now[SWITCHES] = usage.waits + usage.preempted;
    now[CPU_NS] = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    now[MAIN_NS] = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    now[WALL_NS] = dp_now_ns();
}

/* What a span costs where a run publishes its marks, with warm caches. */
static double span_ns(void)
{
    const uint64_t begin_ns = dp_now_ns();

    for (int i = 0; i < SPAN_LOOPS; i++) {
        struct dp_span span;
        real_open_span(&span, DP_PHASE_OTHER, i);
        real_close_span(&span);
    }
    return (double)(dp_now_ns() - begin_ns) / SPAN_LOOPS;
}

static void begin_plan(void)
{
    const char *words = getenv("REPORT_SWITCH");

    is_main = true;
    plan.first = LLONG_MAX;
    if (words == NULL ||
        sscanf(words, /* NOLINT(cert-err34-c): report_blocks wrote it */
               "%lld:%lld:%lld:%500s", &plan.first, &plan.steps, &plan.blocks, plan.path) != 4) {
        return;
    }
    (void)snprintf(plan.path + strlen(plan.path), 12, ".%d", dp_world_launch_rank());
    plan.out = fopen(plan.path, "w");
    plan.step_ns = dp_zalloc((size_t)plan.steps, sizeof(*plan.step_ns));
    if (plan.out == NULL || plan.step_ns == NULL) {
        perror(plan.path);
        exit(74);
    }
}

static int ascending(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

static void write_block(long long block)
{
    uint64_t now[COUNTS];

    read_counts(now);
    qsort(plan.step_ns, (size_t)plan.steps, sizeof(*plan.step_ns), ascending);
    (void)fprintf(plan.out, "{\"block\": %lld, \"on\": %d", block, atomic_load(&on));
    for (int i = 0; i < COUNTS; i++) {
        (void)fprintf(plan.out, ", \"%s\": %llu", names[i],
                      (unsigned long long)(now[i] - plan.begin[i]));
    }
    (void)fprintf(plan.out, ", \"median_ns\": %llu}\n",
                  (unsigned long long)plan.step_ns[plan.steps / 2]);
}

/* Thue-Morse: the parity of the bits of the pair's number. */
static bool on_in(long long block)
{
    return __builtin_parityll((unsigned long long)block / 2) != (int)(block % 2);
}

/* A step begins: a block ends with the work that is done after its last step. */
static void turn(void)
{
    const long long into = plan.step - plan.first, block = plan.steps > 0 ? into / plan.steps : 0;

    if (plan.out != NULL && into > 0) {
        plan.step_ns[(into - 1) % plan.steps] = dp_now_ns() - plan.last_ns;
        plan.last_ns = dp_now_ns();
    }
    if (plan.step == 0) {
        begin_plan();
    } else if (plan.out != NULL && into == 0) {
        (void)fprintf(plan.out, "{\"span_ns\": %.1f}\n", span_ns());
    }
    if (plan.out != NULL && into >= 0 && into % plan.steps == 0 && block <= plan.blocks) {
        if (block > 0) {
            write_block(block - 1);
        }
        atomic_store(&on, block == plan.blocks || on_in(block));
        if (block == plan.blocks) {
            (void)fclose(plan.out);
            plan.out = NULL;
            dp_free(plan.step_ns);
        }
        read_counts(plan.begin);
        plan.last_ns = dp_now_ns();
    }
    plan.step++;
}

dp_status take_step(struct dp_trainer *trainer, struct dp_step_report *report)
{
    turn();
    return real_take_step(trainer, report);
}

/* ---- what is left out ---- */

/* A span is closed as it was opened, whatever was switched meanwhile. */
void open_span(struct dp_span *span, enum dp_phase phase, int64_t arg)
{
    if (atomic_load_explicit(&on, memory_order_relaxed)) {
        count(is_main ? MAIN_SPANS : SPANS, 1);
        real_open_span(span, phase, arg);
    } else {
        span->phase = DP_PHASE_COUNT;
    }
}

void close_span(struct dp_span *span)
{
    if (span->phase != DP_PHASE_COUNT) {
        real_close_span(span);
    }
}

void time_step(struct dp_figures *figures, const struct dp_run_job *job)
{
    if (atomic_load(&on)) {
        const uint64_t begin_ns = dp_now_ns();
        real_time_step(figures, job);
        count(LEDGER_NS, dp_now_ns() - begin_ns);
    }
}

dp_status add_step(struct dp_figures *figures, const struct dp_run_job *job,
                   const struct dp_step_result *result)
{
    dp_status status = DP_OK;

    if (atomic_load(&on)) {
        const uint64_t begin_ns = dp_now_ns();
        status = real_add_step(figures, job, result);
        count(LINES_NS, dp_now_ns() - begin_ns);
    }
    return status;
}

enum dp_watchdog_finding look_at_ranks(struct dp_watchdog *watchdog, uint64_t now_ns)
{
    return atomic_load(&on) ? real_look_at_ranks(watchdog, now_ns) : DP_WATCHDOG_FINE;
}

void bucket_began(struct dp_bucket_times *times, uint64_t begin_ns)
{
    if (atomic_load(&on)) {
        real_bucket_began(times, begin_ns);
    }
}

void bucket_submitted(struct dp_bucket_times *times, int bucket)
{
    if (atomic_load(&on)) {
        real_bucket_submitted(times, bucket);
    }
}

void bucket_summed(struct dp_bucket_times *times, int bucket, const struct dp_bucket_time *time,
                   uint64_t begin_ns, uint64_t end_ns)
{
    if (atomic_load(&on)) {
        real_bucket_summed(times, bucket, time, begin_ns, end_ns);
    }
}

void bucket_exposed(struct dp_bucket_times *times, int bucket, uint64_t ns)
{
    if (atomic_load(&on)) {
        real_bucket_exposed(times, bucket, ns);
    }
}

/* ---- what is counted ---- */

dp_status meet(struct dp_shm_barrier *barrier)
{
    count(BARRIERS, 1);
    return real_meet(barrier);
}

int isend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
          MPI_Request *request)
{
    count(MESSAGES, 1);
    return real_isend(data, n, type, to, tag, comm, request);
}

int irecv(void *data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm,
          MPI_Request *request)
{
    count(MESSAGES, 1);
    return real_irecv(data, n, type, from, tag, comm, request);
}

int iallreduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
               MPI_Request *request)
{
    count(MESSAGES, 1);
    return real_iallreduce(in, out, n, type, op, comm, request);
}

int allreduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    count(MESSAGES, 1);
    return real_allreduce(in, out, n, type, op, comm);
}

int bcast(void *data, int n, MPI_Datatype type, int root, MPI_Comm comm)
{
    count(MESSAGES, 1);
    return real_bcast(data, n, type, root, comm);
}

int allgather(const void *in, int n, MPI_Datatype type, void *out, int each, MPI_Datatype to,
              MPI_Comm comm)
{
    count(MESSAGES, 1);
    return real_allgather(in, n, type, out, each, to, comm);
}
