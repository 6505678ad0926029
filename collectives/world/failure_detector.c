#include "collectives/world/failure_detector.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/trace.h"

enum {
    SECOND_NS = 1000000000,
    LOOK_EVERY_NS = 100000000,
    HANG_S = 6,      /* mpirun has ended all ranks before */
    HANG_LOOKS = 45, /* less, also where looks are late */
    GRACE_NS = 500000000
};

/* So long behind a death a launcher may take; jobs that it does not end then end within five
 * seconds. */
static const uint64_t stand_by_ns = 4500000000;

/* What a rank has to end by itself when a host is silent. */
static const uint64_t end_ns = 3000000000;

struct dp_failure_detector {
    struct dp_failure_detector_config config;
    pthread_t thread;
    pthread_mutex_t mutex; /* of stop */
    pthread_cond_t stopped;
    bool stop;
    atomic_uint_fast64_t lost_ns; /* when somebody was first seen to be lost; 0: nobody was */
    atomic_bool silent;           /* it may live: its host has fallen silent */
};

static atomic_bool hung_up;     /* a thread wrote to somebody who is gone */
static struct sigaction before; /* what SIGPIPE did */

/* Whether it is our own output that nobody reads any more. */
static bool output_broken(void)
{
    struct pollfd pipes[] = {{.fd = STDOUT_FILENO}, {.fd = STDERR_FILENO}};

    return poll(pipes, 2, 0) > 0 &&
           ((pipes[0].revents | pipes[1].revents) & (POLLERR | POLLHUP)) != 0;
}

/* What would happen without a failure detector. */
static void pass_on(int number)
{
    if (before.sa_handler == SIG_DFL) {
        (void)sigaction(SIGPIPE, &before, NULL); /* what writes again meets that */
    } else if (before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    }
}

/* Runs on the thread that writes, inside of the write, and keeps it there. */
static void on_broken_pipe(int number)
{
    const int saved = errno;
    struct timespec left = {HANG_S, 0};

    if (output_broken()) {
        pass_on(number);
        errno = saved;
        return;
    }
    atomic_store(&hung_up, true);
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
    (void)sigaction(SIGPIPE, &before, NULL); /* what writes again meets that */
    errno = saved;
}

/* The thread that looks out must not stand still, even if nobody reads what it tells. */
static void ignore_broken_pipe(void)
{
    sigset_t signals;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
}

static void tell_of(const struct dp_loss *loss)
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

/* Looks once. */
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
    if (now_ns - atomic_load(&detector->lost_ns) < GRACE_NS) {
        return;
    }
    atomic_store(&detector->silent, loss.silent_s > 0);
    if (atomic_exchange(config->cancel, 1) == 0 && loss.reports) {
        tell_of(&loss);
    }
    if (loss.silent_s > 0 && now_ns - atomic_load(&detector->lost_ns) > GRACE_NS + end_ns) {
        config->abort(dp_status_exit(DP_ERR_HUNG));
    }
}

/* A thread has hung for so many looks. */
static void tell_of_hanging(const struct dp_failure_detector *detector, int looks)
{
    if (looks == HANG_LOOKS && atomic_load(detector->config.cancel) == 0) {
        dp_log(DP_LOG_ERROR, __FILE__, __LINE__,
               "the connection to another rank is broken: has it died? The job ends; start it "
               "again");
    }
}

/* Sleeps until it is time to look, or to stop. Called with the mutex held. */
static void sleep_a_while(struct dp_failure_detector *detector)
{
    struct timespec end;

    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += LOOK_EVERY_NS;
    if (end.tv_nsec >= SECOND_NS) {
        end.tv_nsec -= SECOND_NS;
        end.tv_sec++;
    }
    (void)pthread_cond_timedwait(&detector->stopped, &detector->mutex, &end);
}

static void *look_out(void *arg)
{
    struct dp_failure_detector *detector = arg;
    int looks = 0; /* since a thread hung */

    ignore_broken_pipe();
    dp_log_aloud(true);
    (void)pthread_mutex_lock(&detector->mutex);
    while (!detector->stop) {
        look(detector);
        looks += atomic_load(&hung_up);
        tell_of_hanging(detector, looks);
        sleep_a_while(detector);
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
    pthread_condattr_t clock;
    dp_status status;

    if (detector == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "failure detector");
    }
    detector->config = *config;
    (void)sigaction(SIGPIPE, &hang, &before);
    (void)pthread_mutex_init(&detector->mutex, NULL);
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&detector->stopped, &clock);
    (void)pthread_condattr_destroy(&clock);
    status = dp_thread_start(&detector->thread, look_out, detector, "dp-detector",
                             "looks after other ranks");
    if (status != DP_OK) {
        release(detector);
        return status;
    }
    *out = detector;
    return DP_OK;
}

bool dp_failure_detector_silent(const struct dp_failure_detector *detector)
{
    return detector != NULL && atomic_load(&detector->silent);
}

void dp_failure_detector_stand_by(const struct dp_failure_detector *detector)
{
    const bool died = detector != NULL && !dp_failure_detector_silent(detector);
    const uint64_t lost_ns = died ? atomic_load(&detector->lost_ns) : 0;
    const struct timespec nap = {0, LOOK_EVERY_NS / 10};

    while (lost_ns != 0 && dp_now_ns() - lost_ns < stand_by_ns) {
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
    release(detector);
}
