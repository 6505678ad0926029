#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "base/system/guard.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t launcher;      /* 0: the parent */
static atomic_bool *counts; /* shared by rank and guard; NULL: no guard, or no memory */

void dp_guard_note(bool on)
{
    if (counts != NULL) {
        atomic_store(counts, on);
    }
}

pid_t dp_guard_launcher(void)
{
    return launcher > 0 ? launcher : getppid();
}

bool dp_guard_ends_job(void)
{
    return launcher > 0;
}

/* Whether this is one of several ranks whose parent is a launcher of that kind. */
static bool is_rank_of(const char *ranks, const char *const *launchers)
{
    const char *count = getenv(ranks);
    char path[64], name[32] = "";
    FILE *file;

    if (count == NULL || strtol(count, NULL, 10) < 2) {
        return false;
    }
    (void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)getppid());
    file = fopen(path, "re");
    if (file != NULL) {
        (void)!fgets(name, sizeof(name), file);
        (void)fclose(file);
    }
    name[strcspn(name, "\n")] = '\0';
    while (*launchers != NULL && strcmp(name, *launchers) != 0) {
        launchers++;
    }
    return *launchers != NULL;
}

static bool needs_guard(void)
{
    static const char *const hydra[] = {"hydra_pmi_proxy", NULL};
    static const char *const prrte[] = {"prterun", "prted", NULL};
    const char *shrinks = getenv("OMPI_MCA_mpi_ft_enable"); /* --with-ft ulfm */

    return is_rank_of("PMI_SIZE", hydra) || ((shrinks == NULL || strcmp(shrinks, "0") == 0) &&
                                             is_rank_of("OMPI_COMM_WORLD_SIZE", prrte));
}

/* Asks Hydra to end the job with this exit code, in the words of PMI 1 (MPI_Abort's), where it
 * still listens to the rank. */
static void ask_for_end(int code)
{
    const char *fd = getenv("PMI_FD");

    if (fd != NULL) {
        (void)dprintf((int)strtol(fd, NULL, 10), "cmd=abort exitcode=%d\n", code);
        (void)sleep(1); /* until when it kills this process */
    }
}

/* As the rank was killed. The core, if any, is the rank's. */
static int die_of(int number)
{
    const struct rlimit none = {0, 0};
    sigset_t one;

    (void)setrlimit(RLIMIT_CORE, &none);
    (void)signal(number, SIG_DFL);
    (void)kill(getpid(), number);
    (void)sigemptyset(&one);
    (void)sigaddset(&one, number);
    (void)sigprocmask(SIG_UNBLOCK, &one, NULL);
    return 128 + number;
}

/* All signals are blocked, so that only SIGKILL and SIGSTOP reach it. */
static int wait_for(pid_t rank, unsigned patience_s)
{
    int status = 0;

    while (waitpid(rank, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFSIGNALED(status)) {
        if (counts != NULL && atomic_load(counts)) {
            (void)sleep(patience_s);
            ask_for_end(WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : 1);
        }
        return WEXITSTATUS(status);
    }
    (void)sleep(patience_s);
    ask_for_end(128 + WTERMSIG(status));
    return die_of(WTERMSIG(status));
}

int dp_guard_rank(unsigned patience_s)
{
    const pid_t guard = getpid(), parent = getppid();
    sigset_t all, before;
    void *memory;
    pid_t rank;

    if (!needs_guard()) {
        return -1;
    }
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, &before);
    memory = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    counts = memory != MAP_FAILED ? memory : NULL;
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, it would hide how the rank ends */
    rank = fork();
    if (rank > 0) {
        return wait_for(rank, patience_s);
    }
    if (rank == 0) {
        launcher = parent;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != guard) {
            (void)kill(getpid(), SIGKILL);
        }
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return -1;
}
