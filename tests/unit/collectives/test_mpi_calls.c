/*
 * test_mpi_calls.c - what is asked of MPI, by functions in the place of MPI's: of rank 0 of two, on
 * two nodes or on one, where ranks may be lost.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files/file.h"
#include "base/log.h"
#include "collectives/core/mpi/left_memory.h"
#include "collectives/core/mpi/window_fits_mpi.h"
#include "collectives/core/mpi/window_mpi.h"
#include "collectives/core/transport_mpi.h"
#include "tests/support/memory/free_room.h"
#include "tests/support/mpi_stand_in.h"
#include "tests/support/stderr_text.h"

#define FOLDER "OMPI_MCA_osc_sm_backing_directory"
#define SEGMENTS "OMPI_MCA_btl_vader_"

enum { MB = 1 << 20, MARK = 0x5a };

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

/* Seats that follow a rule are not gathered. */
static void seats_are_gathered_where_they_follow_no_rule(void **state)
{
    (void)state;

    for (int i = 0; i < 16; i++) {
        struct dp_group *group = NULL;

        memset(&mpi, 0, sizeof(mpi));
        mpi.no_blocks = (i & 1) != 0;
        mpi.no_turns = (i & 2) != 0;
        mpi.unequal = (i & 4) != 0;
        mpi.rank = (i & 8) != 0;
        atomic_store(&cancel, 0);
        OK(dp_mpi_group_create(MPI_COMM_WORLD, &cancel, &group));
        assert_int_equal(mpi.gathers, mpi.unequal || (mpi.no_blocks && mpi.no_turns) ? 1 : 0);
        assert_int_equal(group->nodes, 2);
        assert_int_equal(group->local_size, 1);
        assert_int_equal(group->node_of[0], 0);
        assert_int_equal(group->node_of[1], 1);
        dp_group_destroy(group);
    }
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

/* Each in one piece, and no wait for it says how fast the wire is. */
static void within_a_node_messages_are_whole(void **state)
{
    static int one_node[2];
    const struct dp_slice longer = {data, MB + 3, 1}, shorter = {data, MB + 2, 1};
    struct dp_group *group = two_nodes();
    const struct dp_mpi_link *link = group->link;
    const int *node_of = group->node_of;
    struct dp_transfer transfer;
    (void)state;

    group->node_of = one_node;
    OK(dp_group_start(group, 1, longer, 1, shorter, &transfer));
    assert_int_equal(mpi.sends, 1);
    assert_int_equal(mpi.sent[0], MB + 3);
    assert_int_equal(mpi.receives, 1);
    assert_int_equal(mpi.got[0], MB + 2);
    OK(dp_group_finish(group, &transfer));
    assert_true(link->pace.last_ns == 0);
    group->node_of = node_of;
    dp_group_destroy(group);
}

static void both_directions_are_cut_by_their_own_lengths(void **state)
{
    const struct dp_slice longer = {data, 2 * MB + 1, 1}, shorter = {data, MB + 7, 1};
    struct dp_group *group = two_nodes();
    struct dp_transfer transfer;
    (void)state;

    OK(dp_group_start(group, 1, shorter, 1, longer, &transfer));
    assert_int_equal(mpi.receives, 3);
    assert_int_equal(mpi.got[1], MB);
    assert_int_equal(mpi.got[2], 1);
    assert_int_equal(mpi.sends, 2);
    assert_int_equal(mpi.sent[1], 7);
    assert_int_equal(transfer.far_bytes, 2 * MB + 1);
    OK(dp_group_finish(group, &transfer));
    OK(dp_group_start(group, 1, longer, 1, shorter, &transfer));
    assert_int_equal(transfer.far_bytes, 2 * MB + 1);
    OK(dp_group_finish(group, &transfer));
    dp_group_destroy(group);
}

/* The others are told, and nothing stays. */
static void making_a_group_survives_every_failed_allocation(void **state)
{
    const size_t live = dp_mem_live();
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_group *group = NULL;
        memset(&mpi, 0, sizeof(mpi));
        mpi.unequal = true; /* seats are gathered */
        atomic_store(&cancel, 0);
        dp_mem_fail_nth(nth);
        status = dp_mpi_group_create(MPI_COMM_WORLD, &cancel, &group);
        dp_mem_fail_nth(0);
        assert_int_equal(status, group != NULL ? DP_OK : DP_ERR_NOMEM);
        assert_int_equal(atomic_load(&cancel) != 0, status != DP_OK);
        dp_group_destroy(group);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_log_set_level(DP_LOG_INFO);
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

/* Of more the pages stay. */
static void some_thousand_pieces_are_given_back_at_most(void **state)
{
    const size_t pair = 2 * (size_t)PAGE;
    char *pages = mmap(NULL, pair, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)state;

    assert_true(pages != MAP_FAILED);
    for (int turn = 0; turn < 2; turn++) {
        memset(pages, MARK, pair);
        for (int i = turn; i < 4096; i++) {
            dp_left_memory_add(pages, PAGE);
        }
        dp_left_memory_add(pages + PAGE, PAGE);
        dp_left_memory_drop();
        assert_true(all_are(pages, PAGE, 0));
        assert_true(all_are(pages + PAGE, PAGE, turn == 0 ? MARK : 0));
    }
    (void)munmap(pages, pair);
}

static void memory_is_given_back_once(void **state)
{
    char *pages =
        mmap(NULL, (size_t)2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)state;

    assert_true(pages != MAP_FAILED);
    for (int turn = 0; turn < 2; turn++) {
        memset(pages, MARK, (size_t)2 * PAGE);
        dp_left_memory_add(pages, PAGE);
        if (turn == 0) {
            dp_left_memory_add(pages + PAGE, PAGE);
        }
        dp_left_memory_drop();
        assert_true(all_are(pages, PAGE, 0));
        assert_true(all_are(pages + PAGE, PAGE, turn == 0 ? 0 : MARK));
    }
    (void)munmap(pages, (size_t)2 * PAGE);
}

/* Of memory that is no file's. */
static void pages_that_cannot_be_given_back_are_told_of(void **state)
{
    (void)state;

    for (int file = 0; file < 2; file++) {
        char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
                          (file ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);
        assert_true(page != MAP_FAILED);
        dp_left_memory_add(page, PAGE);
        dp_log_set_level(DP_LOG_DEBUG);
        stderr_begin();
        dp_left_memory_drop();
        stderr_end();
        dp_log_set_level(DP_LOG_INFO);
        assert_int_equal(strstr(stderr_text, " 4 KB of shared memory stay") != NULL, !file);
        (void)munmap(page, PAGE);
    }
}

/* It is the rank's own, which others do not reach, and is given back with the group. */
static void where_no_memory_can_be_shared_each_rank_has_its_own(void **state)
{
    const size_t live = dp_mem_live();
    (void)state;

    for (int i = 0; i < 4; i++) {
        const bool released = (i & 1) != 0;
        const size_t bytes = (i & 2) != 0 ? (size_t)3 * PAGE : 100; /* 100: cut from a window */
        struct dp_group *group = two_nodes();
        char *mine;
        mpi.no_window = true;
        assert_false(group->unshared);
        mine = dp_mpi_window_alloc(group, DP_MEM_CHECKPOINT, bytes);
        assert_non_null(mine);
        assert_true(group->unshared);
        assert_ptr_equal(dp_mpi_window_peer(group, mine, 0), mine);
        assert_null(dp_mpi_window_peer(group, mine, 1));
        memset(mine, MARK, bytes);
        if (released) {
            dp_mpi_window_release(group, mine);
        }
        dp_group_destroy(group);
        assert_int_equal(mpi.windows, 0);
        assert_int_equal(dp_mem_live(), live);
    }
}

static void memory_that_one_rank_lacks_is_given_back(void **state)
{
    const size_t live = dp_mem_live();
    (void)state;

    for (int nth = 1; nth <= 2; nth++) { /* the list of pieces, and the rank's own */
        struct dp_group *group = two_nodes();
        const size_t before = dp_mem_live();
        mpi.no_window = true;
        dp_mem_fail_nth(nth);
        assert_null(dp_mpi_window_alloc(group, DP_MEM_CHECKPOINT, (size_t)3 * PAGE));
        dp_mem_fail_nth(0);
        assert_int_equal(dp_mem_live(), before);
        dp_group_destroy(group);
        assert_int_equal(dp_mem_live(), live);
    }
}

/* A rank that waits must not be taken for the one that keeps others waiting. */
static void the_watchdog_is_told_where_mpi_waits_for_ranks(void **state)
{
    struct dp_group *group = two_nodes();
    struct dp_transfer transfer;
    MPI_Comm part;
    char *memory;
    (void)state;

    dp_group_destroy(group);
    dp_trace_publish(DP_TRACE_WATCHDOG, &mpi.mark);
    group = two_nodes();
    assert_int_equal(mpi.awaited, 4);
    OK(dp_mpi_part(MPI_COMM_WORLD, true, 0, &part));
    swap(group, 5, &transfer);
    OK(dp_group_finish(group, &transfer));
    assert_int_equal(mpi.awaited, 6);
    mpi.memory = data;
    memory = dp_group_memory(group, DP_MEM_COMM, (size_t)2 * PAGE); /* a window of its own */
    assert_non_null(memory);
    dp_group_release(group, memory);
    assert_int_equal(mpi.windows, 1);
    assert_int_equal(mpi.unsaid, 0);
    assert_int_equal(atomic_load(&mpi.mark.notes[DP_NOTE_AWAITS_RANKS]), 0);
    dp_group_destroy(group);
    dp_trace_publish(DP_TRACE_WATCHDOG, NULL);
}

struct folder_case {
    const char *told, *set, *listed, *folder; /* told by the environment; what is found */
};

/* It is looked up once in a process. */
static bool finds_folder(const struct folder_case *c)
{
    setting = c->set;
    listed = c->listed;
    mpi.tools = 0;
    return (c->told == NULL ? unsetenv(FOLDER) : setenv(FOLDER, c->told, 1)) == 0 &&
           strcmp(dp_mpi_window_folder(), c->folder) == 0 && mpi.tools == 0 &&
           (strcmp(c->folder, ".") != 0 ||
            (chdir("/tmp") == 0 && dp_mpi_window_fits(MPI_COMM_WORLD, 1)));
}

static void windows_lie_where_open_mpi_is_told_or_in_shared_memory(void **state)
{
    static char longest[DP_PATH_BYTES], more[DP_PATH_BYTES + 1];
    static const struct folder_case cases[] = {
        {NULL, "/x", "/y", "/x"},       {NULL, "", NULL, ""},           {NULL, NULL, NULL, ""},
        {NULL, longest, "/y", longest}, {NULL, more, NULL, "/dev/shm"}, {NULL, more, "/y", "/y"},
        {NULL, more, longest, longest}, {NULL, more, more, "/dev/shm"}, {".", "/x", "/y", "."},
        {"", "/x", "/y", "/x"},         {longest, "/x", "/y", longest}, {more, "/x", "/y", "/x"},
    };
    int status;
    (void)state;

    memset(longest, 'x', sizeof(longest) - 1);
    memset(more, 'x', sizeof(more) - 1);
    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        pid_t child;
        (void)fflush(NULL); /* so that the child has nothing to write */
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            exit(finds_folder(&cases[i]) ? 0 : 1); /* counts its lines, as _exit() would not */
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

/* With an eighth and 64 KB more, which MPI may need, beside segments of two ranks that lie there
 * but are not written yet. */
static void windows_take_the_space_that_segments_leave(void **state)
{
    static const struct {
        const char *segments;
        unsigned long long needed;
    } cases[] = {{NULL, 155536}, {"/tm", 155536}, {"/var", 155536}, {"/tmp", 155536 + 2000000}};
    const unsigned long long before = free_bytes;
    (void)state;

    assert_int_equal(setenv(SEGMENTS "segment_size", "1000000", 1), 0);
    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        if (cases[i].segments != NULL) {
            assert_int_equal(setenv(SEGMENTS "backing_directory", cases[i].segments, 1), 0);
        }
        free_bytes = cases[i].needed;
        assert_false(dp_mpi_window_fits(MPI_COMM_WORLD, 80000));
        free_bytes++;
        assert_true(dp_mpi_window_fits(MPI_COMM_WORLD, 80000));
        mpi.no_sum = true;
        assert_false(dp_mpi_window_fits(MPI_COMM_WORLD, 80000));
        mpi.no_sum = false;
    }
    assert_int_equal(unsetenv(SEGMENTS "segment_size") | unsetenv(SEGMENTS "backing_directory"), 0);
    free_bytes = before;
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
        cmocka_unit_test(seats_are_gathered_where_they_follow_no_rule),
        cmocka_unit_test(between_nodes_messages_are_cut_and_their_speed_is_noted),
        cmocka_unit_test(both_directions_are_cut_by_their_own_lengths),
        cmocka_unit_test(within_a_node_messages_are_whole),
        cmocka_unit_test(making_a_group_survives_every_failed_allocation),
        cmocka_unit_test(only_messages_under_way_are_waited_for_once_a_rank_is_lost),
        cmocka_unit_test(communicators_are_freed_unless_a_rank_has_left),
        cmocka_unit_test(windows_lie_where_open_mpi_is_told_or_in_shared_memory),
        cmocka_unit_test(windows_take_the_space_that_segments_leave),
        cmocka_unit_test(where_no_memory_can_be_shared_each_rank_has_its_own),
        cmocka_unit_test(memory_that_one_rank_lacks_is_given_back),
        cmocka_unit_test(the_watchdog_is_told_where_mpi_waits_for_ranks),
        cmocka_unit_test(what_a_lost_rank_shared_is_given_back),
        cmocka_unit_test(memory_is_given_back_once),
        cmocka_unit_test(pages_that_cannot_be_given_back_are_told_of),
        cmocka_unit_test(some_thousand_pieces_are_given_back_at_most),
        cmocka_unit_test(a_job_that_cannot_go_on_is_ended_by_mpi),
    };

    /* Where there is room for windows. */
    if (setenv(FOLDER, "/tmp", 1) != 0) {
        return 1;
    }
    return cmocka_run_group_tests_name("mpi_calls", tests, NULL, NULL);
}
