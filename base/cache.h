/*
 * cache.h - what runs of this user leave for later ones, and what can be made again:
 * ${XDG_CACHE_HOME:-~/.cache}/lockstep.
 */
#ifndef DP_BASE_CACHE_H
#define DP_BASE_CACHE_H

#include <stdbool.h>

#include "base/file.h"

/* Where the file `name` of the cache is, or would be. false: there is no cache, and path is
 * empty. */
bool dp_cache_path(char path[DP_PATH_BYTES], const char *name);

/* Replaces the file that dp_cache_path() has named. Where that cannot be, it is as it was, and a
 * line at debug level says so. */
void dp_cache_keep(const char *path, const char *text);

#endif
