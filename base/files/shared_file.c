#include "base/files/shared_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/files/file.h"

/* Checked before a file grows, since growing it too far also sends a signal (SIGXFSZ). */
static bool within_limit(unsigned long long bytes)
{
    struct rlimit most;

    return getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur == RLIM_INFINITY ||
           bytes <= most.rlim_cur;
}

bool dp_shared_file_possible(const char *folder, unsigned long long bytes)
{
    char path[DP_PATH_BYTES];
    const int length = snprintf(path, sizeof(path), "%s/lockstep-XXXXXX", folder);
    void *place = MAP_FAILED;
    int file;

    if (length < 0 || (size_t)length >= sizeof(path) || !within_limit(bytes) ||
        dp_file_free(folder) <= bytes) {
        return false;
    }
    file = mkstemp(path);
    if (file < 0) {
        return false;
    }
    (void)unlink(path);
    if (ftruncate(file, (off_t)bytes) == 0) {
        place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    if (place != MAP_FAILED) {
        (void)munmap(place, bytes);
    }
    (void)close(file);
    return place != MAP_FAILED;
}
