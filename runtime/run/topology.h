/*
 * topology.h - the nodes of a job, the ranks on each, and what they have there.
 */
#ifndef DP_RUNTIME_RUN_TOPOLOGY_H
#define DP_RUNTIME_RUN_TOPOLOGY_H

#include "runtime/report/live/progress.h"
#include "runtime/run/job.h"

/* --dry-run: node after node, with cores and NUMA nodes of each rank, and the order in which a ring
 * visits them. */
void dp_run_draw_topology(const struct dp_run_job *job, struct dp_progress *progress);

#endif
