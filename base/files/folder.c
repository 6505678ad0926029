#include "base/files/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/files/disk.h"
#include "base/system/process.h"

/* How much the clock of files may be after that of processes. */
enum { SECOND_NS = 1000000000, CLOCKS_S = 2 };

/* In a folder that hosts share what is of no process of this host may be of another one's, which
 * takes less than ten minutes to write it; what is a day old is nobody's. */
enum { WRITING_S = 600, DAY_S = 24 * 3600 };

static int open_folder(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

bool dp_folder_remove(const char *path, const char *const *names, int count)
{
    const int fd = open_folder(path);

    if (fd < 0) {
        return errno == ENOENT;
    }
    for (int i = 0; i < count; i++) {
        (void)dp_disk_unlink_at(fd, names[i]); /* rmdir below fails if this does */
    }
    (void)close(fd);
    return dp_disk_rmdir(path) == 0;
}

static bool is_one_of(const char *name, const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

void dp_folder_move_others(const char *from, const char *to, const char *const *names, int count)
{
    const int source = open_folder(from), target = open_folder(to);
    DIR *entries = source < 0 ? NULL : fdopendir(source);
    const struct dirent *entry;
    struct stat info;

    while (target >= 0 && entries != NULL && (entry = readdir(entries)) != NULL) {
        if (!is_one_of(entry->d_name, names, count) &&
            fstatat(target, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
            (void)dp_disk_rename_at(source, entry->d_name, target, entry->d_name);
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    } else if (source >= 0) {
        (void)close(source);
    }
    if (target >= 0) {
        (void)close(target);
    }
}

static int64_t written_ns(const struct stat *info)
{
    return (int64_t)info->st_mtim.tv_sec * SECOND_NS + info->st_mtim.tv_nsec;
}

/* Whether the process of that number lives, and may have written an entry of the folder: in a
 * container a later process may have the same number. */
static bool may_be_of(int64_t pid, int folder, const char *entry)
{
    const int64_t started_ns = dp_process_started_ns(pid);
    struct stat info;

    return started_ns != 0 &&
           (started_ns < 0 || fstatat(folder, entry, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
            written_ns(&info) > started_ns - (int64_t)CLOCKS_S * SECOND_NS);
}

/* The process of a name like NAME.tmp-PID-NUMBER, and how long NAME is; 0: it is not like that. */
static int64_t writer_of(const char *entry, size_t *length)
{
    static const char mark[] = ".tmp-";
    const char *at = NULL;
    char *end;
    long pid;

    for (const char *next = entry; (next = strstr(next, mark)) != NULL; next++) {
        at = next;
    }
    if (at == NULL) {
        return 0;
    }
    *length = (size_t)(at - entry);
    pid = strtol(at + sizeof(mark) - 1, &end, 10);
    if (*end != '-' || pid <= 0) {
        return 0;
    }
    (void)strtol(end + 1, &end, 10);
    return *end == '\0' ? pid : 0;
}

/* names NULL: of any name, in a folder to which other hosts may write, too. */
static bool is_leftover(int folder, const char *entry, const char *const *names, int count)
{
    size_t length = 0;
    const int64_t pid = writer_of(entry, &length);
    struct stat info;
    time_t age_s;

    for (int i = 0; pid != 0 && i < count; i++) {
        if (strlen(names[i]) == length && strncmp(entry, names[i], length) == 0) {
            return !may_be_of(pid, folder, entry);
        }
    }
    if (pid == 0 || names != NULL || fstatat(folder, entry, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        return false;
    }
    age_s = time(NULL) - info.st_mtime;
    return age_s > DAY_S || (age_s > WRITING_S && !may_be_of(pid, folder, entry));
}

void dp_folder_clean(const char *path, const char *const *names, int count)
{
    const int fd = open_folder(path);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;

    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (is_leftover(fd, entry->d_name, names, count)) {
            (void)dp_disk_unlink_at(fd, entry->d_name);
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    } else if (fd >= 0) {
        (void)close(fd);
    }
}

void dp_folder_clean_shared(const char *path)
{
    dp_folder_clean(path, NULL, 0);
}

int64_t dp_folder_touched_ns(const char *path, const char *const *names, int count)
{
    const int fd = open_folder(path);
    struct stat info;
    int64_t newest = 0;

    if (fd >= 0 && fstat(fd, &info) == 0) {
        newest = written_ns(&info);
        for (int i = 0; i < count; i++) {
            if (fstatat(fd, names[i], &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                written_ns(&info) > newest) {
                newest = written_ns(&info);
            }
        }
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return newest;
}
