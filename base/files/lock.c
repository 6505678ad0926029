#include "base/files/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/files/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/system/process.h"
#include "base/system/process_tag.h"
#include "base/trace.h"

struct dp_lock {
    int fd;
    char path[DP_PATH_BYTES];
};

enum { TRIES_MOST = 100, LOOK_MS = 20 };

/* How long a killed holder may take to end: its memory is released before its files. */
static const uint64_t ending_ns = 10000000000;

/* The holder's process id, and its host in `host`; 0: it has not written its line yet. */
static long read_holder(int fd, char host[DP_HOST_BYTES])
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                  "0123456789._-";
    char text[128] = "", *name;
    const ssize_t length = pread(fd, text, sizeof(text) - 1, 0);
    const long pid = strtol(text, &name, 10);

    name += *name == ' ';
    (void)snprintf(host, DP_HOST_BYTES, "%.*s", (int)strspn(name, letters), name);
    return length > 0 && host[0] != '\0' ? pid : 0;
}

/* Whether the holder has been killed, or has ended and a child of it still has the file: mpirun may
 * return before that is over. */
static bool is_ending(int fd)
{
    char theirs[DP_HOST_BYTES], ours[DP_HOST_BYTES];
    const long pid = read_holder(fd, theirs);

    dp_process_host(ours);
    return pid > 0 && strcmp(theirs, ours) == 0 && dp_process_ending(pid);
}

/* Reports the holder, which the file names in a line "PID HOST". */
static dp_status fail_held(int fd, const char *what, const char *advice)
{
    char host[DP_HOST_BYTES];
    const long pid = read_holder(fd, host);

    if (pid <= 0) {
        return DP_FAIL(DP_ERR_USAGE, "%s is in use by another process: %s", what, advice);
    }
    return DP_FAIL(DP_ERR_USAGE, "%s is in use by process %ld on host %s: %s", what, pid, host,
                   advice);
}

/* 0: locked; else errno's reason why not. */
static int try_lock(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
}

/* The same; waits for a holder that is ending. */
static int lock_open(int fd)
{
    const uint64_t begin_ns = dp_now_ns();
    int reason = try_lock(fd);

    while (reason == EWOULDBLOCK && dp_now_ns() - begin_ns < ending_ns && is_ending(fd)) {
        (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
        reason = try_lock(fd);
    }
    return reason;
}

/* Whether `path` is still the open file: a previous holder deletes it when it ends. */
static bool is_same(int fd, const char *path)
{
    struct stat open_one, named;

    return fstat(fd, &open_one) == 0 && lstat(path, &named) == 0 &&
           open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

/* Opens and locks the file; *fd is -1 on failure. */
static dp_status lock_file(const char *path, const char *what, const char *advice, int *fd)
{
    struct stat info;
    int reason;

    *fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (*fd < 0) {
        return dp_file_fail(path, errno);
    }
    if (fstat(*fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        return DP_FAIL(DP_ERR_WRITE, "cannot lock %s: it is not a file; move it away", path);
    }
    reason = lock_open(*fd);
    if (reason != 0) {
        if (reason == EWOULDBLOCK) {
            return fail_held(*fd, what, advice);
        }
        DP_DEBUG("%s is not locked: %s", path, strerror(reason));
    }
    return DP_OK;
}

/* For processes that find the file locked. On a full disk their message names no holder. */
static void write_holder(int fd)
{
    char host[DP_HOST_BYTES], text[128];
    int length;

    dp_process_host(host);
    length = snprintf(text, sizeof(text), "%ld %s\n", (long)getpid(), host);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)length, 0) != length) {
        DP_DEBUG("cannot write the holder of the lock: %s", strerror(errno));
    }
}

dp_status dp_lock_take(const char *path, const char *what, const char *advice, struct dp_lock **out)
{
    struct dp_lock *lock = dp_zalloc(1, sizeof(*lock));
    dp_status status = DP_OK;
    bool taken = false;

    if (lock == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "lock of %s", what);
    }
    (void)snprintf(lock->path, sizeof(lock->path), "%s", path);
    for (int i = 0; status == DP_OK && !taken && i < TRIES_MOST; i++) {
        status = lock_file(path, what, advice, &lock->fd);
        taken = status == DP_OK && is_same(lock->fd, path);
        if (!taken && lock->fd >= 0) {
            (void)close(lock->fd);
        }
    }
    if (!taken) {
        dp_free(lock);
        return status != DP_OK
                   ? status
                   : DP_FAIL(DP_ERR_WRITE, "cannot lock %s: it is deleted again and again", path);
    }
    write_holder(lock->fd);
    *out = lock;
    return DP_OK;
}

/* A shared lock: two that look do not take each other for a holder. */
bool dp_lock_held(const char *path)
{
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool held;

    if (fd < 0) {
        return false;
    }
    held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    (void)close(fd);
    return held;
}

void dp_lock_release(struct dp_lock *lock)
{
    if (lock == NULL) {
        return;
    }
    if (is_same(lock->fd, lock->path)) {
        (void)unlink(lock->path); /* while it is held: a process that has opened it notices that */
    }
    (void)close(lock->fd);
    dp_free(lock);
}
