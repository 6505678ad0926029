/*
 * test_nccl_on_host.c - what ends a program on the NCCL of tests/cuda_on_host, where NCCL itself
 * would hang, or mix up data, now and then. In builds for a GPU, or for none, all of it is skipped.
 */
#include <stdio.h>

#if DP_CUDA_ON_HOST
#include "collectives/gpu/nccl_api.h"
#include "tests/support/own_process.h"

enum { COUNT = 64 };

static const struct dp_nccl *nccl(void)
{
    const char *why_not = NULL;
    const struct dp_nccl *api = dp_nccl_find(NULL, &why_not);

    ok(api != NULL ? 0 : -1);
    return api;
}

static void await(struct dp_nccl_comm *comm)
{
    int result = DP_NCCL_IN_PROGRESS;

    while (result == DP_NCCL_IN_PROGRESS) {
        ok(nccl()->CommGetAsyncError(comm, &result));
    }
    ok(result);
}

static struct dp_nccl_comm *join(struct dp_nccl_id id, int rank, int ranks)
{
    struct dp_nccl_settings settings = {.size = sizeof(settings), .magic = DP_NCCL_MAGIC};
    struct dp_nccl_comm *comm = NULL;

    ok(nccl()->CommInitRankConfig(&comm, ranks, id, rank, &settings) - DP_NCCL_IN_PROGRESS);
    await(comm);
    return comm;
}

static struct dp_nccl_comm *alone(void)
{
    struct dp_nccl_id id;

    ok(setenv("DP_CUDA_GPUS", "2", 1));
    ok(nccl()->GetUniqueId(&id));
    return join(id, 0, 1);
}

static void sum_on(struct dp_nccl_comm *comm, cudaStream_t stream)
{
    char *memory = device_memory(COUNT * sizeof(float));

    ok(nccl()->AllReduce(memory, memory, COUNT, DP_NCCL_FLOAT32, DP_NCCL_SUM, comm, stream) -
       DP_NCCL_IN_PROGRESS);
}

static void sum_well(void)
{
    struct dp_nccl_comm *comm = alone();
    cudaStream_t stream = new_stream();

    for (int i = 0; i < 3; i++) {
        sum_on(comm, stream);
        await(comm);
    }
    ok((int)cudaStreamSynchronize(stream));
    comm = alone(); /* the other one has done its work */
    sum_on(comm, stream);
    await(comm);
    ok(nccl()->CommFinalize(comm) - DP_NCCL_IN_PROGRESS);
    await(comm);
    ok(nccl()->CommDestroy(comm));
}

static void sum_before_the_sum_before_is_through(void)
{
    struct dp_nccl_comm *comm = alone();
    cudaStream_t stream = new_stream();

    sum_on(comm, stream);
    sum_on(comm, stream);
}

static void sum_on_another_stream(void)
{
    struct dp_nccl_comm *comm = alone();

    sum_on(comm, new_stream());
    await(comm);
    sum_on(comm, new_stream());
}

static void sum_on_another_device(void)
{
    struct dp_nccl_comm *comm = alone();
    cudaStream_t stream = new_stream();

    ok((int)cudaSetDevice(1));
    sum_on(comm, stream);
}

static void sum_by_two_communicators(void)
{
    struct dp_nccl_comm *one = alone(), *other = alone();
    cudaStream_t stream = new_stream();

    sum_on(one, stream);
    await(one);
    sum_on(other, stream);
}

static void destroy_what_was_not_finalized(void)
{
    (void)nccl()->CommDestroy(alone());
}

/* Two ranks, the second one in a process of its own, each with its count. */
static void sum_together(size_t mine, size_t others)
{
    struct dp_nccl_id id;
    int status;

    ok(setenv("DP_CUDA_GPUS", "2", 1));
    ok(nccl()->GetUniqueId(&id));
    const pid_t other = fork_child();
    const int rank = other == 0;
    const size_t count = rank == 0 ? mine : others;
    ok((int)cudaSetDevice(rank));
    struct dp_nccl_comm *comm = join(id, rank, 2);
    cudaStream_t stream = new_stream();
    float *memory = (float *)(void *)device_memory(COUNT * sizeof(float));
    ok(nccl()->AllReduce(memory, memory, count, DP_NCCL_FLOAT32, DP_NCCL_SUM, comm, stream) -
       DP_NCCL_IN_PROGRESS);
    await(comm);
    ok((int)cudaStreamSynchronize(stream));
    if (rank == 1) {
        _exit(0);
    }
    ok(waitpid(other, &status, 0) == other ? 0 : -1);
    ok(status);
}

static void sum_alike(void)
{
    sum_together(COUNT, COUNT);
}

static void sum_different_counts(void)
{
    sum_together(COUNT, COUNT / 2);
}

static void what_nccl_does_not_allow_ends(void **state)
{
    (void)state;
    assert_goes_on(sum_well);
    assert_goes_on(sum_alike);
    assert_ends(sum_before_the_sum_before_is_through, "whether the call before is through");
    assert_ends(sum_on_another_stream, "worked on another stream");
    assert_ends(sum_on_another_device, "is not the communicator's");
    assert_ends(sum_by_two_communicators, "another communicator of the device is still at work");
    assert_ends(destroy_what_was_not_finalized, "not finalized by all ranks");
    assert_ends(sum_different_counts, "do different things");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_nccl_does_not_allow_ends),
    };

    return cmocka_run_group_tests_name("nccl on host", tests, NULL, NULL);
}
#else
int main(void)
{
    puts("skipped: it is about tests/cuda_on_host, which is not built in");
    return 77;
}
#endif
