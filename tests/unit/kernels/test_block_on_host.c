/*
 * test_block_on_host.c - kernels run on tests/cuda_on_host as on a GPU, with all threads of a block
 * in barriers, shuffles and votes; and what a GPU would not run as meant ends the program. In
 * builds for a GPU, or for none, all of it is skipped.
 */
#include <stdio.h>

#if DP_CUDA_ON_HOST
#include "tests/cuda_on_host/samples.h"
#include "tests/support/own_process.h"

enum { THREADS = CUDA_ON_HOST_SAMPLE_THREADS };

static void run(enum cuda_on_host_sample which, unsigned *memory)
{
    cudaStream_t stream = new_stream();

    cuda_on_host_run_sample(which, memory, stream);
    ok((int)cudaGetLastError());
    ok((int)cudaStreamSynchronize(stream));
}

static void run_on_device(enum cuda_on_host_sample which)
{
    run(which, (unsigned *)(void *)device_memory(THREADS * sizeof(unsigned)));
}

static void meet(void)
{
    unsigned *memory = (unsigned *)(void *)device_memory(THREADS * sizeof(unsigned));
    unsigned numbers[THREADS];
    cudaStream_t stream = new_stream();

    run(SAMPLE_MEETS, memory);
    ok((int)cudaMemcpyAsync(numbers, memory, sizeof(numbers), cudaMemcpyDeviceToHost, stream));
    ok((int)cudaStreamSynchronize(stream));
    for (unsigned i = 0; i < THREADS; i++) {
        const unsigned first = i / 32 * 32, sum = 32 * first + 31 * 32 / 2;
        ok(numbers[i] == 1000 * ((i + 1) % THREADS) + sum % 500 + 500 ? 0 : -1);
    }
}

static void threads_of_a_block_meet(void **state)
{
    (void)state;
    assert_goes_on(meet);
}

static void leave_before_a_barrier(void)
{
    run_on_device(SAMPLE_LEAVES);
}

static void come_to_two_barriers(void)
{
    run_on_device(SAMPLE_PARTS);
}

static void name_a_lane_that_does_not_come(void)
{
    run_on_device(SAMPLE_LANE);
}

static void take_from_a_lane_that_is_not_named(void)
{
    run_on_device(SAMPLE_MASK);
}

static void have_half_a_warp(void)
{
    run_on_device(SAMPLE_HALF_WARP);
}

static void queue_more_blocks_than_there_is_room_for(void)
{
    run_on_device(SAMPLE_GRID);
}

static void write_to_memory_of_the_host(void)
{
    run(SAMPLE_MEETS, calloc(THREADS, sizeof(unsigned)));
}

static void what_a_gpu_would_not_run_as_meant_ends(void **state)
{
    (void)state;
    assert_ends(leave_before_a_barrier, "is reached by 255 of 256 threads");
    assert_ends(come_to_two_barriers, "waits in __syncthreads() at samples.cpp");
    assert_ends(name_a_lane_that_does_not_come, "waits for lane 31 of warp");
    assert_ends(take_from_a_lane_that_is_not_named, "takes from lane 20");
    assert_ends(have_half_a_warp, "a block of 48 threads is not a number of whole warps");
    assert_ends(queue_more_blocks_than_there_is_room_for, "a grid of 100000 blocks");
    assert_ends(write_to_memory_of_the_host, "meets is given");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_of_a_block_meet),
        cmocka_unit_test(what_a_gpu_would_not_run_as_meant_ends),
    };

    return cmocka_run_group_tests_name("block on host", tests, NULL, NULL);
}
#else
int main(void)
{
    puts("skipped: it is about tests/cuda_on_host, which is not built in");
    return 77;
}
#endif
