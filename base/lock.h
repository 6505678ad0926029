/*
 * lock.h - a file that one process at a time holds: the system takes the lock back when the process
 * ends, however that comes.
 */
#ifndef DP_BASE_LOCK_H
#define DP_BASE_LOCK_H

#include "base/status.h"

struct dp_lock;

/*
 * Makes the file `path` and locks it; the file says who holds it. Where the file system knows no
 * locks there is none, and a line at debug level says so.
 *
 *   what    what is locked, and
 *   advice  what to do where another process holds it: for the message
 *   out     out  set only on success; for dp_lock_release()
 *
 * Errors: DP_ERR_USAGE (another process holds it: one line names it), DP_ERR_WRITE (the file cannot
 * be made), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_lock_take(const char *path, const char *what, const char *advice,
                                  struct dp_lock **out);

/* Deletes the file and lets go of it. NULL is allowed. */
void dp_lock_release(struct dp_lock *lock);

#endif
