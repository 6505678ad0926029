/*
 * test_memory_needs.c - what is predicted of the memory of ranks, number by number: the same sums
 * as in memory_plan.c, but of one case each, with nothing in them that this case does not have.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/compressors/compression.h"
#include "models/pass/pass.h"
#include "runtime/data/loader.h"
#include "runtime/optim/optimizer.h"
#include "runtime/optim/param_groups.h"
#include "runtime/trainer/compute/lane_plan.h"
#include "runtime/trainer/input/batch_link.h"
#include "runtime/trainer/prepare/memory_plan.h"
#include "runtime/trainer/step_scalars.h"
#include "tests/support/small_run.h"

enum { RANKS = 4, BATCH = 32, THREADS = 3 };

static const size_t library = (size_t)24 << 20;

static struct small_run run;
static struct dp_memory_plan plan;
static size_t found[DP_MEM_PURPOSE_COUNT];

static void begin(const char *const *sets)
{
    assert_int_equal(small_run_create(&run, small_own_norm, sets), 0);
    plan = (struct dp_memory_plan){.config = run.config,
                                   .model = run.model,
                                   .device = run.device,
                                   .trainers = RANKS,
                                   .threads = THREADS,
                                   .ranks_per_device = 1};
    memset(found, 0xff, sizeof(found));
}

static void on_host(struct dp_memory_ranks ranks, size_t micro_batch)
{
    dp_memory_plan_host(&plan, &ranks, micro_batch, found);
}

static size_t floats(size_t count)
{
    return count * sizeof(float);
}

/* Of the groups of parameters, whole on each rank. */
static size_t factors(void)
{
    const struct dp_optimizer_config *c = &run.config->optimizer;

    return dp_param_groups_bytes(dp_optimizer_of(c), c->chosen.state, run.model->trained,
                                 run.model->tensor_count);
}

/* Of one pass of so many rows. */
static size_t activations(enum dp_type type, size_t rows, int threads, bool trains)
{
    const struct dp_tiles tiles = dp_tiles_of(run.device, threads);

    return dp_model_activation_bytes(run.model, type, rows, tiles, trains) +
           dp_pass_band_bytes(run.model, tiles, trains);
}

/* What the trainer's buckets make of a compressor. */
static size_t codes(int ranks)
{
    const struct dp_comm_config *c = &run.config->comm;
    const struct dp_bucket_sizes sizes = {
        .first_count = (size_t)(c->first_bucket_mb * (1 << 18)),
        .max_count = (size_t)(c->bucket_mb * (1 << 18)),
    };
    struct dp_bucket_plan *buckets = NULL;
    size_t bytes;

    assert_int_equal(
        dp_bucket_plan_create(run.model->tensors, run.model->tensor_count, run.model->trained,
                              run.model->trained + dp_step_scalars_tail(run.model->statistics),
                              &sizes, &buckets),
        DP_OK);
    bytes = dp_compression_codes(c->compressor, buckets, ranks);
    dp_bucket_plan_destroy(buckets);
    return bytes;
}

static void a_device_needs_state_gradients_and_one_pass(void **state)
{
    static const char *const sets[][5] = {
        {"optimizer.name=adamw", "optimizer.no_decay=[bias]", "train.precision=fp32",
         "comm.strategy=ring", NULL},
        {"optimizer.name=adamw", "optimizer.no_decay=[bias]", "train.precision=bf16",
         "comm.strategy=ring", NULL},
        {"optimizer.name=adamw", "optimizer.no_decay=[bias]", "train.precision=fp32",
         "comm.strategy=zero1:over=ring", NULL},
        {"optimizer.name=adamw", "optimizer.no_decay=[bias]", "train.precision=bf16",
         "comm.strategy=zero1:over=ring", NULL}};
    (void)state;

    for (size_t i = 0; i < 4; i++) {
        begin(sets[i]);
        const size_t trained = run.model->trained, part = i < 2 ? trained : trained / RANKS;
        const bool narrow = i % 2 == 1;
        const size_t rows = dp_share_of(run.config, run.model, RANKS, 5, THREADS).rows;
        assert_in_range(rows, 4, 5); /* of 8 */
        dp_memory_plan_device(&plan, 5, found);
        assert_int_equal(found[DP_MEM_WEIGHTS],
                         narrow ? 2 * trained + floats(part) : floats(trained));
        assert_int_equal(found[DP_MEM_GRADIENTS], floats(trained));
        assert_int_equal(found[DP_MEM_OPTIMIZER], floats(2 * part) + factors());
        assert_true(factors() > 0);
        assert_int_equal(found[DP_MEM_RESIDUALS] + found[DP_MEM_COMM], 0);
        assert_int_equal(found[DP_MEM_ACTIVATIONS],
                         activations(narrow ? DP_TYPE_BF16 : DP_TYPE_F32, rows, THREADS, true));
        assert_int_equal(dp_memory_plan_activations(&plan, 5), found[DP_MEM_ACTIVATIONS]);
        small_run_destroy(&run);
    }
}

static void a_compressor_needs_what_it_holds_back_and_its_codes(void **state)
{
    static const char *const sets[][4] = {
        {"comm.compressor=topk", "comm.bucket_mb=0.01", "comm.first_bucket_mb=0.005", NULL},
        {"comm.compressor=powersgd:rank=2", "comm.bucket_mb=0.01", NULL},
        {"comm.compressor=int8", "comm.bucket_mb=1", NULL}};
    (void)state;

    for (size_t i = 0; i < 3; i++) {
        begin(sets[i]);
        for (int ranks = 1; ranks <= 3; ranks++) {
            const struct dp_compression_size kept =
                dp_compression_measure(run.config->comm.compressor, run.model->tensors,
                                       run.model->tensor_count, run.model->trained);
            const size_t rest = ranks > 1 ? floats(kept.residuals + kept.warm) : 0;
            const size_t sent = ranks > 1 ? codes(ranks) : 0;
            plan.trainers = ranks;
            assert_int_equal(kept.warm > 0, i == 1);
            assert_true(codes(ranks) > 0);
            dp_memory_plan_device(&plan, 0, found);
            assert_int_equal(found[DP_MEM_RESIDUALS], rest);
            assert_int_equal(found[DP_MEM_COMM], sent);
            on_host((struct dp_memory_ranks){.trainers = 2, .leads = true}, 0);
            assert_int_equal(found[DP_MEM_RESIDUALS], 2 * rest);
            assert_int_equal(found[DP_MEM_COMM], 2 * sent);
            plan.saves = true;
            on_host((struct dp_memory_ranks){.trainers = 1, .leads = true}, 0);
            assert_true(ranks == 1 ||
                        found[DP_MEM_CHECKPOINT] ==
                            floats(run.model->trained * (1 + 1) + run.model->statistics +
                                   (size_t)ranks * kept.residuals + kept.warm));
        }
        small_run_destroy(&run);
    }
}

/* Two trainers without optimizer state, and three servers, each with a third of it. */
static void servers_have_the_state(void **state)
{
    static const char *const sets[] = {"optimizer.name=adamw", "optimizer.no_decay=[bias]",
                                       "comm.strategy=ps",     "comm.servers=3",
                                       "train.precision=bf16", NULL};
    (void)state;

    begin(sets);
    const size_t trained = run.model->trained, tail = dp_step_scalars_tail(run.model->statistics);
    for (int servers = 0; servers <= 3; servers++) {
        const size_t all = 2 + (size_t)servers, part = (size_t)servers * (trained / 3);
        on_host((struct dp_memory_ranks){.trainers = 2, .servers = servers, .first = true}, 0);
        assert_int_equal(found[DP_MEM_WEIGHTS], all * 2 * trained + floats(part));
        assert_int_equal(found[DP_MEM_GRADIENTS], all * floats(trained + tail));
        assert_int_equal(found[DP_MEM_OPTIMIZER], floats(2 * part) + all * factors());
        assert_int_equal(found[DP_MEM_OTHER], all * library);
    }
    small_run_destroy(&run);
}

/* One copy of the weights, where ranks share memory. */
static void ranks_that_share_memory_have_one_copy_of_the_weights(void **state)
{
    static const struct {
        const char *strategy;
        const char *steps;
        int trainers;
        bool one;
    } cases[] = {{"comm.strategy=zero1", "train.local_steps=1", 2, true},
                 {"comm.strategy=zero1:over=shm", "train.local_steps=1", 2, true},
                 {"comm.strategy=zero1:over=ring", "train.local_steps=1", 2, false},
                 {"comm.strategy=zero1", "train.local_steps=1", 1, false},
                 {"comm.strategy=ps", "train.local_steps=1", 2, true},
                 {"comm.strategy=ring", "train.local_steps=1", 2, false},
                 {"comm.strategy=auto", "train.local_steps=1", 2, true},
                 {"comm.strategy=auto", "train.local_steps=2", 2, false}};
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *const sets[] = {cases[i].strategy, cases[i].steps, NULL};
        begin(sets);
        plan.one_node = true;
        plan.trainers = cases[i].trainers;
        on_host((struct dp_memory_ranks){.trainers = plan.trainers, .first = true}, 0);
        assert_int_equal(found[DP_MEM_WEIGHTS], floats(run.model->trained) *
                                                    (size_t)(cases[i].one ? 1 : cases[i].trainers));
        small_run_destroy(&run);
    }
}

/* Two trainers, and two ranks that evaluate for them, of which one has its weights from rank 0. */
static void ranks_that_evaluate_need_weights_and_a_pass(void **state)
{
    static const char *const sets[][4] = {
        {"device.name=cpu", "train.precision=bf16", "train.micro_batch=4", NULL},
        {"device.name=cpu", "train.precision=bf16", "train.lanes=8", NULL}};
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        size_t without[DP_MEM_PURPOSE_COUNT];
        begin(sets[i]);
        run.config->train.eval_rank = true;
        const struct dp_share share = dp_share_of(run.config, run.model, RANKS, 4, THREADS);
        const struct dp_tiles tiles = dp_tiles_of(run.device, i == 0 ? THREADS : 1);
        const size_t pass = activations(DP_TYPE_BF16, share.rows, i == 0 ? THREADS : 1, i == 1);
        const size_t trained = run.model->trained;
        const size_t work = floats(dp_pass_reserved(run.model, share.rows, tiles));
        assert_int_equal(share.gradients > 1, i == 1);
        assert_true(work > 0);
        on_host((struct dp_memory_ranks){.trainers = 2, .leads = true}, 4);
        memcpy(without, found, sizeof(found));
        assert_int_equal(found[DP_MEM_WORKSPACE], 2 * share.passes * work);
        assert_int_equal(found[DP_MEM_OTHER], 2 * library + 2 * trained);
        assert_int_equal(found[DP_MEM_GRADIENTS],
                         floats(2 * (trained + dp_step_scalars_tail(run.model->statistics)) +
                                2 * (share.gradients - 1) * trained));
        on_host((struct dp_memory_ranks){.trainers = 2, .evaluators = 2}, 4);
        assert_int_equal(found[DP_MEM_WEIGHTS] - without[DP_MEM_WEIGHTS], trained * 2 * 2);
        assert_int_equal(found[DP_MEM_GRADIENTS] - without[DP_MEM_GRADIENTS],
                         floats(2 * (share.gradients - 1) * trained));
        assert_int_equal(found[DP_MEM_ACTIVATIONS] - without[DP_MEM_ACTIVATIONS],
                         2 * share.passes * pass);
        assert_int_equal(found[DP_MEM_WORKSPACE] - without[DP_MEM_WORKSPACE],
                         2 * share.passes * work);
        assert_int_equal(found[DP_MEM_OTHER], 4 * library);
        small_run_destroy(&run);
    }
}

/* Of 8 lanes of 4 rows on two ranks: as many at a time as a rank has threads. */
static void lanes_need_memory_for_those_that_are_computed_at_a_time(void **state)
{
    static const char *const sets[] = {"train.lanes=8", NULL};
    static const char *const one[] = {"train.lanes=1", NULL};
    (void)state;

    begin(sets);
    for (int threads = 1; threads <= 5; threads++) {
        const struct dp_share share = dp_share_of(run.config, run.model, 2, 0, threads);
        assert_int_equal(share.rows, 4);
        assert_int_equal(share.passes, dp_lanes_workers(run.model, 4, threads));
        assert_int_equal(share.gradients, 1 + dp_lanes_extra_gradients(4, (int)share.passes));
        assert_int_equal(share.passes > 1, threads > 1);
    }
    small_run_destroy(&run);
    begin(one);
    assert_int_equal(dp_share_of(run.config, run.model, 1, 0, 2).rows, BATCH);
    small_run_destroy(&run);
}

/* ---- data ---- */

static size_t row_bytes(void)
{
    return dp_model_sample_bytes(run.model) + sizeof(int32_t);
}

/* Batches that readers have made, or that trainers have got, are whole rows and labels. */
static void batches_need_memory_where_they_are_read_and_where_they_are_used(void **state)
{
    static const char *const sets[] = {"data.input_ranks=2", "data.workers=3", NULL};
    const struct dp_memory_ranks trainer = {.trainers = 1}, reader = {.readers = 1};
    (void)state;

    begin(sets);
    plan.train_count = SMALL_TRAIN;
    plan.reader_bytes = 1000;
    plan.shared_bytes = 77;
    on_host(trainer, 0);
    assert_int_equal(found[DP_MEM_DATA], row_bytes() * 8 * DP_BATCH_LINK_DEPTH);
    on_host(reader, 0);
    assert_int_equal(found[DP_MEM_DATA],
                     row_bytes() * 16 * (DP_LOADER_DEPTH + DP_BATCH_LINK_DEPTH) + 3077);
    plan.cached_input = true;
    on_host(reader, 0);
    assert_int_equal(found[DP_MEM_DATA], row_bytes() * 16 * (1 + DP_BATCH_LINK_DEPTH) + 1000);
    plan.cached_input = false;
    run.config->data.input_ranks = 1;
    on_host(trainer, 0);
    assert_int_equal(found[DP_MEM_DATA], row_bytes() * 8 * DP_BATCH_LINK_DEPTH);
    on_host(reader, 0);
    assert_int_equal(found[DP_MEM_DATA],
                     row_bytes() * 32 * (DP_LOADER_DEPTH + DP_BATCH_LINK_DEPTH) + 3077);
    run.config->data.input_ranks = 0;
    plan.train_count = 20; /* fewer than a batch */
    on_host(trainer, 0);
    assert_int_equal(found[DP_MEM_DATA], row_bytes() * 5 * DP_LOADER_DEPTH + 3077);
    on_host((struct dp_memory_ranks){.readers = 1, .first = true}, 0);
    assert_int_equal(found[DP_MEM_DATA], 0);
    plan.train_count = 0; /* unknown */
    on_host(trainer, 0);
    assert_int_equal(found[DP_MEM_DATA], row_bytes() * 8 * DP_LOADER_DEPTH + 3077);
    small_run_destroy(&run);
}

/* Each thread that changes rows has two of them, and two more are under way. */
static void changing_rows_needs_memory_for_each_thread(void **state)
{
    static const char *const sets[] = {"data.workers=1", NULL};
    (void)state;

    begin(sets);
    on_host((struct dp_memory_ranks){.trainers = 1}, 0);
    const size_t plain = found[DP_MEM_DATA];
    const size_t sample = dp_round_up(dp_model_sample_bytes(run.model), DP_MEM_ALIGN);
    run.config->data.augment = "f";
    on_host((struct dp_memory_ranks){.trainers = 1}, 0);
    assert_int_equal(found[DP_MEM_DATA] - plain, 4 * sample);
    run.config->data.workers = "3";
    on_host((struct dp_memory_ranks){.trainers = 1}, 0);
    assert_int_equal(found[DP_MEM_DATA] - plain, 8 * sample);
    small_run_destroy(&run);
}

/* Those who test read the rows of a pass at a time, with as many threads as there are. */
static void tests_that_are_read_need_memory_for_the_rows_of_a_pass(void **state)
{
    static const struct {
        size_t tests, rows; /* of all ranks; that one reads at a time */
    } cases[] = {{0, 0}, {1, 1}, {4, 1}, {12, 3}, {16, 4}, {1000, 4}};
    (void)state;

    begin(NULL);
    on_host((struct dp_memory_ranks){.trainers = 1}, 4);
    const size_t plain = found[DP_MEM_DATA];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        plan.read_tests = cases[i].tests;
        on_host((struct dp_memory_ranks){.trainers = 1, .evaluators = 1}, 4);
        assert_int_equal(found[DP_MEM_DATA] - plain, 2 * cases[i].rows * row_bytes());
    }
    on_host((struct dp_memory_ranks){.evaluators = 1}, 4);
    const size_t unread = found[DP_MEM_DATA];
    plan.reader_bytes = 1000; /* of each thread */
    on_host((struct dp_memory_ranks){.evaluators = 1}, 4);
    assert_int_equal(found[DP_MEM_DATA] - unread, THREADS * 1000);
    small_run_destroy(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_needs_state_gradients_and_one_pass),
        cmocka_unit_test(a_compressor_needs_what_it_holds_back_and_its_codes),
        cmocka_unit_test(servers_have_the_state),
        cmocka_unit_test(ranks_that_share_memory_have_one_copy_of_the_weights),
        cmocka_unit_test(ranks_that_evaluate_need_weights_and_a_pass),
        cmocka_unit_test(lanes_need_memory_for_those_that_are_computed_at_a_time),
        cmocka_unit_test(batches_need_memory_where_they_are_read_and_where_they_are_used),
        cmocka_unit_test(changing_rows_needs_memory_for_each_thread),
        cmocka_unit_test(tests_that_are_read_need_memory_for_the_rows_of_a_pass),
    };

    return cmocka_run_group_tests_name("memory_needs", tests, NULL, NULL);
}
