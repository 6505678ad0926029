#include "tests/checks.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/random.h"
#include "collectives/comm.h"

enum { RANKS_MAX = 64, CAPACITY = 12000, LONGEST = 70000 };

static void fill_bytes(unsigned char *bytes, size_t count, int key)
{
    for (size_t i = 0; i < count; i++) {
        bytes[i] = (unsigned char)(i * 7 + (size_t)key * 31 + 1);
    }
}

static size_t wrong_bytes(const unsigned char *bytes, size_t count, int key)
{
    size_t wrong = 0;

    for (size_t i = 0; i < count; i++) {
        wrong += bytes[i] != (unsigned char)(i * 7 + (size_t)key * 31 + 1);
    }
    return wrong;
}

/* Bytes that rank `rank` sends in round `round`: 0 for some, longer than any buffer for others. */
static size_t message_bytes(int rank, int round)
{
    static const size_t bytes[] = {0, 1, 5, 4096, LONGEST};

    return bytes[(size_t)(rank + round) % (sizeof(bytes) / sizeof(bytes[0]))];
}

size_t check_exchange(struct dp_group *group, const void *unused)
{
    const int size = group->size, rank = group->rank;
    const int next = (rank + 1) % size, prev = (rank + size - 1) % size;
    unsigned char *out = dp_zalloc(1, LONGEST), *in = dp_zalloc(1, LONGEST);
    size_t wrong = out == NULL || in == NULL;

    (void)unused;
    for (int round = 0; round < 5 && size > 1 && wrong == 0; round++) {
        const size_t sent = message_bytes(rank, round), got = message_bytes(prev, round);
        const struct dp_slice to = {out, sent, 1}, from = {in, got, 1}, nothing = {NULL, 0, 1};
        fill_bytes(out, sent, rank + round);
        memset(in, 0, LONGEST);
        wrong += dp_group_exchange(group, next, to, prev, from) != DP_OK;
        wrong += wrong_bytes(in, got, prev + round);
        /* One way: even ranks send on, then odd ones; of an odd number the last one is left out. */
        for (int turn = 0; turn < 2; turn++) {
            const bool sends = rank % 2 == turn && (size % 2 == 0 || rank != size - 1);
            const bool gets = prev % 2 == turn && (size % 2 == 0 || prev != size - 1);
            memset(in, 0, LONGEST);
            wrong += sends && dp_group_exchange(group, next, to, -1, nothing) != DP_OK;
            wrong += gets && dp_group_exchange(group, -1, nothing, prev, from) != DP_OK;
            wrong += gets ? wrong_bytes(in, got, prev + round) : 0;
        }
    }
    dp_free(in);
    dp_free(out);
    return wrong;
}

/* Many messages under way at once, of all lengths, in both directions; a barrier overtakes them, and
 * they are finished in any order. */
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

/* Behind a barrier everybody sees what all others wrote in front of it. */
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
    static const size_t sizes[] = {0, 1, 5, 4096};
    unsigned char mine[4096];
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

/* Agrees, and returns whether all ranks came to `expected`. */
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
        /* Two ranks with different troubles: all leave with the same one. */
        const bool other = group->rank == (failing + 1) % group->size;
        const dp_status worst = DP_ERR_NOMEM > DP_ERR_DATA ? DP_ERR_NOMEM : DP_ERR_DATA;
        const dp_status trouble = mine ? DP_ERR_NOMEM : other ? DP_ERR_DATA : DP_OK;
        wrong += agree_once(group, trouble, group->size == 1 ? DP_ERR_NOMEM : worst);
    }
    return wrong;
}

/* Takes memory, shows this rank's number to all, and looks at everybody's. */
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
    /* More often than there are places for memory: they are used again. */
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
    return check_exchange(group, unused) + check_transfers(group, unused) +
           check_barrier(group, unused) + check_broadcast(group, unused) +
           check_allgather(group, unused) + check_agree(group, unused) +
           check_memory(group, unused) + check_node_memory(group, unused);
}

float tree_sum(int first, int count, size_t i, /* NOLINT(misc-no-recursion) */
               float (*value)(int rank, size_t i))
{
    int left = 1;

    if (count == 1) {
        return value(first, i);
    }
    while (2 * left < count) {
        left *= 2;
    }
    const float a = tree_sum(first, left, i, value);
    const float b = tree_sum(first + left, count - left, i, value);
    return a + b;
}

/* Small integers: their sum is exact in float32 in any order, so equality is the right check. */
static float integer_value(int rank, size_t i)
{
    return (float)((i + 3 * (size_t)rank) % 17);
}

/* Random numbers of very different sizes: another order of adding gives other bits. */
static float random_value(int rank, size_t i)
{
    const uint32_t bits = dp_random_u32(11, DP_RANDOM_TEST, (uint32_t)rank, i);

    return (dp_random_unit(bits) - 0.5f) * (float)(1u << (bits & 15));
}

struct sums {
    const char *text; /* the strategy's */
    struct dp_comm *comm;
    float *memory; /* [CAPACITY] from dp_group_memory */
    struct dp_slice slice;
    enum dp_keep keep;
    float (*value)(int rank, size_t i);
    bool exact; /* the path of the tail */
};

/* Outside of the slice lie numbers that nobody may touch. */
static float untouched(int rank, size_t i)
{
    return -1000.0f * (float)(rank + 1) - (float)i;
}

/* Where the slice begins, and up to where memory is looked at. */
static size_t begin_of(const struct sums *s, size_t *end)
{
    const size_t begin = (size_t)((float *)s->slice.data - s->memory);
    const size_t behind = begin + s->slice.count + 4 * (size_t)DP_BLOCK;

    *end = behind < CAPACITY ? behind : CAPACITY;
    return begin;
}

static dp_status sum_once(struct sums *s)
{
    const int rank = s->comm->group->rank;
    size_t end;
    const size_t begin = begin_of(s, &end);

    for (size_t i = 0; i < end; i++) {
        const bool inside = i >= begin && i < begin + s->slice.count;
        s->memory[i] = inside ? s->value(rank, i) : untouched(rank, i);
    }
    return s->exact ? dp_comm_sum_exact(s->comm, s->slice)
                    : dp_comm_sum(s->comm, s->slice, s->keep);
}

/* Wrong elements behind sum_once: of the part that this rank keeps, and of what lies outside. */
static size_t wrong_elements(const struct sums *s)
{
    const struct dp_group *group = s->comm->group;
    const struct dp_slice kept =
        s->keep == DP_KEEP_ALL ? s->slice : dp_slice_chunk(s->slice, group->size, group->rank);
    const size_t from = (size_t)((float *)kept.data - s->memory);
    size_t wrong = 0, end;
    const size_t begin = begin_of(s, &end);

    for (size_t i = 0; i < end; i++) {
        if (i >= from && i < from + kept.count) {
            wrong += s->memory[i] != tree_sum(0, group->size, i, s->value);
        } else if (i < begin || i >= begin + s->slice.count) {
            wrong += s->memory[i] != untouched(group->rank, i);
        }
    }
    return wrong;
}

static size_t check_counts(struct sums *s)
{
    static const size_t counts[] = {0, 1, 3, 63, 64, 65, 1000, 11001};
    static const size_t blocks[] = {0, 1, 7};
    size_t wrong = 0;

    for (size_t n = 0; n < sizeof(counts) / sizeof(counts[0]); n++) {
        for (size_t at = 0; at < 6; at++) {
            s->slice =
                (struct dp_slice){s->memory + blocks[at / 2] * DP_BLOCK, counts[n], sizeof(float)};
            s->keep = at % 2 == 0 ? DP_KEEP_ALL : DP_KEEP_CHUNK;
            wrong += sum_once(s) != DP_OK;
            wrong += wrong_elements(s);
        }
    }
    return wrong;
}

/* The buffer is rewritten at once behind each sum: nobody may still be reading it. */
static size_t check_repeated(struct sums *s)
{
    size_t wrong = 0;

    s->keep = DP_KEEP_ALL;
    for (size_t round = 0; round < 100; round++) {
        s->slice = (struct dp_slice){s->memory + round % 9 * DP_BLOCK, 700 + round, sizeof(float)};
        wrong += sum_once(s) != DP_OK;
        wrong += wrong_elements(s);
    }
    return wrong;
}

/* All ranks hold the same bits, whatever the order of adding. */
static size_t check_same_bits(struct sums *s)
{
    const struct dp_group *group = s->comm->group;
    const size_t bytes = 1000 * sizeof(float);
    char *all = dp_zalloc((size_t)group->size, bytes);
    size_t wrong = all == NULL;

    s->slice = (struct dp_slice){s->memory + DP_BLOCK, 1000, sizeof(float)};
    s->keep = DP_KEEP_ALL;
    s->value = random_value;
    if (all == NULL || sum_once(s) != DP_OK ||
        dp_group_allgather(s->comm->group, s->slice.data, bytes, all) != DP_OK) {
        dp_free(all);
        return 1;
    }
    for (int i = 1; i < group->size; i++) {
        wrong += memcmp(all, all + (size_t)i * bytes, bytes) != 0;
    }
    dp_free(all);
    return wrong;
}

/* The chunk that a rank keeps has the bits that it has in the whole sum: what zero1 builds on. */
static size_t check_chunk_bits(struct sums *s)
{
    const struct dp_group *group = s->comm->group;
    const struct dp_slice slice = {s->memory + DP_BLOCK, 1000, sizeof(float)};
    const struct dp_slice mine = dp_slice_chunk(slice, group->size, group->rank);
    float whole[1000];
    size_t wrong = 0;

    s->slice = slice;
    s->value = random_value;
    s->keep = DP_KEEP_ALL;
    wrong += sum_once(s) != DP_OK;
    memcpy(whole, mine.data, dp_slice_bytes(mine));
    s->keep = DP_KEEP_CHUNK;
    wrong += sum_once(s) != DP_OK;
    return wrong + (memcmp(whole, mine.data, dp_slice_bytes(mine)) != 0);
}

/* Every rank has filled in its own chunk; behind a gather all have all of it, and nothing else has
 * changed. */
static size_t check_gather(struct sums *s)
{
    static const size_t counts[] = {0, 1, 65, 1000, 11001};
    const struct dp_group *group = s->comm->group;
    size_t wrong = 0, end;

    for (size_t n = 0; n < sizeof(counts) / sizeof(counts[0]); n++) {
        s->slice = (struct dp_slice){s->memory + DP_BLOCK, counts[n], sizeof(float)};
        const struct dp_slice mine = dp_slice_chunk(s->slice, group->size, group->rank);
        const size_t from = (size_t)((float *)mine.data - s->memory);
        const size_t begin = begin_of(s, &end);
        for (size_t i = 0; i < end; i++) {
            const bool own = i >= from && i < from + mine.count;
            s->memory[i] = own ? random_value(99, i) : untouched(group->rank, i);
        }
        wrong += dp_comm_gather(s->comm, s->slice) != DP_OK;
        for (size_t i = 0; i < end; i++) {
            const bool inside = i >= begin && i < begin + counts[n];
            wrong += s->memory[i] != (inside ? random_value(99, i) : untouched(group->rank, i));
        }
    }
    return wrong;
}

static int lg(int ranks)
{
    int steps = 0;

    while (1 << (steps + 1) <= ranks) {
        steps++;
    }
    return steps;
}

/* What each strategy sends from all ranks together, in units of the slice: the volume of the
 * formulas in the literature. Ranks beyond a power of two send all and get all once more. */
static double volume_least(int ranks)
{
    return 2.0 * (ranks - 1);
}

static double volume_shm(int ranks)
{
    return ranks - 1;
}

static const struct volume {
    const char *name;
    double (*of)(int ranks);
} volumes[] = {
    {"shm", volume_shm},
    {"ring", volume_least},
    {"mpi", volume_least},
};

static size_t check_wire(struct sums *s)
{
    struct dp_group *group = s->comm->group;
    const size_t count = (size_t)lg(RANKS_MAX) * DP_BLOCK * (size_t)group->size;
    uint64_t mine = group->wire_bytes, each[RANKS_MAX] = {0}, all = 0;
    double expected = -1.0;

    for (size_t i = 0; i < sizeof(volumes) / sizeof(volumes[0]); i++) {
        if (strcmp(volumes[i].name, s->comm->strategy->plugin.name) == 0) {
            expected = volumes[i].of(group->size) * (double)count * sizeof(float);
        }
    }
    s->slice = (struct dp_slice){s->memory, count, sizeof(float)};
    s->keep = DP_KEEP_ALL;
    if (sum_once(s) != DP_OK) {
        return 1;
    }
    mine = group->wire_bytes - mine;
    if (dp_group_allgather(group, &mine, sizeof(mine), each) != DP_OK) {
        return 1;
    }
    for (int i = 0; i < group->size; i++) {
        all += each[i];
    }
    return (double)all != expected;
}

static size_t check_sums(struct sums *s)
{
    size_t wrong = 0;

    const bool ordered = dp_comm_ordered(s->comm);

    s->value = integer_value;
    wrong += check_counts(s) + check_repeated(s) + check_same_bits(s);
    wrong += check_chunk_bits(s) + check_gather(s) + check_wire(s);
    wrong += dp_strategy_ordered(s->text, s->comm->group) != ordered;
    if (ordered) {
        s->value = random_value;
        wrong += check_counts(s);
    }
    s->exact = true;
    s->value = ordered ? random_value : integer_value;
    return wrong + check_repeated(s);
}

/* A strategy without a sum leaves gradients alone, and still sums the tail. */
static size_t check_none(struct sums *s)
{
    size_t wrong = 0;

    s->value = random_value;
    s->slice = (struct dp_slice){s->memory + DP_BLOCK, 1000, sizeof(float)};
    wrong += sum_once(s) != DP_OK;
    for (size_t i = 0; i < 1000; i++) {
        wrong += s->memory[DP_BLOCK + i] != random_value(s->comm->group->rank, DP_BLOCK + i);
    }
    s->exact = true;
    return wrong + check_repeated(s);
}

/* Which strategies this group can run, and that the others are refused as documented. */
static size_t check_refused(struct dp_group *group, const char *name)
{
    struct dp_comm *comm = NULL;
    const int errors = dp_log_errors();
    const dp_status status = dp_comm_create(group, name, CAPACITY, CAPACITY, &comm);

    return status != DP_ERR_UNAVAILABLE || comm != NULL || dp_log_errors() <= errors;
}

size_t check_strategy(struct dp_group *group, const void *name)
{
    const struct dp_strategy *strategy =
        (const struct dp_strategy *)dp_plugin_find(&dp_strategies, name, strcspn(name, ":"));
    struct sums s = {.text = name};
    const char *why_not = NULL;
    size_t wrong;

    if (strategy == NULL) {
        return 1;
    }
    if (!strategy->supports(group, &why_not)) {
        return check_refused(group, name) + (why_not == NULL);
    }
    s.memory = dp_group_memory(group, DP_MEM_GRADIENTS, CAPACITY * sizeof(float));
    if (s.memory == NULL || dp_comm_create(group, name, CAPACITY, CAPACITY, &s.comm) != DP_OK) {
        dp_group_release(group, s.memory);
        return 1;
    }
    wrong = strategy->sum == NULL ? check_none(&s) : check_sums(&s);
    dp_comm_destroy(s.comm);
    dp_group_release(group, s.memory);
    return wrong;
}
