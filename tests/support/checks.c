#include "tests/support/checks.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "collectives/core/transport.h"

/* A message of PIECES is sent in more pieces than may be in flight. */
enum { RANKS_MAX = 64, LONGEST = 70000, PIECES = 2700001 };

/* What byte i is; no two pieces of a message are alike. */
static unsigned char byte_at(size_t i, int key)
{
    return (unsigned char)(i * 7 + (i >> 8) * 13 + (i >> 16) * 29 + (size_t)key * 31 + 1);
}

/* All that 256 bytes from a multiple of 256 on can be: they grow by 7, from any first one. Copied
 * and compared as a whole, since a sanitizer looks at each access. */
enum { ROW = 256 };

static unsigned char rows[256][ROW];
static pthread_once_t rows_made = PTHREAD_ONCE_INIT;

static void make_rows(void)
{
    for (size_t first = 0; first < 256; first++) {
        for (size_t i = 0; i < ROW; i++) {
            rows[first][i] = (unsigned char)(first + i * 7);
        }
    }
}

static void fill_bytes(unsigned char *bytes, size_t count, int key)
{
    (void)pthread_once(&rows_made, make_rows);
    for (size_t i = 0; i < count; i += ROW) {
        memcpy(bytes + i, rows[byte_at(i, key)], count - i < ROW ? count - i : ROW);
    }
}

/* Parts of 256 bytes that are not as they should be. */
static size_t wrong_bytes(const unsigned char *bytes, size_t count, int key)
{
    size_t wrong = 0;

    (void)pthread_once(&rows_made, make_rows);
    for (size_t i = 0; i < count; i += ROW) {
        wrong += memcmp(bytes + i, rows[byte_at(i, key)], count - i < ROW ? count - i : ROW) != 0;
    }
    return wrong;
}

/* Bytes that rank `rank` sends in round `round`: 0 for some, longer than any buffer for others. */
static size_t message_bytes(int rank, int round)
{
    static const size_t bytes[] = {0, 1, 5, 4096, LONGEST, PIECES};

    return bytes[(size_t)(rank + round) % (sizeof(bytes) / sizeof(bytes[0]))];
}

size_t check_exchange(struct dp_group *group, const void *unused)
{
    const int size = group->size, rank = group->rank;
    const int next = (rank + 1) % size, prev = (rank + size - 1) % size;
    unsigned char *out = dp_zalloc(1, PIECES), *in = dp_zalloc(1, PIECES);
    size_t wrong = out == NULL || in == NULL;

    (void)unused;
    for (int round = 0; round < 6 && size > 1 && wrong == 0; round++) {
        const size_t sent = message_bytes(rank, round), got = message_bytes(prev, round);
        const struct dp_slice to = {out, sent, 1}, from = {in, got, 1}, nothing = {NULL, 0, 1};
        fill_bytes(out, sent, rank + round);
        memset(in, 0, PIECES);
        wrong += dp_group_exchange(group, next, to, prev, from) != DP_OK;
        wrong += wrong_bytes(in, got, prev + round);
        /* One way: even ranks send on, then odd ones; of an odd number the last one is left out. */
        for (int turn = 0; turn < 2; turn++) {
            const bool sends = rank % 2 == turn && (size % 2 == 0 || rank != size - 1);
            const bool gets = prev % 2 == turn && (size % 2 == 0 || prev != size - 1);
            memset(in, 0, PIECES);
            wrong += sends && dp_group_exchange(group, next, to, -1, nothing) != DP_OK;
            wrong += gets && dp_group_exchange(group, -1, nothing, prev, from) != DP_OK;
            wrong += gets ? wrong_bytes(in, got, prev + round) : 0;
        }
    }
    dp_free(in);
    dp_free(out);
    return wrong;
}

/* Many messages in flight, of all lengths, in both directions; a barrier overtakes them, and they
 * are finished in any order. */
size_t check_transfers(struct dp_group *group, const void *unused)
{
    enum { MANY = DP_TRANSFERS_MAX - 8, BYTES = 5000 };
    const int size = group->size, rank = group->rank;
    const int next = (rank + 1) % size, prev = (rank + size - 1) % size;
    unsigned char *out = dp_zalloc(MANY, BYTES), *in = dp_zalloc(MANY, BYTES);
    struct dp_transfer transfers[MANY];
    const uint64_t wire = group->wire_bytes;
    size_t wrong = out == NULL || in == NULL, sent = 0;

    (void)unused;
    for (int i = 0; i < MANY && size > 1 && wrong == 0; i++) {
        const size_t bytes = (size_t)i % 3 * (BYTES / 3) + (size_t)i;
        const struct dp_slice to = {out + (size_t)i * BYTES, bytes, 1};
        const struct dp_slice from = {in + (size_t)i * BYTES, bytes, 1};
        fill_bytes(to.data, bytes, rank + i);
        wrong += dp_group_start(group, i % 5 == 4 ? -1 : next, to, i % 5 == 4 ? -1 : prev, from,
                                &transfers[i]) != DP_OK;
        sent += i % 5 == 4 ? 0 : bytes;
    }
    wrong += wrong == 0 && size > 1 && group->wire_bytes - wire != sent;
    wrong += wrong == 0 && dp_group_barrier(group) != DP_OK;
    for (int k = 0; k < 2 * MANY && size > 1 && wrong == 0; k++) {
        const int i = k * 7 % MANY; /* each twice: the second finish does nothing */
        const size_t bytes = i % 5 == 4 ? 0 : (size_t)i % 3 * (BYTES / 3) + (size_t)i;
        wrong += dp_group_finish(group, &transfers[i]) != DP_OK;
        wrong += wrong_bytes(in + (size_t)i * BYTES, bytes, prev + i);
    }
    dp_free(in);
    dp_free(out);
    return wrong;
}

/* Which of transfers [1, count] is done, the first to be. */
static int first_done(struct dp_group *group, struct dp_transfer *transfers, int count)
{
    for (int i = 1;; i = i % count + 1) {
        bool done = false;
        if (dp_group_test(group, &transfers[i], &done) != DP_OK) {
            return -1;
        }
        if (done) {
            return i;
        }
    }
}

/* Testing does not wait, and finishes transfers that are done. Ranks send in reverse order, each
 * when rank 0 allows it. */
size_t check_tests(struct dp_group *group, const void *unused)
{
    enum { MOST = 64 };
    const struct dp_slice nothing = {NULL, 0, 1};
    const int size = group->size;
    struct dp_transfer come[MOST];
    int got[MOST] = {0}, mine = group->rank + 5;
    const struct dp_slice out = {&mine, sizeof(mine), 1}, go = {NULL, 0, 1};
    size_t wrong = size > MOST;
    bool done = true;

    (void)unused;
    if (group->rank > 0) {
        wrong += dp_group_exchange(group, -1, nothing, 0, go) != DP_OK;
        return wrong + (dp_group_exchange(group, 0, out, -1, nothing) != DP_OK);
    }
    for (int i = 1; i < size && wrong == 0; i++) {
        wrong += dp_group_start(group, -1, nothing, i, (struct dp_slice){&got[i], sizeof(int), 1},
                                &come[i]) != DP_OK;
    }
    for (int i = size - 1; i > 0 && wrong == 0; i--) {
        wrong += dp_group_test(group, &come[i], &done) != DP_OK || done;
        wrong += dp_group_exchange(group, i, go, -1, nothing) != DP_OK;
        /* Those of higher ranks are done already, and are left out. */
        wrong += wrong == 0 && (first_done(group, come, i) != i || got[i] != i + 5);
        wrong += dp_group_test(group, &come[i], &done) != DP_OK || !done;
        wrong += dp_group_finish(group, &come[i]) != DP_OK;
    }
    return wrong;
}

/* After a barrier every rank sees what all others wrote before it. */
size_t check_barrier(struct dp_group *group, const void *unused)
{
    atomic_int *mine = dp_group_memory(group, DP_MEM_COMM, sizeof(*mine));
    size_t wrong = mine == NULL;

    (void)unused;
    for (int round = 1; round <= 50 && wrong == 0; round++) {
        atomic_store_explicit(mine, round, memory_order_relaxed);
        wrong += dp_group_barrier(group) != DP_OK;
        for (int i = 0; i < group->size; i++) {
            const atomic_int *theirs = i == group->rank ? mine : dp_group_peer(group, mine, i);
            wrong += theirs != NULL && atomic_load_explicit(theirs, memory_order_relaxed) < round;
        }
    }
    wrong += dp_group_barrier(group) != DP_OK;
    dp_group_release(group, mine);
    return wrong;
}

size_t check_broadcast(struct dp_group *group, const void *unused)
{
    static const size_t sizes[] = {0, 1, 1000, LONGEST};
    unsigned char *data = dp_zalloc(1, LONGEST);
    size_t wrong = data == NULL;

    (void)unused;
    for (int root = 0; root < group->size && wrong == 0; root++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            memset(data, 0, LONGEST);
            if (group->rank == root) {
                fill_bytes(data, sizes[i], root);
            }
            wrong += dp_group_broadcast(group, data, sizes[i], root) != DP_OK;
            wrong += wrong_bytes(data, sizes[i], root);
            wrong += sizes[i] < LONGEST && data[sizes[i]] != 0;
        }
    }
    dp_free(data);
    return wrong;
}

size_t check_allgather(struct dp_group *group, const void *unused)
{
    static const size_t sizes[] = {0, 1, 5, 4096, 16384};
    unsigned char mine[16384];
    unsigned char *all = dp_zalloc((size_t)group->size, sizeof(mine));
    size_t wrong = all == NULL;

    (void)unused;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && wrong == 0; i++) {
        fill_bytes(mine, sizes[i], group->rank);
        memset(all, 0, (size_t)group->size * sizeof(mine));
        wrong += dp_group_allgather(group, mine, sizes[i], all) != DP_OK;
        for (int rank = 0; rank < group->size; rank++) {
            wrong += wrong_bytes(all + (size_t)rank * sizes[i], sizes[i], rank);
        }
    }
    dp_free(all);
    return wrong;
}

/* To rank 0; several times, since what passes through others must not stay there. */
static size_t check_gather(struct dp_group *group, const void *unused)
{
    static const size_t sizes[] = {0, 1, 5, 4096};
    unsigned char mine[4096];
    unsigned char *all = dp_zalloc((size_t)group->size, sizeof(mine));
    size_t wrong = all == NULL;

    (void)unused;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && wrong == 0; i++) {
        fill_bytes(mine, sizes[i], group->rank);
        wrong += dp_group_gather(group, mine, sizes[i], group->rank == 0 ? all : NULL) != DP_OK;
        for (int rank = 0; rank < group->size && group->rank == 0; rank++) {
            wrong += wrong_bytes(all + (size_t)rank * sizes[i], sizes[i], rank);
        }
    }
    dp_free(all);
    return wrong;
}

/* Among ranks of a node, again and again: no rank may see what another shows next. */
/* A part of the group comes and goes. */
static size_t wrong_part(struct dp_group *group)
{
    struct dp_group *part = NULL;
    const size_t wrong = dp_group_sub_create(group, &group->rank, 1, &part) != DP_OK;

    dp_group_destroy(part);
    return wrong;
}

static size_t check_gather_node(struct dp_group *group, const void *unused)
{
    unsigned char mine[DP_NODE_RECORD];
    unsigned char *all = dp_zalloc((size_t)group->size, sizeof(mine));
    size_t wrong = all == NULL;

    (void)unused;
    for (int turn = 0; turn < 20 && wrong == 0; turn++) {
        wrong += turn == 10 ? wrong_part(group) : 0;
        fill_bytes(mine, sizeof(mine), group->rank + turn);
        wrong += dp_group_gather_node(group, mine, sizeof(mine), all) != DP_OK;
        for (int rank = 0; rank < group->size; rank++) {
            if (group->node_of[rank] == group->node_of[group->rank]) {
                wrong += wrong_bytes(all + (size_t)rank * sizeof(mine), sizeof(mine), rank + turn);
            }
        }
    }
    dp_free(all);
    return wrong;
}

/* Agrees, and returns whether all ranks got `expected`. */
static size_t agree_once(struct dp_group *group, dp_status mine, dp_status expected)
{
    return dp_group_agree(group, mine) != expected;
}

size_t check_agree(struct dp_group *group, const void *unused)
{
    size_t wrong = agree_once(group, DP_OK, DP_OK);

    (void)unused;
    for (int failing = 0; failing < group->size; failing++) {
        const bool mine = group->rank == failing;
        wrong += agree_once(group, mine ? DP_ERR_NOMEM : DP_OK, DP_ERR_NOMEM);
        /* Two ranks with different errors: all leave with the same one. */
        const bool other = group->rank == (failing + 1) % group->size;
        const dp_status worst = DP_ERR_NOMEM > DP_ERR_DATA ? DP_ERR_NOMEM : DP_ERR_DATA;
        const dp_status trouble = mine ? DP_ERR_NOMEM : other ? DP_ERR_DATA : DP_OK;
        wrong += agree_once(group, trouble, group->size == 1 ? DP_ERR_NOMEM : worst);
    }
    return wrong;
}

/* Allocates memory, writes this rank's number, and reads those of all. */
static size_t memory_once(struct dp_group *group, size_t bytes)
{
    const bool one_node = dp_group_one_node(group);
    unsigned char *memory = dp_group_memory(group, DP_MEM_COMM, bytes);
    size_t wrong = memory == NULL || (uintptr_t)memory % DP_MEM_ALIGN != 0;

    if (memory == NULL) {
        return 1;
    }
    for (size_t i = 0; i < bytes; i++) {
        wrong += memory[i] != 0;
    }
    fill_bytes(memory, bytes, group->rank);
    wrong += dp_group_barrier(group) != DP_OK;
    for (int i = 0; i < group->size && bytes > 0; i++) {
        const unsigned char *theirs = dp_group_peer(group, memory, i);
        const unsigned char *last = dp_group_peer(group, memory + bytes - 1, i);
        wrong += one_node && theirs == NULL;
        wrong += theirs != NULL && (last != theirs + bytes - 1 || wrong_bytes(theirs, bytes, i));
    }
    wrong += dp_group_peer(group, &wrong, 0) != NULL; /* memory of nobody's */
    wrong += dp_group_barrier(group) != DP_OK;
    dp_group_release(group, memory);
    return wrong;
}

size_t check_memory(struct dp_group *group, const void *unused)
{
    void *held = dp_group_memory(group, DP_MEM_COMM, 100);
    size_t wrong = held == NULL;

    (void)unused;
    wrong += dp_group_reaches(group, held) != (dp_group_one_node(group) && !group->unshared);
    wrong += group->size > 1 && dp_group_reaches(group, &wrong); /* of this rank alone */
    /* More often than there are slots for memory, which are reused. */
    for (int round = 0; round < 70 && wrong == 0; round++) {
        wrong += memory_once(group, round == 0 ? 40000 : (size_t)round % 3 * 100);
    }
    dp_group_release(group, held);
    dp_group_release(group, NULL);
    return wrong;
}

size_t check_node_memory(struct dp_group *group, const void *unused)
{
    struct dp_node_memory memory = {NULL, NULL, false};
    bool writers[RANKS_MAX];
    size_t wrong = 0, count = 0;

    (void)unused;
    if (group->size > RANKS_MAX ||
        dp_group_node_memory(group, DP_MEM_DATA, 5000, &memory) != DP_OK) {
        return 1;
    }
    if (memory.writer) {
        fill_bytes(memory.data, 5000, 3);
    }
    wrong += dp_group_barrier(group) != DP_OK;
    wrong += wrong_bytes(memory.data, 5000, 3);
    wrong += dp_group_allgather(group, &memory.writer, sizeof(bool), writers) != DP_OK;
    for (int i = 0; i < group->size && wrong == 0; i++) {
        count += writers[i];
    }
    wrong += count != (size_t)group->nodes; /* one copy on each node */
    dp_group_release_node(group, &memory);
    wrong += memory.data != NULL;
    dp_group_release_node(group, &memory);
    return wrong;
}

size_t check_group(struct dp_group *group, const void *unused)
{
    static const struct {
        const char *name;
        size_t (*check)(struct dp_group *group, const void *unused);
    } checks[] = {
        {"exchange", check_exchange},
        {"transfers", check_transfers},
        {"tests", check_tests},
        {"barrier", check_barrier},
        {"broadcast", check_broadcast},
        {"allgather", check_allgather},
        {"gather", check_gather},
        {"gather on nodes", check_gather_node},
        {"agree", check_agree},
        {"memory", check_memory},
        {"node memory", check_node_memory},
    };
    size_t wrong = 0;

    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        const size_t found = checks[i].check(group, unused);
        if (found > 0) {
            (void)fprintf(stderr, "group, rank %d of %d: %s: %zu wrong\n", group->rank, group->size,
                          checks[i].name, found);
        }
        wrong += found;
    }
    return wrong;
}
