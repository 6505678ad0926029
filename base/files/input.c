#include "base/files/input.h"

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
    bool lonely;   /* no process opened the pipe for writing within the timeout */
    bool reported; /* the warning about waiting was logged */
};

/* The events that poll() finds within this time; 0: none. timeout_ms -1: for ever. */
static int await(const struct input *in, int timeout_ms)
{
    struct pollfd entry = {.fd = in->fd, .events = POLLIN};

    while (poll(&entry, 1, timeout_ms) < 0 && errno == EINTR) {
    }
    return entry.revents;
}

/* Called when the input ended before its first byte. For a pipe it may mean that no process has
 * opened it for writing yet. `*more`: another read may give data. */
static dp_status await_writer(struct input *in, bool *more)
{
    int found;

    if (in->lonely) {
        return DP_FAIL(DP_ERR_NOINPUT, "%s: no process writes to this pipe: give a file", in->path);
    }
    found = await(in, NOBODY_MS);
    in->lonely = found == 0; /* after a silent writer has come, the next read finds no end */
    *more = found != POLLHUP;
    return DP_OK;
}

/* A writer has opened the pipe but has not written yet. */
static void await_more(struct input *in)
{
    if (await(in, in->reported ? -1 : SILENT_MS) == 0) {
        DP_WARN("%s: waiting for data from its writer", in->path);
        in->reported = true;
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
