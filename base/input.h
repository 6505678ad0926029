/*
 * input.h - a text that a person gives: in a file, or through a pipe or a device.
 */
#ifndef DP_BASE_INPUT_H
#define DP_BASE_INPUT_H

#include <stddef.h>

#include "base/status.h"

/*
 * Reads up to `size` bytes of what `path` gives, once: also of a pipe, as the shell's <(command) or
 * /dev/stdin is one, and of a device. (What each rank reads, or what is read again, must be a file:
 * dp_file_open().) It does not wait without a word: a pipe that nobody opens to write is refused
 * after ten seconds, and where a writer keeps silent, a warning says so.
 *
 * Errors: DP_ERR_NOINPUT (cannot be opened or read, or nobody writes).
 */
DP_CHECKED dp_status dp_input_read(const char *path, char *text, size_t size, size_t *bytes);

#endif
