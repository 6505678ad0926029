/*
 * folder.h - folders whose files have known names: only those are ever deleted, and nothing behind
 * a link.
 */
#ifndef DP_BASE_FOLDER_H
#define DP_BASE_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Deletes the files `names` [count] of a folder, in that order, and the folder if nothing else is
 * left in it. Names that are no files are left alone, and so is a path that is no folder but a link
 * to one. True: the folder is gone, or was not there; otherwise errno says why.
 */
bool dp_folder_remove(const char *path, const char *const *names, int count);

/* Moves what else lies in a folder than `names` to the folder `to`, unless something of that name
 * is there. */
void dp_folder_move_others(const char *from, const char *to, const char *const *names, int count);

/* When the folder, or one of its files `names`, was last written to: nanoseconds since 1970; 0: it
 * is no folder. */
int64_t dp_folder_touched_ns(const char *path, const char *const *names, int count);

#endif
