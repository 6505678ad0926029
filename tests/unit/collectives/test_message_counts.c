/*
 * test_message_counts.c - what ranks send to start, to agree and to sum, for 2 to 1,024 of them: no
 * number of messages grows faster than ranks x log2(ranks), and bytes only where each rank is to
 * have something of every other.
 *
 * The ranks are played one after the other. None of these functions looks at what it receives to
 * decide whom to send to, so each rank at once gets numbers that no rank has less of.
 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "collectives/core/consistency.h"
#include "collectives/core/transport.h"
#include "collectives/strategies/comm.h"
#include "collectives/world/host_names.h"
#include "kernels/device.h"

enum { RANKS_MOST = 1024, GATHERED = 16, SUMMED = 4096, ON_NODE = 8 };

struct counts {
    uint64_t messages, bytes;
};

static const int highest = INT_MAX;
static const uint64_t two_highest = ((uint64_t)INT_MAX << 32) + INT_MAX; /* a hash of such */
static struct counts sent;
static int node_of[RANKS_MOST];
static atomic_int cancel;
static struct dp_stream *stream;

static dp_status count_start(struct dp_group *group, struct dp_slice out, struct dp_slice in,
                             struct dp_transfer *transfer)
{
    (void)group;
    if (transfer->to >= 0) {
        sent.messages++;
        sent.bytes += dp_slice_bytes(out);
    }
    for (size_t at = 0; transfer->from >= 0 && at + sizeof(int) <= dp_slice_bytes(in);
         at += sizeof(int)) {
        memcpy((char *)in.data + at, &highest, sizeof(int));
    }
    return DP_OK;
}

static dp_status finish(struct dp_group *group, struct dp_transfer *transfer)
{
    (void)group;
    (void)transfer;
    return DP_OK;
}

static dp_status finished(struct dp_group *group, struct dp_transfer *transfer, bool *done)
{
    (void)group;
    (void)transfer;
    *done = true;
    return DP_OK;
}

static void *memory(struct dp_group *group, enum dp_purpose purpose, size_t bytes)
{
    (void)group;
    (void)purpose;
    return dp_zalloc(1, bytes);
}

static void release(struct dp_group *group, void *at)
{
    (void)group;
    dp_free(at);
}

static void *peer(const struct dp_group *group, const void *mine, int rank)
{
    (void)group;
    (void)mine;
    (void)rank;
    return NULL;
}

static const struct dp_transport counting = {.name = "counting",
                                             .start = count_start,
                                             .finish = finish,
                                             .test = finished,
                                             .memory = memory,
                                             .release = release,
                                             .peer = peer};

typedef dp_status rank_part(struct dp_group *group, const char *text);

/* What all ranks send, so many of them on each node. */
static struct counts count_on(int on_node, int ranks, rank_part *part, const char *text)
{
    int failed = 0;

    sent = (struct counts){0, 0};
    for (int rank = 0; rank < ranks; rank++) {
        node_of[rank] = rank / on_node;
    }
    for (int rank = 0; rank < ranks; rank++) {
        struct dp_group group = {.rank = rank,
                                 .size = ranks,
                                 .transport = &counting,
                                 .stream = stream,
                                 .node_of = node_of,
                                 .nodes = node_of[ranks - 1] + 1,
                                 .local_size = on_node < ranks ? on_node : ranks,
                                 .cancel = &cancel};
        failed += part(&group, text) != DP_OK;
        dp_free(group.board);
    }
    assert_int_equal(failed, 0);
    return sent;
}

/* Each on a node of its own. */
static struct counts count_of(int ranks, rank_part *part, const char *text)
{
    return count_on(1, ranks, part, text);
}

/* ranks x log2(ranks), rounded up */
static uint64_t unit_of(int ranks)
{
    uint64_t log = 0;

    while (1 << log < ranks) {
        log++;
    }
    return (uint64_t)ranks * log;
}

static dp_status part_barrier(struct dp_group *group, const char *text)
{
    (void)text;
    return dp_group_barrier(group);
}

static dp_status part_agree(struct dp_group *group, const char *text)
{
    (void)text;
    return dp_group_agree(group, DP_OK);
}

static dp_status part_broadcast(struct dp_group *group, const char *text)
{
    char data[64] = "";

    (void)text;
    return dp_group_broadcast(group, data, sizeof(data), 0);
}

static dp_status part_compare(struct dp_group *group, const char *text)
{
    struct dp_consistency_item items[8];

    (void)text;
    for (int i = 0; i < 8; i++) {
        items[i] = (struct dp_consistency_item){.field = "seed", .hash = two_highest};
    }
    return dp_consistency_check(group, items, 8);
}

static dp_status part_gather(struct dp_group *group, const char *text)
{
    static char all[RANKS_MOST * GATHERED];
    const char mine[GATHERED] = "";

    (void)text;
    return dp_group_allgather(group, mine, sizeof(mine), all);
}

/* Only rank 0 gets them. */
static dp_status part_gather_first(struct dp_group *group, const char *text)
{
    static char all[RANKS_MOST * GATHERED];
    const char mine[GATHERED] = "";

    (void)text;
    return dp_group_gather(group, mine, sizeof(mine), group->rank == 0 ? all : NULL);
}

/* Only ranks of the node get them. */
static dp_status part_gather_node(struct dp_group *group, const char *text)
{
    static char all[RANKS_MOST * GATHERED];
    const char mine[GATHERED] = "";

    (void)text;
    return dp_group_gather_node(group, mine, sizeof(mine), all);
}

static dp_status part_names(struct dp_group *group, const char *text)
{
    struct dp_host_names *names = NULL;

    (void)text;
    DP_TRY(dp_host_names_create(group, "host", &names));
    dp_host_names_destroy(names);
    return DP_OK;
}

static dp_status part_sum(struct dp_group *group, const char *text)
{
    static float data[SUMMED];
    struct dp_comm *comm = NULL;
    dp_status status;

    DP_TRY(dp_comm_create(group, text, SUMMED, 0, &comm));
    status = dp_comm_sum(comm, (struct dp_slice){data, SUMMED, sizeof(float)}, DP_KEEP_ALL);
    dp_comm_destroy(comm);
    return status;
}

static void agreeing_takes_ranks_times_log_ranks(void **state)
{
    static const struct {
        rank_part *part;
        int messages, bytes; /* of ranks x log2(ranks), at most */
    } parts[] = {{part_barrier, 1, 1},
                 {part_agree, 1, sizeof(int)},
                 {part_broadcast, 1, 64},
                 {part_compare, 2, 8 * sizeof(uint64_t) + sizeof(int)},
                 {part_gather_first, 2, GATHERED + sizeof(int)},
                 {part_gather_node, 1, 1}};
    (void)state;

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        for (int ranks = 2; ranks <= RANKS_MOST; ranks += ranks < 8 ? 1 : ranks / 2) {
            const struct counts found = count_of(ranks, parts[i].part, NULL);
            const uint64_t unit = unit_of(ranks);
            assert_true(found.messages > 0 && found.messages <= (uint64_t)parts[i].messages * unit);
            assert_true(found.bytes <= (uint64_t)parts[i].bytes * unit);
        }
    }
}

/* Each rank gets what every other has, once; in two pieces where the ranks wrap around. */
static void gathering_takes_ranks_times_log_ranks_messages(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= RANKS_MOST; ranks += ranks < 8 ? 1 : ranks / 2) {
        const struct counts found = count_of(ranks, part_gather, NULL);
        assert_true(found.messages <= unit_of(ranks) + (uint64_t)ranks);
        assert_int_equal(found.bytes, (uint64_t)ranks * (uint64_t)(ranks - 1) * GATHERED);
    }
}

/* Of each node one rank sends its name to one of each other node: that is all that grows as the
 * square of something, of nodes, and with 8 ranks on each of them stays below what agreeing
 * takes. */
static void names_of_hosts_go_between_first_ranks_only(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= RANKS_MOST; ranks *= 2) {
        const uint64_t nodes = (uint64_t)(ranks + ON_NODE - 1) / ON_NODE, unit = unit_of(ranks);
        const struct counts found = count_on(ON_NODE, ranks, part_names, NULL);
        const struct counts barrier = count_of(ranks, part_barrier, NULL);
        if (nodes == 1) {
            assert_int_equal(found.messages, 0);
            continue;
        }
        assert_true(found.messages <= 4 * unit);
        assert_true(found.bytes <=
                    nodes * (nodes - 1) * DP_HOST_NAME + 2 * (barrier.bytes + unit * sizeof(int)));
        assert_true(found.bytes <= 128 * unit);
    }
}

/* What ranks send each other until the first step: each call as often as a debugger counted in a
 * run of models/mlp.cfg, and records of that size. What ranks of a node show each other is in
 * memory. */
static void a_start_takes_ranks_times_log_ranks_messages_and_bytes(void **state)
{
    static const struct {
        rank_part *part;
        int times, scale; /* of GATHERED, for records that are longer */
    } start[] = {{part_barrier, 8, 1},       {part_names, 1, 1},       {part_agree, 24, 1},
                 {part_broadcast, 12, 1},    {part_compare, 6, 1},     {part_gather_node, 4, 1},
                 {part_gather_first, 1, 18}, {part_gather_first, 1, 1}};
    (void)state;

    (void)printf("ranks  messages      bytes  of ranks x log2(ranks): messages  bytes\n");
    for (int ranks = 2; ranks <= RANKS_MOST; ranks *= 2) {
        struct counts all = {0, 0};
        const uint64_t unit = unit_of(ranks);
        for (size_t i = 0; i < sizeof(start) / sizeof(start[0]); i++) {
            const struct counts found = count_on(ON_NODE, ranks, start[i].part, NULL);
            all.messages += found.messages * (uint64_t)start[i].times;
            all.bytes += found.bytes * (uint64_t)(start[i].times * start[i].scale);
        }
        (void)printf("%5d %9llu %10llu %34.1f %6.0f\n", ranks, (unsigned long long)all.messages,
                     (unsigned long long)all.bytes, (double)all.messages / (double)unit,
                     (double)all.bytes / (double)unit);
        assert_true(all.messages <= 64 * unit);
        assert_true(all.bytes <= 2048 * unit);
    }
}

/* Those of the strategies that work in rounds; a ring and direct exchange have a message for each
 * other rank, which they are chosen for where messages are long. */
static void sums_in_rounds_take_ranks_times_log_ranks_messages(void **state)
{
    static const char *const texts[] = {"doubling", "rhd", "tree"};
    const uint64_t bytes = SUMMED * sizeof(float);
    (void)state;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        for (int ranks = 2; ranks <= RANKS_MOST; ranks += ranks < 8 ? 1 : ranks / 2) {
            const struct counts found = count_of(ranks, part_sum, texts[i]);
            const uint64_t unit = unit_of(ranks);
            assert_true(found.messages <= 4 * unit);
            assert_true(found.bytes <= 4 * unit * bytes);
        }
    }
}

/* Each of 4 ranks sends 4,096 numbers to a partner in each of two rounds. */
static void a_sum_goes_in_segments_of_the_length_that_is_asked_for(void **state)
{
    static const struct {
        const char *text;
        uint64_t segments;
    } cases[] = {{"doubling:segment_kb=1", 16},
                 {"doubling:segment_kb=4", 4},
                 {"doubling:segment_kb=16", 1},
                 {"doubling:segment_kb=64", 1}};
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct counts found = count_of(4, part_sum, cases[i].text);
        assert_int_equal(found.messages, 8 * cases[i].segments);
        assert_int_equal(found.bytes, sizeof(float) * SUMMED * 8);
    }
}

/* Each of 4 ranks passes 1,024 numbers on, three times to add them and three times to gather. */
static void a_ring_cuts_what_it_passes_on_as_late_as_it_may(void **state)
{
    static const struct {
        const char *text;
        uint64_t segments;
    } cases[] = {{"ring:segment_kb=1", 4}, {"ring:segment_kb=4", 1}, {"ring:segment_kb=64", 1}};
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct counts found = count_of(4, part_sum, cases[i].text);
        assert_int_equal(found.messages, 24 * cases[i].segments);
        assert_int_equal(found.bytes, sizeof(float) * SUMMED * 6);
    }
}

/* Two trees, of half of the 16 KB each. */
static void trees_pass_segments_of_the_length_that_is_asked_for(void **state)
{
    static const struct {
        const char *text;
        uint64_t segments;
    } cases[] = {{"tree:segment_kb=1", 8}, {"tree:segment_kb=4", 2}, {"tree:segment_kb=64", 1}};
    const struct counts whole = count_of(4, part_sum, "tree:segment_kb=8");
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct counts found = count_of(4, part_sum, cases[i].text);
        assert_int_equal(found.messages, whole.messages * cases[i].segments);
        assert_int_equal(found.bytes, whole.bytes);
    }
}

static int set_up(void **state)
{
    const struct dp_device *device = NULL;
    (void)state;

    return dp_device_find("ref", &device) != DP_OK ||
           device->stream_create(device, 1, &stream) != DP_OK;
}

static int tear_down(void **state)
{
    (void)state;
    stream->device->stream_destroy(stream);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agreeing_takes_ranks_times_log_ranks),
        cmocka_unit_test(gathering_takes_ranks_times_log_ranks_messages),
        cmocka_unit_test(names_of_hosts_go_between_first_ranks_only),
        cmocka_unit_test(a_start_takes_ranks_times_log_ranks_messages_and_bytes),
        cmocka_unit_test(sums_in_rounds_take_ranks_times_log_ranks_messages),
        cmocka_unit_test(a_ring_cuts_what_it_passes_on_as_late_as_it_may),
        cmocka_unit_test(a_sum_goes_in_segments_of_the_length_that_is_asked_for),
        cmocka_unit_test(trees_pass_segments_of_the_length_that_is_asked_for),
    };
    return cmocka_run_group_tests_name("message_counts", tests, set_up, tear_down);
}
