/*
 * kernel_profile.c - a library that the CUDA driver loads into a program (CUDA_INJECTION64_PATH),
 * and that leaves a table of its kernels when it ends: a CSV file of name, launches and their
 * seconds on the GPU, those that took most first. Kernels of replayed graphs are counted one by
 * one. Not part of a training: tests/run_gpu uses it.
 *
 *   CUDA_INJECTION64_PATH=build-cuda/libkernel_profile.so DP_KERNEL_PROFILE=kernels.csv PROGRAM...
 *
 * Source: CUPTI, Activity API. CUPTI fills buffers of ours with records and gives them back, on a
 * thread of its own.
 */
#include <cupti.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER = 1 << 20, ALIGNMENT = 8, MOST_KERNELS = 4096 };

struct kernel {
    char *name;
    uint64_t launches, ns;
};

static struct kernel kernels[MOST_KERNELS];
static int count;
static uint64_t lost; /* launches that are in no row */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

int InitializeInjection(void); /* called by the driver: its name is CUDA's */

static void add(const char *name, uint64_t ns)
{
    int i = 0;

    while (i < count && strcmp(kernels[i].name, name) != 0) {
        i++;
    }
    if (i == count) {
        char *copy = count < MOST_KERNELS ? strdup(name) : NULL;
        if (copy == NULL) {
            lost++;
            return;
        }
        kernels[count++] = (struct kernel){.name = copy};
    }
    kernels[i].launches++;
    kernels[i].ns += ns;
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *most_records)
{
    *buffer = aligned_alloc(ALIGNMENT, BUFFER);
    *size = *buffer != NULL ? BUFFER : 0;
    *most_records = 0; /* as many as fit */
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                                 size_t valid)
{
    CUpti_Activity *record = NULL;
    size_t dropped = 0;
    (void)size;

    (void)pthread_mutex_lock(&mutex);
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
        if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
            /* That of CUDA 12.0: newer records begin with the same fields. */
            const CUpti_ActivityKernel8 *kernel = (const CUpti_ActivityKernel8 *)record;
            add(kernel->name != NULL ? kernel->name : "unnamed", kernel->end - kernel->start);
        }
    }
    if (cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS) {
        lost += dropped;
    }
    (void)pthread_mutex_unlock(&mutex);
    free(buffer);
}

static int by_time(const void *a, const void *b)
{
    const struct kernel *x = (const struct kernel *)a, *y = (const struct kernel *)b;

    return x->ns < y->ns ? 1 : x->ns > y->ns ? -1 : 0;
}

/* Names of templates have commas and quotes. */
static void print_name(FILE *file, const char *name)
{
    (void)fputc('"', file);
    for (; *name != '\0'; name++) {
        if (*name == '"') {
            (void)fputc('"', file);
        }
        (void)fputc(*name, file);
    }
    (void)fputc('"', file);
}

static void write_table(void)
{
    const char *path = getenv("DP_KERNEL_PROFILE");
    FILE *file;

    (void)cuptiActivityFlushAll(1);
    file = path != NULL ? fopen(path, "w") : NULL;
    if (file == NULL) {
        fprintf(stderr, "kernel_profile: DP_KERNEL_PROFILE names no file that can be written\n");
        return;
    }
    (void)pthread_mutex_lock(&mutex);
    qsort(kernels, (size_t)count, sizeof(kernels[0]), by_time);
    fprintf(file, "name,launches,seconds\n");
    for (int i = 0; i < count; i++) {
        print_name(file, kernels[i].name);
        fprintf(file, ",%llu,%.9f\n", (unsigned long long)kernels[i].launches,
                (double)kernels[i].ns * 1e-9);
    }
    if (lost > 0) {
        fprintf(file, "\"not recorded\",%llu,0\n", (unsigned long long)lost);
    }
    (void)pthread_mutex_unlock(&mutex);
    if (fclose(file) != 0) {
        fprintf(stderr, "kernel_profile: %s was not written\n", path);
    }
}

int InitializeInjection(void)
{
    CUptiResult result = cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    const char *text = "unknown error";

    if (result == CUPTI_SUCCESS) {
        result = cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    }
    if (result != CUPTI_SUCCESS) {
        (void)cuptiGetResultString(result, &text);
        fprintf(stderr, "kernel_profile: CUPTI: %s\n", text);
        return 0;
    }
    return atexit(write_table) == 0;
}
