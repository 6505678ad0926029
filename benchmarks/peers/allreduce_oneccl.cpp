/* allreduce_oneccl.cpp - what allreduce_mpi.c calls of oneCCL, which has C++ alone for CPUs. */
#include <mpi.h>

#include <oneapi/ccl.hpp>
#include <optional>

static std::optional<ccl::communicator> communicator;

extern "C" void allreduce_begin(int *argc, char ***argv)
{
    ccl::kvs::address_type address;
    ccl::shared_ptr_class<ccl::kvs> store;
    int rank, ranks, level;

    ccl::init();
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank == 0) {
        store = ccl::create_main_kvs();
        address = store->get_address();
    }
    MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank != 0) {
        store = ccl::create_kvs(address);
    }
    communicator.emplace(ccl::create_communicator(ranks, rank, store));
}

extern "C" void allreduce_call(const float *from, float *to, size_t count)
{
    ccl::allreduce(from, to, count, ccl::reduction::sum, *communicator).wait();
}

extern "C" void allreduce_end()
{
    communicator.reset();
    MPI_Finalize();
}
