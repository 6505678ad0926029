/*
 * launcher.h - messages to launch/mpirun. mpirun itself never returns if it cannot reach a host on
 * which it must end ranks, so the script limits how long it waits for mpirun.
 */
#ifndef DP_BASE_SYSTEM_LAUNCHER_H
#define DP_BASE_SYSTEM_LAUNCHER_H

#include <stdbool.h>
#include <sys/types.h>

/* Reports that the job ends with this exit code, whatever mpirun does. The launcher is named in the
 * environment; does nothing if there is none on this host. */
void dp_launcher_tell(int code);

/* Reports that the job has done what it was for, and that its ranks are about to end. */
void dp_launcher_tell_done(void);

/* Reports that mpirun has begun to end this job, and why is not known here: a rank of another host
 * may have ended it. To be called on SIGTERM, with its sender; other senders than mpirun are
 * ignored. */
void dp_launcher_tell_ending(pid_t sender);

/* Returns when what is in the pipes of stdout and stderr has been read, or after a second: MPICH's
 * launcher does not read what is left there when a rank ends the job. */
void dp_launcher_let_read(void);

/* Whether that has been reported: who is missing then may have been ended, which is no hang. */
bool dp_launcher_ends(void);

/* Returns when all ranks of the job have called this, or the launcher has gone: by PMI 1, which
 * MPICH's speaks, and so without MPI. At once where the launcher does not. For one thread, while no
 * other is inside MPI. */
void dp_launcher_meet(void);

/* Reports by PMI 1 that this rank ends as it should, as MPI_Finalize does, which must not be called
 * then. Returns whether the launcher has heard it. */
bool dp_launcher_leave(void);

#endif
