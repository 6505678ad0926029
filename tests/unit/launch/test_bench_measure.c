/*
 * test_bench_measure.c - measuring a bucket: right and wrong sums are recognised, with every
 * strategy and sharding, and ranks as threads.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/gpu/gpu_peers.h"
#include "collectives/strategies/comm.h"
#include "launch/bench/measure.h"
#include "tests/support/local_world.h"
#include "tests/support/share_of_cases.h"
#include "tests/support/tested_device.h"

enum { COUNT = 1000 };

static const struct dp_device *device; /* where gradients are made */

/* A strategy that computes some elements wrong, on request. */
struct liar {
    int wrong; /* elements whose sum is one too large */
    struct dp_comm *ring;
};

static bool liar_supports(const struct dp_group *group, const char **why_not)
{
    (void)group;
    (void)why_not;
    return true;
}

static dp_status liar_open(void *state, struct dp_group *group, size_t max_count)
{
    return dp_comm_create(group, "ring", max_count, 64, &((struct liar *)state)->ring);
}

static dp_status liar_sum(void *state, struct dp_slice data, enum dp_keep keep)
{
    const struct liar *liar = state;

    DP_TRY(dp_comm_sum(liar->ring, data, keep));
    for (size_t i = 0; i < (size_t)liar->wrong; i++) {
        ((float *)data.data)[7 * i] += 1.0f;
    }
    return DP_OK;
}

static void liar_close(void *state)
{
    dp_comm_destroy(((struct liar *)state)->ring);
}

#define LIAR struct liar

static const struct dp_option liar_options[] = {
    DP_INT(LIAR, wrong, "0", 0, 100, "how many are wrong"),
    {0},
};

static const struct dp_strategy liar = {
    .plugin = {.name = "liar",
               .help = "for tests",
               .options = liar_options,
               .state_bytes = sizeof(struct liar)},
    .supports = liar_supports,
    .open = liar_open,
    .sum = liar_sum,
    .close = liar_close,
};

struct request {
    const char *strategy, *compressor;
    enum dp_type type; /* of weights */
    int bucket;        /* 1: the tail */
    struct dp_bench_options options;
    struct dp_bench_row *row; /* out: rank 0's */
};

/* On a device that has its own memory the exchange follows a stream, and weights. */
static dp_status measure_there(struct dp_exchange *exchange, const struct request *r,
                               const struct dp_cost *cost, struct dp_bench_row *row)
{
    void *weights = device->alloc(DP_MEM_WEIGHTS, COUNT * sizeof(float));
    struct dp_stream *stream = NULL;
    dp_status status = weights == NULL ? DP_ERR_NOMEM : device->stream_create(device, 1, &stream);

    if (status == DP_OK) {
        dp_exchange_follow(exchange, stream, weights);
        status = dp_bench_measure(exchange, r->bucket, &r->options, cost, row);
    } else {
        dp_group_leave(dp_exchange_group(exchange), status);
    }
    device->stream_destroy(stream);
    device->release(weights);
    return status;
}

static dp_status measure(struct dp_group *group, const struct request *r, struct dp_bench_row *row)
{
    const struct dp_tensor tensor = {
        .dims = 2, .shape = {COUNT / 10, 10}, .count = COUNT, .channels = 10, .spatial = 1};
    const struct dp_step_params step_params = {
        .per_sample = 1.0f, .loss_scale = 1.0f, .factor = 1.0f};
    struct dp_flat flat = {.tensors = &tensor,
                           .tensor_count = 1,
                           .trained = COUNT,
                           .total = COUNT + 64,
                           .type = r->type};
    struct dp_exchange_config config = {.strategy = r->strategy,
                                        .compressor = r->compressor,
                                        .step_params = &step_params,
                                        .tail_made = 10,
                                        .device = device,
                                        .bucket_bytes = COUNT * sizeof(float),
                                        .first_bucket_bytes = COUNT * sizeof(float),
                                        .run = DP_RUN_AT_WAIT,
                                        .threads = 1};
    struct dp_exchange *exchange = NULL;
    struct dp_cost cost;
    dp_status status;

    memset(&cost, 0, sizeof(cost));
    DP_TRY(dp_exchange_create(group, &config, &flat, &exchange));
    dp_bench_row_init(row);
    status = measure_there(exchange, r, &cost, row);
    dp_exchange_destroy(exchange);
    return status;
}

static size_t measures(struct dp_group *group, const void *arg)
{
    const struct request *r = arg;
    struct dp_stream *stream = group->stream;
    struct dp_bench_row row, first;
    size_t wrong = 1;

    if (measure(group, r, &row) == DP_OK) {
        /* All ranks have the same numbers. */
        first = row;
        wrong = dp_group_broadcast(group, &first, sizeof(first), 0) != DP_OK;
        wrong += first.median_us != row.median_us || first.p99_us != row.p99_us;
        wrong += first.wire_bytes != row.wire_bytes;
    }
    group->stream = stream;
    if (group->rank == 0) {
        *r->row = row;
    }
    return wrong;
}

static struct request request_of(const char *strategy, struct dp_bench_row *row)
{
    return (struct request){
        .strategy = strategy, .options = {.iterations = 3, .warmups = 1, .checks = 2}, .row = row};
}

static void check_right_sums(const char *way, enum dp_type type, int size)
{
    struct dp_bench_row row;
    struct request r = request_of(way, &row);

    r.type = type;
    assert_int_equal(on_local_ranks(size, measures, &r), 0);
    assert_true(row.count == COUNT && row.size == 4.0 * COUNT);
    assert_true(row.ranks == size && row.wrong == 0.0);
    assert_true(row.min_us <= row.median_us && row.median_us <= row.p99_us);
    /* Adding p numbers rounds p - 1 times, by half a unit at most. */
    assert_true(row.max_ulp <= (size - 1) / 2.0 && row.rel_l2 < 1e-6);
    assert_true((row.rel_l2 > 0.0) == (size > 1));
    assert_true((row.wire_bytes > 0.0) == (size > 1));
}

static void right_sums_pass_the_check(void **state)
{
    static const char *const ways[] = {"shm", "ring", "zero1:over=ring", "zero1:over=shm", "auto"};
    const size_t live = dp_mem_live();
    (void)state;

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        for (int size = 1; size <= 4; size++) {
            if (in_share(i + (size_t)size)) {
                check_right_sums(ways[i], DP_TYPE_F32, size);
            }
            if (in_share(i + (size_t)size + 1)) {
                check_right_sums(ways[i], DP_TYPE_BF16, size);
            }
        }
    }
    assert_int_equal(dp_mem_live(), live);
}

static size_t has_a_gpu_each(struct dp_group *group, const void *arg)
{
    (void)arg;
    return dp_gpu_peers_create(group, device) != DP_OK || group->gpus->most > 1;
}

static void right_sums_on_gpus_pass_the_check(void **state)
{
    static const char *const ways[] = {"ipc", "staged", "staged:over=ring", "zero1:over=ipc"};
    const size_t live = dp_mem_live();
    (void)state;

    if (device->host_memory) {
        skip();
    }
    for (int size = 1; size <= 4; size++) {
        for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
            if (in_share(i + (size_t)size)) {
                check_right_sums(ways[i], DP_TYPE_F32, size);
            }
        }
        if (on_local_ranks(size, has_a_gpu_each, NULL) == 0) {
            check_right_sums("nccl", DP_TYPE_F32, size);
        }
    }
    assert_int_equal(dp_mem_live(), live);
}

/* Of random numbers: half of what 11 bits leave of each, and nothing of small whole ones. */
static void codes_lose_their_rounding_errors(void **state)
{
    struct dp_bench_row row;
    struct request r = request_of("shm", &row);
    (void)state;

    r.compressor = "fp16";
    assert_int_equal(on_local_ranks(3, measures, &r), 0);
    assert_true(row.rel_l2 > 1e-5 && row.rel_l2 < 1e-3 && row.wrong == 0.0);
}

static void the_tail_is_measured_like_a_bucket(void **state)
{
    struct dp_bench_row row;
    struct request r = request_of("auto", &row);
    (void)state;

    r.bucket = 1;
    assert_int_equal(on_local_ranks(3, measures, &r), 0);
    assert_true(row.count == 64.0 && row.wrong == 0.0);
    assert_true(row.rel_l2 > 0.0 && row.rel_l2 < 1e-6);
}

/* A ring of 4 sends 2 x 3 chunks: of 1000 elements in blocks of 64, at most 6 x 256. */
static void wire_bytes_are_those_of_the_busiest_rank(void **state)
{
    struct dp_bench_row row;
    struct request r = request_of("ring", &row);
    (void)state;

    assert_int_equal(on_local_ranks(4, measures, &r), 0);
    assert_in_range((size_t)row.wire_bytes, 6 * 4 * 1000 / 4, 6 * 4 * 256);
}

/* A residual would add to the errors of later rounds, whose values differ. */
static void each_round_of_checks_begins_without_residuals(void **state)
{
    static const char *const compressors[] = {"onebit", "topk", "powersgd:rank=1"};
    (void)state;

    for (size_t i = 0; i < sizeof(compressors) / sizeof(compressors[0]); i++) {
        struct dp_bench_row once, often;
        struct request r = request_of("ring", &once);
        r.compressor = compressors[i];
        r.options.checks = 1;
        assert_int_equal(on_local_ranks(2, measures, &r), 0);
        r.row = &often;
        r.options.checks = 5;
        assert_int_equal(on_local_ranks(2, measures, &r), 0);
        assert_true(once.rel_l2 > 0.1 && often.rel_l2 >= once.rel_l2);
        assert_true(often.rel_l2 < 1.2 * once.rel_l2);
        assert_true(often.wrong >= once.wrong && often.wrong <= 2.0 * COUNT);
    }
}

static void wrong_sums_are_counted_on_all_ranks(void **state)
{
    struct dp_bench_row row;
    struct request r = request_of("liar:wrong=5", &row);
    (void)state;

    assert_int_equal(on_local_ranks(3, measures, &r), 0);
    assert_true(row.wrong == 5.0 * 3.0); /* elements, ranks; in each of two rounds */
    assert_true(row.max_ulp > 1e5 && row.rel_l2 > 1e-3);
    r = request_of("liar:wrong=0", &row);
    assert_int_equal(on_local_ranks(3, measures, &r), 0);
    assert_true(row.wrong == 0.0);
}

static void without_checks_results_are_unknown(void **state)
{
    struct dp_bench_row row;
    struct request r = request_of("liar:wrong=5", &row);
    (void)state;

    r.options.checks = 0;
    assert_int_equal(on_local_ranks(2, measures, &r), 0);
    assert_true(isnan(row.wrong) && isnan(row.max_ulp) && isnan(row.rel_l2));
    assert_true(isnan(row.predicted_us)); /* it has no cost() */
}

static size_t bound_is_bad(struct dp_group *group, const void *arg)
{
    const struct dp_bench_options options = {.iterations = 5, .warmups = 1};
    double us = -1.0;
    (void)arg;

    return dp_bench_bound(group, 1 << 16, &options, &us) != DP_OK || !(us > 0.0);
}

static void the_copy_bound_is_a_time(void **state)
{
    const size_t live = dp_mem_live();
    (void)state;

    for (int size = 1; size <= 3; size++) {
        assert_int_equal(on_local_ranks(size, bound_is_bad, NULL), 0);
    }
    assert_int_equal(dp_mem_live(), live);
}

static size_t measures_without_memory(struct dp_group *group, const void *arg)
{
    struct dp_bench_row row;

    return measure(group, arg, &row) != DP_OK;
}

static void a_failed_allocation_leaves_nothing_and_blocks_no_rank(void **state)
{
    struct dp_bench_row row;
    const struct request r = request_of("ring", &row);
    (void)state;

    check_failing_allocations(2, NULL, measures_without_memory, &r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_sums_pass_the_check),
        cmocka_unit_test(right_sums_on_gpus_pass_the_check),
        cmocka_unit_test(codes_lose_their_rounding_errors),
        cmocka_unit_test(the_tail_is_measured_like_a_bucket),
        cmocka_unit_test(wire_bytes_are_those_of_the_busiest_rank),
        cmocka_unit_test(each_round_of_checks_begins_without_residuals),
        cmocka_unit_test(wrong_sums_are_counted_on_all_ranks),
        cmocka_unit_test(without_checks_results_are_unknown),
        cmocka_unit_test(the_copy_bound_is_a_time),
        cmocka_unit_test(a_failed_allocation_leaves_nothing_and_blocks_no_rank),
    };
    return dp_device_find(tested_device_or("ref"), &device) != DP_OK ||
           dp_plugin_add(&dp_strategies, &liar.plugin) != DP_OK ||
           cmocka_run_group_tests_name("bench_measure", tests, NULL, NULL);
}
