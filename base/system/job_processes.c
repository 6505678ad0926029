#include "base/system/job_processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/mem.h"

enum { ENVIRON_BYTES = 1 << 18, STAT_BYTES = 1024, PATH_BYTES = 256, RANK_MOST = 1 << 24 };

const char *const dp_job_rank_names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", NULL};

/* The beginning of a file of a process; its length, 0 where it cannot be read. */
static size_t read_file(const struct dp_job_processes *job, int64_t id, const char *name,
                        char *text, size_t size)
{
    char path[PATH_BYTES];
    size_t used = 0;
    ssize_t bytes = 1;
    int file;

    (void)snprintf(path, sizeof(path), "%s/%lld/%s", job->proc, (long long)id, name);
    file = open(path, O_RDONLY | O_CLOEXEC);
    while (file >= 0 && bytes > 0 && used < size - 1) {
        bytes = read(file, text + used, size - 1 - used);
        used += bytes > 0 ? (size_t)bytes : 0;
    }
    if (file >= 0) {
        (void)close(file);
    }
    text[used] = '\0';
    return used;
}

/* The value of a variable in texts NAME=VALUE that end with NUL; NULL: it is not there. */
static const char *value_in(const char *texts, size_t bytes, const char *name)
{
    const size_t length = strlen(name);

    for (const char *at = texts; at < texts + bytes; at += strlen(at) + 1) {
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            return at + length + 1;
        }
    }
    return NULL;
}

/* The parent; 0: not known. `out`: its state and name, unless NULL. */
static int64_t read_stat(const struct dp_job_processes *job, int64_t id, struct dp_job_process *out)
{
    char text[STAT_BYTES];
    const char *begin, *end; /* the name is in brackets, and may hold some */
    long long parent = 0;
    char state = '?';

    (void)read_file(job, id, "stat", text, sizeof(text));
    begin = strchr(text, '(');
    end = strrchr(text, ')');
    if (begin == NULL || end == NULL ||
        sscanf(end + 1, " %c %lld", &state, &parent) != 2) { /* NOLINT(cert-err34-c) */
        return 0;
    }
    if (out != NULL) {
        out->state = state;
        const size_t length = (size_t)(end - begin - 1);
        memcpy(out->name, begin + 1, length < sizeof(out->name) ? length : sizeof(out->name) - 1);
    }
    return parent;
}

/* Whether it is of this host, by its name space: containers may show processes of others. */
static bool is_here(const struct dp_job_processes *job, int64_t id)
{
    char path[PATH_BYTES], mine[64], its[64];
    ssize_t length, other;

    (void)snprintf(path, sizeof(path), "%s/self/ns/uts", job->proc);
    length = readlink(path, mine, sizeof(mine));
    (void)snprintf(path, sizeof(path), "%s/%lld/ns/uts", job->proc, (long long)id);
    other = readlink(path, its, sizeof(its));
    return length <= 0 || other <= 0 || (length == other && memcmp(mine, its, (size_t)length) == 0);
}

static bool has_thread(const struct dp_job_processes *job, int64_t id)
{
    char path[PATH_BYTES], comm[64], text[32];
    const struct dirent *entry;
    bool found = false;
    DIR *tasks;

    (void)snprintf(path, sizeof(path), "%s/%lld/task", job->proc, (long long)id);
    tasks = opendir(path);
    while (tasks != NULL && !found && (entry = readdir(tasks)) != NULL) {
        (void)snprintf(comm, sizeof(comm), "task/%.20s/comm", entry->d_name);
        (void)read_file(job, id, comm, text, sizeof(text));
        text[strcspn(text, "\n")] = '\0';
        found = strcmp(text, job->thread) == 0;
    }
    if (tasks != NULL) {
        (void)closedir(tasks);
    }
    return found;
}

/* Whether it is a process of the job; then all about it. texts [ENVIRON_BYTES]: scratch. */
static bool is_of_job(const struct dp_job_processes *job, int64_t id, char *texts,
                      struct dp_job_process *out)
{
    const size_t bytes = read_file(job, id, "environ", texts, ENVIRON_BYTES);
    const char *rank = NULL, *space;
    int64_t parent;

    for (int i = 0; bytes > 0 && rank == NULL && dp_job_rank_names[i] != NULL; i++) {
        rank = value_in(texts, bytes, dp_job_rank_names[i]);
    }
    if (rank == NULL) {
        return false;
    }
    space = value_in(texts, bytes, "PMIX_NAMESPACE");
    *out = (struct dp_job_process){.rank = (int)strtol(rank, NULL, 10), .id = id};
    if (out->rank < 0 || out->rank > RANK_MOST) {
        return false;
    }
    parent = read_stat(job, id, out);
    if (job->space != NULL ? space == NULL || strcmp(space, job->space) != 0
                           : parent != job->launcher &&
                                 (parent <= 1 || read_stat(job, parent, NULL) != job->launcher)) {
        return false;
    }
    out->come = has_thread(job, id);
    return is_here(job, id);
}

/* Puts it into its place among those that were found before; how many there are then. */
static int insert(struct dp_job_process *all, int count, int most, const struct dp_job_process *one)
{
    int at = 0;

    while (at < count && all[at].rank < one->rank) {
        at++;
    }
    if (at < count && all[at].rank == one->rank) {
        if (one->come || (!all[at].come && one->id > all[at].id)) {
            all[at] = *one;
        }
        return count;
    }
    if (count == most) {
        return count;
    }
    memmove(&all[at + 1], &all[at], (size_t)(count - at) * sizeof(*all));
    all[at] = *one;
    return count + 1;
}

int dp_job_processes_find(const struct dp_job_processes *job, struct dp_job_process *out, int most)
{
    char *texts = dp_zalloc(1, ENVIRON_BYTES);
    DIR *folder = texts != NULL ? opendir(job->proc) : NULL;
    const struct dirent *entry;
    struct dp_job_process one;
    int count = 0;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        const int64_t id = strtoll(entry->d_name, NULL, 10);
        if (id > 0 && is_of_job(job, id, texts, &one)) {
            count = insert(out, count, most, &one);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    dp_free(texts);
    return count;
}

const char *dp_process_stands(char state)
{
    switch (state) {
    case 'T':
        return "stopped by a signal";
    case 't':
        return "held by a debugger";
    case 'Z':
    case 'X':
        return "has ended";
    default:
        return NULL;
    }
}
