/*
 * ddp_bench.c - compares ways to share gradients: mpirun -np N ddp_bench
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/files/stdio.h"
#include "base/system/launcher.h"
#include "base/system/openmp.h"
#include "base/system/thread.h"
#include "launch/bench/bench.h"
#include "launch/bench/costs.h"

/* Instead of runtime/lockstep.h, since it does not train. */
#include "collectives/world/world.h"

/* The flag of a command line that only asks for output, which answer() prints; else "". */
static const char *question(const struct dp_bench_options *options)
{
    return options->help      ? " --help"
           : options->version ? " --version"
           : options->list    ? " --list"
                              : "";
}

static void answer(const struct dp_bench_options *options)
{
    if (options->help) {
        dp_bench_help();
    } else if (options->version) {
        dp_bench_version();
    } else {
        dp_bench_list();
    }
}

/* Ends this process as the signal would, after the other ranks were informed of it. */
static void *take_signals(void *arg)
{
    const sigset_t *numbers = arg;
    siginfo_t info;
    const int number = sigwaitinfo(numbers, &info);

    if (number > 0) {
        dp_launcher_tell_ending(info.si_pid);
        dp_world_farewell();
        (void)signal(number, SIG_DFL);
        (void)pthread_sigmask(SIG_UNBLOCK, numbers, NULL);
        (void)raise(number);
    }
    return NULL;
}

/* Called before other threads begin, since they inherit the blocked signals. */
static dp_status handle_signals(void)
{
    static sigset_t numbers;
    pthread_t taker;

    (void)sigemptyset(&numbers);
    (void)sigaddset(&numbers, SIGTERM);
    (void)sigaddset(&numbers, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &numbers, NULL);
    DP_TRY(dp_thread_start(&taker, take_signals, &numbers, "dp-signals", "takes signals"));
    (void)pthread_detach(taker); /* until the process ends */
    return DP_OK;
}

/* parsed: the result of parsing the command line. */
static dp_status compare(int argc, char **argv, struct dp_bench_options *options, dp_status parsed)
{
    const bool asks = *question(options) != '\0';
    struct dp_world *world = NULL;
    char asked[32];
    dp_status status;
    bool must_report;

    DP_TRY(handle_signals());
    (void)snprintf(asked, sizeof(asked), "ddp_bench%s", question(options));
    DP_TRY(dp_world_create(&world));
    status = dp_world_meet(world, asked, parsed, &must_report);
    if (must_report) {
        status = dp_bench_parse(argc, argv, false, options);
    } else if (status == DP_OK && asks && world->all->rank == 0) {
        answer(options); /* on one rank */
    } else if (status == DP_OK && !asks) {
        status = dp_bench_main(options, world);
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
    struct dp_bench_options options;
    dp_status status = dp_stdio_open();

    if (status == DP_OK) {
        dp_openmp_spin_briefly(argv);
        status = dp_bench_parse(argc, argv, rank > 0, &options);
        if (status == DP_OK && options.costs != NULL) { /* needs no other rank */
            status = rank > 0 ? DP_OK : dp_bench_costs(options.costs);
        } else {
            status = compare(argc, argv, &options, status);
        }
        status = dp_stdio_finish(status, true);
    }
    return dp_status_exit(status);
}
