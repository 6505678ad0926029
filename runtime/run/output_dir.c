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

#include "base/files/disk.h"
#include "base/files/folder.h"
#include "base/log.h"
#include "runtime/checkpoint/checkpoint_save.h"

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
        *made = dp_disk_mkdir(part) == 0;
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

enum { INSIDE_BYTES = 128 }; /* at most, of a path below the folder: files of checkpoints */

static dp_status name_out(struct dp_output_dir *output, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static dp_status name_out(struct dp_output_dir *output, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(output->path, sizeof(output->path), format, args);
    va_end(args);
    return length >= 0 && (size_t)length + INSIDE_BYTES <= sizeof(output->path)
               ? DP_OK
               : DP_FAIL(DP_ERR_USAGE, "%.80s...: the path is too long: choose another --out",
                         output->path);
}

enum { NAMES_MOST = 1000 };

/* runs/NAME-DATE-TIME, followed by -2, -3 ... where others have begun in the same second: whoever
 * makes the folder has the name. */
static dp_status make_named(struct dp_run_job *job, const struct tm *now)
{
    char stamp[32];

    (void)strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", now);
    job->output.made = false;
    for (int i = 1; !job->output.made && i <= NAMES_MOST; i++) {
        char suffix[16] = "";

        if (i > 1) {
            (void)snprintf(suffix, sizeof(suffix), "-%d", i);
        }
        DP_TRY(name_out(&job->output, "runs/%s-%s%s", job->config->name, stamp, suffix));
        DP_TRY(make_folders(job->output.path, &job->output.made));
    }
    return job->output.made ? DP_OK
                            : DP_FAIL(DP_ERR_USAGE,
                                      "%s and those before it are taken: choose another "
                                      "folder with --out",
                                      job->output.path);
}

/* Whether --out may hold a run: the one that is resumed. */
static bool may_continue(const struct dp_run_job *job)
{
    return job->resume.continues || (job->options->out != NULL && job->options->resume != NULL &&
                                     strcmp(job->options->resume, "auto") == 0);
}

/* Rank 0 holds the lock until the run has ended. A folder that cannot be written into is reported
 * later. */
static dp_status lock_out(struct dp_run_job *job)
{
    char path[DP_PATH_BYTES];

    if (job->output.lock != NULL || access(job->output.path, W_OK) != 0) {
        return DP_OK;
    }
    DP_TRY(dp_file_join(path, job->output.path, ".lockstep.lock"));
    return dp_lock_take(path, job->output.path, "choose another --out", &job->output.lock);
}

/* --out must not hold a run already, nor checkpoints that might be mistaken for its own. */
static dp_status check_free(const struct dp_run_job *job)
{
    const bool fresh = job->options->out != NULL && !may_continue(job);

    if (fresh &&
        (exists_in(job->output.path, "config.yaml") ||
         exists_in(job->output.path, "metrics.jsonl") || exists_in(job->output.path, "run.json"))) {
        return DP_FAIL(DP_ERR_USAGE,
                       "%s holds a run already: choose another --out, or go on with --resume",
                       job->output.path);
    }
    if (fresh && exists_in(job->output.path, "checkpoints")) {
        return DP_FAIL(DP_ERR_USAGE,
                       "%s/checkpoints is there already: choose another --out, or go on with "
                       "--resume",
                       job->output.path);
    }
    return DP_OK;
}

static dp_status name_given(struct dp_run_job *job)
{
    return job->options->out[0] != '\0'
               ? name_out(&job->output, "%s", job->options->out)
               : DP_FAIL(DP_ERR_USAGE, "--out wants the path of a folder, and found nothing");
}

static dp_status make_given(struct dp_run_job *job)
{
    DP_TRY(name_given(job));
    DP_TRY(check_free(job));
    return make_folders(job->output.path, &job->output.made);
}

dp_status dp_run_lock_out(struct dp_run_job *job)
{
    if (job->options->out == NULL) {
        return DP_OK;
    }
    DP_TRY(name_given(job));
    return exists_in(job->output.path, ".") ? lock_out(job) : DP_OK;
}

dp_status dp_run_make_out(struct dp_run_job *job)
{
    const time_t now = time(NULL);
    struct tm fields;

    (void)gmtime_r(&now, &fields);
    (void)strftime(job->output.started, sizeof(job->output.started), "%Y-%m-%dT%H:%M:%SZ", &fields);
    (void)localtime_r(&now, &fields);
    DP_TRY(job->options->out != NULL ? make_given(job) : make_named(job, &fields));
    if (access(job->output.path, W_OK) != 0) {
        return DP_FAIL(DP_ERR_WRITE, "cannot write into %s: %s; choose another folder with --out",
                       job->output.path, strerror(errno));
    }
    DP_TRY(lock_out(job));
    return check_free(job); /* another run may have written there until it released the lock */
}

void dp_run_release_out(struct dp_output_dir *output, bool used)
{
    dp_lock_release(output->lock);
    if (output->made && !used) {
        (void)dp_disk_rmdir(output->path); /* nothing was written */
    }
}

dp_status dp_run_mend_out(const struct dp_run_job *job)
{
    static const char *const names[] = {"config.yaml", "run.json", "metrics.jsonl", "report.html"};
    const bool newest =
        job->resume.continues && !job->resume.memory && strcmp(job->options->resume, "auto") == 0;

    dp_folder_clean(job->output.path, names, (int)(sizeof(names) / sizeof(names[0])));
    return newest ? dp_checkpoint_mend(job->resume.path) : DP_OK;
}
