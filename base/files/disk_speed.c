#define _GNU_SOURCE /* O_DIRECT */

#include "base/files/disk_speed.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/trace.h"

enum {
    BLOCK = 1 << 20, /* also aligned enough for any disk */
    WRITE_MOST = 64 << 20,
    FREE_TIMES = 10,
    ALIGN = 4096,
    PATH_BYTES = 4096,
    ENTRIES_MOST = 4096 /* of a folder are looked at */
};

static double rate_of(uint64_t bytes, uint64_t begin_ns)
{
    const uint64_t took_ns = dp_now_ns() - begin_ns;

    return bytes > 0 && took_ns > 0 ? (double)bytes / (double)took_ns : (double)NAN;
}

static bool is_over(uint64_t begin_ns, double seconds)
{
    return (double)(dp_now_ns() - begin_ns) / 1e9 >= seconds;
}

/* A block whose address is a multiple of ALIGN; *memory is released with dp_free(). */
static char *open_block(void **memory)
{
    char *bytes = dp_zalloc(BLOCK + ALIGN, 1);

    *memory = bytes;
    return bytes == NULL ? NULL : bytes + (ALIGN - (uintptr_t)bytes % ALIGN) % ALIGN;
}

/* ---- reading ---- */

static bool find_largest(const char *folder, char path[PATH_BYTES])
{
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    off_t largest = BLOCK - 1;

    path[0] = '\0';
    for (int i = 0; entries != NULL && i < ENTRIES_MOST && (entry = readdir(entries)) != NULL;
         i++) {
        struct stat info;
        if (fstatat(dirfd(entries), entry->d_name, &info, 0) == 0 && S_ISREG(info.st_mode) &&
            info.st_size > largest) {
            const int length = snprintf(path, PATH_BYTES, "%s/%s", folder, entry->d_name);
            largest = length < PATH_BYTES ? info.st_size : largest;
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
    return path[0] != '\0';
}

/* Whole blocks only: the rest of a file has a length that such reads refuse. */
static double read_blocks(int file, char *block, double seconds)
{
    const uint64_t begin_ns = dp_now_ns();
    uint64_t bytes = 0;

    do {
        if (read(file, block, BLOCK) != BLOCK) {
            break;
        }
        bytes += BLOCK;
    } while (!is_over(begin_ns, seconds));
    return rate_of(bytes, begin_ns);
}

double dp_disk_read_gbs(const char *folder, double seconds)
{
    char path[PATH_BYTES];
    void *memory;
    char *block;
    double rate = (double)NAN;
    int file;

    if (!find_largest(folder, path)) {
        return rate;
    }
    file = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (file < 0) {
        return rate;
    }
    block = open_block(&memory);
    if (block != NULL) {
        rate = read_blocks(file, block, seconds);
    }
    dp_free(memory);
    (void)close(file);
    return rate;
}

/* ---- writing ---- */

static bool write_chunk(int file, const char *block, int blocks)
{
    for (int i = 0; i < blocks; i++) {
        if (write(file, block, BLOCK) != BLOCK) {
            return false;
        }
    }
    return fdatasync(file) == 0;
}

/* Chunks that double, each until it is on the disk: the rate of the last one. What a slow disk has
 * to write is never more than it can in the time that is left. */
static double write_chunks(int file, const char *block, double seconds)
{
    const uint64_t begin_ns = dp_now_ns();
    double rate = (double)NAN;

    for (int blocks = 1; blocks * BLOCK <= WRITE_MOST / 2 && !is_over(begin_ns, seconds / 4);
         blocks *= 2) {
        const uint64_t from_ns = dp_now_ns();
        if (!write_chunk(file, block, blocks)) {
            return (double)NAN;
        }
        rate = rate_of((uint64_t)blocks * BLOCK, from_ns);
    }
    return rate;
}

double dp_disk_write_gbs(const char *folder, double seconds)
{
    struct statvfs room;
    void *memory;
    const char *block;
    double rate = (double)NAN;
    int file;

    if (statvfs(folder, &room) != 0 ||
        (double)room.f_bavail * (double)room.f_frsize < (double)FREE_TIMES * WRITE_MOST) {
        return rate;
    }
    file = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (file < 0) {
        return rate;
    }
    block = open_block(&memory);
    if (block != NULL) {
        rate = write_chunks(file, block, seconds);
    }
    dp_free(memory);
    (void)close(file);
    return rate;
}

unsigned long dp_disk_number(const char *folder)
{
    struct stat info;

    return stat(folder, &info) == 0 ? (unsigned long)info.st_dev : 0;
}
