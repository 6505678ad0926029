#define _GNU_SOURCE /* mallinfo2 */

#include "runtime/report/resources/memory_use.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

enum { LEAST_WINDOWS = 8, MEGABYTE = 1 << 20, LIBRARY_MEGABYTES = 8, TEXT_BYTES = 8192 };

static const char *const keys[] = {
#define X(name, key) #key,
    DP_MEMORY_USES(X)
#undef X
};

const char *dp_memory_use_key(int kind)
{
    return keys[kind];
}

static enum dp_memory_use_kind kind_of(enum dp_purpose purpose)
{
    switch (purpose) {
    case DP_MEM_WEIGHTS:
        return DP_MEMORY_WEIGHTS;
    case DP_MEM_GRADIENTS:
        return DP_MEMORY_GRADIENTS;
    case DP_MEM_OPTIMIZER:
        return DP_MEMORY_OPTIMIZER;
    case DP_MEM_ACTIVATIONS:
        return DP_MEMORY_ACTIVATIONS;
    case DP_MEM_COMM:
    case DP_MEM_RESIDUALS:
        return DP_MEMORY_COMMUNICATION;
    case DP_MEM_DATA:
    case DP_MEM_KEPT:
        return DP_MEMORY_INPUT;
    case DP_MEM_LIBRARY:
    case DP_MEM_WORKSPACE:
    case DP_MEM_TRIAL:
        return DP_MEMORY_LIBRARY;
    default:
        return DP_MEMORY_OTHER;
    }
}

void dp_memory_group(const size_t bytes[DP_MEM_PURPOSE_COUNT], int64_t out[DP_MEMORY_USE_COUNT])
{
    memset(out, 0, DP_MEMORY_USE_COUNT * sizeof(*out));
    for (int i = 0; i < DP_MEM_PURPOSE_COUNT; i++) {
        out[kind_of((enum dp_purpose)i)] += (int64_t)bytes[i];
    }
}

/* ---- looks ---- */

static void keep_least(struct dp_memory_window *window, const int64_t *bytes)
{
    for (int i = 0; i < DP_MEMORY_USE_COUNT; i++) {
        window->least[i] = bytes[i] < window->least[i] ? bytes[i] : window->least[i];
    }
}

static void join_neighbours(struct dp_memory_use *use)
{
    for (size_t i = 0; i < DP_MEMORY_WINDOWS / 2; i++) {
        use->windows[i] = use->windows[2 * i];
        use->windows[i].looks += use->windows[2 * i + 1].looks;
        keep_least(&use->windows[i], use->windows[2 * i + 1].least);
    }
    use->count = DP_MEMORY_WINDOWS / 2;
    use->looks_each *= 2;
}

static void add_look(struct dp_memory_use *use, uint64_t step, const int64_t *bytes,
                     int64_t bounded)
{
    int64_t steady[DP_MEMORY_USE_COUNT];

    memcpy(steady, bytes, sizeof(steady));
    steady[DP_MEMORY_INPUT] -= bounded;
    use->looks_each = use->looks_each == 0 ? 1 : use->looks_each;
    if (use->open.looks++ == 0) {
        use->open.first_step = step;
        memcpy(use->open.least, steady, sizeof(use->open.least));
    }
    keep_least(&use->open, steady);
    if (use->open.looks < use->looks_each) {
        return;
    }
    use->windows[use->count++] = use->open;
    use->open.looks = 0;
    if (use->count == DP_MEMORY_WINDOWS) {
        join_neighbours(use);
    }
}

void dp_memory_use_look(struct dp_memory_use *use, uint64_t step, bool steady,
                        const int64_t bytes[DP_MEMORY_USE_COUNT], int64_t bounded, int64_t peak)
{
    memcpy(use->now, bytes, sizeof(use->now));
    if (peak > use->peak) {
        use->peak = peak;
        use->peak_step = step;
    }
    if (steady) {
        add_look(use, step, bytes, bounded);
    }
}

/* ---- leaks ---- */

/* Whether the last third of the windows grew at three quarters of the mean pace, or faster. What
 * grows to the largest of some sizes, as buffers for pictures do, slows down. */
static bool keeps_pace(const struct dp_memory_use *use, int kind, int64_t grown)
{
    const int last = use->count - 1, late = last / 3;
    const int64_t recent = use->windows[last].least[kind] - use->windows[last - late].least[kind];

    return (double)recent * 4 * last >= (double)grown * 3 * late;
}

/* By how much a kind has grown, where it grew in most of the windows, never shrank, and keeps its
 * pace; else 0. */
static int64_t growth(const struct dp_memory_use *use, int kind)
{
    const int last = use->count - 1;
    const int64_t grown = use->windows[last].least[kind] - use->windows[0].least[kind];
    const int64_t least = kind == DP_MEMORY_LIBRARY ? LIBRARY_MEGABYTES * MEGABYTE : MEGABYTE;
    int rises = 0;

    for (int i = 1; i <= last; i++) {
        const int64_t more = use->windows[i].least[kind] - use->windows[i - 1].least[kind];
        if (more < 0) {
            return 0;
        }
        rises += more > 0;
    }
    return grown >= least && rises > last / 2 && keeps_pace(use, kind, grown) ? grown : 0;
}

struct dp_memory_leak dp_memory_use_leak(const struct dp_memory_use *use)
{
    struct dp_memory_leak leak = {.kind = -1};

    if (use->count < LEAST_WINDOWS) {
        return leak;
    }
    for (int i = 0; i < DP_MEMORY_USE_COUNT; i++) {
        const int64_t grown = growth(use, i);
        if (grown > leak.bytes) {
            leak.kind = i;
            leak.bytes = grown;
        }
    }
    if (leak.kind >= 0) {
        const uint64_t steps = use->windows[use->count - 1].first_step - use->windows[0].first_step;
        leak.bytes_per_step = (double)leak.bytes / (double)(steps > 0 ? steps : 1);
    }
    return leak;
}

/* ---- what is resident ---- */

static int64_t kilobytes_after(const char *text, const char *word)
{
    const char *at = strstr(text, word);
    int64_t kilobytes = 0;

    if (at != NULL) {
        (void)sscanf(at + strlen(word), /* NOLINT(cert-err34-c): the kernel wrote it */
                     "%" SCNd64, &kilobytes);
    }
    return kilobytes * 1024;
}

static int64_t heap_bytes(void)
{
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    const struct mallinfo2 heap = mallinfo2();

    return (int64_t)(heap.arena + heap.hblkhd);
#else
    return 0;
#endif
}

void dp_memory_parts_read(struct dp_memory_parts *out)
{
    FILE *file = fopen("/proc/self/status", "re");
    char text[TEXT_BYTES];
    const size_t length = file == NULL ? 0 : fread(text, 1, sizeof(text) - 1, file);

    if (file != NULL) {
        (void)fclose(file);
    }
    text[length] = '\0';
    out->resident = kilobytes_after(text, "\nVmRSS:");
    out->code = kilobytes_after(text, "\nRssFile:");
    out->anonymous = kilobytes_after(text, "\nRssAnon:");
    out->shared = kilobytes_after(text, "\nRssShmem:");
    out->heap = heap_bytes();
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t dp_memory_libraries(const struct dp_memory_parts *parts, int64_t ours, int64_t counted,
                            int64_t *unexplained)
{
    const int64_t private = larger(ours, counted - parts->shared);
    const int64_t heap = parts->heap < parts->anonymous ? parts->heap : parts->anonymous;

    *unexplained = larger(parts->anonymous - larger(parts->heap, private), 0);
    return parts->code + larger(heap - private, 0);
}
