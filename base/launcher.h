/*
 * launcher.h - what launch/mpirun must know of a job: mpirun itself never returns where a host that
 * it wants to end ranks on cannot be reached, so the script bounds how long it waits for it.
 */
#ifndef DP_BASE_LAUNCHER_H
#define DP_BASE_LAUNCHER_H

/* The job ends with this exit code, whatever becomes of mpirun: tells the launcher that started
 * this process, which is named in the environment, if there is one on this host. */
void dp_launcher_tell(int code);

#endif
