/*
 * test_batch_link.c - batches that other ranks read are those that a rank would read itself, for
 * any numbers of both; what is under way is bounded, and ends at any step.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "collectives/core/transport.h"
#include "runtime/trainer/compute/input.h"
#include "runtime/trainer/input/batch_sender.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"

/* With a global batch of 32: four whole batches and one of 3 rows an epoch. */
enum { FIRST = 3, STEPS = 12 };

struct job {
    const struct small_run *run;
    int trainers, readers;
    uint64_t taken;   /* batches that each rank that trains takes; of STEPS */
    bool cached, bad; /* bad: no row is as it was read */
    bool apart;       /* each rank takes a batch less than the one before */
};

static const uint32_t no_prints[1024]; /* that no row of the set has */

static struct dp_loader_config loader_of(const struct job *job, const struct dp_augment *augment,
                                         int rank, int ranks, bool reads)
{
    const struct small_run *run = job->run;
    struct dp_loader_config config =
        dp_dataset_loader(&run->data, run->config, run->model, augment, run->device, 2);

    config.global_batch = (size_t)run->config->train.global_batch;
    config.rank = rank;
    config.ranks = ranks;
    config.cached = job->cached;
    config.first_step = FIRST;
    config.total_steps = FIRST + STEPS;
    config.prints = job->bad && reads ? no_prints : NULL;
    return config;
}

static size_t differ(const struct dp_batch *a, const struct dp_batch *b, const struct job *job)
{
    const size_t words = dp_model_label_words(job->run->model);

    return (a->step != b->step || a->epoch != b->epoch || a->global_rows != b->global_rows ||
            a->first_row != b->first_row || a->rows != b->rows)
               ? 1
               : (memcmp(a->images, b->images, a->rows * job->run->data.sample_bytes) != 0) +
                     (memcmp(a->labels, b->labels, a->rows * words * sizeof(int32_t)) != 0);
}

/* Of what readers cannot read those ranks know that get the first rows of one. */
static bool is_told(const struct job *job, const struct dp_batch_link *link, int rank, size_t rows)
{
    const struct dp_range mine = dp_row_range(rows, rank, job->trainers);

    for (int i = 0; i < job->readers; i++) {
        const struct dp_range read = dp_row_range(rows, i, job->readers);
        if (dp_batch_link_rows(link, i, rank, rows).count > 0 && mine.begin <= read.begin) {
            return job->bad;
        }
    }
    return false;
}

static size_t train(const struct job *job, const struct dp_batch_link *link, int rank)
{
    const uint64_t taken = job->taken - (job->apart ? (uint64_t)rank : 0);
    struct dp_batch_receiver *receiver = NULL;
    struct dp_augment *augment = NULL;
    struct dp_loader *loader = NULL;
    struct dp_loader_config config;
    struct dp_batch mine, theirs, next;
    struct dp_log_error error;
    uint64_t waited_ns, batches;
    size_t wrong;

    wrong = dp_dataset_augment(&job->run->data, job->run->config, &augment) != DP_OK;
    config = loader_of(job, augment, rank, job->trainers, false);
    wrong += dp_loader_create(&config, &loader) != DP_OK;
    wrong += dp_batch_receiver_create(link, rank, FIRST, &receiver) != DP_OK;
    for (uint64_t i = 0; wrong == 0 && i < taken; i++) {
        bool there = dp_batch_receiver_peek(receiver, &next);
        while (wrong == 0 && !there && i % 2 == 1) { /* it comes without being waited for */
            bool more;
            wrong += dp_p2p_poll(link->p2p, &more) != DP_OK;
            (void)sched_yield();
            there = dp_batch_receiver_peek(receiver, &next);
        }
        wrong += dp_loader_next(loader, &mine) != DP_OK;
        const dp_status status = dp_batch_receiver_next(receiver, &theirs, &error);
        const bool told = is_told(job, link, rank, theirs.global_rows);
        wrong += status != (told ? DP_ERR_DISAGREE : DP_OK);
        wrong += (strstr(error.text, "sample") != NULL) != told;
        wrong +=
            job->bad ? 0 : differ(&mine, &theirs, job) + (there ? differ(&next, &theirs, job) : 0);
    }
    if (wrong == 0 && taken == STEPS) {
        wrong += dp_batch_receiver_peek(receiver, &next);
        wrong += dp_batch_receiver_next(receiver, &theirs, &error) != DP_ERR_ARG;
    }
    dp_batch_receiver_waits(receiver, &waited_ns, &batches);
    wrong += batches != taken;
    wrong += dp_batch_receiver_end(receiver) != DP_OK;
    wrong += link->p2p->first != NULL; /* nothing is under way, whatever was asked for */
    wrong += dp_batch_receiver_end(receiver) != DP_OK; /* once is enough */
    dp_batch_receiver_destroy(receiver);
    dp_loader_destroy(loader);
    dp_augment_destroy(augment);
    return wrong;
}

static dp_status look(void *looks)
{
    ++*(int *)looks;
    return DP_OK;
}

static size_t serve(const struct job *job, const struct dp_batch_link *link, int reader)
{
    struct dp_batch_sender *sender = NULL;
    struct dp_augment *augment = NULL;
    struct dp_loader *loader = NULL;
    struct dp_loader_config config;
    struct dp_batch last;
    size_t wrong;
    int looks = 0;

    wrong = dp_dataset_augment(&job->run->data, job->run->config, &augment) != DP_OK;
    config = loader_of(job, augment, reader, job->readers, true);
    wrong += dp_loader_create(&config, &loader) != DP_OK;
    wrong += dp_batch_sender_create(link, reader, loader, &sender) != DP_OK;
    wrong += dp_batch_sender_run(sender, look, &looks) != DP_OK || looks == 0;
    wrong += link->p2p->first != NULL; /* all that it sent has gone */
    /* It has read no further than it was allowed to. */
    if (!job->cached && !job->bad && job->taken + DP_BATCH_LINK_DEPTH < STEPS) {
        wrong += dp_loader_next(loader, &last) != DP_OK ||
                 last.step - FIRST > job->taken - 1 + DP_BATCH_LINK_DEPTH;
    }
    dp_batch_sender_destroy(sender);
    dp_loader_destroy(loader);
    dp_augment_destroy(augment);
    return wrong;
}

static size_t take_part(struct dp_group *group, const void *arg)
{
    const struct job *job = arg;
    const int rank = group->rank;
    const bool trains = rank < job->trainers;
    struct dp_p2p p2p;
    const struct dp_batch_link link = {
        .p2p = &p2p,
        .trainers = job->trainers,
        .readers = job->readers,
        .first_reader = job->trainers,
        .sample_bytes = job->run->data.sample_bytes,
        .label_words = dp_model_label_words(job->run->model),
        .count = job->run->data.train_count,
        .global_batch = (size_t)job->run->config->train.global_batch,
        .cached = job->cached,
        .batches = job->cached && !trains ? 1 : STEPS,
    };
    size_t wrong;

    dp_p2p_open(&p2p, group, NULL, NULL);
    wrong = trains ? train(job, &link, rank) : serve(job, &link, rank - job->trainers);
    dp_p2p_close(&p2p);
    return wrong;
}

static const char *const augmented[] = {"data.augment=[{random_crop: {padding: 1}}, {flip: {}}]",
                                        NULL};

/* Whose samples are pictures, as augmentations want them. */
static void create_pictures(struct small_run *run)
{
    const struct dp_shape *input;

    assert_int_equal(small_run_create(run, small_conv, augmented), 0);
    input = &run->config->model.input;
    run->data.shape = (struct dp_sample_shape){.height = (int)input->dim[0],
                                               .width = (int)input->dim[1],
                                               .channels = (int)input->dim[2],
                                               .count = dp_shape_count(input),
                                               .element = DP_ELEMENT_BYTE};
}

static void batches_are_those_that_a_rank_would_read_itself(void **state)
{
    static const int numbers[][2] = {{1, 1}, {1, 3}, {2, 1}, {2, 2},
                                     {3, 2}, {2, 3}, {5, 3}, {7, 1}};
    struct small_run run;
    (void)state;

    create_pictures(&run);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        for (int cached = 0; cached < 2; cached++) {
            const struct job job = {&run,        numbers[i][0], numbers[i][1], STEPS,
                                    cached == 1, false,         false};
            assert_int_equal(on_local_ranks(job.trainers + job.readers, take_part, &job), 0);
        }
    }
    small_run_destroy(&run);
}

static void a_run_may_end_after_any_step(void **state)
{
    struct small_run run;
    (void)state;

    create_pictures(&run);
    for (uint64_t taken = 1; taken < STEPS; taken += 2) {
        const struct job job = {&run, 2, 2, taken, false, false, false};
        assert_int_equal(on_local_ranks(4, take_part, &job), 0);
    }
    small_run_destroy(&run);
}

static void ranks_may_end_one_after_another(void **state)
{
    struct small_run run;
    (void)state;

    create_pictures(&run);
    for (uint64_t taken = 4; taken < STEPS; taken += 3) {
        const struct job job = {&run, 3, 2, taken, false, false, true};
        assert_int_equal(on_local_ranks(5, take_part, &job), 0);
    }
    small_run_destroy(&run);
}

/* A server, which gets no rows, knows of every batch what a rank that reads knows. */
static size_t count_as_server(struct dp_group *group, const void *arg)
{
    const struct job *job = arg;
    const struct dp_loader_config config = loader_of(job, NULL, group->rank, group->size, true);
    struct dp_input in = {.data = &job->run->data,
                          .global_batch = config.global_batch,
                          .drop_last = config.drop_last};
    struct dp_loader *loader = NULL;
    struct dp_batch batch;
    size_t wrong = dp_loader_create(&config, &loader) != DP_OK;

    in.failure = DP_ERR_DATA;
    for (uint64_t step = FIRST; wrong == 0 && step < FIRST + STEPS; step++) {
        wrong += dp_loader_next(loader, &batch) != DP_OK;
        dp_input_try(&in, step);
        wrong += in.failure != DP_OK || in.batch.rows != 0;
        wrong += in.batch.step != batch.step || in.batch.epoch != batch.epoch;
        wrong += in.batch.global_rows != batch.global_rows;
        wrong += in.batch.first_row != batch.global_rows;
    }
    dp_loader_destroy(loader);
    return wrong;
}

static void servers_count_as_those_that_read(void **state)
{
    struct small_run run;
    const struct job job = {&run, 1, 0, STEPS, false, false, false};
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, NULL), 0);
    assert_int_equal(on_local_ranks(1, count_as_server, &job), 0);
    assert_int_equal(on_local_ranks(2, count_as_server, &job), 0);
    small_run_destroy(&run);
}

static void rows_that_cannot_be_read_are_told_to_one_rank(void **state)
{
    static const int numbers[][2] = {{1, 1}, {1, 2}, {3, 1}, {3, 2}, {2, 3}};
    const int errors = dp_log_errors();
    struct small_run run;
    (void)state;

    create_pictures(&run);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        const struct job job = {&run, numbers[i][0], numbers[i][1], STEPS, false, true, false};
        assert_int_equal(on_local_ranks(job.trainers + job.readers, take_part, &job), 0);
    }
    assert_int_equal(dp_log_errors(), errors + 10); /* of the call after the last batch */
    small_run_destroy(&run);
}

/* The rows of one rank that trains, taken together from all readers. */
static void check_readers(const struct dp_batch_link *link, int trainer, size_t rows)
{
    const struct dp_range mine = dp_row_range(rows, trainer, link->trainers);
    size_t next = mine.begin;

    for (int r = 0; r < link->readers; r++) {
        const struct dp_range part = dp_batch_link_rows(link, r, trainer, rows);
        assert_true(part.count == 0 || part.begin == next);
        next += part.count;
    }
    assert_int_equal(next, mine.begin + mine.count);
}

static void every_row_has_one_reader(void **state)
{
    (void)state;

    for (int trainers = 1; trainers < 9; trainers++) {
        for (int readers = 1; readers < 9; readers++) {
            const struct dp_batch_link link = {.trainers = trainers, .readers = readers};
            for (size_t i = 0; i < 40 * (size_t)trainers; i++) {
                check_readers(&link, (int)i % trainers, i / (size_t)trainers);
            }
        }
    }
}

static size_t create_receiver(struct dp_group *group, const void *arg)
{
    const struct job *job = arg;
    struct dp_p2p p2p;
    const struct dp_batch_link link = {.p2p = &p2p,
                                       .trainers = 1,
                                       .readers = 1,
                                       .first_reader = 1,
                                       .sample_bytes = job->run->data.sample_bytes,
                                       .label_words = 1,
                                       .count = 32,
                                       .global_batch = 32};
    struct dp_batch_receiver *receiver = NULL; /* of no batches: it asks for none */
    dp_status status;

    dp_p2p_open(&p2p, group, NULL, NULL);
    status = dp_batch_receiver_create(&link, 0, 0, &receiver);
    dp_batch_receiver_destroy(receiver);
    dp_p2p_close(&p2p);
    return status != DP_OK;
}

/* How much more memory a rank has that reads, or trains, once it has been created. */
static size_t link_bytes(struct dp_group *group, bool reads, size_t label_words)
{
    const size_t before = dp_mem_bytes(DP_MEM_DATA);
    struct dp_batch_receiver *receiver = NULL;
    struct dp_batch_sender *sender = NULL;
    struct dp_p2p p2p;
    const struct dp_batch_link link = {.p2p = &p2p,
                                       .trainers = 1,
                                       .readers = 1,
                                       .first_reader = 0,
                                       .sample_bytes = 1024,
                                       .label_words = label_words,
                                       .count = 32,
                                       .global_batch = 32};
    size_t bytes;

    dp_p2p_open(&p2p, group, NULL, NULL);
    if (reads) {
        assert_int_equal(dp_batch_sender_create(&link, 0, NULL, &sender), DP_OK);
    } else {
        assert_int_equal(dp_batch_receiver_create(&link, 0, 0, &receiver), DP_OK);
    }
    bytes = dp_mem_bytes(DP_MEM_DATA) - before;
    dp_p2p_close(&p2p);
    dp_batch_receiver_destroy(receiver);
    dp_batch_sender_destroy(sender);
    return bytes;
}

static void there_is_room_for_all_labels_of_a_row(void **state)
{
    enum { MORE = 1024, BYTES = sizeof(int32_t) * DP_BATCH_LINK_DEPTH * 32 * MORE };
    struct dp_group *group = NULL;
    (void)state;

    assert_int_equal(dp_local_alone(&group), DP_OK);
    for (int reads = 0; reads < 2; reads++) {
        assert_int_equal(link_bytes(group, reads == 1, 1 + MORE),
                         link_bytes(group, reads == 1, 1) + BYTES);
    }
    dp_group_destroy(group);
}

/* The threads that a loader begins with. */
static int first_workers(struct dp_loader_config config, const struct dp_device *pinned)
{
    struct dp_loader_report report = {.workers = 0};
    struct dp_loader *loader = NULL;

    config.global_batch = 32;
    config.ranks = 1;
    config.total_steps = 1;
    config.device = pinned;
    assert_int_equal(dp_loader_create(&config, &loader), DP_OK);
    dp_loader_report(loader, &report);
    dp_loader_destroy(loader);
    return report.workers;
}

/* Beside a processor one thread copies fast enough; a GPU may need more, from the begin on. */
static void more_threads_may_copy_for_a_device_of_its_own_memory(void **state)
{
    const struct dp_device gpu = {.host_memory = false};
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_conv, NULL), 0);
    const struct dp_loader_config beside =
        dp_dataset_loader(&run.data, run.config, run.model, NULL, run.device, 6);
    const struct dp_loader_config apart =
        dp_dataset_loader(&run.data, run.config, run.model, NULL, &gpu, 6);
    assert_int_equal(beside.workers_most, 1);
    assert_int_equal(apart.workers_most, 6);
    assert_int_equal(first_workers(beside, NULL), 1);
    assert_int_equal(first_workers(apart, run.device), 6);
    small_run_destroy(&run);
}

static void failed_allocation_makes_create_fail_and_leaves_nothing(void **state)
{
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_conv, NULL), 0);
    const struct job job = {.run = &run};
    check_failing_allocations(1, NULL, create_receiver, &job);
    small_run_destroy(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_those_that_a_rank_would_read_itself),
        cmocka_unit_test(a_run_may_end_after_any_step),
        cmocka_unit_test(ranks_may_end_one_after_another),
        cmocka_unit_test(servers_count_as_those_that_read),
        cmocka_unit_test(rows_that_cannot_be_read_are_told_to_one_rank),
        cmocka_unit_test(every_row_has_one_reader),
        cmocka_unit_test(there_is_room_for_all_labels_of_a_row),
        cmocka_unit_test(more_threads_may_copy_for_a_device_of_its_own_memory),
        cmocka_unit_test(failed_allocation_makes_create_fail_and_leaves_nothing),
    };
    return cmocka_run_group_tests_name("batch_link", tests, NULL, NULL);
}
