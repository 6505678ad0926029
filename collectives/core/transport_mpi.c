/*
 * transport_mpi.c - messages by MPI_Isend and MPI_Irecv; shared memory: window_mpi.c.
 *
 * We wait with MPI_Testall and sleeps (backoff.h): a blocking MPI call spins, which takes the core
 * from computing. Open MPI moves bytes only inside its calls, so the sleeps are short.
 */
#include "collectives/core/transport_mpi.h"

#include "base/log.h"
#include "base/trace.h"
#include "collectives/core/backoff.h"
#include "collectives/core/mpi/window_mpi.h"
#include "collectives/core/mpi_status.h"
#include "collectives/core/node_rule.h"
#include "collectives/core/open_transfers_mpi.h"
#include "collectives/core/pieces_mpi.h"
#include "collectives/core/shrink_mpi.h"
#include "collectives/core/transport.h"

enum { TAG = 7 };

/* Bytes of a message to or from a rank on another node, else 0. */
static size_t far_bytes(const struct dp_group *group, struct dp_slice slice, int peer)
{
    return peer >= 0 && group->node_of[peer] != group->node_of[group->rank] ? dp_slice_bytes(slice)
                                                                            : 0;
}

static dp_status mpi_start(struct dp_group *group, struct dp_slice out, struct dp_slice in,
                           struct dp_transfer *transfer)
{
    const struct dp_mpi_link *link = group->link;
    const size_t out_bytes = far_bytes(group, out, transfer->to);
    const size_t in_bytes = far_bytes(group, in, transfer->from);

    transfer->far_bytes = out_bytes > in_bytes ? out_bytes : in_bytes;
    if (transfer->from >= 0) {
        DP_TRY(dp_pieces_start(link->comm, in, transfer->from, in_bytes > 0, DP_RECEIVE,
                               transfer->in));
    }
    if (transfer->to >= 0) {
        DP_TRY(
            dp_pieces_start(link->comm, out, transfer->to, out_bytes > 0, DP_SEND, transfer->out));
    }
    dp_open_transfers_add(link->open, transfer);
    return DP_OK;
}

static dp_status mpi_finish(struct dp_group *group, struct dp_transfer *transfer)
{
    struct dp_mpi_link *link = group->link;
    struct dp_requests requests = dp_pieces_requests(transfer);
    struct dp_backoff backoff = {
        .cancel = group->cancel,
        .spin_ns = group->spin_ns,
        .expect_ns = dp_wire_pace_expect(&link->pace, transfer->far_bytes),
    };

    const dp_status status = dp_pieces_wait(&backoff, requests.all, requests.count);
    dp_open_transfers_end(link->open, transfer, status == DP_OK ? NULL : &requests);
    DP_TRY(status);
    if (transfer->far_bytes > 0) {
        dp_wire_pace_note(&link->pace, transfer->far_bytes, backoff.begin_ns);
    }
    return DP_OK;
}

static dp_status mpi_test(struct dp_group *group, struct dp_transfer *transfer, bool *done)
{
    const struct dp_mpi_link *link = group->link;
    struct dp_requests requests = dp_pieces_requests(transfer);
    int all = 0;
    const dp_status status =
        DP_MPI(MPI_Testall(requests.count, requests.all, &all, MPI_STATUSES_IGNORE));

    *done = status == DP_OK && all != 0; /* until then requests stay unchanged */
    if (status != DP_OK || all != 0) {
        dp_open_transfers_end(link->open, transfer, status == DP_OK ? NULL : &requests);
    }
    return status;
}

static void mpi_close(struct dp_group *group)
{
    struct dp_mpi_link *link = group->link;

    dp_mpi_windows_close(group);
    if (link->node != MPI_COMM_NULL && !dp_mpi_left(group)) {
        (void)MPI_Comm_free(&link->node);
    }
    if (link->comm != MPI_COMM_NULL && !dp_mpi_left(group)) {
        (void)MPI_Comm_free(&link->comm);
    }
    dp_open_transfers_destroy(link->open);
    dp_free(link->local_rank_of);
    dp_free(link->node_of);
    dp_free(link);
    dp_free(group);
}

static const struct dp_transport mpi_transport = {
    .name = "mpi",
    .start = mpi_start,
    .finish = mpi_finish,
    .test = mpi_test,
    .memory = dp_mpi_window_alloc,
    .release = dp_mpi_window_release,
    .peer = dp_mpi_window_peer,
    .close = mpi_close,
};

/* Whether all ranks lie by one rule (node_rule.h), which then says where: no rank need send it. */
static dp_status find_rule(struct dp_group *group, int leader, int local_rank,
                           enum dp_node_rule *rule)
{
    const struct dp_mpi_link *link = group->link;
    const struct dp_node_seat seat = {leader, local_rank};
    const int here = group->local_size, rank = group->rank;
    const int mine[] = {here, -here,
                        !dp_node_rule_seats(DP_NODE_RULE_BLOCKS, group->size, here, rank, &seat),
                        !dp_node_rule_seats(DP_NODE_RULE_TURNS, group->size, here, rank, &seat)};
    int most[4];

    DP_TRY(DP_MPI(MPI_Allreduce(mine, most, 4, MPI_INT, MPI_MAX, link->comm)));
    *rule = most[0] != -most[1] ? DP_NODE_RULE_NONE
            : most[2] == 0      ? DP_NODE_RULE_BLOCKS
            : most[3] == 0      ? DP_NODE_RULE_TURNS
                                : DP_NODE_RULE_NONE;
    return DP_OK;
}

/* Each rank gets the seats of all. */
static dp_status gather_seats(struct dp_group *group, struct dp_node_seat mine)
{
    struct dp_mpi_link *link = group->link;
    struct dp_node_seat *seats = dp_zalloc((size_t)group->size, sizeof(*seats));
    dp_status status;

    if (seats == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "seats of %d ranks", group->size);
    }
    status = DP_MPI(MPI_Allgather(&mine, 2, MPI_INT, seats, 2, MPI_INT, link->comm));
    for (int i = 0; i < group->size && status == DP_OK; i++) {
        /* Leaders come first in rank order, so their number is known when members need it. */
        link->node_of[i] = seats[i].leader == i ? group->nodes++ : link->node_of[seats[i].leader];
        link->local_rank_of[i] = seats[i].local_rank;
    }
    dp_free(seats);
    return status;
}

/* Numbers the nodes by their first rank, and the ranks within each. */
static dp_status find_nodes(struct dp_group *group)
{
    struct dp_mpi_link *link = group->link;
    struct dp_node_seat mine = {.leader = group->rank};
    enum dp_node_rule rule;

    DP_TRY(DP_MPI(MPI_Comm_split_type(link->comm, MPI_COMM_TYPE_SHARED, group->rank, MPI_INFO_NULL,
                                      &link->node)));
    DP_TRY(DP_MPI(MPI_Comm_rank(link->node, &mine.local_rank)));
    DP_TRY(DP_MPI(MPI_Comm_size(link->node, &group->local_size)));
    DP_TRY(DP_MPI(MPI_Bcast(&mine.leader, 1, MPI_INT, 0, link->node)));
    DP_TRY(find_rule(group, mine.leader, mine.local_rank, &rule));
    group->nodes = 0;
    if (rule == DP_NODE_RULE_NONE) {
        return gather_seats(group, mine);
    }
    group->nodes = group->size / group->local_size;
    for (int i = 0; i < group->size; i++) {
        link->node_of[i] = dp_node_rule_node(rule, group->size, group->local_size, i);
        link->local_rank_of[i] = dp_node_rule_local_rank(rule, group->size, group->local_size, i);
    }
    return DP_OK;
}

dp_status dp_mpi_group_create(MPI_Comm comm, atomic_int *cancel, struct dp_group **out)
{
    DP_AWAIT_RANKS(); /* MPI itself waits in each call that makes a communicator */
    struct dp_group *group = dp_zalloc(1, sizeof(*group));
    struct dp_mpi_link *link = dp_zalloc(1, sizeof(*link));
    dp_status status = DP_ERR_NOMEM;

    if (group == NULL || link == NULL) {
        dp_free(group);
        dp_free(link);
        atomic_store(cancel, 1);
        return DP_FAIL(DP_ERR_NOMEM, "group");
    }
    group->transport = &mpi_transport;
    group->link = link;
    group->cancel = cancel;
    group->spin_ns = DP_SPIN_NS;
    link->comm = link->node = MPI_COMM_NULL;
    dp_mpi_windows_init(link);
    DP_TRY_GOTO(DP_MPI(MPI_Comm_dup(comm, &link->comm)), status, failed);
    DP_TRY_GOTO(DP_MPI(MPI_Comm_set_errhandler(link->comm, MPI_ERRORS_RETURN)), status, failed);
    DP_TRY_GOTO(DP_MPI(MPI_Comm_rank(link->comm, &group->rank)), status, failed);
    DP_TRY_GOTO(DP_MPI(MPI_Comm_size(link->comm, &group->size)), status, failed);
    link->node_of = dp_zalloc((size_t)group->size, sizeof(int));
    link->local_rank_of = dp_zalloc((size_t)group->size, sizeof(int));
    if (link->node_of == NULL || link->local_rank_of == NULL) {
        status = DP_FAIL(DP_ERR_NOMEM, "group of %d ranks", group->size);
        goto failed;
    }
    group->node_of = link->node_of;
    if (dp_mpi_why_no_shrink() == NULL) {
        DP_TRY_GOTO(dp_open_transfers_create(&link->open), status, failed);
    }
    DP_TRY_GOTO(find_nodes(group), status, failed);
    *out = group;
    return DP_OK;

failed:
    atomic_store(cancel, 1); /* the others may be in another collective: no wait for them */
    if (status == DP_ERR_CANCELLED && link->comm != MPI_COMM_NULL) {
        dp_mpi_revoke(link->comm);
    }
    mpi_close(group);
    return status;
}

dp_status dp_mpi_part(MPI_Comm comm, bool in, int rank, MPI_Comm *out)
{
    DP_AWAIT_RANKS();

    return DP_MPI(MPI_Comm_split(comm, in ? 0 : MPI_UNDEFINED, rank, out));
}

/* Finds the root of a chain of groups, and the number of rank `rank` there. */
static const struct dp_group *bottom_of(const struct dp_group *group, int *rank)
{
    const struct dp_group *parent;

    while ((parent = dp_group_parent(group, *rank, rank)) != NULL) {
        group = parent;
    }
    return group;
}

bool dp_mpi_connects(const struct dp_group *group)
{
    int rank = 0;

    return bottom_of(group, &rank)->transport == &mpi_transport;
}

static dp_status create(MPI_Comm comm, MPI_Group some, MPI_Comm *out)
{
    DP_AWAIT_RANKS();

    return DP_MPI(MPI_Comm_create_group(comm, some, TAG, out));
}

dp_status dp_mpi_comm_open(const struct dp_group *group, MPI_Comm *out)
{
    int rank = group->rank;
    const struct dp_mpi_link *link = bottom_of(group, &rank)->link;
    MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    dp_status status;
    int *ranks;

    if (group->transport == &mpi_transport) {
        *out = link->comm;
        return DP_OK;
    }
    ranks = dp_zalloc((size_t)group->size, sizeof(*ranks));
    if (ranks == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "a communicator of %d ranks", group->size);
    }
    for (int i = 0; i < group->size; i++) {
        ranks[i] = i;
        (void)bottom_of(group, &ranks[i]);
    }
    DP_TRY_GOTO(DP_MPI(MPI_Comm_group(link->comm, &all)), status, done);
    DP_TRY_GOTO(DP_MPI(MPI_Group_incl(all, group->size, ranks, &some)), status, done);
    DP_TRY_GOTO(create(link->comm, some, out), status, done);
    DP_TRY_GOTO(DP_MPI(MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN)), status, done);

done:
    if (some != MPI_GROUP_NULL) {
        (void)MPI_Group_free(&some);
    }
    if (all != MPI_GROUP_NULL) {
        (void)MPI_Group_free(&all);
    }
    dp_free(ranks);
    return status;
}

void dp_mpi_comm_close(const struct dp_group *group, MPI_Comm comm)
{
    if (group->transport != &mpi_transport && comm != MPI_COMM_NULL && !dp_mpi_left(group)) {
        (void)MPI_Comm_free(&comm);
    }
}

dp_status dp_mpi_wait(const struct dp_group *group, MPI_Request *request)
{
    DP_AWAIT_RANKS();
    struct dp_backoff backoff = {.cancel = group->cancel, .spin_ns = group->spin_ns};

    return dp_pieces_wait(&backoff, request, 1);
}

void dp_mpi_group_revoke(struct dp_group *group)
{
    const struct dp_mpi_link *link = group->link;

    dp_mpi_revoke(link->comm);
    dp_mpi_revoke(link->node);
    dp_open_transfers_drain(link->open);
}
