/*
 * cli.h - ddp_train's command line: one table of flags, which is also its help.
 */
#ifndef DP_RUNTIME_RUN_CLI_H
#define DP_RUNTIME_RUN_CLI_H

#include <stdbool.h>

#include "base/log.h"
#include "base/status.h"
#include "runtime/run/run_options.h"

struct dp_cli {
    struct dp_run_options run;
    char seed_set[64], device_set[160]; /* --seed and --device, as settings */
    const char *list;
    bool check, version, help;
    enum dp_log_level log_level;
};

/* Reads argv. Logs nothing when `silent` (another rank reports). Errors: DP_ERR_USAGE. */
DP_CHECKED dp_status dp_cli_parse(int argc, char **argv, bool silent, struct dp_cli *cli);

/* --help, --version and --list, on stdout. */
void dp_cli_help(void);
void dp_cli_version(void);
/* Errors: DP_ERR_USAGE (no such family). */
DP_CHECKED dp_status dp_cli_list(const char *family);

#endif
