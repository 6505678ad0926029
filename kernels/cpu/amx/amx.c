#define _DEFAULT_SOURCE /* syscall() */

#include "kernels/cpu/amx/amx.h"

#if DP_AMX_CODE
#include <cpuid.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool has;

static bool processor_has(void)
{
    enum { EXTENDED = 7, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    unsigned a, b, c, d;

    return __get_cpuid_count(EXTENDED, 0, &a, &b, &c, &d) != 0 && (d & AMX_BF16) != 0 &&
           (d & AMX_TILE) != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512bf16") != 0;
}

/* Linux saves the tiles of a thread only for processes that asked: arch_prctl(2). */
static void ask(void)
{
    enum { REQUEST = 0x1023, TILES = 18 };

    has = processor_has() && syscall(SYS_arch_prctl, REQUEST, TILES) == 0;
}

bool dp_amx_has(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    return pthread_once(&once, ask) == 0 && has;
}

#else

bool dp_amx_has(void)
{
    return false;
}

#endif
