/*
 * parallel.h - threads and instruction sets for our own loops on the CPU.
 */
#ifndef DP_KERNELS_CPU_PARALLEL_H
#define DP_KERNELS_CPU_PARALLEL_H

#include <stddef.h>

/* One binary, fast on every x86-64: the loop is compiled for several instruction sets and one is
 * chosen when the program starts. By level, for which GCC asks what the processor can do; of
 * "arch=haswell" it asks for that very model. Level 4 has AVX-512 of 16-bit numbers (BW), without
 * which loops over bfloats take twice as long; GCC 11 cannot choose by it. Empty under
 * ThreadSanitizer, which crashes at that point. */
#if !defined(__x86_64__) || !defined(__GNUC__) || defined(__clang__) || defined(DP_TSAN)
#define DP_HOT
#elif __GNUC__ >= 12
#define DP_HOT __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DP_HOT __attribute__((target_clones("avx512f", "avx2", "default")))
#endif

/* Goes before a loop with independent iterations whose arrays may be the same one (but never partly
 * overlap): without it the compiler uses slow code in that case. Nothing under AddressSanitizer,
 * which takes some such loops apart, so that GCC warns that it ignores this. */
#if defined(__clang__)
#define DP_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__)
#define DP_INDEPENDENT _Pragma("GCC ivdep")
#else
#define DP_INDEPENDENT
#endif

/* Goes before a loop over a constant number of lanes: makes GCC vectorise it before it unrolls what
 * remains, where it would take 16 lanes or fewer apart. */
#if defined(__GNUC__) && !defined(__clang__)
#define DP_LANES _Pragma("GCC unroll 4")
#else
#define DP_LANES
#endif

/* Below DP_PARALLEL_MIN elements a second thread costs more than it gains. Sums that need memory
 * for each thread use at most DP_PARALLEL_SUMS threads. */
enum { DP_PARALLEL_MIN = 16384, DP_PARALLEL_SUMS = 32 };

/* The part [begin, end) of `count` for thread `i` of `threads`, cut at `multiple`. */
static inline void dp_part(size_t count, size_t multiple, int i, int threads, size_t *begin,
                           size_t *end)
{
    const size_t units = (count + multiple - 1) / multiple;
    const size_t b = units * (size_t)i / (size_t)threads * multiple;
    const size_t e = units * ((size_t)i + 1) / (size_t)threads * multiple;

    *begin = b < count ? b : count;
    *end = e < count ? e : count;
}

/* Runs body(arg, i, parts) for each i below parts, in parallel. Returns when all are done. One part
 * is a plain call. */
void dp_parallel_parts(int parts, void (*body)(void *arg, int part, int parts), void *arg);

/* Runs body(arg, begin, end) over [0, count) on at most `threads` threads; parts begin at multiples
 * of `multiple`. Returns when all is done. Below DP_PARALLEL_MIN elements, or with one thread, it
 * is a plain call. */
void dp_parallel(int threads, size_t count, size_t multiple,
                 void (*body)(void *arg, size_t begin, size_t end), void *arg);

/* The same over rows of `width` elements; the threshold counts elements. */
void dp_parallel_rows(int threads, size_t rows, size_t width, size_t multiple,
                      void (*body)(void *arg, size_t begin, size_t end), void *arg);

/* Sets how many threads libraries may use for the calling thread's calls; they ask OpenMP. */
void dp_use_threads(int threads);

#endif
