#define _GNU_SOURCE /* syscall */

#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { STAT_BYTES = 1024, FIELDS_TO_START = 20 }; /* in proc(5): from field 2 to field 22 */

/* -1: this system has none (older kernels, filters of containers), or no file is left to open. */
static int open_process(int64_t id)
{
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, (pid_t)id, 0);
#else
    errno = ENOSYS;
    return -1;
#endif
}

/* Reads the state and the start of a process. Errors: those of errno.h. */
static int read_stat(int64_t id, char *state, uint64_t *started)
{
    char path[64], text[STAT_BYTES];
    const char *field;
    ssize_t bytes;
    int file;

    (void)snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)id);
    file = open(path, O_RDONLY | O_CLOEXEC);
    bytes = file < 0 ? -1 : read(file, text, sizeof(text) - 1);
    if (bytes < 0) {
        const int reason = errno;
        if (file >= 0) {
            (void)close(file);
        }
        return reason;
    }
    (void)close(file);
    text[bytes] = '\0';
    field = strrchr(text, ')'); /* behind the program's name, which may be anything */
    if (field == NULL || strlen(field) < 3) {
        return EIO;
    }
    *state = field[2];
    for (int i = 0; field != NULL && i < FIELDS_TO_START; i++) {
        field = strchr(field + 1, ' ');
    }
    *started = field == NULL ? 0 : strtoull(field + 1, NULL, 10);
    return 0;
}

static bool ended_by_poll(const struct dp_process_watch *watch)
{
    struct pollfd asked = {.fd = watch->fd, .events = POLLIN};

    return poll(&asked, 1, 0) > 0 && (asked.revents & POLLIN) != 0;
}

static bool ended_by_stat(const struct dp_process_watch *watch)
{
    uint64_t started = 0;
    char state = '\0';
    const int failed = read_stat(watch->id, &state, &started);

    if (failed != 0) {
        return failed == ENOENT || failed == ESRCH;
    }
    return state == 'Z' || state == 'X' || started != watch->started;
}

bool dp_process_watch(struct dp_process_watch *watch, int64_t id)
{
    char state;

    *watch = (struct dp_process_watch){.id = id, .fd = open_process(id)};
    if (watch->fd < 0 && read_stat(id, &state, &watch->started) != 0) {
        watch->id = 0;
        return false;
    }
    if (dp_process_ended(watch)) {
        dp_process_unwatch(watch);
        return false;
    }
    return true;
}

bool dp_process_ended(const struct dp_process_watch *watch)
{
    return watch->fd >= 0 ? ended_by_poll(watch) : ended_by_stat(watch);
}

void dp_process_unwatch(struct dp_process_watch *watch)
{
    if (watch->id != 0 && watch->fd >= 0) {
        (void)close(watch->fd);
    }
    *watch = (struct dp_process_watch){0};
}

struct dp_process dp_process_self(void)
{
    struct stat info;
    const bool known = stat("/proc/self/ns/pid", &info) == 0;

    return (struct dp_process){known ? (uint64_t)info.st_ino : 0, getpid()};
}
