/*
 * mpi_stand_in.h - functions in the place of MPI's, for one test program: of a rank of two, rank
 * 0 unless it is told otherwise, where MPI_COMM_SELF has the ranks of this node.
 */
#ifndef DP_TESTS_SUPPORT_MPI_STAND_IN_H
#define DP_TESTS_SUPPORT_MPI_STAND_IN_H

#include <mpi.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/trace.h"
#include "collectives/core/loss_mpi.h"
#include "collectives/core/mpi_status.h"
#include "collectives/core/shrink_mpi.h"
#include "tests/support/arrays.h"

enum { MOST = 8, PAGE = 4096 };

static struct {
    int rank;                 /* of this one */
    int sent[MOST], sends;    /* bytes of messages */
    int got[MOST], receives;  /* bytes that they may have */
    int not_done;             /* so many tests find a message under way */
    int singly;               /* tests of one message */
    bool fails;               /* a test of several finds the first one done, and a rank lost */
    int comms, windows;       /* that were freed */
    int tools;                /* of those that list settings: begun, and not yet ended */
    bool no_sum;              /* of all ranks' numbers */
    bool no_window;           /* a node has no memory to share */
    bool no_blocks, no_turns; /* how the other rank does not sit on its node (node_rule.h) */
    bool unequal;             /* its node has more ranks than this one */
    int gathers;              /* of the seats of all */
    int revoked, abort_code;  /* what was asked for */
    char *memory;             /* of all ranks of the node: rank 1's is before rank 0's */
    size_t piece;
    int awaited, unsaid;       /* calls that wait for other ranks; those that do not say so */
    struct dp_trace_mark mark; /* of this rank */
} mpi;

static void note_wait(void)
{
    mpi.awaited++;
    mpi.unsaid += atomic_load(&mpi.mark.notes[DP_NOTE_AWAITS_RANKS]) == 0;
}

static MPI_Request started(void)
{
    const union {
        uint64_t number;
        MPI_Request request;
    } any = {1};

    return any.request;
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *out)
{
    note_wait();
    *out = comm;
    return MPI_SUCCESS;
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *out)
{
    (void)color;
    (void)key;
    return MPI_Comm_dup(comm, out);
}

int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler)
{
    (void)comm;
    (void)handler;
    return MPI_SUCCESS;
}

int MPI_Comm_rank(MPI_Comm comm, int *rank)
{
    *rank = comm == MPI_COMM_SELF ? 0 : mpi.rank;
    return MPI_SUCCESS;
}

int MPI_Comm_size(MPI_Comm comm, int *size)
{
    *size = comm == MPI_COMM_SELF ? 1 : 2;
    return MPI_SUCCESS;
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out)
{
    (void)comm;
    (void)type;
    (void)key;
    (void)info;
    note_wait();
    *out = MPI_COMM_SELF;
    return MPI_SUCCESS;
}

int MPI_Comm_free(MPI_Comm *comm)
{
    *comm = MPI_COMM_NULL;
    mpi.comms++;
    return MPI_SUCCESS;
}

/* The other rank has the same, but for where it sits. */
int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    (void)comm;
    assert_true(op == MPI_MAX || op == MPI_LAND || (op == MPI_SUM && count == 1));
    note_wait();
    if (mpi.no_sum) {
        return MPI_ERR_OTHER;
    }
    memcpy(out, in, (size_t)count * (type == MPI_INT ? sizeof(int) : sizeof(long long)));
    if (count == 4 && type == MPI_INT) {
        ((int *)out)[0] += mpi.unequal;
        ((int *)out)[2] |= mpi.no_blocks;
        ((int *)out)[3] |= mpi.no_turns;
    }
    return MPI_SUCCESS;
}

/* Each rank leads a node. */
int MPI_Allgather(const void *in, int sent, MPI_Datatype sent_type, void *out, int count,
                  MPI_Datatype type, MPI_Comm comm)
{
    const int seats[] = {0, 0, 1, 0};
    (void)in;
    assert_true(sent_type == MPI_INT && type == MPI_INT && comm == MPI_COMM_WORLD);
    assert_int_equal(sent, 2);
    assert_int_equal(count, 2);
    note_wait();
    mpi.gathers++;
    memcpy(out, seats, sizeof(seats));
    return MPI_SUCCESS;
}

int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    (void)data;
    assert_true(count == 1 && type == MPI_INT && root == 0 && comm == MPI_COMM_SELF);
    note_wait();
    return MPI_SUCCESS;
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    (void)data;
    (void)tag;
    assert_true(type == MPI_BYTE && to == 1 && comm == MPI_COMM_WORLD);
    assert_true(mpi.sends < MOST);
    mpi.sent[mpi.sends++] = count;
    *request = started();
    return MPI_SUCCESS;
}

int MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    (void)data;
    (void)tag;
    assert_true(type == MPI_BYTE && from == 1 && comm == MPI_COMM_WORLD);
    assert_true(mpi.receives < MOST);
    mpi.got[mpi.receives++] = count;
    *request = started();
    return MPI_SUCCESS;
}

int MPI_Testall(int count, MPI_Request *requests, int *done, MPI_Status *statuses)
{
    (void)statuses;
    note_wait();
    *done = mpi.not_done-- <= 0 && !mpi.fails;
    for (int i = 0; i < count && (*done || (mpi.fails && i == 0)); i++) {
        requests[i] = MPI_REQUEST_NULL;
    }
    return mpi.fails ? MPI_ERR_OTHER : MPI_SUCCESS;
}

int MPI_Test(MPI_Request *request, int *done, MPI_Status *status)
{
    (void)request;
    (void)status;
    mpi.singly++;
    *done = 1;
    return MPI_SUCCESS;
}

int MPI_Info_create(MPI_Info *info)
{
    *info = MPI_INFO_NULL;
    return MPI_SUCCESS;
}

int MPI_Info_set(MPI_Info info, const char *key, const char *value)
{
    (void)info;
    (void)key;
    (void)value;
    return MPI_SUCCESS;
}

int MPI_Info_free(MPI_Info *info)
{
    (void)info;
    return MPI_SUCCESS;
}

int MPI_Win_allocate_shared(MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void *base,
                            MPI_Win *window)
{
    const union {
        uint64_t number;
        MPI_Win window;
    } any = {1};

    (void)unit;
    (void)info;
    (void)comm;
    if (mpi.no_window) {
        return MPI_ERR_OTHER;
    }
    note_wait();
    mpi.piece = (size_t)bytes;
    *(char **)base = mpi.memory + PAGE + mpi.piece;
    *window = any.window;
    return MPI_SUCCESS;
}

int MPI_Win_shared_query(MPI_Win window, int rank, MPI_Aint *bytes, int *unit, void *base)
{
    (void)window;
    *bytes = (MPI_Aint)mpi.piece;
    *unit = 1;
    *(char **)base = mpi.memory + PAGE + (rank == 0 ? mpi.piece : 0);
    return MPI_SUCCESS;
}

int MPI_Win_free(MPI_Win *window)
{
    *window = MPI_WIN_NULL;
    note_wait();
    mpi.windows++;
    return MPI_SUCCESS;
}

int MPI_Abort(MPI_Comm comm, int code)
{
    (void)comm;
    mpi.abort_code = code;
    return MPI_SUCCESS;
}

/* A setting as it is listed; NULL: settings cannot be listed. And by what Open MPI does not
 * document. */
static const char *listed, *setting;

int MPI_T_init_thread(int wanted, int *provided)
{
    (void)wanted;
    *provided = MPI_THREAD_SERIALIZED;
    mpi.tools += listed != NULL;
    return listed != NULL ? MPI_SUCCESS : MPI_ERR_OTHER;
}

int MPI_T_finalize(void)
{
    mpi.tools--;
    return MPI_SUCCESS;
}

int MPI_T_cvar_get_index(const char *name, int *index)
{
    *index = 7;
    return strcmp(name, "osc_sm_backing_directory") == 0 ? MPI_SUCCESS : MPI_T_ERR_INVALID_NAME;
}

int MPI_T_cvar_handle_alloc(int index, void *object, MPI_T_cvar_handle *handle, int *count)
{
    (void)object;
    (void)handle;
    *count = (int)strlen(listed) + 1;
    mpi.tools += index == 7;
    return index == 7 ? MPI_SUCCESS : MPI_T_ERR_INVALID_INDEX;
}

int MPI_T_cvar_read(MPI_T_cvar_handle handle, void *buffer)
{
    (void)handle;
    memcpy(buffer, listed, strlen(listed) + 1);
    return MPI_SUCCESS;
}

int MPI_T_cvar_handle_free(MPI_T_cvar_handle *handle)
{
    (void)handle;
    mpi.tools--;
    return MPI_SUCCESS;
}

int mca_base_var_find_by_name(const char *name, int *index);
int mca_base_var_get_value(int index, void *value, void *source, const char **file);

int mca_base_var_find_by_name(const char *name, int *index)
{
    (void)name;
    *index = 0;
    return MPI_SUCCESS;
}

int mca_base_var_get_value(int index, void *value, void *source, const char **file)
{
    (void)index;
    (void)source;
    (void)file;
    *(const char ***)value = &setting;
    return MPI_SUCCESS;
}

/* ---- in the place of an MPI's that can go on without a rank: loss_mpi.c, shrink_mpi.c ---- */

const char *dp_mpi_why_no_shrink(void)
{
    return NULL;
}

bool dp_mpi_may_be_loss(int code)
{
    return code != MPI_SUCCESS;
}

bool dp_mpi_is_loss(int code)
{
    return code != MPI_SUCCESS;
}

void dp_mpi_revoke(MPI_Comm comm)
{
    (void)comm;
    mpi.revoked++;
}

#endif
