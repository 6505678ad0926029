#include "tests/support/strategies/strategy_checks.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/random.h"
#include "collectives/gpu/gpu_peers.h"
#include "collectives/strategies/comm.h"
#include "tests/support/strategies/strategy_traffic.h"
#include "tests/support/tested_device.h"

enum { CAPACITY = 12000, MOST_RANKS = 8 };

/* What ranks add. */
enum numbers { INTEGERS, RANDOM, NUMBERS };

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

/* All numbers of all ranks, and their sums by the tree over the first ranks: every check of every
 * rank compares with them. */
static float values[NUMBERS][MOST_RANKS][CAPACITY];
static float tree_sums[NUMBERS][MOST_RANKS + 1][CAPACITY];
static float gathered[CAPACITY];          /* other random numbers */
static float marks[MOST_RANKS][CAPACITY]; /* outside the slice, where nothing may change */

static void make_numbers(void)
{
    static float (*const value_of[NUMBERS])(int rank, size_t i) = {integer_value, random_value};

    for (int n = 0; n < NUMBERS; n++) {
        for (size_t i = 0; i < CAPACITY; i++) {
            for (int r = 0; r < MOST_RANKS; r++) {
                values[n][r][i] = value_of[n](r, i);
                tree_sums[n][r + 1][i] = tree_sum(0, r + 1, i, value_of[n]);
            }
        }
    }
    for (size_t i = 0; i < CAPACITY; i++) {
        gathered[i] = random_value(MOST_RANKS, i);
        for (int r = 0; r < MOST_RANKS; r++) {
            marks[r][i] = -1000.0f * (float)(r + 1) - (float)i;
        }
    }
}

struct sums {
    const char *text; /* the strategy's */
    struct dp_comm *comm;
    float *memory; /* [CAPACITY] from dp_group_memory */
    float *there;  /* [CAPACITY] from dp_gpu_peers_memory, for strategies on GPUs; else NULL */
    struct dp_slice slice;
    enum dp_keep keep;
    enum numbers numbers;
    bool exact; /* the path of the tail */
};

/* The begin of the slice, and the end of the checked memory. */
static size_t begin_of(const struct sums *s, size_t *end)
{
    const size_t begin = (size_t)((float *)s->slice.data - s->memory);
    const size_t after = begin + s->slice.count + 4 * (size_t)DP_BLOCK;

    *end = after < CAPACITY ? after : CAPACITY;
    return begin;
}

static dp_status move(const struct sums *s, bool there)
{
    const struct dp_gpu_peers *gpus = s->comm->group->gpus;
    const size_t bytes = CAPACITY * sizeof(float);

    if (s->there == NULL) {
        return DP_OK;
    }
    return there ? dp_device_write(gpus->stream, s->there, s->memory, bytes)
                 : dp_device_read(gpus->stream, s->memory, s->there, bytes);
}

/* The slice, where the strategy wants it. */
static struct dp_slice placed(const struct sums *s)
{
    struct dp_slice slice = s->slice;

    if (s->there != NULL) {
        slice.data = s->there + ((float *)slice.data - s->memory);
    }
    return slice;
}

/* Both take ranges as a whole, since a sanitizer looks at each access of a loop. */
static void copy_range(const struct sums *s, const float *from, size_t begin, size_t end)
{
    if (begin < end) {
        memcpy(s->memory + begin, from + begin, (end - begin) * sizeof(float));
    }
}

static size_t wrong_in_range(const struct sums *s, const float *expected, size_t begin, size_t end)
{
    size_t wrong = 0;

    if (begin >= end ||
        memcmp(s->memory + begin, expected + begin, (end - begin) * sizeof(float)) == 0) {
        return 0;
    }
    for (size_t i = begin; i < end; i++) {
        wrong += s->memory[i] != expected[i];
    }
    return wrong;
}

static dp_status sum_once(struct sums *s)
{
    const int rank = s->comm->group->rank;
    size_t end;
    const size_t begin = begin_of(s, &end);

    copy_range(s, marks[rank], 0, begin);
    copy_range(s, values[s->numbers][rank], begin, begin + s->slice.count);
    copy_range(s, marks[rank], begin + s->slice.count, end);
    DP_TRY(move(s, true));
    DP_TRY(s->exact ? dp_comm_sum_exact(s->comm, placed(s))
                    : dp_comm_sum(s->comm, placed(s), s->keep));
    return move(s, false);
}

/* Wrong elements after sum_once: of the part that this rank keeps, and of what lies outside. */
static size_t wrong_elements(const struct sums *s)
{
    const struct dp_group *group = s->comm->group;
    const struct dp_slice kept =
        s->keep == DP_KEEP_ALL ? s->slice : dp_slice_chunk(s->slice, group->size, group->rank);
    const size_t from = (size_t)((float *)kept.data - s->memory);
    size_t end;
    const size_t begin = begin_of(s, &end);

    return wrong_in_range(s, tree_sums[s->numbers][group->size], from, from + kept.count) +
           wrong_in_range(s, marks[group->rank], 0, begin) +
           wrong_in_range(s, marks[group->rank], begin + s->slice.count, end);
}

static size_t check_counts(struct sums *s)
{
    static const size_t counts[] = {0, 1, 3, 63, 64, 65, 1000, 11001};
    static const size_t blocks[] = {0, 1, 7};
    size_t wrong = 0;

    for (size_t n = 0; n < sizeof(counts) / sizeof(counts[0]); n++) {
        for (size_t at = 0; at < (counts[n] > 1000 ? 2 : 6); at++) {
            s->slice =
                (struct dp_slice){s->memory + blocks[at / 2] * DP_BLOCK, counts[n], sizeof(float)};
            s->keep = at % 2 == 0 ? DP_KEEP_ALL : DP_KEEP_CHUNK;
            wrong += sum_once(s) != DP_OK;
            wrong += wrong_elements(s);
        }
    }
    return wrong;
}

/* The buffer is rewritten at once after each sum: no rank may still read it. */
static size_t check_repeated(struct sums *s)
{
    size_t wrong = 0;

    s->keep = DP_KEEP_ALL;
    for (size_t round = 0; round < 40; round++) {
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
    s->numbers = RANDOM;
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

/* The chunk that a rank keeps has the bits of the whole sum, on which zero1 relies. */
static size_t check_chunk_bits(struct sums *s)
{
    const struct dp_group *group = s->comm->group;
    const struct dp_slice slice = {s->memory + DP_BLOCK, 1000, sizeof(float)};
    const struct dp_slice mine = dp_slice_chunk(slice, group->size, group->rank);
    float whole[1000];
    size_t wrong = 0;

    s->slice = slice;
    s->numbers = RANDOM;
    s->keep = DP_KEEP_ALL;
    wrong += sum_once(s) != DP_OK;
    memcpy(whole, mine.data, dp_slice_bytes(mine));
    s->keep = DP_KEEP_CHUNK;
    wrong += sum_once(s) != DP_OK;
    return wrong + (memcmp(whole, mine.data, dp_slice_bytes(mine)) != 0);
}

/* Every rank has filled in its own chunk; after a gather all have all of it, and nothing else has
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
        copy_range(s, marks[group->rank], 0, end);
        copy_range(s, gathered, from, from + mine.count);
        wrong += move(s, true) != DP_OK || dp_comm_gather(s->comm, placed(s)) != DP_OK ||
                 move(s, false) != DP_OK;
        wrong += wrong_in_range(s, gathered, begin, begin + counts[n]);
        wrong += wrong_in_range(s, marks[group->rank], 0, begin);
        wrong += wrong_in_range(s, marks[group->rank], begin + counts[n], end);
    }
    return wrong;
}

/* Sends as many bytes as its literature says, and to the right ranks. */
static size_t check_traffic(struct sums *s)
{
    struct dp_group *group = s->comm->group;
    const struct traffic *row = traffic_of(s->text);
    const bool records = row != NULL && row->sent != NULL;
    const size_t count = traffic_count(group->size);
    const uint64_t before = group->wire_bytes;
    struct recorder recorder = {.under = NULL};
    dp_status status;

    if (count > CAPACITY) {
        return 1; /* more ranks than these checks have memory for */
    }
    s->slice = (struct dp_slice){s->memory, count, sizeof(float)};
    s->keep = DP_KEEP_ALL;
    if (records) { /* `mpi` wants to see its own transport */
        recorder_begin(&recorder, group);
    }
    status = sum_once(s);
    if (records) {
        recorder_end(&recorder, group);
    }
    return status != DP_OK ? 1
                           : traffic_wrong(group, s->text, &recorder, group->wire_bytes - before,
                                           count * sizeof(float));
}

/* Prints which check of which strategy failed, and where. Passes the number on. */
static size_t named(const struct sums *s, const char *check, size_t wrong)
{
    if (wrong > 0) {
        (void)fprintf(stderr, "strategy %s, rank %d of %d: %s: %zu wrong\n", s->text,
                      s->comm->group->rank, s->comm->group->size, check, wrong);
    }
    return wrong;
}

static size_t check_sums(struct sums *s)
{
    const bool ordered = dp_strategy_keeps_order(s->comm->strategy, s->comm->state, s->comm->group);
    size_t wrong = 0;

    s->numbers = INTEGERS;
    wrong += named(s, "sums of any length", check_counts(s));
    wrong += named(s, "sums one after the other", check_repeated(s));
    wrong += named(s, "the same bits on all ranks", check_same_bits(s));
    wrong += named(s, "a chunk has the bits of the whole", check_chunk_bits(s));
    wrong += named(s, "gathering", check_gather(s));
    wrong += named(s, "what is sent to whom", check_traffic(s));
    wrong += named(s, "whether the order is kept",
                   dp_strategy_ordered(s->text, s->comm->group) != ordered);
    if (ordered) {
        s->numbers = RANDOM;
        wrong += named(s, "sums in the order of the tree", check_counts(s));
    }
    s->exact = true;
    s->numbers = ordered ? RANDOM : INTEGERS;
    return wrong + named(s, "exact sums", check_repeated(s));
}

/* A strategy without a sum leaves gradients alone, and still sums the tail. */
static size_t check_none(struct sums *s)
{
    size_t wrong = 0;

    s->numbers = RANDOM;
    s->slice = (struct dp_slice){s->memory + DP_BLOCK, 1000, sizeof(float)};
    wrong += sum_once(s) != DP_OK;
    for (size_t i = 0; i < 1000; i++) {
        wrong += s->memory[DP_BLOCK + i] != values[RANDOM][s->comm->group->rank][DP_BLOCK + i];
    }
    s->exact = true;
    return named(s, "gradients stay as they are", wrong) +
           named(s, "exact sums", check_repeated(s));
}

/* Which strategies this group can run, and that the others are refused as documented. */
static size_t check_refused(struct dp_group *group, const char *name)
{
    struct dp_comm *comm = NULL;
    const int errors = dp_log_errors();
    const dp_status status = dp_comm_create(group, name, CAPACITY, CAPACITY, &comm);

    return status != DP_ERR_UNAVAILABLE || comm != NULL || dp_log_errors() <= errors;
}

dp_status find_gpus(struct dp_group *group)
{
    const struct dp_device *device;

    DP_TRY(dp_device_find(tested_device(), &device));
    return dp_gpu_peers_create(group, device);
}

static const struct dp_strategy *strategy_of(const char *text)
{
    return (const struct dp_strategy *)dp_plugin_find(&dp_strategies, text, strcspn(text, ":"));
}

bool strategy_refuses(const struct dp_group *group, const char *text, const char **why_not)
{
    const struct dp_strategy *strategy = strategy_of(text);

    return strategy != NULL && !strategy->supports(group, why_not);
}

size_t check_strategy(struct dp_group *group, const void *name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const struct dp_strategy *strategy = strategy_of(name);
    struct sums s = {.text = name};
    const char *why_not = NULL;
    size_t wrong;

    if (strategy == NULL || group->size > MOST_RANKS || find_gpus(group) != DP_OK) {
        return 1;
    }
    (void)pthread_once(&once, make_numbers);
    if (strategy_refuses(group, name, &why_not)) {
        return check_refused(group, name) + (why_not == NULL);
    }
    s.memory = dp_group_memory(group, DP_MEM_GRADIENTS, CAPACITY * sizeof(float));
    if (strategy->on_gpus) {
        s.there = dp_gpu_peers_memory(group, group->gpus->device, DP_MEM_GRADIENTS,
                                      CAPACITY * sizeof(float));
    }
    wrong = s.memory == NULL || (strategy->on_gpus && s.there == NULL) ||
            dp_comm_create(group, name, CAPACITY, CAPACITY, &s.comm) != DP_OK;
    if (wrong == 0) {
        wrong = strategy->sum == NULL ? check_none(&s) : check_sums(&s);
    }
    dp_comm_destroy(s.comm);
    if (s.there != NULL) {
        dp_gpu_peers_release(group, group->gpus->device, s.there);
    }
    dp_group_release(group, s.memory);
    return wrong;
}
