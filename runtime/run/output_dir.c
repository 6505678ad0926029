/*
 * output_dir.c - the folder of a run: --out, or one of its own.
 */
#include "runtime/run/output_dir.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static bool exists_in(const char *folder, const char *name)
{
    char path[DP_PATH_BYTES];
    struct stat info;

    return dp_file_join(path, folder, name) == DP_OK && stat(path, &info) == 0;
}

/* Makes the folder and those above it. *made: it was not there before. */
static dp_status make_folders(const char *path, bool *made)
{
    char part[DP_PATH_BYTES];
    struct stat info;

    for (size_t i = 1; i <= strlen(path); i++) {
        if (path[i] != '/' && path[i] != '\0') {
            continue;
        }
        (void)snprintf(part, sizeof(part), "%.*s", (int)i, path);
        *made = mkdir(part, 0777) == 0;
        if (!*made && errno == EEXIST && stat(part, &info) == 0 && !S_ISDIR(info.st_mode)) {
            errno = ENOTDIR;
        }
        if (!*made && errno != EEXIST) {
            return DP_FAIL(DP_ERR_WRITE,
                           "cannot make the folder %s: %s; choose another one with --out", part,
                           strerror(errno));
        }
    }
    return DP_OK;
}

static dp_status name_out(struct dp_training *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static dp_status name_out(struct dp_training *run, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(run->out, sizeof(run->out), format, args);
    va_end(args);
    return length >= 0 && (size_t)length < sizeof(run->out)
               ? DP_OK
               : DP_FAIL(DP_ERR_USAGE, "%.80s...: the path is too long: choose another --out",
                         run->out);
}

enum { NAMES_MOST = 1000 };

/* runs/NAME-DATE-TIME, with -2, -3 ... behind it where others have begun in the same second: the
 * name is of whoever makes the folder. */
static dp_status make_named(struct dp_training *run, const struct tm *now)
{
    char stamp[32];

    (void)strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", now);
    run->made_out = false;
    for (int i = 1; !run->made_out && i <= NAMES_MOST; i++) {
        char suffix[16] = "";

        if (i > 1) {
            (void)snprintf(suffix, sizeof(suffix), "-%d", i);
        }
        DP_TRY(name_out(run, "runs/%s-%s%s", run->config->name, stamp, suffix));
        DP_TRY(make_folders(run->out, &run->made_out));
    }
    return run->made_out ? DP_OK
                         : DP_FAIL(DP_ERR_USAGE,
                                   "%s and those before it are taken: choose another "
                                   "folder with --out",
                                   run->out);
}

/* Whether --out may hold a run: the one that is to go on. */
static bool may_continue(const struct dp_training *run)
{
    return run->resume.continues || (run->cli->out != NULL && run->cli->resume != NULL &&
                                     strcmp(run->cli->resume, "auto") == 0);
}

/* Rank 0 holds it until the run has ended. What cannot be written into is told later. */
static dp_status lock_out(struct dp_training *run)
{
    char path[DP_PATH_BYTES];

    if (run->lock != NULL || access(run->out, W_OK) != 0) {
        return DP_OK;
    }
    DP_TRY(dp_file_join(path, run->out, ".lockstep.lock"));
    return dp_lock_take(path, run->out, "choose another --out", &run->lock);
}

/* --out, which must not hold a run already, nor checkpoints that might be mistaken for its own. */
static dp_status check_free(const struct dp_training *run)
{
    const bool fresh = run->cli->out != NULL && !may_continue(run);

    if (fresh && (exists_in(run->out, "config.yaml") || exists_in(run->out, "metrics.jsonl") ||
                  exists_in(run->out, "run.json"))) {
        return DP_FAIL(DP_ERR_USAGE,
                       "%s holds a run already: choose another --out, or go on with --resume",
                       run->out);
    }
    if (fresh && exists_in(run->out, "checkpoints")) {
        return DP_FAIL(DP_ERR_USAGE,
                       "%s/checkpoints is there already: choose another --out, or go on with "
                       "--resume",
                       run->out);
    }
    return DP_OK;
}

static dp_status make_given(struct dp_training *run)
{
    DP_TRY(name_out(run, "%s", run->cli->out));
    DP_TRY(check_free(run));
    return make_folders(run->out, &run->made_out);
}

dp_status dp_run_lock_out(struct dp_training *run)
{
    if (run->cli->out == NULL) {
        return DP_OK;
    }
    DP_TRY(name_out(run, "%s", run->cli->out));
    return exists_in(run->out, ".") ? lock_out(run) : DP_OK;
}

dp_status dp_run_make_out(struct dp_training *run)
{
    const time_t now = time(NULL);
    struct tm fields;

    (void)gmtime_r(&now, &fields);
    (void)strftime(run->started, sizeof(run->started), "%Y-%m-%dT%H:%M:%SZ", &fields);
    (void)localtime_r(&now, &fields);
    DP_TRY(run->cli->out != NULL ? make_given(run) : make_named(run, &fields));
    if (access(run->out, W_OK) != 0) {
        return DP_FAIL(DP_ERR_WRITE, "cannot write into %s: %s; choose another folder with --out",
                       run->out, strerror(errno));
    }
    DP_TRY(lock_out(run));
    return check_free(run); /* of what another run made until it let go of the lock */
}
