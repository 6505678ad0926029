/*
 * names.h - a list of plug-ins from the command line: "ring,hier:inner=shm,outer=ring,topk".
 */
#ifndef DP_LAUNCH_BENCH_NAMES_H
#define DP_LAUNCH_BENCH_NAMES_H

#include "base/plugin.h"
#include "base/status.h"

struct dp_bench_names {
    char *text;      /* owned; the names point into it */
    const char **at; /* [count], and room for one more; owned */
    int count;
};

/*
 * Splits `list` at its commas; a piece that is a "key=value" belongs to the plug-in before it.
 * "all" stands for every plug-in of the family. Names are not checked, but an empty one is an
 * error. Errors: DP_ERR_USAGE, DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_bench_names_create(const char *list, const struct dp_plugin_family *family,
                                           struct dp_bench_names *names);
void dp_bench_names_destroy(struct dp_bench_names *names);

#endif
