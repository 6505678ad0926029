/*
 * lock.h - a file that one process at a time holds. The system releases the lock when the process
 * ends in any way.
 */
#ifndef DP_BASE_FILES_LOCK_H
#define DP_BASE_FILES_LOCK_H

#include <stdbool.h>

#include "base/status.h"

struct dp_lock;

/*
 * Makes the file `path` and locks it; the file names its holder. Where the file system has no locks
 * nothing is locked, and a line at debug level says so. A holder of this host that has been killed
 * is waited for, for at most ten seconds.
 *
 *   what    what is locked, and
 *   advice  what to do if another process holds it: for the message
 *   out     out  set only on success; for dp_lock_release()
 *
 * Errors: DP_ERR_USAGE (another process holds it: one line names it), DP_ERR_WRITE (the file cannot
 * be made), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_lock_take(const char *path, const char *what, const char *advice,
                                  struct dp_lock **out);

/* Whether another process holds the lock `path` now; false where that cannot be found out. */
bool dp_lock_held(const char *path);

/* Deletes the file and releases the lock. NULL is allowed. */
void dp_lock_release(struct dp_lock *lock);

#endif
