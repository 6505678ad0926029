/*
 * folder.h - folders whose files have known names: only those are ever deleted, and links are not
 * followed.
 */
#ifndef DP_BASE_FILES_FOLDER_H
#define DP_BASE_FILES_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Deletes the files `names` [count] of a folder, in that order, and then the folder if it is empty.
 * Names that are not files are skipped, and so is a path that is a link to a folder. True: the
 * folder is gone, or did not exist; otherwise errno says why.
 */
bool dp_folder_remove(const char *path, const char *const *names, int count);

/* Moves everything except `names` from a folder to the folder `to`; names that exist there are
 * skipped. */
void dp_folder_move_others(const char *from, const char *to, const char *const *names, int count);

/* Deletes what processes that have ended left when they replaced the files `names`: see
 * dp_file_replace(). Only for a folder that no process of another host writes to. */
void dp_folder_clean(const char *path, const char *const *names, int count);

/* The same for all names, in a folder that other hosts may write to: what has been there for ten
 * minutes and is of no process of this host, and what has been there for a day. */
void dp_folder_clean_shared(const char *path);

/* The last time that the folder, or one of its files `names`, was written: nanoseconds since 1970;
 * 0: it is not a folder. */
int64_t dp_folder_touched_ns(const char *path, const char *const *names, int count);

#endif
