/*
 * bench_peak.c - the arithmetic that cores can do at most, one line of JSON: multiplications and
 * additions of vectors that never leave the registers, on several cores at the same time.
 *
 *   bench_peak [THREADS [SECONDS]]        default: 1 0.5
 *
 * fp32_gflops and bf16_gflops are of a core, the mean over cores of each one's best slice of time;
 * bf16_gflops is by tiles (AMX) where the processor has them, else by vectors (AVX512_BF16), and
 * null where it has neither.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/trace.h"

enum { THREADS_MOST = 256, CHAINS = 16, LOOPS = 20000 };

#if defined(__x86_64__) && defined(__GNUC__)
#include "kernels/cpu/amx/amx.h"

/* Each returns the operations of one call. Chains do not wait for each other, so that their number
 * hides the time that one operation takes. The loops are written so that compilers keep all chains
 * in registers. */
__attribute__((target("avx512f"))) static double multiply_512(float *out)
{
    __m512 sums[CHAINS];
    const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);

    for (int i = 0; i < CHAINS; i++) {
        sums[i] = _mm512_set1_ps(out[i]);
    }
    for (int n = 0; n < LOOPS; n++) {
        for (int i = 0; i < CHAINS; i++) {
            sums[i] = _mm512_fmadd_ps(sums[i], x, y);
        }
    }
    for (int i = 0; i < CHAINS; i++) {
        out[i] = _mm512_reduce_add_ps(sums[i]) / 16.0f;
    }
    return 2.0 * 16.0 * CHAINS * LOOPS;
}

__attribute__((target("avx2,fma"))) static double multiply_256(float *out)
{
    enum { FEW = 12 }; /* there are 16 registers */
    __m256 sums[FEW];
    const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);

    for (int i = 0; i < FEW; i++) {
        sums[i] = _mm256_set1_ps(out[i]);
    }
    for (int n = 0; n < LOOPS; n++) {
        for (int i = 0; i < FEW; i++) {
            sums[i] = _mm256_fmadd_ps(sums[i], x, y);
        }
    }
    for (int i = 0; i < FEW; i++) {
        out[i] = _mm256_cvtss_f32(sums[i]);
    }
    return 2.0 * 8.0 * FEW * LOOPS;
}

__attribute__((target("avx512f,avx512bf16"))) static double multiply_bf16(float *out)
{
    __m512 sums[CHAINS];
    const __m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(-0.5f));

    for (int i = 0; i < CHAINS; i++) {
        sums[i] = _mm512_set1_ps(out[i]);
    }
    for (int n = 0; n < LOOPS; n++) {
        for (int i = 0; i < CHAINS; i++) {
            sums[i] = _mm512_dpbf16_ps(sums[i], x, x);
        }
    }
    for (int i = 0; i < CHAINS; i++) {
        out[i] = _mm512_cvtss_f32(sums[i]);
    }
    return 4.0 * 16.0 * CHAINS * LOOPS;
}

/* Six tiles of sums; the other two are the factors. */
DP_AMX static double multiply_tiles(float *out)
{
    static const uint16_t numbers[DP_AMX_TILE];
    float sums[DP_AMX_ROWS * DP_AMX_ROWS];
    struct dp_amx_shape before;

    dp_amx_begin(&before);
    _tile_loadd(6, numbers, 64);
    _tile_loadd(7, numbers, 64);
    for (int n = 0; n < LOOPS; n++) {
        _tile_dpbf16ps(0, 6, 7);
        _tile_dpbf16ps(1, 6, 7);
        _tile_dpbf16ps(2, 6, 7);
        _tile_dpbf16ps(3, 6, 7);
        _tile_dpbf16ps(4, 6, 7);
        _tile_dpbf16ps(5, 6, 7);
    }
    _tile_stored(0, sums, 64);
    dp_amx_end(&before);
    out[0] = sums[0];
    return 2.0 * DP_AMX_ROWS * DP_AMX_TILE * 6 * LOOPS;
}

typedef double work_fn(float *out);

static work_fn *fp32_work(void)
{
    return __builtin_cpu_supports("avx512f") ? multiply_512
           : __builtin_cpu_supports("fma")   ? multiply_256
                                             : NULL;
}

static work_fn *bf16_work(void)
{
    return dp_amx_has()                           ? multiply_tiles
           : __builtin_cpu_supports("avx512bf16") ? multiply_bf16
                                                  : NULL;
}
#else
typedef double work_fn(float *out);

static work_fn *fp32_work(void)
{
    return NULL;
}

static work_fn *bf16_work(void)
{
    return NULL;
}
#endif

struct core {
    pthread_t thread;
    pthread_barrier_t *start;
    work_fn *work;
    double seconds, gflops; /* gflops: the best */
    float sums[CHAINS];     /* read by the caller, so that no loop is left out */
};

static void *run_core(void *arg)
{
    struct core *core = arg;
    uint64_t begin_ns, now_ns;

    (void)pthread_barrier_wait(core->start);
    begin_ns = now_ns = dp_now_ns();
    while ((double)(now_ns - begin_ns) * 1e-9 < core->seconds) {
        const uint64_t from_ns = now_ns;
        const double work = core->work(core->sums);
        now_ns = dp_now_ns();
        const double gflops = work / (double)(now_ns - from_ns);
        core->gflops = gflops > core->gflops ? gflops : core->gflops;
    }
    return NULL;
}

/* GFLOP/s of a core; below 0: no threads. */
static double measure(work_fn *work, int threads, double seconds)
{
    static struct core cores[THREADS_MOST];
    pthread_barrier_t start;
    double sum = 0.0;

    if (pthread_barrier_init(&start, NULL, (unsigned)threads) != 0) {
        return -1.0;
    }
    for (int i = 0; i < threads; i++) {
        cores[i] = (struct core){.start = &start, .work = work, .seconds = seconds};
        if (pthread_create(&cores[i].thread, NULL, run_core, &cores[i]) != 0) {
            exit(1); /* the others wait for it */
        }
    }
    for (int i = 0; i < threads; i++) {
        (void)pthread_join(cores[i].thread, NULL);
        sum += cores[i].sums[0] == -1.0f ? 0.0 : cores[i].gflops;
    }
    (void)pthread_barrier_destroy(&start);
    return sum / threads;
}

static void print_rate(const char *key, work_fn *work, int threads, double seconds)
{
    const double rate = work != NULL ? measure(work, threads, seconds) : -1.0;

    if (rate > 0.0) {
        printf(",\"%s\":%.1f", key, rate);
    } else {
        printf(",\"%s\":null", key);
    }
}

int main(int argc, char **argv)
{
    const long threads = argc > 1 ? strtol(argv[1], NULL, 10) : 1;
    const double seconds = argc > 2 ? strtod(argv[2], NULL) : 0.5;

    if (argc > 3 || threads < 1 || threads > THREADS_MOST || !(seconds > 0.0 && seconds < 3600.0)) {
        fprintf(stderr, "usage: bench_peak [THREADS [SECONDS]]\n");
        return 64;
    }
    printf("{\"threads\":%ld", threads);
    print_rate("fp32_gflops", fp32_work(), (int)threads, seconds);
    print_rate("bf16_gflops", bf16_work(), (int)threads, seconds);
    printf("}\n");
    return 0;
}
