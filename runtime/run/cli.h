/*
 * cli.h - ddp_train's command line: one table of flags, which is also its help.
 */
#ifndef DP_RUNTIME_RUN_CLI_H
#define DP_RUNTIME_RUN_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "base/status.h"

enum { DP_CLI_SETS = 256 };

struct dp_cli {
    const char *config; /* path of model.cfg */
    const char *sets[DP_CLI_SETS];
    int set_count;
    char seed_set[64], device_set[160]; /* --seed and --device, as settings */
    const char *out, *init, *baseline, *list, *plan;
    const char *resume; /* NULL: no; "auto", or a path */
    int forget;         /* for tests, no flag sets it: above 0, the kept row, counted from 1, that a
                           resumed run does not take over */
    int64_t steps;      /* 0: as configured */
    double max_time_s;  /* 0: none */
    bool cached_input, data_only, check, dry_run, print_config, quiet, version, help;
    enum dp_log_level log_level;
};

/* Reads argv. Logs nothing when `silent` (other ranks tell). Errors: DP_ERR_USAGE. */
DP_CHECKED dp_status dp_cli_parse(int argc, char **argv, bool silent, struct dp_cli *cli);

/* --help, --version and --list, on stdout. */
void dp_cli_help(void);
void dp_cli_version(void);
/* Errors: DP_ERR_USAGE (no such family). */
DP_CHECKED dp_status dp_cli_list(const char *family);

#endif
