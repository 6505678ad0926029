/*
 * lookout.h - whether all ranks live: a thread asks it, some times a second. So it is told who has
 * died also while this rank computes, or is inside of a call that does not look (MPI_Allreduce):
 * mpirun, which ends the job, names nobody, and leaves ranks a second.
 */
#ifndef DP_COLLECTIVES_LOOKOUT_H
#define DP_COLLECTIVES_LOOKOUT_H

#include "collectives/group.h"

struct dp_lookout;

/* group: borrowed; from here on the lookout alone asks dp_group_all_live() of it. Errors:
 * DP_ERR_NOMEM, DP_ERR_INTERNAL (no thread). */
DP_CHECKED dp_status dp_lookout_create(const struct dp_group *group, struct dp_lookout **out);

/* NULL is ignored. */
void dp_lookout_destroy(struct dp_lookout *lookout);

#endif
