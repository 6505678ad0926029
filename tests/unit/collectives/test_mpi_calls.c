/*
 * test_mpi_calls.c - what is asked of MPI, by functions in the place of MPI's: of rank 0 of two, on
 * two nodes or on one, where ranks may be lost.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <mpi.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files/file.h"
#include "collectives/core/loss_mpi.h"
#include "collectives/core/mpi/left_memory.h"
#include "collectives/core/mpi/window_fits_mpi.h"
#include "collectives/core/mpi/window_mpi.h"
#include "collectives/core/mpi_status.h"
#include "collectives/core/shrink_mpi.h"
#include "collectives/core/transport_mpi.h"
#include "tests/support/arrays.h"

#define FOLDER "OMPI_MCA_osc_sm_backing_directory"

enum { MOST = 8, MB = 1 << 20, PAGE = 4096, MARK = 0x5a };

/* ---- in the place of MPI's, where MPI_COMM_SELF has the ranks of this node ---- */

static struct {
    int sent[MOST], sends;   /* bytes of messages */
    int not_done;            /* so many tests find a message under way */
    int singly;              /* tests of one message */
    bool fails;              /* a test of several finds the first one done, and a rank lost */
    int comms, windows;      /* that were freed */
    bool no_window;          /* a node has no memory to share */
    int revoked, abort_code; /* what was asked for */
    char *memory;            /* of all ranks of the node: rank 1's is before rank 0's */
    size_t piece;
} mpi;

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
    *out = comm;
    return MPI_SUCCESS;
}

int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler)
{
    (void)comm;
    (void)handler;
    return MPI_SUCCESS;
}

int MPI_Comm_rank(MPI_Comm comm, int *rank)
{
    (void)comm;
    *rank = 0;
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
    *out = MPI_COMM_SELF;
    return MPI_SUCCESS;
}

int MPI_Comm_free(MPI_Comm *comm)
{
    *comm = MPI_COMM_NULL;
    mpi.comms++;
    return MPI_SUCCESS;
}

/* The other rank has the same. */
int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    (void)op;
    (void)comm;
    memcpy(out, in, (size_t)count * (type == MPI_INT ? sizeof(int) : sizeof(long long)));
    return MPI_SUCCESS;
}

int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    (void)data;
    (void)count;
    (void)type;
    (void)root;
    (void)comm;
    return MPI_SUCCESS;
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    (void)data;
    (void)type;
    (void)to;
    (void)tag;
    (void)comm;
    assert_true(mpi.sends < MOST);
    mpi.sent[mpi.sends++] = count;
    *request = started();
    return MPI_SUCCESS;
}

int MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    (void)data;
    (void)count;
    (void)type;
    (void)from;
    (void)tag;
    (void)comm;
    *request = started();
    return MPI_SUCCESS;
}

int MPI_Testall(int count, MPI_Request *requests, int *done, MPI_Status *statuses)
{
    (void)statuses;
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
    mpi.windows++;
    return MPI_SUCCESS;
}

int MPI_Abort(MPI_Comm comm, int code)
{
    (void)comm;
    mpi.abort_code = code;
    return MPI_SUCCESS;
}

/* Settings cannot be listed, but be looked up by what Open MPI does not document. */
int MPI_T_init_thread(int wanted, int *provided)
{
    (void)wanted;
    (void)provided;
    return MPI_ERR_OTHER;
}

static const char *setting;

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

/* ---- messages ---- */

static atomic_int cancel;
static char data[4 * MB];

static struct dp_group *two_nodes(void)
{
    struct dp_group *group = NULL;

    memset(&mpi, 0, sizeof(mpi));
    atomic_store(&cancel, 0);
    OK(dp_mpi_group_create(MPI_COMM_WORLD, &cancel, &group));
    assert_int_equal(group->nodes, 2);
    return group;
}

/* Swaps so many bytes with the other rank. */
static void swap(struct dp_group *group, size_t bytes, struct dp_transfer *transfer)
{
    const struct dp_slice out = {data, bytes, 1}, in = {data, 1, 1};

    OK(dp_group_start(group, 1, out, 1, in, transfer));
}

static void between_nodes_messages_are_cut_and_their_speed_is_noted(void **state)
{
    struct dp_group *group = two_nodes();
    const struct dp_mpi_link *link = group->link;
    struct dp_transfer transfer;
    (void)state;

    swap(group, 2 * MB + 5, &transfer);
    assert_int_equal(mpi.sends, 3);
    assert_int_equal(mpi.sent[0], MB);
    assert_int_equal(mpi.sent[1], MB);
    assert_int_equal(mpi.sent[2], 5);
    assert_true(link->pace.last_ns == 0);
    OK(dp_group_finish(group, &transfer));
    assert_true(link->pace.last_ns > 0);
    dp_group_destroy(group);
}

/* Once a rank is lost: tests of what was under way until then, which are those of a message and of
 * its answer. */
static void only_messages_under_way_are_waited_for_once_a_rank_is_lost(void **state)
{
    static const struct {
        int not_done;
        bool fails;
        int singly;
    } cases[] = {{1, false, 2}, {0, false, 0}, {0, true, 1}};
    (void)state;

    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        struct dp_group *group = two_nodes();
        struct dp_transfer transfer;
        bool done;
        swap(group, 5, &transfer);
        mpi.not_done = cases[i].not_done;
        mpi.fails = cases[i].fails;
        assert_int_equal(dp_group_test(group, &transfer, &done),
                         cases[i].fails ? DP_ERR_CANCELLED : DP_OK);
        assert_int_equal(done, cases[i].singly == 0);
        dp_mpi_group_revoke(group);
        assert_int_equal(mpi.revoked, 2);
        assert_int_equal(mpi.singly, cases[i].singly);
        dp_group_destroy(group);
    }
}

/* The others may never come to free them. */
static void communicators_are_freed_unless_a_rank_has_left(void **state)
{
    (void)state;
    for (int left = 0; left < 2; left++) {
        struct dp_group *group = two_nodes();
        atomic_store(&cancel, left);
        dp_group_destroy(group);
        assert_int_equal(mpi.comms, left ? 0 : 2);
    }
}

/* ---- memory ---- */

static bool all_are(const char *bytes, size_t count, char value)
{
    size_t i = 0;

    while (i < count && bytes[i] == value) {
        i++;
    }
    return i == count;
}

/* Pages of both ranks, and of nothing beside them. */
static void what_a_lost_rank_shared_is_given_back(void **state)
{
    enum { BYTES = 10 * PAGE, ROOM = 64 * PAGE };
    int nodes[] = {0, 0}, local_ranks[] = {0, 1};
    (void)state;

    for (int left = 0; left < 2; left++) {
        struct dp_mpi_link link = {.comm = MPI_COMM_WORLD,
                                   .node = MPI_COMM_WORLD,
                                   .node_of = nodes,
                                   .local_rank_of = local_ranks};
        struct dp_group group = {.size = 2, .link = &link, .cancel = &cancel};
        char *mine, *end;
        memset(&mpi, 0, sizeof(mpi));
        mpi.memory = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(mpi.memory != MAP_FAILED);
        dp_mpi_windows_init(&link);
        atomic_store(&cancel, 0);
        mine = dp_mpi_window_alloc(&group, DP_MEM_COMM, BYTES);
        assert_non_null(mine);
        assert_true((char *)dp_mpi_window_peer(&group, mine, 1) < mine);
        memset(mpi.memory, MARK, ROOM);
        atomic_store(&cancel, left);
        dp_mpi_window_release(&group, mine);
        dp_left_memory_drop();
        assert_int_equal(mpi.windows, left ? 0 : 1);
        end = mpi.memory + PAGE + 2 * mpi.piece;
        assert_true(all_are(mpi.memory, PAGE, MARK));
        assert_true(all_are(mpi.memory + PAGE, 2 * mpi.piece, (char)(left ? 0 : MARK)));
        assert_true(all_are(end, (size_t)(mpi.memory + ROOM - end), MARK));
        (void)munmap(mpi.memory, ROOM);
    }
}

/* It is the rank's own, which others do not reach, and is given back with the group. */
static void where_no_memory_can_be_shared_each_rank_has_its_own(void **state)
{
    const size_t live = dp_mem_live();
    (void)state;

    for (int released = 0; released < 2; released++) {
        struct dp_group *group = two_nodes();
        char *mine;
        mpi.no_window = true;
        assert_false(group->unshared);
        mine = dp_mpi_window_alloc(group, DP_MEM_CHECKPOINT, (size_t)3 * PAGE);
        assert_non_null(mine);
        assert_true(group->unshared);
        assert_ptr_equal(dp_mpi_window_peer(group, mine, 0), mine);
        assert_null(dp_mpi_window_peer(group, mine, 1));
        memset(mine, MARK, (size_t)3 * PAGE);
        if (released) {
            dp_mpi_window_release(group, mine);
        }
        dp_group_destroy(group);
        assert_int_equal(mpi.windows, 0);
        assert_int_equal(dp_mem_live(), live);
    }
}

/* It is looked up once in a process. */
static void windows_lie_where_open_mpi_is_told_or_in_shared_memory(void **state)
{
    static char longest[DP_PATH_BYTES + 1];
    static const struct {
        const char *set, *folder;
    } cases[] = {{"/x", "/x"}, {"", "/dev/shm"}, {NULL, "/dev/shm"}, {longest, "/dev/shm"}};
    int status;
    (void)state;

    memset(longest, 'x', sizeof(longest) - 1);
    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            setting = cases[i].set;
            _exit(unsetenv(FOLDER) != 0 || strcmp(dp_mpi_window_folder(), cases[i].folder) != 0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

/* ---- the end ---- */

static void a_job_that_cannot_go_on_is_ended_by_mpi(void **state)
{
    (void)state;
    memset(&mpi, 0, sizeof(mpi));
    dp_mpi_abort(3);
    assert_int_equal(mpi.abort_code, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(between_nodes_messages_are_cut_and_their_speed_is_noted),
        cmocka_unit_test(only_messages_under_way_are_waited_for_once_a_rank_is_lost),
        cmocka_unit_test(communicators_are_freed_unless_a_rank_has_left),
        cmocka_unit_test(windows_lie_where_open_mpi_is_told_or_in_shared_memory),
        cmocka_unit_test(where_no_memory_can_be_shared_each_rank_has_its_own),
        cmocka_unit_test(what_a_lost_rank_shared_is_given_back),
        cmocka_unit_test(a_job_that_cannot_go_on_is_ended_by_mpi),
    };

    /* Where there is room for windows. */
    if (setenv(FOLDER, "/tmp", 1) != 0) {
        return 1;
    }
    return cmocka_run_group_tests_name("mpi_calls", tests, NULL, NULL);
}
