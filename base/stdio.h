/*
 * stdio.h - the descriptors 0, 1 and 2 of a program, from its begin to its end.
 */
#ifndef DP_BASE_STDIO_H
#define DP_BASE_STDIO_H

#include <stdbool.h>

#include "base/status.h"

/*
 * Puts /dev/null where the caller has closed stdin, stdout or stderr. Otherwise the next files that
 * are opened would get these numbers, and what is meant for people would be written into them. The
 * first thing that a program does.
 *
 * Errors: DP_ERR_UNAVAILABLE (there is no /dev/null).
 */
DP_CHECKED dp_status dp_stdio_open(void);

/*
 * Writes what stdout still holds, as the last thing that a program does. Returns `status`, which is
 * what the program came to, unless that is DP_OK and something could not be written:
 *
 *   answers  what is printed is what the program was started for: then that is DP_ERR_WRITE.
 *            Otherwise it is a warning: a run has its results in files.
 */
DP_CHECKED dp_status dp_stdio_finish(dp_status status, bool answers);

#endif
