#include "base/files/stdio.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

dp_status dp_stdio_open(void)
{
    static const char path[] = "/dev/null";

    /* open() returns the lowest free number: the descriptors below are open. */
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) == -1 && errno == EBADF &&
            open(path, fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) != fd) {
            return DP_FAIL(DP_ERR_UNAVAILABLE, "%s, in place of a closed descriptor %d: %s", path,
                           fd, strerror(errno));
        }
    }
    return DP_OK;
}

dp_status dp_stdio_finish(dp_status status, bool answers)
{
    const bool written = fflush(stdout) == 0 && ferror(stdout) == 0;

    if (status != DP_OK || written) {
        return status;
    }
    if (!answers) {
        DP_WARN("not all of the output could be written; check where stdout goes");
        return DP_OK;
    }
    return DP_FAIL(DP_ERR_WRITE, "cannot write all of the output; check where stdout goes");
}
