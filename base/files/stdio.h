/*
 * stdio.h - the descriptors 0, 1 and 2 of a program, from its start to its end.
 */
#ifndef DP_BASE_FILES_STDIO_H
#define DP_BASE_FILES_STDIO_H

#include <stdbool.h>

#include "base/status.h"

/*
 * Opens /dev/null where the caller has closed stdin, stdout or stderr. Otherwise the next opened
 * files would get these numbers, and output for people would be written into them. Every program
 * calls this first.
 *
 * Errors: DP_ERR_UNAVAILABLE (there is no /dev/null).
 */
DP_CHECKED dp_status dp_stdio_open(void);

/*
 * Flushes stdout, as the last thing that a program does. Returns `status`, the program's result,
 * unless that is DP_OK and some output could not be written:
 *
 *   answers  printing is the program's purpose: then the result is DP_ERR_WRITE. Otherwise a
 *            warning is logged: a run has its results in files.
 */
DP_CHECKED dp_status dp_stdio_finish(dp_status status, bool answers);

#endif
