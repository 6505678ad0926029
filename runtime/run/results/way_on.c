#include "runtime/run/results/way_on.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "collectives/world/host_names.h"

enum { COMMAND = 16384 };

/* The words of a process, each with its NUL; 0: there is no such process here. */
static size_t read_words(long pid, char words[COMMAND])
{
    char path[64];
    size_t count = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%ld/cmdline", pid);
    file = fopen(path, "re");
    if (file != NULL) {
        count = fread(words, 1, COMMAND - 1, file);
        (void)fclose(file);
    }
    words[count] = '\0';
    return count;
}

static bool ends_with(const char *word, const char *end)
{
    const size_t length = strlen(word), size = strlen(end);

    return length >= size && strcmp(word + length - size, end) == 0;
}

/* Adds a word as a shell reads it. */
static void add(char *text, const char *word)
{
    const size_t used = strlen(text), length = strlen(word);
    const bool plain = length > 0 && strspn(word, "abcdefghijklmnopqrstuvwxyz"
                                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                                  "-_=+./:,@%") == length;

    if (used + 4 * length + 4 >= COMMAND) {
        return;
    }
    if (plain) {
        (void)snprintf(text + used, COMMAND - used, "%s%s", used > 0 ? " " : "", word);
        return;
    }
    char *to = text + used;
    if (used > 0) {
        *to++ = ' ';
    }
    *to++ = '\'';
    for (; *word != '\0'; word++) {
        if (*word == '\'') {
            memcpy(to, "'\\'", 3);
            to += 3;
        }
        *to++ = *word;
    }
    *to++ = '\'';
    *to = '\0';
}

/* "HOST:/proc/PID/fd/N" of base/system/launcher.c: the path of launch/mpirun, which that process
 * is of; false: it was not started so, or elsewhere. */
static bool find_launcher(char path[DP_PATH_BYTES])
{
    static const char script[] = "mpirun_watchdog.py";
    const char *name = getenv("LOCKSTEP_LAUNCHER"), *proc;
    char words[COMMAND];
    size_t count;

    proc = name != NULL ? strstr(name, ":/proc/") : NULL;
    count = proc != NULL ? read_words(strtol(proc + strlen(":/proc/"), NULL, 10), words) : 0;
    for (const char *word = words; word < words + count; word += strlen(word) + 1) {
        if (ends_with(word, script)) {
            (void)snprintf(path, DP_PATH_BYTES, "%.*smpirun", (int)(strlen(word) - strlen(script)),
                           word);
            return true;
        }
    }
    return false;
}

/* What started this process: mpirun with its words, which end with ours, where it runs here. */
static bool add_launcher(const struct dp_run_job *job, char *text)
{
    char words[COMMAND], path[DP_PATH_BYTES], ranks[16];
    const size_t count = read_words((long)getppid(), words);
    const bool mpirun = count > 0 && (ends_with(words, "mpirun") || ends_with(words, "orterun") ||
                                      ends_with(words, "mpiexec"));

    (void)snprintf(ranks, sizeof(ranks), "%d", job->world->all->size);
    if (mpirun) {
        add(text, find_launcher(path) ? path : words);
        for (const char *word = words + strlen(words) + 1; word < words + count;
             word += strlen(word) + 1) {
            add(text, word);
        }
        return true;
    }
    add(text, getenv("SLURM_STEP_ID") != NULL ? "srun" : find_launcher(path) ? path : "mpirun");
    add(text, "-n");
    add(text, ranks);
    return false;
}

void dp_run_tell_way_on(const struct dp_run_job *job, const char *cause)
{
    char text[COMMAND] = "", words[COMMAND];
    const size_t count = read_words((long)getpid(), words);
    const int rank = job->world->all->rank;
    bool resumes = false, places = false;

    const bool whole = add_launcher(job, text);
    for (const char *word = words; word < words + count; word += strlen(word) + 1) {
        resumes = resumes || strncmp(word, "--resume", strlen("--resume")) == 0;
        places = places || strcmp(word, "--out") == 0 || strncmp(word, "--out=", 6) == 0;
        if (!whole) {
            add(text, word);
        }
    }
    if (!places) {
        add(text, "--out");
        add(text, job->output.shared);
    }
    if (!resumes) {
        add(text, "--resume");
    }
    dp_log_notice("rank %d (%s): %s; go on with: %s", rank,
                  dp_host_names_of(job->world->hosts, rank), cause, text);
}
