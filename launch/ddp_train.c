/*
 * ddp_train.c - the training program: mpirun -np N ddp_train model.cfg
 */
#include <signal.h>

#include "base/log.h"
#include "collectives/world.h"
#include "runtime/cli.h"
#include "runtime/run.h"

static dp_status train(const struct dp_cli *cli)
{
    struct dp_world *world = NULL;
    dp_status status;

    DP_TRY(dp_world_create(&world));
    status = dp_run_main(cli, world);
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
