/*
 * cache.h - results that runs of this user keep for later runs, and that can be computed again:
 * ${XDG_CACHE_HOME:-~/.cache}/lockstep.
 */
#ifndef DP_BASE_FILES_CACHE_H
#define DP_BASE_FILES_CACHE_H

#include <stdbool.h>

#include "base/files/file.h"

/* Writes the path of the cache file `name`, which may not exist. false: there is no cache, and path
 * is empty. */
bool dp_cache_path(char path[DP_PATH_BYTES], const char *name);

/* Replaces the file at a path from dp_cache_path(). On failure it is unchanged, and a line at debug
 * level says so. What killed processes left in the folder is deleted (dp_folder_clean_shared). */
void dp_cache_keep(const char *path, const char *text);

#endif
