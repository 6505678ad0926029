#define _GNU_SOURCE /* syscall, CLOCK_BOOTTIME */

#include "base/system/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum {
    STAT_BYTES = 1024,
    STATUS_BYTES = 4096,
    SECOND_NS = 1000000000,
    EXITING = 4 /* among the flags of proc(5): PF_EXITING of the kernel */
};

/* What proc(5) says. */
struct stat_fields {
    char state;
    unsigned flags;
    unsigned long long major_faults, user, system, started; /* times in clock ticks */
};

/* -1: this system has no such call (older kernels, filters of containers), or no descriptor is
 * left. */
static int open_process(int64_t id)
{
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, (pid_t)id, 0);
#else
    errno = ENOSYS;
    return -1;
#endif
}

/* Reads a file of /proc/ID; -1 with errno: it cannot be read. */
static ssize_t read_file(int64_t id, const char *name, char *text, size_t size)
{
    char path[64];
    ssize_t bytes;
    int file, reason;

    (void)snprintf(path, sizeof(path), "/proc/%lld/%s", (long long)id, name);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return -1;
    }
    bytes = read(file, text, size - 1);
    reason = errno;
    (void)close(file);
    errno = reason;
    text[bytes < 0 ? 0 : bytes] = '\0';
    return bytes;
}

/* Errors: those of errno.h. */
static int read_stat(int64_t id, struct stat_fields *out)
{
    char text[STAT_BYTES];
    const char *field;

    if (read_file(id, "stat", text, sizeof(text)) < 0) {
        return errno;
    }
    field = strrchr(text, ')'); /* after the program's name, which may contain anything */
    return field != NULL && sscanf(field + 1, /* NOLINT(cert-err34-c): the kernel wrote them */
                                   " %c %*d %*d %*d %*d %*d %u %*u %*u %llu %*u %llu %llu %*d %*d "
                                   "%*d %*d %*d %*d %llu",
                                   &out->state, &out->flags, &out->major_faults, &out->user,
                                   &out->system, &out->started) == 6
               ? 0
               : EIO;
}

/* Whether the kernel has yet to deliver a SIGKILL to the main thread, which may wait for a disk. */
static bool is_killed(int64_t id)
{
    static const char *const names[] = {"\nSigPnd:", "\nShdPnd:"};
    char text[STATUS_BYTES];
    bool killed = false;

    if (read_file(id, "status", text, sizeof(text)) < 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *mask = strstr(text, names[i]);
        killed = killed || (mask != NULL && (strtoull(mask + strlen(names[i]), NULL, 16) &
                                             (1ULL << (SIGKILL - 1))) != 0);
    }
    return killed;
}

bool dp_process_ending(int64_t id)
{
    struct stat_fields now = {0};
    const int failed = read_stat(id, &now);

    if (failed != 0) {
        return failed == ENOENT || failed == ESRCH;
    }
    return now.state == 'Z' || now.state == 'X' || (now.flags & EXITING) != 0 || is_killed(id);
}

static int64_t now_ns(clockid_t clock)
{
    struct timespec now = {0};

    (void)clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
}

int64_t dp_process_started_ns(int64_t id)
{
    const long ticks = sysconf(_SC_CLK_TCK); /* a second */
    struct stat_fields now = {0};

    if (kill((pid_t)id, 0) != 0 && errno == ESRCH) {
        return 0;
    }
    if (read_stat(id, &now) != 0 || ticks <= 0) {
        return -1;
    }
    return now_ns(CLOCK_REALTIME) - now_ns(CLOCK_BOOTTIME) +
           (int64_t)(now.started * ((uint64_t)SECOND_NS / (uint64_t)ticks));
}

uint64_t dp_process_start(int64_t id)
{
    struct stat_fields now = {0};

    return read_stat(id, &now) == 0 ? now.started : 0;
}

bool dp_process_is_zombie(int64_t id)
{
    struct stat_fields now = {0};

    return read_stat(id, &now) == 0 && (now.state == 'Z' || now.state == 'X');
}

static bool ended_by_poll(const struct dp_process_watch *watch)
{
    struct pollfd asked = {.fd = watch->fd, .events = POLLIN};

    return poll(&asked, 1, 0) > 0 && (asked.revents & POLLIN) != 0;
}

static bool ended_by_stat(const struct dp_process_watch *watch)
{
    struct stat_fields now = {0};
    const int failed = read_stat(watch->id, &now);

    if (failed != 0) {
        return failed == ENOENT || failed == ESRCH;
    }
    return now.state == 'Z' || now.state == 'X' || now.started != watch->started;
}

bool dp_process_watch(struct dp_process_watch *watch, int64_t id)
{
    struct stat_fields now = {0};

    *watch = (struct dp_process_watch){.id = id, .fd = open_process(id)};
    if (watch->fd < 0 && read_stat(id, &now) != 0) {
        watch->id = 0;
        return false;
    }
    watch->started = now.started;
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

void dp_process_look(int64_t id, struct dp_process_doing *out)
{
    const uint64_t tick_ns = 1000000000u / (uint64_t)sysconf(_SC_CLK_TCK);
    struct stat_fields now = {0};

    *out = (struct dp_process_doing){.state = '?'};
    if (read_stat(id, &now) == 0) {
        out->state = now.state;
        out->cpu_ns = (now.user + now.system) * tick_ns;
        out->page_reads = now.major_faults;
    }
    if (read_file(id, "wchan", out->waits, sizeof(out->waits)) < 0 ||
        strcmp(out->waits, "0") == 0) {
        out->waits[0] = '\0';
    }
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
