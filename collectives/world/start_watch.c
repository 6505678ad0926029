#include "collectives/world/start_watch.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/system/guard.h"
#include "base/system/launcher.h"
#include "base/system/thread.h"
#include "base/trace.h"
#include "collectives/world/launched.h"

enum {
    WARN_S = 60,       /* or half of the limit */
    NAMED_MOST = 8,    /* ranks in a message */
    FOUND_MOST = 4096, /* processes of this host */
    OTHERS_S = 10,     /* later reports a host that has less to say; each after the one before */
    OTHERS_MOST = 5,   /* so many turns at most */
    SILENT_S = 90,     /* after the limit a rank ends that has nothing to report */
    TEXT_BYTES = 1024
};

static const uint64_t second_ns = 1000000000, look_ns = 1000000000,
                      turn_ns = 200000000; /* of ranks of a host */
static const char thread_name[] = "dp-start";

struct dp_start_watch {
    struct dp_start_watch_config is;
    struct dp_job_process *found; /* owned; [FOUND_MOST] */
    enum { WARN, LIMIT, LATER, LAST } stage;
    uint64_t due_ns;   /* when it comes, after the start */
    uint64_t asked_ns; /* when this process was asked to end, after the start; 0: it was not */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t stopped;
    bool stop;
};

static atomic_bool asked;

static bool waits(const struct dp_job_process *p)
{
    return p->come && dp_process_stands(p->state) == NULL;
}

static const char *doing(const struct dp_job_process *p)
{
    const char *stands = dp_process_stands(p->state);

    if (stands != NULL) {
        return stands;
    }
    return p->state == 'D' ? "waits for a device" : p->state == 'R' ? "computing" : "sleeping";
}

/* The ranks that are missing, in words. */
struct list {
    char *text;
    size_t size, used;
    int missing;
};

static void add(struct list *list, int ranks, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add(struct list *list, int ranks, const char *format, ...)
{
    const char *before = list->missing > 0 ? ", " : "did not arrive: ";
    char one[TEXT_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(one, sizeof(one), format, args);
    va_end(args);
    if (list->missing < NAMED_MOST && list->used < list->size) {
        list->used +=
            (size_t)snprintf(list->text + list->used, list->size - list->used, "%s%s", before, one);
    }
    list->missing += ranks;
}

/* Those in [first, end), which have no process. */
static void add_unstarted(const struct dp_start_watch *w, struct list *list, int first, int end)
{
    for (int rank = first; rank < end; rank++) {
        add(list, 1, "rank %d (%s): not started", rank, w->is.host);
    }
}

/* Of a host whose ranks are all of the job, the numbers of those without a process are known. */
static int name_ranks(const struct dp_start_watch *w, int found, char *text, size_t size)
{
    struct list list = {.text = text, .size = size};
    const int numbers = w->is.here == w->is.ranks ? w->is.ranks : 0;
    int next = 0;

    for (int i = 0; i < found; i++) {
        const struct dp_job_process *p = &w->found[i];
        add_unstarted(w, &list, next, p->rank < numbers ? p->rank : numbers);
        next = p->rank + 1;
        if (!waits(p)) {
            add(&list, 1, "rank %d (%s): %s, process %lld (%s)", p->rank, w->is.host, doing(p),
                (long long)p->id, p->name);
        }
    }
    add_unstarted(w, &list, next, numbers);
    if (numbers == 0 && w->is.here > found) {
        add(&list, w->is.here - found, "%d of %d ranks of host %s: not started", w->is.here - found,
            w->is.here, w->is.host);
    }
    if (list.missing > NAMED_MOST && list.used < size) {
        (void)snprintf(text + list.used, size - list.used, " (%d in all)", list.missing);
    }
    return list.missing;
}

/* Whether this rank sees itself: where it does not, others may be there, too. */
static bool sees(const struct dp_start_watch *w, int found)
{
    int i = 0;

    while (i < found && w->found[i].rank != w->is.rank) {
        i++;
    }
    return i < found;
}

/* Who did not arrive, as far as can be seen from here; how many. */
static int find_cause(struct dp_start_watch *w, int *found, char *out, size_t size)
{
    const int here = w->is.here;
    int missing;

    *found = dp_job_processes_find(&w->is.job, w->found, FOUND_MOST);
    if (!sees(w, *found)) {
        (void)snprintf(out, size, "who is missing cannot be seen from rank %d (%s)", w->is.rank,
                       w->is.host);
        return 0;
    }
    missing = name_ranks(w, *found, out, size);
    if (missing > 0) {
        return missing;
    }
    if (here > 0 && here < w->is.ranks) {
        (void)snprintf(out, size,
                       "all ranks of host %s have come, but not those of other hosts: do these "
                       "hosts answer, and does mpirun reach them?",
                       w->is.host);
    } else {
        (void)snprintf(out, size, "all ranks that can be seen on host %s wait in MPI_Init",
                       w->is.host);
    }
    return 0;
}

static bool is_held(const struct dp_start_watch *w, int found)
{
    for (int i = 0; i < found; i++) {
        if (w->found[i].state == 't') {
            return true;
        }
    }
    return false;
}

/* Whether this rank speaks for the host: the first that has come, and is not stopped. */
static bool leads(const struct dp_start_watch *w, int found)
{
    for (int i = 0; i < found; i++) {
        if (waits(&w->found[i])) {
            return w->found[i].rank == w->is.rank;
        }
    }
    return true; /* it does not see itself */
}

static void report(const struct dp_start_watch *w, const char *cause, uint64_t past_ns)
{
    dp_log(DP_LOG_ERROR, __FILE__, __LINE__,
           "ranks have not met for %.0f s: %s; the job ends, start it again", (double)past_ns / 1e9,
           cause);
    w->is.end(dp_status_exit(DP_ERR_HUNG));
}

/* The ranks of a host look in turns. */
static uint64_t due_after(const struct dp_start_watch *w, double seconds)
{
    return (uint64_t)(seconds * 1e9) + turn_ns * (uint64_t)w->is.local_rank;
}

/* How much later than others a host reports whose ranks have all come. */
static uint64_t later_ns(const struct dp_start_watch *w)
{
    const int turns = w->is.rank < OTHERS_MOST ? w->is.rank + 1 : OTHERS_MOST;

    return (uint64_t)OTHERS_S * second_ns * (uint64_t)turns;
}

/* Whether this process was asked to end for so long that it will not come to it by itself. */
static bool must_end(struct dp_start_watch *w, uint64_t past_ns)
{
    if (w->is.asked == NULL || !atomic_load(w->is.asked)) {
        return false;
    }
    w->asked_ns = w->asked_ns == 0 ? past_ns + 1 : w->asked_ns;
    return past_ns >= w->asked_ns + DP_START_FAREWELL_S * second_ns;
}

uint64_t dp_start_watch_look(struct dp_start_watch *w, uint64_t past_ns)
{
    const uint64_t limit_ns = due_after(w, w->is.limit_s);
    char cause[TEXT_BYTES];
    int missing, found;
    bool speaks;

    if (must_end(w, past_ns)) {
        if (w->is.rank == 0) {
            DP_WARN("asked to end before ranks have met: nothing is saved");
        }
        w->is.end(128 + SIGTERM);
    }
    if (past_ns < w->due_ns) {
        return w->due_ns;
    }
    missing = find_cause(w, &found, cause, sizeof(cause));
    speaks = leads(w, found);
    if (w->stage == WARN) {
        if (speaks && (missing > 0 || w->is.rank == 0)) {
            DP_WARN("ranks have not met for %.0f s: %s; the job ends after %.0f s",
                    (double)past_ns / 1e9, cause, w->is.limit_s);
        }
        w->stage = LIMIT;
        w->due_ns = limit_ns;
    } else if (is_held(w, found)) {
        w->due_ns += WARN_S * second_ns;
    } else if (w->stage == LAST) {
        w->is.end(dp_status_exit(DP_ERR_HUNG));
    } else if (speaks && (missing > 0 || w->stage == LATER)) {
        report(w, cause, past_ns);
    } else {
        w->stage = speaks ? LATER : LAST;
        w->due_ns = limit_ns + (speaks ? later_ns(w) : SILENT_S * second_ns);
    }
    return w->due_ns;
}

/* Time in which this process did not run, as when the whole job is suspended, does not count. */
static void *look_out(void *arg)
{
    struct dp_start_watch *w = arg;
    uint64_t past_ns = 0, last_ns = dp_now_ns(), gap_ns;

    (void)pthread_mutex_lock(&w->mutex);
    while (!w->stop) {
        (void)dp_start_watch_look(w, past_ns);
        dp_cond_wait_until(&w->stopped, &w->mutex, last_ns + look_ns);
        gap_ns = dp_now_ns() - last_ns;
        last_ns += gap_ns;
        past_ns += gap_ns < 2 * look_ns ? gap_ns : 2 * look_ns;
    }
    (void)pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* MPI_Abort may not be called yet: the launcher ends the others, for which a guard asks it. */
static void end_process(int code)
{
    dp_launcher_tell(code);
    dp_guard_note(true);
    _exit(code);
}

void dp_start_watch_destroy(struct dp_start_watch *w)
{
    dp_free(w->found);
    dp_free(w);
}

struct dp_start_watch *dp_start_watch_create(const struct dp_start_watch_config *config)
{
    struct dp_start_watch *w = dp_zalloc(1, sizeof(*w));

    if (w == NULL) {
        return NULL;
    }
    w->is = *config;
    w->due_ns = due_after(w, fmin(WARN_S, config->limit_s / 2));
    w->found = dp_zalloc(FOUND_MOST, sizeof(*w->found));
    if (w->found == NULL) {
        dp_start_watch_destroy(w);
        return NULL;
    }
    return w;
}

/* The number in the first of some variables that is set; `none`: in no one. */
static int number_in(const char *const *names, int none)
{
    for (; *names != NULL; names++) {
        const char *text = getenv(*names);
        if (text != NULL) {
            return (int)strtol(text, NULL, 10);
        }
    }
    return none;
}

static double limit_s(void)
{
    const char *text = getenv("DP_TRAIN_UNSEEN_TIMEOUT_S");
    double seconds;

    text = text != NULL ? text : getenv("DDP_TRAIN_UNSEEN_TIMEOUT_S");
    seconds = text != NULL ? strtod(text, NULL) : 0.0;
    return seconds > 0.0 ? seconds : DP_START_LIMIT_S; /* also for what is no number */
}

static struct dp_start_watch *create(const char *host)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS",
                                        NULL};
    static const char *const here[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", NULL};
    static const char *const local[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                        "SLURM_LOCALID", NULL};
    const int rank = dp_world_launch_rank();
    const struct dp_start_watch_config config = {
        .job = {.proc = "/proc",
                .space = getenv("PMIX_NAMESPACE"),
                .launcher = dp_guard_launcher(),
                .thread = thread_name},
        .rank = rank,
        .ranks = number_in(sizes, 0),
        .here = number_in(here, 0),
        .local_rank = number_in(local, rank),
        .host = host,
        .limit_s = limit_s(),
        .asked = &asked,
        .end = end_process,
    };

    return rank < 0 || config.ranks == 1 ? NULL : dp_start_watch_create(&config);
}

struct dp_start_watch *dp_start_watch_begin(const char *host)
{
    struct dp_start_watch *w;
    struct dp_log_capture problem;

    dp_log_capture_begin(&problem, DP_LOG_ERROR); /* the job may well start without it */
    w = create(host);
    if (w != NULL) {
        (void)pthread_mutex_init(&w->mutex, NULL);
        dp_cond_init(&w->stopped);
        if (dp_thread_start(&w->thread, look_out, w, thread_name, "watches the start") != DP_OK) {
            dp_start_watch_destroy(w);
            w = NULL;
        }
    }
    dp_log_capture_end(&problem, DP_LOG_DROP);
    return w;
}

void dp_start_watch_farewell(void)
{
    atomic_store(&asked, true);
}

void dp_start_watch_end(struct dp_start_watch *w)
{
    if (w == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&w->mutex);
    w->stop = true;
    (void)pthread_cond_signal(&w->stopped);
    (void)pthread_mutex_unlock(&w->mutex);
    (void)pthread_join(w->thread, NULL);
    dp_start_watch_destroy(w);
}
