#include "collectives/core/open_transfers_mpi.h"

#include "base/log.h"
#include "base/mem.h"

/* Of a strategy's segments to several ranks, with their checksums. Those beyond are not noted. */
enum { OPEN_MOST = 256 };

static const uint64_t drain_ns = 5000000000;

struct dp_open_transfers {
    struct {
        const struct dp_transfer *transfer; /* only compared; NULL: none */
        struct dp_requests requests;
    } all[OPEN_MOST];
    int count; /* places that were ever taken */
};

dp_status dp_open_transfers_create(struct dp_open_transfers **out)
{
    *out = dp_zalloc(1, sizeof(**out));
    return *out != NULL ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "messages that are under way");
}

void dp_open_transfers_destroy(struct dp_open_transfers *open)
{
    dp_free(open);
}

/* The place of a transfer, or with NULL a free one; -1: there is none. */
static int find(const struct dp_open_transfers *open, const struct dp_transfer *transfer)
{
    for (int i = 0; i < open->count; i++) {
        if (open->all[i].transfer == transfer) {
            return i;
        }
    }
    return -1;
}

void dp_open_transfers_add(struct dp_open_transfers *open, const struct dp_transfer *transfer)
{
    int at;

    if (open == NULL) {
        return;
    }
    at = find(open, NULL);
    if (at < 0 && open->count < OPEN_MOST) {
        at = open->count++;
    }
    if (at >= 0) {
        open->all[at].transfer = transfer;
        open->all[at].requests = dp_pieces_requests(transfer);
    }
}

void dp_open_transfers_end(struct dp_open_transfers *open, const struct dp_transfer *transfer,
                           const struct dp_requests *left)
{
    const int at = open != NULL ? find(open, transfer) : -1;

    if (at < 0) {
        return;
    }
    if (left == NULL) {
        open->all[at].transfer = NULL;
    } else {
        open->all[at].requests = *left;
    }
}

/* Whether all of it has ended, well or with an error. */
static bool has_ended(struct dp_requests *requests)
{
    int left = 0;

    for (int i = 0; i < requests->count; i++) {
        MPI_Request request = requests->all[i];
        int done = 0;
        if (request != MPI_REQUEST_NULL &&
            MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0) {
            requests->all[left++] = request;
        }
    }
    requests->count = left;
    return left == 0;
}

void dp_open_transfers_drain(struct dp_open_transfers *open)
{
    struct dp_backoff backoff = {.spin_ns = DP_SPIN_NS};

    for (int i = 0; open != NULL && i < open->count; i++) {
        while (open->all[i].transfer != NULL && !has_ended(&open->all[i].requests) &&
               backoff.waited_ns < drain_ns) {
            (void)dp_backoff_wait(&backoff);
        }
    }
}
