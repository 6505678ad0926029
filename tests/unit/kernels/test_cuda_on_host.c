/*
 * test_cuda_on_host.c - what ends a program on tests/cuda_on_host, where a GPU would go on with
 * wrong numbers, slowly, or not at all. In builds for a GPU, or for none, all of it is skipped.
 */
#include <stdio.h>

#if DP_CUDA_ON_HOST
#include <cublasLt.h>

#include "base/mem.h"
#include "tests/cuda_on_host/meter.h"
#include "tests/support/own_process.h"

/* ---- copies of memory that is not pinned ---- */

enum { MUCH = 64 << 10 };

static void copy_in_a_step(void *host, size_t bytes, int times)
{
    char *there = device_memory(bytes);

    cuda_on_host_meter_step(MUCH);
    for (int i = 0; i < times; i++) {
        ok((int)cudaMemcpyAsync(there, host, bytes, cudaMemcpyHostToDevice, new_stream()));
    }
}

static void copy_pageable(void)
{
    copy_in_a_step(dp_zalloc(1, MUCH), MUCH, 2);
}

static void copy_a_little(void)
{
    copy_in_a_step(dp_zalloc(1, MUCH), MUCH / 2, 2);
    copy_in_a_step(dp_zalloc(1, MUCH), MUCH / 2, 2); /* another step */
}

static void copy_pinned(void)
{
    void *memory;

    ok((int)cudaHostAlloc(&memory, MUCH, cudaHostAllocPortable));
    copy_in_a_step(memory, MUCH, 4);
}

static void a_step_that_copies_much_of_what_is_not_pinned_ends(void **state)
{
    (void)state;
    assert_ends(copy_pageable, "a step copies 131072 bytes of memory that is not pinned");
    assert_goes_on(copy_a_little);
    assert_goes_on(copy_pinned);
}

/* ---- what a graph names ---- */

static void replay(char *kept, char *freed)
{
    cudaStream_t stream = new_stream();
    cudaGraph_t graph;
    cudaGraphExec_t exec;

    ok((int)cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    ok((int)cudaMemcpyAsync(kept, kept + 64, 64, cudaMemcpyDeviceToDevice, stream));
    ok((int)cudaStreamEndCapture(stream, &graph));
    ok((int)cudaGraphInstantiate(&exec, graph, 0));
    ok((int)cudaGraphLaunch(exec, stream));
    ok((int)cudaFree(freed));
    (void)device_memory(128); /* at the same place, if that is free */
    ok((int)cudaGraphLaunch(exec, stream));
    ok((int)cudaStreamSynchronize(stream));
}

static void replay_what_is_freed(void)
{
    char *memory = device_memory(128);

    replay(memory, memory);
}

static void replay_what_is_there(void)
{
    replay(device_memory(128), device_memory(128));
}

static void a_replay_of_calls_whose_memory_was_freed_ends(void **state)
{
    (void)state;
    assert_ends(replay_what_is_freed, "a graph is launched after memory at");
    assert_goes_on(replay_what_is_there);
}

/* ---- products ---- */

/* [N, N], with a bias, by the second algorithm, which wants workspace. */
enum { N = 32, WORKSPACE = 1 << 20 };

struct product {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layout;
    char *a, *b, *d, *bias, *workspace;
    size_t workspace_bytes;
    uint32_t alignment; /* that is promised of all arrays */
};

static struct product make_product(void)
{
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    struct product p = {.alignment = 16};

    ok((int)cublasLtCreate(&p.handle));
    ok((int)cublasLtMatmulDescCreate(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    ok((int)cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                           sizeof(epilogue)));
    ok((int)cublasLtMatrixLayoutCreate(&p.layout, CUDA_R_16BF, N, N, N));
    p.a = device_memory(4 * N * N);
    p.b = device_memory(4 * N * N);
    p.d = device_memory(4 * N * N);
    p.bias = device_memory(4 * N);
    p.workspace = device_memory(WORKSPACE);
    p.workspace_bytes = WORKSPACE;
    return p;
}

static int ask(const struct product *p, size_t workspace, cublasLtMatmulHeuristicResult_t found[4],
               int *count)
{
    cublasLtMatmulPreference_t wishes;

    ok((int)cublasLtMatmulPreferenceCreate(&wishes));
    ok((int)cublasLtMatmulPreferenceSetAttribute(wishes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &workspace, sizeof(workspace)));
    for (int i = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
         i <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; i++) {
        ok((int)cublasLtMatmulPreferenceSetAttribute(
            wishes, (cublasLtMatmulPreferenceAttributes_t)i, &p->alignment, sizeof(p->alignment)));
    }
    const int result = (int)cublasLtMatmulAlgoGetHeuristic(
        p->handle, p->desc, p->layout, p->layout, p->layout, p->layout, wishes, 4, found, count);
    ok((int)cublasLtMatmulPreferenceDestroy(wishes));
    return result;
}

static void set_bias(const struct product *p, const char *bias)
{
    ok((int)cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                           sizeof(bias)));
}

static void multiply(const struct product *p)
{
    cublasLtMatmulHeuristicResult_t found[4];
    const float one = 1.0f, zero = 0.0f;
    cudaStream_t stream = new_stream();
    int count = 0;

    set_bias(p, p->bias);
    ok(ask(p, WORKSPACE, found, &count));
    ok(count == 4 && found[2].workspaceSize > 0 ? 0 : -1);
    ok((int)cublasLtMatmul(p->handle, p->desc, &one, p->a, p->layout, p->b, p->layout, &zero, p->d,
                           p->layout, p->d, p->layout, &found[2].algo, p->workspace,
                           p->workspace_bytes, stream));
    ok((int)cudaStreamSynchronize(stream));
}

static void multiply_well(void)
{
    struct product p = make_product();

    multiply(&p);
    p.alignment = 2;
    p.a += 2;
    p.d += 6;
    multiply(&p);
}

static void multiply_what_is_not_aligned(void)
{
    struct product p = make_product();

    p.b += 8;
    multiply(&p);
}

static void multiply_into_what_is_not_aligned(void)
{
    struct product p = make_product();

    p.alignment = 8;
    p.d += 4;
    multiply(&p);
}

static void multiply_with_a_bias_that_is_not_aligned(void)
{
    struct product p = make_product();

    p.bias += 8;
    multiply(&p);
}

static void multiply_with_little_workspace(void)
{
    struct product p = make_product();

    p.workspace_bytes = 4096;
    multiply(&p);
}

static void multiply_with_workspace_of_another(void)
{
    struct product p = make_product();

    p.workspace = device_memory(4096); /* and a page that nobody has taken */
    multiply(&p);
}

static void a_product_whose_promises_are_broken_ends(void **state)
{
    (void)state;
    assert_goes_on(multiply_well);
    assert_ends(multiply_what_is_not_aligned, "no multiple of 16");
    assert_ends(multiply_into_what_is_not_aligned, "no multiple of 8");
    assert_ends(multiply_with_a_bias_that_is_not_aligned, "the vector beside");
    assert_ends(multiply_with_little_workspace, "4096 bytes of workspace");
    assert_ends(multiply_with_workspace_of_another, "memory of a device that nobody has taken");
}

static void ask_for_algorithms(void)
{
    const struct product p = make_product();
    cublasLtMatmulHeuristicResult_t found[4];
    int count = 0;

    /* Without the bias nothing is proposed. */
    ok(ask(&p, WORKSPACE, found, &count) == CUBLAS_STATUS_INVALID_VALUE ? 0 : -1);
    set_bias(&p, p.bias);
    for (size_t most = 0; most <= WORKSPACE; most += WORKSPACE) {
        bool wants = false;
        ok(ask(&p, most, found, &count));
        for (int i = 0; i < count; i++) {
            if (found[i].state == CUBLAS_STATUS_SUCCESS) {
                ok(found[i].workspaceSize <= most ? 0 : -1);
                wants = wants || found[i].workspaceSize > 0;
            }
        }
        ok(wants == (most > 0) ? 0 : -1);
    }
}

static void algorithms_want_no_more_workspace_than_there_is(void **state)
{
    (void)state;
    assert_goes_on(ask_for_algorithms);
}

/* ---- memory of other processes ---- */

static int to_other[2], to_owner[2];

static void tell(int end)
{
    ok(write(end, "x", 1) == 1 ? 0 : -1);
}

static void hear(int end)
{
    char byte;

    ok(read(end, &byte, 1) == 1 ? 0 : -1);
}

/* This process owns memory that another one opens, calls `before` the owner's `act` and `after`
 * it. The owner ends as the other one does. */
static void lend(void (*act)(char *memory), void (*after)(char *memory))
{
    cudaIpcMemHandle_t handle;
    char *memory;
    int status;

    ok(pipe(to_other) + pipe(to_owner));
    const pid_t other = fork_child();
    if (other == 0) {
        void *opened = NULL;
        ok(read(to_other[0], &handle, sizeof(handle)) == sizeof(handle) ? 0 : -1);
        ok((int)cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess));
        tell(to_owner[1]);
        hear(to_other[0]);
        after(opened);
        _exit(0);
    }
    memory = device_memory(4096);
    ok((int)cudaIpcGetMemHandle(&handle, memory));
    ok(write(to_other[1], &handle, sizeof(handle)) == sizeof(handle) ? 0 : -1);
    hear(to_owner[0]);
    act(memory);
    tell(to_other[1]);
    ok(waitpid(other, &status, 0) == other ? 0 : -1);
    if (WIFSIGNALED(status)) {
        abort();
    }
    ok(status);
}

static void leave_alone(char *memory)
{
    (void)memory;
}

static void free_it(char *memory)
{
    ok((int)cudaFree(memory));
}

static void close_it(char *memory)
{
    ok((int)cudaIpcCloseMemHandle(memory));
}

static void use_it(char *memory)
{
    cudaStream_t stream = new_stream();

    ok((int)cudaMemsetAsync(memory, 1, 16, stream));
    ok((int)cudaStreamSynchronize(stream));
}

static void free_what_is_lent(void)
{
    lend(free_it, leave_alone);
}

static void use_and_close_what_is_lent(void)
{
    lend(use_it, use_it);
    lend(leave_alone, close_it);
}

/* The owner ends first, and the other one reports to the same stderr. */
static void use_what_an_ended_process_has_lent(void)
{
    cudaIpcMemHandle_t handle;
    void *opened = NULL;
    int status;

    ok(pipe(to_other) + pipe(to_owner));
    const pid_t owner = fork_child();
    if (owner == 0) {
        ok((int)cudaIpcGetMemHandle(&handle, device_memory(4096)));
        ok(write(to_other[1], &handle, sizeof(handle)) == sizeof(handle) ? 0 : -1);
        hear(to_owner[0]);
        exit(0);
    }
    ok(read(to_other[0], &handle, sizeof(handle)) == sizeof(handle) ? 0 : -1);
    ok((int)cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess));
    use_it(opened);
    tell(to_owner[1]);
    ok(waitpid(owner, &status, 0) == owner ? 0 : -1);
    use_it(opened);
}

static void open_what_was_freed(void)
{
    cudaIpcMemHandle_t handle;
    void *opened = NULL;

    ok(pipe(to_other) + pipe(to_owner));
    if (fork_child() == 0) {
        char *memory = device_memory(4096);
        ok((int)cudaIpcGetMemHandle(&handle, memory));
        ok((int)cudaFree(memory));
        (void)device_memory(4096); /* at the same place */
        ok(write(to_other[1], &handle, sizeof(handle)) == sizeof(handle) ? 0 : -1);
        hear(to_owner[0]);
        exit(0);
    }
    ok(read(to_other[0], &handle, sizeof(handle)) == sizeof(handle) ? 0 : -1);
    (void)cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess);
    tell(to_owner[1]);
}

static void a_handle_that_outlives_its_memory_ends(void **state)
{
    (void)state;
    assert_goes_on(use_and_close_what_is_lent);
    assert_ends(free_what_is_lent, "cudaFree() of memory that is open in 1 other process");
    assert_ends(use_what_an_ended_process_has_lent, "which has freed it or has ended");
    assert_ends(open_what_was_freed, "of memory that its owner has freed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_that_copies_much_of_what_is_not_pinned_ends),
        cmocka_unit_test(a_replay_of_calls_whose_memory_was_freed_ends),
        cmocka_unit_test(a_product_whose_promises_are_broken_ends),
        cmocka_unit_test(algorithms_want_no_more_workspace_than_there_is),
        cmocka_unit_test(a_handle_that_outlives_its_memory_ends),
    };

    return cmocka_run_group_tests_name("cuda on host", tests, NULL, NULL);
}
#else
int main(void)
{
    puts("skipped: it is about tests/cuda_on_host, which is not built in");
    return 77;
}
#endif
