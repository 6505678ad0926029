/*
 * openblas_memory.c - refuses to start where OpenBLAS would find no addresses, and so wait for
 * ever.
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

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* too early for sanitizers */
/* Per thread; OpenBLAS reserves all of them when it is loaded. */
enum { BUFFER_MB = 128 };

static bool limited(int what)
{
    struct rlimit most;

    return getrlimit(what, &most) == 0 && most.rlim_cur != RLIM_INFINITY;
}

/* The number in an environment variable; getenv() does not work so early. */
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

/* The number of OpenBLAS's threads: it reads these variables in this order. */
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

/* If OpenBLAS (0.3.21) cannot reserve a buffer it retries for ever, silently, and before main().
 * Only limits of address space cause that: memory itself is used later. */
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

/* The loader calls it before libraries are initialised. */
static void (*const first)(int, char **, char **)
    __attribute__((section(".preinit_array"), used)) = refuse_too_few_addresses;
#endif
