/*
 * ddp_train.c - the training program: mpirun -np N ddp_train model.cfg
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/files/stdio.h"
#include "base/log.h"
#include "base/system/guard.h"
#include "base/system/launcher.h"
#include "base/system/openmp.h"
#include "base/system/thread.h"

/* Instead of runtime/lockstep.h, which is for a program's own loop: this is the command line of a
 * whole run, with its signals. */
#include "collectives/world/world.h"
#include "runtime/control/stop.h"
#include "runtime/run/check.h"
#include "runtime/run/cli.h"
#include "runtime/run/run.h"
#include "runtime/run/selftest/selftest.h"
#include "runtime/run/use/evaluate.h"

static struct dp_stop stop; /* set by signal handlers, read by the run */
static atomic_bool ends;    /* this process may be ended soon, in the middle of a step */
static atomic_int sender;   /* the process that wants that */

static void on_save_signal(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    (void)context;
    dp_stop_request_save(&stop);
}

static enum dp_stop_cause cause_of(int number)
{
    switch (number) {
    case SIGTERM:
        return DP_STOP_TERM;
    case SIGINT:
        return DP_STOP_INT;
    case SIGHUP:
        return DP_STOP_HUP;
    default:
        return DP_STOP_USR1;
    }
}

static void on_stop_signal(int number, siginfo_t *info, void *context)
{
    const int saved = errno;
    (void)context;

    if (number == SIGTERM || number == SIGINT) { /* a second request ends the process at once */
        (void)signal(SIGTERM, SIG_DFL);
        (void)signal(SIGINT, SIG_DFL);
        atomic_store(&sender, info->si_pid);
        atomic_store(&ends, true);
    }
    dp_stop_request(&stop, cause_of(number));
    errno = saved;
}

/* For `ddp_train model.cfg | head`: when the reader exits, the run is asked to stop, and can be
 * resumed later. Runs on the thread that writes, inside the write, so not while that thread
 * computes. Later writes fail, without harm. */
static void on_broken_pipe(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    (void)context;
    dp_stop_request(&stop, DP_STOP_PIPE);
}

/* Signals from outside, which any thread may receive. */
static const struct {
    int number;
    void (*handler)(int number, siginfo_t *info, void *context);
} handled[] = {{SIGUSR1, on_stop_signal},
               {SIGTERM, on_stop_signal},
               {SIGINT, on_stop_signal},
               {SIGHUP, on_stop_signal}, /* the terminal is gone, or ssh */
               {SIGUSR2, on_save_signal}};
enum { HANDLED_COUNT = sizeof(handled) / sizeof(handled[0]) };

static void all_handled(sigset_t *numbers)
{
    (void)sigemptyset(numbers);
    for (int i = 0; i < HANDLED_COUNT; i++) {
        (void)sigaddset(numbers, handled[i].number);
    }
}

static void *take_signals(void *arg)
{
    sigset_t numbers, none;

    (void)arg;
    (void)sigemptyset(&none);
    all_handled(&numbers);
    (void)pthread_sigmask(SIG_BLOCK, &numbers, NULL); /* only while it waits: none is missed */
    for (;;) {
        (void)sigsuspend(&none);
        if (atomic_load(&ends)) {
            dp_launcher_tell_ending((pid_t)atomic_load(&sender));
            dp_world_farewell();
        }
    }
    return NULL;
}

/*
 * Handlers run on a thread that does nothing else, since a thread that computes may have no stack
 * for them: while the sgemm of oneDNN (2.6.3; its issue 4845) computes, the stack pointer points
 * into a block of the heap, and a signal overwrites what is below that block. Usually the process
 * then ends in a free(): "corrupted size vs. prev_size while consolidating".
 *
 * Called before other threads begin, since they inherit the blocked signals.
 */
static dp_status block_signals_but_on_a_thread(void)
{
    pthread_t taker;
    sigset_t numbers;

    DP_TRY(dp_thread_start(&taker, take_signals, NULL, "dp-signals", "takes signals"));
    (void)pthread_detach(taker); /* until the process ends */
    all_handled(&numbers);
    (void)pthread_sigmask(SIG_BLOCK, &numbers, NULL);
    return DP_OK;
}

/* Signals that the caller ignores, as with nohup, stay ignored. */
static void handle(int number, void (*handler)(int number, siginfo_t *info, void *context))
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_RESTART | SA_SIGINFO},
                     before;

    (void)sigemptyset(&action.sa_mask);
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
        (void)sigaction(number, &action, NULL);
    }
}

static dp_status handle_signals(void)
{
    DP_TRY(block_signals_but_on_a_thread());
    for (int i = 0; i < HANDLED_COUNT; i++) {
        handle(handled[i].number, handled[i].handler);
    }
    handle(SIGPIPE, on_broken_pipe);
    return DP_OK;
}

static dp_status answer(const struct dp_cli *cli)
{
    if (cli->help) {
        dp_cli_help();
    } else if (cli->version) {
        dp_cli_version();
    } else {
        return cli->list != NULL ? dp_cli_list(cli->list) : dp_run_check(&cli->run);
    }
    return DP_OK;
}

/* The flag of a command line that only asks for output, which answer() prints; else "". */
static const char *question(const struct dp_cli *cli)
{
    return cli->help           ? " --help"
           : cli->version      ? " --version"
           : cli->list != NULL ? " --list"
           : cli->check        ? " --check"
                               : "";
}

/* Whether it is to train; otherwise it prints something on stdout. */
static bool trains(const struct dp_cli *cli)
{
    return *question(cli) == '\0' && !cli->run.print_config && !cli->run.dry_run &&
           !cli->run.data_only && !cli->run.selftest && cli->run.evaluate == NULL;
}

/* parsed: the result of parsing the command line. */
static dp_status train(int argc, char **argv, struct dp_cli *cli, dp_status parsed)
{
    const bool asks = *question(cli) != '\0';
    struct dp_world *world = NULL;
    char asked[32];
    dp_status status;
    bool must_report;

    if (trains(cli) && parsed == DP_OK) {
        /* before ranks start: an early request is handled after the first step */
        DP_TRY(handle_signals());
    }
    DP_TRY(dp_world_create(&world));
    (void)snprintf(asked, sizeof(asked), "ddp_train%s%s", question(cli),
                   cli->run.selftest ? " --selftest" : "");
    status = dp_world_meet(world, asked, parsed, &must_report);
    if (must_report) {
        status = dp_cli_parse(argc, argv, false, cli);
    } else if (status == DP_OK && asks && world->all->rank == 0) {
        status = answer(cli); /* on one rank */
    } else if (status == DP_OK && !asks) {
        status = cli->run.selftest           ? dp_selftest_run(&cli->run, world)
                 : cli->run.evaluate != NULL ? dp_run_evaluate_saved(&cli->run, world)
                                             : dp_run_main(&cli->run, world, &stop);
    }
    if (status == DP_OK && world->all->rank == 0) {
        dp_launcher_tell_done();
    }
    dp_world_destroy(world);
    return status;
}

int main(int argc, char **argv)
{
    const int rank = dp_world_launch_rank();
    struct dp_cli cli;
    dp_status status = dp_stdio_open();
    int guarded;

    if (status != DP_OK) {
        return dp_status_exit(status);
    }
    dp_openmp_spin_briefly(argv);
    guarded = dp_guard_rank(DP_GUARD_S);
    if (guarded >= 0) {
        return guarded;
    }
    (void)signal(SIGXFSZ, SIG_IGN); /* a limit of file sizes is an error like a full disk */
    status = dp_cli_parse(argc, argv, rank > 0, &cli);
    if (status == DP_OK) {
        dp_log_set_level(cli.log_level);
    }
    status = train(argc, argv, &cli, status);
    return dp_status_exit(dp_stdio_finish(status, !trains(&cli)));
}
