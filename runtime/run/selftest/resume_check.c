#define _XOPEN_SOURCE 700 /* nftw */
#include "runtime/run/selftest/resume_check.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "runtime/run/run.h"
#include "runtime/run/setup.h"
#include "runtime/trainer/update/weight_sync.h"

enum { STEPS = 4, SAVED = 2 };

/* One of the runs, up to a step. */
struct part {
    struct dp_run_options options;
    struct dp_world *world; /* borrowed */
    char out[DP_PATH_BYTES], rows[48], prometheus[DP_PATH_BYTES + 48];
    int until, saves; /* ends after this step; saves after that one */
    bool dies;        /* is killed there */
};

/* What no run of a selftest may do or needs. */
static const char *const settings[] = {"checkpoint.every_steps=0", "report.html=false",
                                       "report.tensorboard=false", "comm.plan_cache=false",
                                       "device.tune=off"};

static dp_status save(struct dp_training *run)
{
    dp_status written = DP_OK;

    DP_TRY(dp_trainer_sync_weights(run->job.trainer));
    DP_TRY(dp_saver_finish(&run->saver, &run->outcome, &run->figures.metrics, &written));
    return written;
}

static dp_status steps_of(struct dp_training *run, const struct part *part)
{
    struct dp_step_result result;

    DP_TRY(dp_run_configure(&run->job));
    dp_fault_injection_end(run->job.faults, run->job.world->all->rank, false, 0);
    dp_faults_destroy(run->job.faults); /* they are for other checks */
    run->job.faults = NULL;
    DP_TRY(dp_run_setup(run, NULL));
    DP_TRY(dp_run_start(run));
    while (dp_trainer_steps(run->job.trainer) < (uint64_t)part->until) {
        DP_TRY(dp_run_step(run, &result));
        if (dp_trainer_steps(run->job.trainer) == (uint64_t)part->saves) {
            DP_TRY(save(run));
        }
    }
    if (part->dies) {
        (void)kill(getpid(), SIGKILL);
    }
    return DP_OK;
}

static dp_status train(const struct part *part)
{
    struct dp_training *run = dp_zalloc(1, sizeof(*run));
    dp_status status;

    if (run == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "run");
    }
    dp_run_init(run, &part->options, part->world);
    status = steps_of(run, part);
    dp_run_teardown(run);
    dp_free(run);
    return status;
}

/* In a process of its own. */
static dp_status train_and_die(struct part *part, char problem[DP_LOG_CAPTURE_BYTES])
{
    int ended = 0;
    pid_t child;

    (void)fflush(NULL);
    child = fork();
    if (child == 0) {
        part->dies = true;
        (void)train(part);
        (void)kill(getpid(), SIGTERM); /* it has failed, and said why */
    }
    while (child > 0 && waitpid(child, &ended, 0) < 0 && errno == EINTR) {
    }
    if (child > 0 && WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL) {
        return DP_OK;
    }
    (void)snprintf(problem, DP_LOG_CAPTURE_BYTES,
                   "a run that was to be killed after step %d failed", part->until);
    return DP_ERR_INTERNAL;
}

/* Settings point into the part. */
static void make_part(const struct dp_selftest *selftest, const struct dp_run_options *options,
                      size_t rows, const char *path, struct part *part)
{
    const struct dp_run_job *job = selftest->job;
    const struct dp_config *c = job->config;
    const int ranks = job->world->all->size;
    struct dp_run_options *o = &part->options;

    *part = (struct part){.options = *options, .world = job->world, .until = STEPS, .saves = STEPS};
    (void)snprintf(part->out, sizeof(part->out), "%s", path);
    (void)snprintf(part->rows, sizeof(part->rows), "train.global_batch=%zu", rows);
    (void)snprintf(part->prometheus, sizeof(part->prometheus), "report.prometheus=%s.prom", path);
    o->sets[o->set_count++] = part->rows;
    o->sets[o->set_count++] = part->prometheus; /* not into the user's file */
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        o->sets[o->set_count++] = settings[i];
    }
    if (dp_config_stale(c) || c->comm.servers >= ranks) { /* with these it could not run here */
        o->sets[o->set_count++] = "train.mode=sync";
        o->sets[o->set_count++] = "train.staleness=0";
        o->sets[o->set_count++] = c->comm.servers >= ranks ? "comm.servers=0" : "train.staleness=0";
    }
    o->out = part->out;
    o->resume = NULL;
    o->steps = STEPS;
    o->quiet = true;
    o->selftest = false;
}

/* Whether a file of both checkpoints is the same. Rank 0. */
static dp_status same_file(const struct part *a, const struct part *b, const char *name, bool *same)
{
    const struct part *parts[2] = {a, b};
    char *text[2] = {NULL, NULL}, path[DP_PATH_BYTES];
    size_t bytes[2] = {0, 0};
    dp_status status = DP_OK;

    for (int i = 0; status == DP_OK && i < 2; i++) {
        const int length =
            snprintf(path, sizeof(path), "%s/checkpoints/latest/%s", parts[i]->out, name);
        status = length >= 0 && (size_t)length < sizeof(path)
                     ? dp_file_read(path, (size_t)-1 / 2, &text[i], &bytes[i])
                     : DP_FAIL(DP_ERR_ARG, "%s is too long", parts[i]->out);
    }
    *same = status == DP_OK && bytes[0] == bytes[1] && memcmp(text[0], text[1], bytes[0]) == 0;
    dp_free(text[0]);
    dp_free(text[1]);
    return status;
}

static dp_status compare(struct dp_selftest *selftest, const struct part *whole,
                         const struct part *resumed)
{
    const bool alone = whole->world->all->size == 1;
    bool weights = true, optimizer = true;

    if (dp_run_leads(selftest->job)) {
        DP_TRY(same_file(whole, resumed, "model.safetensors", &weights));
        DP_TRY(same_file(whole, resumed, "optimizer.safetensors", &optimizer));
    }
    dp_selftest_line(selftest, weights && optimizer, "resume",
                     "%s in %s after step %d, saved in step %d and %s after step %d",
                     weights && optimizer ? "the same bits" : "other bits",
                     !weights     ? "weights"
                     : !optimizer ? "optimizer state"
                                  : "all state",
                     STEPS, SAVED, alone ? "killed" : "left", SAVED + 1);
    return DP_OK;
}

/* In this process. problem: an error of a job of one rank, which a line then shows. */
static dp_status train_quietly(const struct part *part, char problem[DP_LOG_CAPTURE_BYTES])
{
    const bool alone = part->world->all->size == 1;
    struct dp_log_capture capture;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_WARN);
    status = train(part);
    dp_log_capture_end(&capture, alone || status == DP_OK ? DP_LOG_DROP : DP_LOG_PRINT);
    (void)snprintf(problem, DP_LOG_CAPTURE_BYTES, "%s", dp_log_captured(&capture));
    return status;
}

/* All three runs. */
static dp_status run_parts(struct dp_selftest *selftest, const struct dp_run_options *options,
                           size_t rows, const char *folder, char problem[DP_LOG_CAPTURE_BYTES])
{
    const struct dp_world *world = selftest->job->world;
    struct part whole, broken, resumed;
    char path[DP_PATH_BYTES];

    DP_TRY(dp_file_join(path, folder, "whole"));
    make_part(selftest, options, rows, path, &whole);
    DP_TRY(dp_file_join(path, folder, "broken"));
    make_part(selftest, options, rows, path, &broken);
    make_part(selftest, options, rows, path, &resumed);
    broken.until = SAVED + 1;
    broken.saves = SAVED;
    DP_TRY(world->all->size == 1 && selftest->job->device->host_memory
               ? train_and_die(&broken, problem)
               : train_quietly(&broken, problem));
    resumed.options.resume = "auto";
    resumed.options.init = NULL;
    DP_TRY(train_quietly(&resumed, problem));
    DP_TRY(train_quietly(&whole, problem));
    return compare(selftest, &whole, &resumed);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

dp_status dp_resume_check(struct dp_selftest *selftest, const struct dp_run_options *options,
                          size_t rows)
{
    struct dp_group *all = selftest->job->world->all;
    const char *temporary = getenv("TMPDIR");
    char folder[DP_PATH_BYTES] = "";
    char problem[DP_LOG_CAPTURE_BYTES] = "";
    dp_status status = DP_OK;

    if (all->rank == 0) {
        (void)snprintf(folder, sizeof(folder), "%s/lockstep-selftest-XXXXXX",
                       temporary != NULL && temporary[0] != '\0' ? temporary : "/tmp");
        status = mkdtemp(folder) != NULL ? DP_OK : dp_file_fail(folder, errno);
    }
    DP_TRY(dp_group_agree(all, status));
    DP_TRY(dp_group_broadcast(all, folder, sizeof(folder), 0));
    status = run_parts(selftest, options, rows, folder, problem);
    if (all->rank == 0) {
        (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
    if (status != DP_OK && all->size == 1) {
        dp_selftest_broken(selftest, "resume", status, problem);
        return DP_OK;
    }
    return status;
}
