/*
 * launched.h - what the launcher of this process says in its environment.
 */
#ifndef DP_COLLECTIVES_WORLD_LAUNCHED_H
#define DP_COLLECTIVES_WORLD_LAUNCHED_H

#include "base/status.h"

/* The rank that mpirun or srun gave this process, known before MPI starts; -1: started by
 * neither. */
int dp_world_launch_rank(void);

/* Refuses a process that is one of several, as its launcher says, but has found no other: each
 * would train by itself, and write the same files. Errors: DP_ERR_USAGE. */
DP_CHECKED dp_status dp_launched_alone(void);

#endif
