#include "base/files/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/files/folder.h"
#include "base/log.h"

static const char folder[] = "lockstep";

bool dp_cache_path(char path[DP_PATH_BYTES], const char *name)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = -1;

    if (cache != NULL && cache[0] == '/') {
        length = snprintf(path, DP_PATH_BYTES, "%s/%s/%s", cache, folder, name);
    } else if (home != NULL && home[0] == '/') {
        length = snprintf(path, DP_PATH_BYTES, "%s/.cache/%s/%s", home, folder, name);
    }
    if (length < 0 || length >= DP_PATH_BYTES) {
        path[0] = '\0';
        return false;
    }
    return true;
}

/* Makes the last two folders of a path; the ones above belong to the user. */
static void make_folders(const char *path)
{
    char above[DP_PATH_BYTES], *ends[2];
    int found = 0;

    (void)snprintf(above, sizeof(above), "%s", path);
    for (char *end; found < 2 && (end = strrchr(above, '/')) != NULL && end != above; found++) {
        *end = '\0';
        ends[found] = end;
    }
    for (int i = found - 1; i >= 0; i--) {
        (void)mkdir(above, 0700);
        *ends[i] = '/';
    }
}

/* Deletes what processes left that were killed while they wrote a file of the same folder. */
static void clean_beside(const char *path)
{
    char above[DP_PATH_BYTES];
    char *end;

    (void)snprintf(above, sizeof(above), "%s", path);
    end = strrchr(above, '/');
    if (end != NULL) {
        *end = '\0';
        dp_folder_clean_shared(above);
    }
}

void dp_cache_keep(const char *path, const char *text)
{
    struct dp_log_capture capture;
    dp_status status;

    make_folders(path);
    clean_beside(path);
    dp_log_capture_begin(&capture, DP_LOG_DEBUG);
    status = dp_file_replace(path, text, strlen(text));
    dp_log_capture_end(&capture, DP_LOG_DROP);
    if (status != DP_OK) {
        DP_DEBUG("cannot write to the cache: %s", path);
    }
}
