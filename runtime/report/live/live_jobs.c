#include "runtime/report/live/live_jobs.h"

#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/system/process.h"

/* Grows to twice as many. */
static dp_status make_room(struct dp_live_jobs *jobs, int *capacity)
{
    struct dp_live_rank *more;

    if (jobs->count < *capacity) {
        return DP_OK;
    }
    *capacity = *capacity == 0 ? 8 : 2 * *capacity;
    more = dp_zalloc((size_t)*capacity, sizeof(*more));
    if (more == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "ranks of this host");
    }
    if (jobs->count > 0) {
        memcpy(more, jobs->ranks, (size_t)jobs->count * sizeof(*more));
    }
    dp_free(jobs->ranks);
    jobs->ranks = more;
    return DP_OK;
}

static const struct dp_live_rank *same_as(const struct dp_live_jobs *jobs, int64_t process)
{
    for (int i = 0; i < jobs->count; i++) {
        if (jobs->ranks[i].process == process) {
            return &jobs->ranks[i];
        }
    }
    return NULL;
}

/* What only two looks together can say. */
static void compare(struct dp_live_rank *rank, const struct dp_live_rank *before)
{
    struct dp_process_doing doing;

    dp_process_look(rank->process, &doing);
    rank->cpu_ns = doing.cpu_ns;
    rank->at_ns = dp_now_ns();
    rank->cores = (double)NAN;
    rank->still_ns = rank->at_ns;
    if (before == NULL || before->live.who.process != rank->live.who.process) {
        return;
    }
    rank->cores = (double)(rank->cpu_ns - before->cpu_ns) / (double)(rank->at_ns - before->at_ns);
    if (atomic_load(&before->live.mark.changes) == atomic_load(&rank->live.mark.changes)) {
        rank->still_ns = before->still_ns;
    }
}

static int by_job(const void *left, const void *right)
{
    const struct dp_live_who *a = &((const struct dp_live_rank *)left)->live.who;
    const struct dp_live_who *b = &((const struct dp_live_rank *)right)->live.who;
    const int order = strcmp(a->job, b->job);

    return order != 0 ? order : (a->rank > b->rank) - (a->rank < b->rank);
}

static dp_status add_process(struct dp_live_jobs *now, int *capacity, const char *name,
                             const char *folder, const struct dp_live_jobs *before)
{
    struct dp_live_rank rank = {.process = strtoll(name, NULL, 10)};

    if (!dp_live_read(rank.process, &rank.live) ||
        (folder != NULL && strcmp(rank.live.who.folder, folder) != 0)) {
        return DP_OK;
    }
    DP_TRY(make_room(now, capacity));
    compare(&rank, same_as(before, rank.process));
    memcpy(&now->ranks[now->count++], &rank, sizeof(rank));
    return DP_OK;
}

dp_status dp_live_jobs_look(struct dp_live_jobs *jobs, const char *folder)
{
    struct dp_live_jobs now = {0};
    const struct dirent *entry;
    DIR *processes = opendir("/proc");
    dp_status status = DP_OK;
    int capacity = 0;

    while (processes != NULL && status == DP_OK && (entry = readdir(processes)) != NULL) {
        if (isdigit((unsigned char)entry->d_name[0])) {
            status = add_process(&now, &capacity, entry->d_name, folder, jobs);
        }
    }
    if (processes != NULL) {
        (void)closedir(processes);
    }
    if (status != DP_OK) {
        dp_free(now.ranks);
        return status;
    }
    if (now.count > 0) {
        qsort(now.ranks, (size_t)now.count, sizeof(*now.ranks), by_job);
    }
    dp_free(jobs->ranks);
    *jobs = now;
    return DP_OK;
}

void dp_live_jobs_release(struct dp_live_jobs *jobs)
{
    dp_free(jobs->ranks);
    *jobs = (struct dp_live_jobs){0};
}
