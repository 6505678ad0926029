/*
 * lookout.h - whether all ranks live: a thread asks it, some times a second. So it is told who has
 * died also while this rank computes, or is inside of a call that does not look (MPI_Allreduce):
 * mpirun, which ends the job, names nobody, and leaves ranks a second.
 *
 * Where Open MPI writes to a rank that has died, SIGPIPE would end this process before it could
 * tell; ignored, Open MPI (4.1, TCP) prints lines of its own and then tries for ever. So while
 * there is a lookout the thread that writes stands still for six seconds, within which the lookout
 * tells and mpirun ends the job; where nobody does, the next write ends this process.
 */
#ifndef DP_COLLECTIVES_LOOKOUT_H
#define DP_COLLECTIVES_LOOKOUT_H

#include "collectives/group.h"

struct dp_lookout;

/* group: borrowed; from here on the lookout alone asks dp_group_all_live() of it. At most one in
 * a process, since it handles SIGPIPE. Errors: DP_ERR_NOMEM, DP_ERR_INTERNAL (no thread). */
DP_CHECKED dp_status dp_lookout_create(const struct dp_group *group, struct dp_lookout **out);

/* NULL is ignored. SIGPIPE does what it did before. */
void dp_lookout_destroy(struct dp_lookout *lookout);

#endif
