#include "collectives/world/failure_detector.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/system/launcher.h"
#include "base/system/thread.h"
#include "base/trace.h"

enum {
    SECOND_NS = 1000000000,
    LOOK_EVERY_NS = 100000000,
    HANG_S = 6,      /* by then mpirun has ended all ranks */
    HANG_LOOKS = 45, /* fewer than in HANG_S, also if some are late */
    GRACE_NS = 500000000
};

/* How long a launcher may take after a death to end the job, where it may be one that never does:
 * such jobs then end within five seconds of the death. */
static const uint64_t stand_by_ns = 4500000000;

/* How long a rank has to end by itself when a host is silent, or ranks make no progress. */
static const uint64_t end_ns = 3000000000;

/* Before the rank that reports a hang ends the job, so that other hosts report, too; and before
 * another one reports, since the one that is to may be stuck, or does so by itself: twice that. */
static const uint64_t report_ns = 500000000, no_report_ns = 4000000000;

/* For so long after a death on another host, which ends the job, nothing is called a hang. */
static const uint64_t ends_ns = 60000000000;

/* How long ranks of this host have to say where they are, and those of other hosts. */
static const uint64_t stacks_ns = 1000000000, rows_ns = 2500000000;

struct dp_failure_detector {
    struct dp_failure_detector_config config;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards stop and the hook */
    pthread_cond_t stopped;
    bool stop;
    atomic_uint_fast64_t lost_ns; /* when a rank was first seen to be lost; 0: none was */
    atomic_bool hung;             /* how ranks end is unknown: a host is silent, or none of its
                                   * ranks makes progress */
    uint64_t hung_ns;             /* when that was found; 0: it was not */
    uint64_t given_up_ns;         /* when it ended this rank's waits, since ranks hang */
    bool reports;                 /* this rank was the one to report when it was found */
    bool told;                    /* it has */
    uint64_t expected_ns;         /* since when its end is expected; 0: it is not */
    bool reports_loss;            /* it has reported a rank or host that is lost */
    dp_hang_hook *hook;           /* under the mutex */
    void *hook_context;
    dp_hang_hook *loss_hook; /* under the mutex, too */
    void *loss_context;
    atomic_uint_fast64_t ended_ns; /* when another host was found to have; 0: none was */
};

/* How long ranks may take to go on without one that has died: as long as a start. */
static const uint64_t shrink_ns = 300000000000;

static const atomic_bool *go_on; /* config.shrinks of the detector that handles SIGPIPE */
static atomic_bool hung_up;      /* a thread wrote to a rank that is gone */
static struct sigaction before;  /* how SIGPIPE was handled before */

/* Whether the broken pipe is our own stdout or stderr. */
static bool output_broken(void)
{
    struct pollfd pipes[] = {{.fd = STDOUT_FILENO}, {.fd = STDERR_FILENO}};

    return poll(pipes, 2, 0) > 0 &&
           ((pipes[0].revents | pipes[1].revents) & (POLLERR | POLLHUP)) != 0;
}

/* Does what would happen without a failure detector. */
static void pass_on(int number)
{
    if (before.sa_handler == SIG_DFL) {
        (void)sigaction(SIGPIPE, &before, NULL); /* for the next write */
    } else if (before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    }
}

/* Runs on the writing thread, inside write(), and holds it there. */
static void on_broken_pipe(int number)
{
    const int saved = errno;
    struct timespec left = {HANG_S, 0};

    if (output_broken()) {
        pass_on(number);
        errno = saved;
        return;
    }
    if (go_on != NULL && atomic_load(go_on)) { /* Open MPI notices that the write failed */
        errno = saved;
        return;
    }
    atomic_store(&hung_up, true);
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
    (void)sigaction(SIGPIPE, &before, NULL); /* for the next write */
    errno = saved;
}

/* The detector's own thread must not be held, even if its messages have no reader. */
static void ignore_broken_pipe(void)
{
    sigset_t signals;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
}

static void log_loss(const struct dp_loss *loss)
{
    if (loss->silent_s > 0) {
        dp_log(DP_LOG_ERROR, __FILE__, __LINE__,
               "no sign of life from host %s (rank %d) for %d s: is its network cut, or the host "
               "down? The job ends; start it again (comm.outage_s: how long to wait)",
               loss->host, loss->rank, loss->silent_s);
        return;
    }
    dp_log(DP_LOG_ERROR, __FILE__, __LINE__,
           "rank %d%s%s%s has died: was it killed, or out of memory? The job ends; start it again",
           loss->rank, loss->host == NULL ? ", of this host," : " (",
           loss->host == NULL ? "" : loss->host, loss->host == NULL ? "" : ")");
}

/* The mutex is held, so the hook stays. */
static void tell_of(struct dp_failure_detector *detector, const struct dp_loss *loss)
{
    const char *host = loss->host != NULL ? loss->host : "";
    char cause[256];

    log_loss(loss);
    detector->reports_loss = loss->silent_s == 0;
    if (loss->silent_s > 0) {
        (void)snprintf(cause, sizeof(cause), "no sign of life from host %s (rank %d) for %d s",
                       host, loss->rank, loss->silent_s);
    } else {
        (void)snprintf(cause, sizeof(cause), "rank %d%s%s%s has died", loss->rank,
                       *host != '\0' ? " (" : "", host, *host != '\0' ? ")" : "");
    }
    if (detector->loss_hook != NULL) {
        detector->loss_hook(detector->loss_context, cause);
    }
}

/* Checks once. */
static void look(struct dp_failure_detector *detector)
{
    const struct dp_failure_detector_config *config = &detector->config;
    const struct dp_loss loss = config->lost(config->context);
    const uint64_t now_ns = dp_now_ns();

    if (loss.rank < 0) {
        return;
    }
    if (atomic_load(&detector->lost_ns) == 0) {
        atomic_store(&detector->lost_ns, now_ns);
    }
    if (loss.silent_s == 0 && config->shrinks != NULL && atomic_load(config->shrinks)) {
        atomic_store(config->cancel, 1); /* the main thread reports it */
        return;
    }
    if (now_ns - atomic_load(&detector->lost_ns) < GRACE_NS) {
        return;
    }
    atomic_store(&detector->hung, loss.silent_s > 0);
    if (atomic_exchange(config->cancel, 1) == 0 && loss.reports) {
        tell_of(detector, &loss);
    }
    if (loss.silent_s > 0 && now_ns - atomic_load(&detector->lost_ns) > GRACE_NS + end_ns) {
        config->abort(dp_status_exit(DP_ERR_HUNG));
    }
}

/* The mutex is held, so the hook stays. */
static void report_hang(struct dp_failure_detector *detector, const struct dp_hang_row *rows,
                        int count, bool others)
{
    char cause[1024];

    /* First, since the rest may take long on a busy machine: another host would report, too. */
    dp_hang_gather_tell(detector->config.gather, DP_HANG_REPORT);
    dp_hang_table_report(rows, count, others, dp_watchdog_quiet_s(detector->config.watchdog),
                         detector->loss_hook != NULL);
    dp_hang_table_cause(rows, count, others, cause, sizeof(cause));
    if (detector->hook != NULL) {
        detector->hook(detector->hook_context, cause);
    }
    detector->told = true;
}

/* Once all is known that can be, or time is up, this host's rows go to the other hosts, and the
 * rank that reports does. */
static void gather_and_report(struct dp_failure_detector *detector)
{
    struct dp_watchdog *watchdog = detector->config.watchdog;
    struct dp_hang_gather *gather = detector->config.gather;
    const uint64_t since_ns = dp_now_ns() - detector->hung_ns;
    const struct dp_hang_row *rows;
    int count;

    if (detector->told || !detector->reports ||
        (!dp_watchdog_answered(watchdog) && since_ns < stacks_ns)) {
        return;
    }
    rows = dp_watchdog_rows(watchdog, &count);
    if (gather == NULL) {
        report_hang(detector, rows, count, dp_watchdog_has_others(watchdog));
        return;
    }
    dp_hang_gather_put(gather, rows, count);
    if ((dp_hang_gather_complete(gather) || since_ns >= rows_ns) &&
        dp_hang_gather_reports(gather)) {
        rows = dp_hang_gather_rows(gather, &count);
        report_hang(detector, rows, count, false);
    }
}

/* Ends the job, first by ending the waits of this rank, then by force. */
static void end_hang(struct dp_failure_detector *detector)
{
    const uint64_t now_ns = dp_now_ns();

    if (now_ns - detector->hung_ns < (detector->told ? report_ns : 2 * no_report_ns)) {
        return;
    }
    if (!atomic_exchange(&detector->hung, true)) {
        detector->given_up_ns = now_ns;
    }
    atomic_store(detector->config.cancel, 1);
    if (now_ns - detector->given_up_ns >= end_ns) {
        detector->config.abort(dp_status_exit(DP_ERR_HUNG));
    }
}

static void begin_report(struct dp_failure_detector *detector)
{
    detector->hung_ns = dp_now_ns();
    detector->reports = true;
    dp_watchdog_ask(detector->config.watchdog);
}

/* The rank that is to report may find the hang much later, since it counts only time in which it
 * runs: then another one of its host reports. So does a host if the one that is to has gone on and
 * ended. */
static void take_over(struct dp_failure_detector *detector)
{
    struct dp_watchdog *watchdog = detector->config.watchdog;
    struct dp_hang_gather *gather = detector->config.gather;
    const struct dp_hang_row *rows;
    int count;

    if (detector->told || dp_now_ns() - detector->hung_ns < no_report_ns ||
        atomic_load(detector->config.cancel) != 0 || dp_hang_gather_knows(gather, DP_HANG_REPORT)) {
        return;
    }
    if (!detector->reports) {
        if (dp_watchdog_claim(watchdog)) {
            begin_report(detector);
        }
    } else if (gather != NULL) {
        rows = dp_hang_gather_rows(gather, &count);
        report_hang(detector, rows, count, false);
    }
}

/* Whether a death ends the job, which another host has reported not long ago. */
static bool ends_elsewhere(struct dp_failure_detector *detector)
{
    struct dp_watchdog *watchdog = detector->config.watchdog;

    if (dp_hang_gather_knows(detector->config.gather, DP_HANG_DEATH)) {
        dp_watchdog_note_end(watchdog);
    }
    if (atomic_load(&detector->ended_ns) == 0 && dp_watchdog_ends(watchdog)) {
        atomic_store(&detector->ended_ns, dp_now_ns());
    }
    return dp_failure_detector_ends(detector) &&
           dp_now_ns() - atomic_load(&detector->ended_ns) < ends_ns;
}

/* Whether another host has found that ranks make no progress: the rank that reports for this one
 * hears of it. */
static bool others_hang(const struct dp_failure_detector *detector)
{
    return dp_hang_gather_look(detector->config.gather,
                               detector->reports || dp_watchdog_reports(detector->config.watchdog));
}

/* Checks the progress of this host's ranks. Once they hang, the job ends: what ends it has also
 * been reported to other hosts. */
static void look_at_progress(struct dp_failure_detector *detector)
{
    struct dp_watchdog *watchdog = detector->config.watchdog;
    enum dp_watchdog_finding finding;

    if (watchdog == NULL) {
        return;
    }
    if (atomic_load(&detector->lost_ns) != 0) {
        if (detector->reports_loss) { /* mpirun may take its time to end the job */
            dp_hang_gather_tell(detector->config.gather, DP_HANG_DEATH);
        }
        return;
    }
    if (detector->hung_ns == 0 && dp_launcher_ends()) {
        return; /* whoever is missing was ended */
    }
    dp_watchdog_answer(watchdog);
    finding = dp_watchdog_look(watchdog, dp_now_ns());
    if (others_hang(detector)) {
        finding = DP_WATCHDOG_HUNG;
    }
    if (ends_elsewhere(detector) && !detector->told) {
        detector->hung_ns = 0;
        return;
    }
    if (detector->hung_ns != 0 && (detector->told || finding == DP_WATCHDOG_HUNG)) {
        take_over(detector);
        gather_and_report(detector);
        end_hang(detector);
        return;
    }
    dp_watchdog_disclaim(watchdog);
    detector->hung_ns = 0;
    if (finding == DP_WATCHDOG_QUIET && dp_watchdog_reports(watchdog)) {
        dp_watchdog_warn(watchdog);
    }
    if (finding == DP_WATCHDOG_HUNG && atomic_load(detector->config.cancel) == 0) {
        detector->hung_ns = dp_now_ns();
        detector->reports = false;
        if (dp_watchdog_reports(watchdog) && dp_watchdog_claim(watchdog)) {
            begin_report(detector);
        }
    }
}

/* Called when a thread has been held for so many checks. */
static void tell_of_hanging(const struct dp_failure_detector *detector, int looks)
{
    if (looks == HANG_LOOKS && atomic_load(detector->config.cancel) == 0) {
        dp_log(DP_LOG_ERROR, __FILE__, __LINE__,
               "the connection to another rank is broken: has it died? The job ends; start it "
               "again");
    }
}

static void *look_out(void *arg)
{
    struct dp_failure_detector *detector = arg;
    int looks = 0; /* checks since a thread was held */

    ignore_broken_pipe();
    (void)pthread_mutex_lock(&detector->mutex);
    while (!detector->stop) {
        if (detector->expected_ns == 0) {
            look(detector);
            look_at_progress(detector);
        } else if (dp_now_ns() - detector->expected_ns > shrink_ns) {
            detector->config.abort(dp_status_exit(DP_ERR_HUNG));
        }
        looks += atomic_load(&hung_up);
        tell_of_hanging(detector, looks);
        dp_cond_wait_until(&detector->stopped, &detector->mutex, dp_now_ns() + LOOK_EVERY_NS);
    }
    (void)pthread_mutex_unlock(&detector->mutex);
    return NULL;
}

static void release(struct dp_failure_detector *detector)
{
    (void)sigaction(SIGPIPE, &before, NULL);
    (void)pthread_cond_destroy(&detector->stopped);
    (void)pthread_mutex_destroy(&detector->mutex);
    dp_free(detector);
}

dp_status dp_failure_detector_create(const struct dp_failure_detector_config *config,
                                     struct dp_failure_detector **out)
{
    const struct sigaction hang = {.sa_handler = on_broken_pipe};
    struct dp_failure_detector *detector = dp_zalloc(1, sizeof(*detector));
    dp_status status;

    if (detector == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "failure detector");
    }
    detector->config = *config;
    go_on = config->shrinks;
    (void)sigaction(SIGPIPE, &hang, &before);
    (void)pthread_mutex_init(&detector->mutex, NULL);
    dp_cond_init(&detector->stopped);
    status = dp_thread_start(&detector->thread, look_out, detector, "dp-detector",
                             "monitors other ranks");
    if (status != DP_OK) {
        release(detector);
        return status;
    }
    *out = detector;
    return DP_OK;
}

bool dp_failure_detector_lost(const struct dp_failure_detector *detector)
{
    return detector != NULL && atomic_load(&detector->lost_ns) != 0;
}

void dp_failure_detector_expect_end(struct dp_failure_detector *detector)
{
    if (detector != NULL) {
        (void)pthread_mutex_lock(&detector->mutex);
        detector->expected_ns = dp_now_ns();
        (void)pthread_mutex_unlock(&detector->mutex);
    }
}

bool dp_failure_detector_ends(const struct dp_failure_detector *detector)
{
    return detector != NULL && atomic_load(&detector->ended_ns) != 0;
}

bool dp_failure_detector_hung(const struct dp_failure_detector *detector)
{
    return detector != NULL && atomic_load(&detector->hung);
}

void dp_failure_detector_on_hang(struct dp_failure_detector *detector, dp_hang_hook *hook,
                                 void *context)
{
    (void)pthread_mutex_lock(&detector->mutex);
    detector->hook = hook;
    detector->hook_context = context;
    (void)pthread_mutex_unlock(&detector->mutex);
}

void dp_failure_detector_on_loss(struct dp_failure_detector *detector, dp_hang_hook *hook,
                                 void *context)
{
    (void)pthread_mutex_lock(&detector->mutex);
    detector->loss_hook = hook;
    detector->loss_context = context;
    (void)pthread_mutex_unlock(&detector->mutex);
}

void dp_failure_detector_stand_by(const struct dp_failure_detector *detector)
{
    const bool died = detector != NULL && !dp_failure_detector_hung(detector);
    const uint64_t lost_ns = died ? atomic_load(&detector->lost_ns) : 0;
    const uint64_t most_ns = died && detector->config.launcher_s > 0
                                 ? (uint64_t)detector->config.launcher_s * SECOND_NS
                                 : stand_by_ns;
    const struct timespec nap = {0, LOOK_EVERY_NS / 10};

    while (lost_ns != 0 && dp_now_ns() - lost_ns < most_ns) {
        (void)nanosleep(&nap, NULL);
    }
}

void dp_failure_detector_destroy(struct dp_failure_detector *detector)
{
    if (detector == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&detector->mutex);
    detector->stop = true;
    (void)pthread_cond_signal(&detector->stopped);
    (void)pthread_mutex_unlock(&detector->mutex);
    (void)pthread_join(detector->thread, NULL);
    if (detector->reports && !detector->told) {
        dp_watchdog_disclaim(detector->config.watchdog); /* this rank goes on, or ends */
    }
    release(detector);
}
