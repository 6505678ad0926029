/*
 * openblas_room.c - refuses to start where OpenBLAS would wait for addresses, before it is loaded.
 */
#define _GNU_SOURCE /* CPU_COUNT, MAP_ANONYMOUS */

#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* not ready so early */
/* Of a thread; OpenBLAS takes them all as it is loaded. */
enum { BUFFER_MB = 128 };

static bool limited(int what)
{
    struct rlimit most;

    return getrlimit(what, &most) == 0 && most.rlim_cur != RLIM_INFINITY;
}

/* The number that a variable has; getenv() finds none so early. */
static long number_of(const char *name, char **environment)
{
    const size_t length = strlen(name);

    for (; *environment != NULL; environment++) {
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=') {
            return strtol(*environment + length + 1, NULL, 10);
        }
    }
    return 0;
}

/* As many as OpenBLAS has, which reads these variables in this order. */
static int count_threads(char **environment)
{
    static const char *const names[] = {"OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS",
                                        "OMP_NUM_THREADS"};
    cpu_set_t cpus;
    int most = 1;

    if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) {
        most = CPU_COUNT(&cpus);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const long wanted = number_of(names[i], environment);

        if (wanted > 0) {
            return wanted < most ? (int)wanted : most;
        }
    }
    return most;
}

/* Where a buffer cannot be had OpenBLAS (0.3.21) tries again for ever, without a word, and before
 * main. Only what limits addresses does that: memory itself is taken when it is touched. */
static void refuse_too_few_addresses(int argc, char **argv, char **environment)
{
    int threads;
    size_t bytes;
    void *place;

    (void)argc;
    (void)argv;
    if (!limited(RLIMIT_AS) && !limited(RLIMIT_DATA)) {
        return;
    }
    threads = count_threads(environment);
    bytes = (size_t)threads * BUFFER_MB * 1024 * 1024;
    place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
    if (place != MAP_FAILED) {
        (void)munmap(place, bytes);
        return;
    }
    _exit(dp_status_exit(DP_FAIL(DP_ERR_NOMEM,
                                 "OpenBLAS wants %d MB of addresses for each of %d thread%s; raise "
                                 "ulimit -v and -d, or set OMP_NUM_THREADS=1",
                                 BUFFER_MB, threads, dp_plural(threads))));
}

/* The loader calls it before it initialises libraries. */
static void (*const first)(int, char **, char **)
    __attribute__((section(".preinit_array"), used)) = refuse_too_few_addresses;
#endif
