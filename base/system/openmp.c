#define _GNU_SOURCE /* sched_setaffinity */
#include "base/system/openmp.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>
#if DP_HAVE_OPENMP
#include <omp.h>
#endif

#include "base/files/file.h"

/* Where runs share cores, less spinning is faster. A single run on two cores that never spins
 * (OMP_WAIT_POLICY=passive) loses a fifth with lenet and two fifths with a small model. From 5000
 * turns on both are as fast as with the library's 300,000. */
static const char *const turns = "5000";

#if DP_HAVE_OPENMP
/* The CPUs of all places. */
static void read_places(cpu_set_t *all)
{
    int cpus[CPU_SETSIZE];

    CPU_ZERO(all);
    for (int place = 0; place < omp_get_num_places(); place++) {
        const int count = omp_get_place_num_procs(place);
        if (count <= CPU_SETSIZE) {
            omp_get_place_proc_ids(place, cpus);
        }
        for (int i = 0; i < count && count <= CPU_SETSIZE; i++) {
            CPU_SET((size_t)cpus[i], all); /* nothing, where the set has no such CPU */
        }
    }
}
#endif

/* Whether the library has bound this thread to its first place, as OMP_PROC_BIND, OMP_PLACES or
 * GOMP_CPU_AFFINITY ask it to. Then the thread may use all of the places again, and a program that
 * starts now is not bound. */
static bool unbind(void)
{
#if DP_HAVE_OPENMP
    cpu_set_t all;

    if (omp_get_proc_bind() != omp_proc_bind_false) {
        read_places(&all);
        return CPU_COUNT(&all) > 0 && sched_setaffinity(0, sizeof(all), &all) == 0 &&
               unsetenv("OMP_PROC_BIND") == 0 && unsetenv("OMP_PLACES") == 0 &&
               unsetenv("GOMP_CPU_AFFINITY") == 0;
    }
#endif
    return false;
}

/* Whether threads will spin as briefly in a program that starts now, and do not in this one. */
static bool set_turns(void)
{
    return getenv("OMP_WAIT_POLICY") == NULL && getenv("GOMP_SPINCOUNT") == NULL &&
           setenv("GOMP_SPINCOUNT", turns, 0) == 0;
}

void dp_openmp_spin_briefly(char *const *argv)
{
    const bool spins = set_turns(), bound = unbind();
    char path[DP_PATH_BYTES];
    ssize_t length;

    /* If there is no interpreter's address, the loader itself was started (`ld.so ddp_train ...`):
     * starting it again would pass it our arguments. */
    if (getauxval(AT_BASE) == 0 || (!spins && !bound)) {
        return;
    }
    length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (length > 0 && (size_t)length < sizeof(path) - 1) {
        path[length] = '\0'; /* by its name, which process lists show */
        (void)execv(path, argv);
    }
}

int dp_openmp_asked(void)
{
    const char *text = getenv("OMP_NUM_THREADS");
    char *end = NULL;
    const long asked = text != NULL ? strtol(text, &end, 10) : 0;

    if (asked < 1 || (*end != '\0' && *end != ',')) {
        return 0;
    }
    return asked < INT_MAX ? (int)asked : INT_MAX;
}

void dp_openmp_start(int threads)
{
    atomic_int running;

    atomic_init(&running, 0);
#if DP_HAVE_OPENMP
#pragma omp parallel num_threads(threads)
#else
    (void)threads;
#endif
    atomic_fetch_add(&running, 1); /* which the compiler does not leave out */
}
