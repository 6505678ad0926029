/*
 * run.h - one training run from its command line to its report.
 */
#ifndef DP_RUNTIME_RUN_RUN_H
#define DP_RUNTIME_RUN_RUN_H

#include "base/status.h"

struct dp_cli;
struct dp_stop;
struct dp_world;

/* All of it: what main() calls. `stop`: where requests to stop arrive; or NULL. */
DP_CHECKED dp_status dp_run_main(const struct dp_cli *cli, struct dp_world *world,
                                 struct dp_stop *stop);

#endif
