/*
 * input.h - a text from the user: in a file, or through a pipe or a device.
 */
#ifndef DP_BASE_FILES_INPUT_H
#define DP_BASE_FILES_INPUT_H

#include <stddef.h>

#include "base/status.h"

/*
 * Reads up to `size` bytes of `path`, once: also from a pipe, such as the shell's <(command) or
 * /dev/stdin, and from a device. (Input that each rank reads, or that is read again, must be a
 * file: dp_file_open().) It does not wait silently: a pipe that no process opens for writing is
 * refused after ten seconds, and a warning is logged while a writer writes nothing.
 *
 * Errors: DP_ERR_NOINPUT (cannot be opened or read, or there is no writer).
 */
DP_CHECKED dp_status dp_input_read(const char *path, char *text, size_t size, size_t *bytes);

#endif
