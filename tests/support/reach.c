#include "tests/support/reach.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/support/tested_device.h"

#define PAGE ((size_t)4096)
#define STACK_BYTES ((size_t)8 << 20)
#define HEAP_BYTES ((size_t)64 << 20)

enum { PIECES = 4096, STREAMS = 16 };

/* ---- memory: first fit ---- */

struct piece {
    char *begin;
    size_t bytes;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const struct dp_device *device; /* NULL: uses the host's memory */
static char *heap;
static struct piece pieces[PIECES]; /* in use, by address */
static size_t piece_count, blocks_before;

/* With the mutex held. */
static char *piece_take(size_t bytes)
{
    char *at = heap;
    size_t i = 0;

    while (i < piece_count && (size_t)(pieces[i].begin - at) < bytes) {
        at = pieces[i].begin + pieces[i].bytes;
        i++;
    }
    if ((size_t)(heap + HEAP_BYTES - at) < bytes || piece_count == PIECES) {
        (void)fprintf(stderr, "tests/support/reach.c: %zu bytes are too many\n", bytes);
        abort();
    }
    memmove(&pieces[i + 1], &pieces[i], (piece_count - i) * sizeof(*pieces));
    pieces[i] = (struct piece){at, bytes};
    piece_count++;
    return at;
}

static void *heap_take(size_t bytes)
{
    char *memory;

    (void)pthread_mutex_lock(&mutex);
    memory = piece_take(bytes);
    (void)pthread_mutex_unlock(&mutex);
    return memory;
}

static void heap_give(void *memory)
{
    size_t i = 0;

    (void)pthread_mutex_lock(&mutex);
    while (i < piece_count && pieces[i].begin != memory) {
        i++;
    }
    if (i == piece_count) {
        (void)fprintf(stderr, "tests/support/reach.c: memory was given back twice\n");
        abort();
    }
    piece_count--;
    memmove(&pieces[i], &pieces[i + 1], (piece_count - i) * sizeof(*pieces));
    (void)pthread_mutex_unlock(&mutex);
}

/* The device's own bookkeeping asks again, and gets the C library's. */
static _Thread_local bool is_taking;

static void *apart_take(size_t bytes)
{
    void *memory = NULL;

    if (!is_taking) {
        is_taking = true;
        memory = device->alloc_host(DP_MEM_OTHER, bytes);
        is_taking = false;
    }
    return memory;
}

static void apart_give(void *memory)
{
    device->release_host(memory);
}

size_t blocks_left(void)
{
    return dp_mem_live() - blocks_before;
}

/* ---- streams ---- */

static struct dp_stream *streams[STREAMS];

static void stream_replace(const struct dp_stream *old, struct dp_stream *new)
{
    size_t i = 0;

    (void)pthread_mutex_lock(&mutex);
    while (i < STREAMS && streams[i] != old) {
        i++;
    }
    if (i == STREAMS) {
        (void)fprintf(stderr, "tests/support/reach.c: more than %d streams\n", STREAMS);
        abort();
    }
    streams[i] = new;
    (void)pthread_mutex_unlock(&mutex);
}

void stream_watch(struct dp_stream *stream)
{
    if (!stream->device->host_memory) {
        stream_replace(NULL, stream);
    }
}

void stream_forget(const struct dp_stream *stream)
{
    if (!stream->device->host_memory) {
        stream_replace(stream, NULL);
    }
}

void wait_for_streams(void)
{
    dp_status status = DP_OK;

    (void)pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < STREAMS && status == DP_OK; i++) {
        if (streams[i] != NULL) {
            status = streams[i]->device->synchronize(streams[i]);
        }
    }
    (void)pthread_mutex_unlock(&mutex);
    assert_int_equal(status, DP_OK);
}

/* ---- running ---- */

struct group {
    const char *name;
    const struct CMUnitTest *tests;
    size_t count;
    CMFixtureFunction setup, teardown;
    int failed;
};

static void *group_run(void *arg)
{
    struct group *g = arg;

    g->failed = _cmocka_run_group_tests(g->name, g->tests, g->count, g->setup, g->teardown);
    return NULL;
}

static int run_on_stack(struct group *group, void *stack)
{
    pthread_attr_t attributes;
    pthread_t thread;
    int error;

    error = pthread_attr_init(&attributes);
    if (error == 0) {
        error = pthread_attr_setstack(&attributes, stack, STACK_BYTES);
        error = error == 0 ? pthread_create(&thread, &attributes, group_run, group) : error;
        error = error == 0 ? pthread_join(thread, NULL) : error;
        (void)pthread_attr_destroy(&attributes);
    }
    if (error != 0) {
        print_error("a thread with a pinned stack: %s\n", strerror(error));
        return 1;
    }
    return group->failed;
}

int run_reached(const char *name, const struct CMUnitTest *tests, size_t count,
                CMFixtureFunction setup, CMFixtureFunction teardown)
{
    struct group group = {name, tests, count, setup, teardown, 0};
    const bool apart = getenv("DP_TEST_APART") != NULL;
    char *region, *stack;
    int failed;

    if (dp_device_find(tested_device(), &device) != DP_OK) {
        return 1;
    }
    if (device->host_memory) {
        (void)group_run(&group);
        return group.failed;
    }
    region = device->alloc_host(DP_MEM_OTHER, PAGE + STACK_BYTES + HEAP_BYTES);
    if (region == NULL) {
        return 1;
    }
    stack = region + PAGE - (uintptr_t)region % PAGE;
    heap = stack + STACK_BYTES;
    blocks_before = dp_mem_live();
    dp_mem_take_from(apart ? apart_take : heap_take, apart ? apart_give : heap_give);
    failed = run_on_stack(&group, stack);
    dp_mem_take_from(NULL, NULL);
    device->release_host(region);
    return failed;
}
