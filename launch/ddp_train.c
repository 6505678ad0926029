/*
 * ddp_train.c - the training program: mpirun -np N ddp_train model.cfg
 */
#include <errno.h>
#include <signal.h>

#include "base/log.h"
#include "collectives/world.h"
#include "runtime/cli.h"
#include "runtime/run.h"
#include "runtime/stop.h"

static struct dp_stop stop; /* what signal handlers note, for the run */

static void on_save_signal(int number)
{
    (void)number;
    dp_stop_request_save(&stop);
}

static void on_stop_signal(int number)
{
    const int saved = errno;

    if (number != SIGUSR1) { /* whoever asks again does not want to wait */
        (void)signal(SIGTERM, SIG_DFL);
        (void)signal(SIGINT, SIG_DFL);
    }
    dp_stop_request(&stop, number == SIGUSR1   ? DP_STOP_USR1
                           : number == SIGTERM ? DP_STOP_TERM
                                               : DP_STOP_INT);
    errno = saved;
}

/* What the caller ignores, as nohup does, stays ignored. */
static void handle(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;

    (void)sigemptyset(&action.sa_mask);
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
        (void)sigaction(number, &action, NULL);
    }
}

static dp_status train(const struct dp_cli *cli)
{
    const bool trains = !cli->print_config && !cli->dry_run && !cli->data_only;
    struct dp_world *world = NULL;
    dp_status status;

    if (trains) { /* before ranks start: a request that comes early is heard behind the first step */
        handle(SIGUSR1, on_stop_signal);
        handle(SIGTERM, on_stop_signal);
        handle(SIGINT, on_stop_signal);
        handle(SIGUSR2, on_save_signal);
    }
    DP_TRY(dp_world_create(&world));
    status = dp_run_main(cli, world, &stop);
    dp_world_destroy(world);
    return status;
}

int main(int argc, char **argv)
{
    const int rank = dp_world_launch_rank();
    struct dp_cli cli;
    dp_status status = dp_cli_parse(argc, argv, rank > 0, &cli);

    (void)signal(SIGXFSZ, SIG_IGN); /* a limit of file sizes is an error, as a full disk is */
    if (status != DP_OK) {
        return dp_status_exit(status);
    }
    dp_log_set_level(cli.log_level);
    if (cli.help || cli.version || cli.list != NULL || cli.check) {
        if (rank > 0) {
            return 0; /* one rank answers */
        }
        if (cli.help) {
            dp_cli_help();
        } else if (cli.version) {
            dp_cli_version();
        } else {
            status = cli.list != NULL ? dp_cli_list(cli.list) : dp_run_check(&cli);
        }
        return dp_status_exit(status);
    }
    return dp_status_exit(train(&cli));
}
