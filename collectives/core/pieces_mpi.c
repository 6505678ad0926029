#include "collectives/core/pieces_mpi.h"

#include "collectives/core/backoff.h"
#include "collectives/core/mpi_status.h"

enum { TAG = 7, PIECE = 1 << 20 };

union kept_request {
    uint64_t number;
    MPI_Request request;
};
_Static_assert(sizeof(union kept_request) == sizeof(uint64_t), "an MPI_Request fits a transfer");

static size_t piece_bytes(size_t bytes, bool cut)
{
    const size_t least = dp_round_up((bytes + DP_PIECES - 1) / DP_PIECES, DP_MEM_ALIGN);

    if (!cut) {
        return bytes;
    }
    return least > PIECE ? least : PIECE;
}

dp_status dp_pieces_start(MPI_Comm comm, struct dp_slice slice, int peer, bool cut,
                          enum dp_direction direction, uint64_t kept[DP_PIECES])
{
    const union kept_request none = {.request = MPI_REQUEST_NULL};
    const size_t bytes = dp_slice_bytes(slice), piece = piece_bytes(bytes, cut);
    size_t begin = 0;
    int i = 0;

    /* At least one message: an empty one lets the peer continue. */
    for (; i == 0 || begin < bytes; i++) {
        const int length = (int)(bytes - begin < piece ? bytes - begin : piece);
        char *data = (char *)slice.data + begin;
        union kept_request started = {0};

        /* NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker): the holder of the number waits. */
        DP_TRY(DP_MPI(direction == DP_SEND
                          ? MPI_Isend(data, length, MPI_BYTE, peer, TAG, comm, &started.request)
                          : MPI_Irecv(data, length, MPI_BYTE, peer, TAG, comm, &started.request)));
        /* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */
        kept[i] = started.number;
        begin += (size_t)length;
    }
    if (i < DP_PIECES) {
        kept[i] = none.number;
    }
    return DP_OK;
}

static void collect(struct dp_requests *requests, int peer, const uint64_t kept[DP_PIECES])
{
    for (int i = 0; peer >= 0 && i < DP_PIECES; i++) {
        const union kept_request one = {kept[i]};
        if (one.request == MPI_REQUEST_NULL) {
            return;
        }
        requests->all[requests->count++] = one.request;
    }
}

struct dp_requests dp_pieces_requests(const struct dp_transfer *transfer)
{
    struct dp_requests requests;

    requests.count = 0;
    collect(&requests, transfer->from, transfer->in);
    collect(&requests, transfer->to, transfer->out);
    return requests;
}

dp_status dp_pieces_wait(struct dp_backoff *backoff, MPI_Request *requests, int count)
{
    int done = 0;

    for (;;) {
        DP_TRY(DP_MPI(MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE)));
        if (done) {
            return DP_OK;
        }
        if (!dp_backoff_wait(backoff)) {
            return DP_ERR_CANCELLED;
        }
    }
}
