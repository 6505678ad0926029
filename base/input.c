#include "base/input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

enum { NOBODY_MS = 10000, SILENT_MS = 2000 };

struct input {
    const char *path;
    int fd;
    bool pipe;
    bool lonely; /* nobody has opened the pipe to write, in all the time there was */
    bool told;   /* that it is waited for a writer */
};

/* What poll() finds within so many milliseconds; 0: nothing; -1: for ever. */
static int await(const struct input *in, int timeout_ms)
{
    struct pollfd entry = {.fd = in->fd, .events = POLLIN};

    while (poll(&entry, 1, timeout_ms) < 0 && errno == EINTR) {
    }
    return entry.revents;
}

/* Behind an end that came before the first byte: of a pipe it also means that nobody has opened it
 * to write so far. `*more`: reading may give something now. */
static dp_status await_writer(struct input *in, bool *more)
{
    int found;

    if (in->lonely) {
        return DP_FAIL(DP_ERR_NOINPUT, "%s: a pipe to which nobody writes: give a file", in->path);
    }
    found = await(in, NOBODY_MS);
    in->lonely = found == 0; /* a silent writer may have come: then the next read finds no end */
    *more = found != POLLHUP;
    return DP_OK;
}

/* A writer is there, but what it writes is not. */
static void await_more(struct input *in)
{
    if (await(in, in->told ? -1 : SILENT_MS) == 0) {
        DP_WARN("%s: waiting for whoever writes to it", in->path);
        in->told = true;
    }
}

static dp_status read_some(struct input *in, char *text, size_t size, size_t *bytes)
{
    bool more = true;

    *bytes = 0;
    while (more && *bytes < size) {
        const ssize_t got = read(in->fd, text + *bytes, size - *bytes);

        if (got > 0) {
            *bytes += (size_t)got;
        } else if (got < 0 && errno == EAGAIN) {
            await_more(in);
        } else if (got < 0 && errno != EINTR) {
            return DP_FAIL(DP_ERR_NOINPUT, "%.400s: %s", in->path, strerror(errno));
        } else if (got == 0 && in->pipe && *bytes == 0) {
            DP_TRY(await_writer(in, &more));
        } else if (got == 0) {
            more = false;
        }
    }
    return DP_OK;
}

dp_status dp_input_read(const char *path, char *text, size_t size, size_t *bytes)
{
    struct input in = {.path = path};
    struct stat info;
    dp_status status;

    in.fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (in.fd < 0) {
        return DP_FAIL(DP_ERR_NOINPUT, "%.400s: %s", path, strerror(errno));
    }
    in.pipe = fstat(in.fd, &info) == 0 && S_ISFIFO(info.st_mode);
    status = read_some(&in, text, size, bytes);
    (void)close(in.fd);
    return status;
}
