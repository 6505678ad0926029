#include "base/files/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of each call, whether it fails on a full disk. */
static const bool needs_space[DP_FILE_CALLS] = {
#define X(name, space) [DP_FILE_CALL_##name] = (space),
    DP_FILE_CALLS_OF(X)
#undef X
};

static const struct dp_fault *_Atomic faults;
static atomic_int own_rank;
static _Atomic uint64_t calls[DP_FILE_CALLS];
static _Atomic uint64_t numbered; /* of all kinds */
static atomic_int under_way;

void dp_disk_set_faults(const struct dp_fault *first, int rank)
{
    atomic_store(&own_rank, rank);
    for (int i = 0; i < DP_FILE_CALLS; i++) {
        atomic_store(&calls[i], 0);
    }
    atomic_store(&numbered, 0);
    atomic_store(&faults, first);
}

uint64_t dp_disk_calls(uint64_t of[DP_FILE_CALLS])
{
    for (int i = 0; i < DP_FILE_CALLS; i++) {
        of[i] = atomic_load(&calls[i]);
    }
    return atomic_load(&numbered);
}

int dp_disk_under_way(void)
{
    return atomic_load(&under_way);
}

/* What is to happen to a call. */
struct strike {
    int reason;   /* it fails with this; 0: it does not */
    bool cut;     /* it writes only half */
    bool is_last; /* the process is killed after it */
};

static struct strike begin_call(enum dp_file_call call)
{
    const struct dp_fault *fault = atomic_load_explicit(&faults, memory_order_acquire);
    struct strike strike = {0};
    uint64_t number;

    atomic_fetch_add(&under_way, 1);
    if (fault == NULL) {
        return strike;
    }
    number = atomic_fetch_add(&numbered, 1) + 1;
    atomic_fetch_add(&calls[call], 1);
    for (; fault != NULL; fault = fault->next) {
        const uint64_t due = (uint64_t)fault->write;

        if (due == 0 || number < due || fault->rank != atomic_load(&own_rank)) {
            continue;
        }
        if (fault->kind == &dp_fault_full && needs_space[call]) {
            strike.cut = strike.cut || number == due;
            strike.reason = number > due ? ENOSPC : strike.reason;
        } else if (number > due) {
            continue;
        } else if (fault->kind == &dp_fault_kill) {
            (void)raise(SIGKILL);
        } else if (fault->kind == &dp_fault_stop) {
            (void)raise(SIGSTOP);
        } else if (fault->kind == &dp_fault_torn) {
            strike.cut = strike.is_last = true;
        } else if (fault->kind == &dp_fault_eio) {
            strike.reason = EIO;
        }
    }
    return strike;
}

static void end_call(struct strike strike)
{
    atomic_fetch_sub(&under_way, 1);
    if (strike.is_last) {
        (void)raise(SIGKILL);
    }
}

/* Where only a write can be cut: a call without space fails at once. */
static struct strike begin_whole(enum dp_file_call call)
{
    struct strike strike = begin_call(call);

    if (strike.cut && !strike.is_last) {
        strike.reason = ENOSPC;
    }
    return strike;
}

#define WHOLE_CALL(kind, call)                               \
    do {                                                     \
        const struct strike strike = begin_whole(kind);      \
        const int result = strike.reason == 0 ? (call) : -1; \
                                                             \
        end_call(strike);                                    \
        errno = strike.reason == 0 ? errno : strike.reason;  \
        return result;                                       \
    } while (0)

int dp_disk_create(const char *path, int flags)
{
    WHOLE_CALL(DP_FILE_CALL_CREATE, open(path, flags | O_CREAT, 0666));
}

ssize_t dp_disk_write(int fd, const void *data, size_t bytes)
{
    const struct strike strike = begin_call(DP_FILE_CALL_WRITE);
    ssize_t done;

    done = strike.reason == 0 ? write(fd, data, strike.cut ? bytes - bytes / 2 : bytes) : -1;
    end_call(strike);
    errno = strike.reason == 0 ? errno : strike.reason;
    return done;
}

int dp_disk_sync(int fd)
{
    WHOLE_CALL(DP_FILE_CALL_SYNC, fsync(fd));
}

int dp_disk_rename(const char *from, const char *to)
{
    WHOLE_CALL(DP_FILE_CALL_RENAME, rename(from, to));
}

int dp_disk_rename_at(int from_folder, const char *from, int to_folder, const char *to)
{
    WHOLE_CALL(DP_FILE_CALL_RENAME, renameat(from_folder, from, to_folder, to));
}

int dp_disk_unlink(const char *path)
{
    WHOLE_CALL(DP_FILE_CALL_UNLINK, unlink(path));
}

int dp_disk_unlink_at(int folder, const char *name)
{
    WHOLE_CALL(DP_FILE_CALL_UNLINK, unlinkat(folder, name, 0));
}

int dp_disk_mkdir(const char *path)
{
    WHOLE_CALL(DP_FILE_CALL_MKDIR, mkdir(path, 0777));
}

int dp_disk_rmdir(const char *path)
{
    WHOLE_CALL(DP_FILE_CALL_RMDIR, rmdir(path));
}

int dp_disk_symlink(const char *target, const char *path)
{
    WHOLE_CALL(DP_FILE_CALL_SYMLINK, symlink(target, path));
}
