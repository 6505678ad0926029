/*
 * guard.h - a process between a rank and a launcher that ends all ranks too soon.
 *
 * When a rank is killed MPICH's launcher (Hydra 4) kills all others within a millisecond, also if
 * it is asked not to, and Open MPI 5's (PRRTE 3) after half a second: nobody learns which rank it
 * was, nor with what the run goes on; and so they do when a rank exits early. So the process that
 * it has started becomes a guard, and the rank is its child: the others then report a death and end
 * the job, as with other launchers.
 */
#ifndef DP_BASE_SYSTEM_GUARD_H
#define DP_BASE_SYSTEM_GUARD_H

#include <stdbool.h>
#include <sys/types.h>

/* Seconds that others have to report a rank that was killed; less than they would wait for the end
 * that its guard asks for. */
enum { DP_GUARD_S = 3 };

/* To be called before there are threads. Returns -1 in the rank; that is at once unless the caller
 * is one of several ranks that Hydra or PRRTE has started. Where ranks go on without one that died
 * (--with-ft ulfm) PRRTE ends nobody, and must see a death at once: no guard. In the guard it
 * returns when the rank has ended, with its exit code. If a signal has killed the rank the guard
 * asks Hydra after `patience_s` to end the job with 128 + that signal, and kills itself with it if
 * Hydra does not; so it does at once with PRRTE, which ends the job then. Where the rank has left
 * too early the guard waits as long, and asks for its exit code, or for 1. A rank does not outlive
 * its guard, which takes no signal meanwhile: launchers send them to both. */
int dp_guard_rank(unsigned patience_s);

/* Of a rank: whether others count on it from now on, so that it must not exit. */
void dp_guard_note(bool on);

/* Of a rank: whether it has a guard, which ends the job if the rank is killed. */
bool dp_guard_ends_job(void);

/* The process id of the launcher: the parent of the guard, or of this process. */
pid_t dp_guard_launcher(void);

#endif
