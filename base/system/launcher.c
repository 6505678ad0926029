#include "base/system/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/system/guard.h"

/* "HOST:PATH": a pipe of the launcher, in /proc as processes of its host see it. */
static const char variable[] = "LOCKSTEP_LAUNCHER";

static atomic_bool ends; /* mpirun has begun to end the job */

/* No job is ended with these exit codes. */
enum { BEGUN = 0, DONE = 255 };

void dp_launcher_tell(int code)
{
    const char *name = getenv(variable), *path = name != NULL ? strchr(name, ':') : NULL;
    const uint8_t byte = (uint8_t)code;
    char host[64] = "";
    struct stat info;
    size_t length;
    int fd;

    (void)gethostname(host, sizeof(host) - 1);
    length = strlen(host);
    if (path == NULL || (size_t)(path - name) != length || strncmp(name, host, length) != 0) {
        return;
    }
    fd = open(path + 1, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) {
        if (fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode)) {
            (void)!write(fd, &byte, 1);
        }
        (void)close(fd);
    }
}

void dp_launcher_tell_done(void)
{
    dp_launcher_tell(DONE);
}

void dp_launcher_tell_ending(pid_t sender)
{
    if (sender == dp_guard_launcher()) {
        atomic_store(&ends, true);
        dp_launcher_tell(BEGUN);
    }
}

static bool is_left(int fd)
{
    struct stat info;
    int bytes = 0;

    return fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode) && ioctl(fd, FIONREAD, &bytes) == 0 &&
           bytes > 0;
}

void dp_launcher_let_read(void)
{
    const struct timespec nap = {.tv_nsec = 1000000};

    for (int ms = 0; ms < 1000 && (is_left(STDOUT_FILENO) || is_left(STDERR_FILENO)); ms++) {
        (void)nanosleep(&nap, NULL);
    }
}

/* Whether it answers a request of PMI 1. */
static bool ask(const char *request)
{
    const char *name = getenv("PMI_FD");
    const int fd = name != NULL ? (int)strtol(name, NULL, 10) : -1;
    char byte = '\0';
    ssize_t got = fd >= 0 ? dprintf(fd, "cmd=%s\n", request) : -1;

    while (got > 0 && byte != '\n') { /* the answer is one line, and so MPI has read all others */
        got = read(fd, &byte, 1);
        got = got < 0 && errno == EINTR ? 1 : got;
    }
    return got > 0;
}

void dp_launcher_meet(void)
{
    (void)ask("barrier_in");
}

bool dp_launcher_leave(void)
{
    return ask("finalize");
}

bool dp_launcher_ends(void)
{
    return atomic_load(&ends);
}
