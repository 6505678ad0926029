/*
 * test_send_ahead.c - the next batch is copied to a device while it computes, from pinned memory,
 * and work in between changes no bit. Runs a second time on device cuda; where devices use the
 * host's memory nothing is copied at all.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "tests/support/arrays.h"

#include <string.h>
#include <sys/mman.h>

#include "runtime/measure/baseline.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"

enum { STEPS = 8, SMALL_COPY = 256, COPIES = 64, PINS = 32 };

/* ---- what a step copies ---- */

/* Copies to the device, and pinned memory, recorded by a wrapped device. */
static struct {
    struct {
        const struct dp_stream *stream;
        const char *host;
        size_t bytes;
    } copies[COPIES];
    int count;
    struct {
        char *memory;
        size_t bytes;
    } pins[PINS];
} seen;

static const struct dp_device *real;

static dp_status seen_upload(struct dp_stream *stream, void *device, const void *host, size_t bytes)
{
    if (bytes > 0 && seen.count < COPIES) {
        seen.copies[seen.count].stream = stream;
        seen.copies[seen.count].host = host;
        seen.copies[seen.count].bytes = bytes;
        seen.count++;
    }
    return real->upload(stream, device, host, bytes);
}

static void seen_pin(void *memory, size_t bytes)
{
    for (int i = 0; i < PINS; i++) {
        if (seen.pins[i].memory == NULL) {
            seen.pins[i].memory = memory;
            seen.pins[i].bytes = bytes;
            break;
        }
    }
    real->pin(memory, bytes);
}

static void seen_unpin(void *memory)
{
    for (int i = 0; i < PINS; i++) {
        if (seen.pins[i].memory == memory) {
            seen.pins[i].memory = NULL;
        }
    }
    real->unpin(memory);
}

static bool is_pinned(const char *memory, size_t bytes)
{
    for (int i = 0; i < PINS; i++) {
        const char *begin = seen.pins[i].memory;
        if (begin != NULL && memory >= begin && memory + bytes <= begin + seen.pins[i].bytes) {
            return true;
        }
    }
    return false;
}

/* Bytes that a step has copied on that stream, or on all others, from memory that is `pinned`. */
static size_t copied(const struct dp_stream *stream, bool on_it, bool pinned)
{
    size_t bytes = 0;

    for (int i = 0; i < seen.count; i++) {
        if ((seen.copies[i].stream == stream) == on_it &&
            is_pinned(seen.copies[i].host, seen.copies[i].bytes) == pinned) {
            bytes += seen.copies[i].bytes;
        }
    }
    return bytes;
}

/* With the same batch in every step the next one is always ready. */
static dp_status make_trainer(const struct small_run *run, struct dp_group *group,
                              struct dp_trainer **out)
{
    const struct dp_trainer_config config = {
        .config = run->config,
        .model = run->model,
        .device = run->device,
        .group = group,
        .data = &run->data,
        .threads = 1,
        .total_steps = STEPS,
        .schedule_steps = STEPS,
        .cached_input = true,
    };

    DP_TRY(dp_trainer_create(&config, out));
    return dp_trainer_init(*out);
}

static size_t copies_as_expected(struct dp_group *group, const void *arg)
{
    const struct small_run *run = arg;
    const size_t batch = (size_t)run->config->train.global_batch *
                         (run->data.sample_bytes + sizeof(*run->data.train_labels));
    struct dp_trainer *t = NULL;
    struct dp_step_report report;
    size_t wrong = make_trainer(run, group, &t) != DP_OK;

    for (int step = 0; step < STEPS && wrong == 0; step++) {
        const size_t ahead = run->device->host_memory || step + 1 == STEPS ? 0 : batch;
        size_t beside, all;
        seen.count = 0;
        wrong += dp_trainer_step(t, &report) != DP_OK;
        beside = copied(t->compute.stream, false, true);
        all =
            beside + copied(t->compute.stream, true, true) + copied(t->compute.stream, true, false);
        if (beside != ahead || copied(t->compute.stream, false, false) != 0 ||
            (step > 0 && all - beside > SMALL_COPY)) {
            print_error("step %d: %zu bytes beside compute, not %zu; %zu in all\n", step, beside,
                        ahead, all);
            wrong++;
        }
    }
    dp_trainer_destroy(t);
    return wrong;
}

static void check_seen(rank_body *body, const char *const *sets)
{
    struct small_run run;
    struct dp_device wrapped;

    memset(&seen, 0, sizeof(seen));
    assert_int_equal(small_run_create(&run, small_own_norm, sets), 0);
    real = run.device;
    wrapped = *real;
    wrapped.upload = seen_upload;
    wrapped.pin = seen_pin;
    wrapped.unpin = seen_unpin;
    run.device = &wrapped;
    assert_int_equal(on_local_ranks(1, body, &run), 0);
    for (int i = 0; i < PINS; i++) {
        assert_null(seen.pins[i].memory);
    }
    small_run_destroy(&run);
}

static void a_step_copies_the_next_batch_while_computing_from_pinned_memory(void **state)
{
    static const char *const recorded[] = {"device.graph=auto", NULL};
    static const char *const plain[] = {"device.graph=off", NULL};
    static const char *const passes[] = {"train.micro_batch=32", NULL};
    (void)state;

    check_seen(copies_as_expected, recorded);
    check_seen(copies_as_expected, plain);
    check_seen(copies_as_expected, passes);
}

/* The rows of the first pass are sent, and nothing else. */
static size_t sends_a_batch(struct dp_group *group, const void *arg)
{
    const struct small_run *run = arg;
    const size_t rows = (size_t)run->config->train.global_batch;
    const size_t first =
        dp_micro_batch_at(rows, (size_t)run->config->train.micro_batch, 0).rows.count;
    const struct dp_batch batch = {.global_rows = rows,
                                   .rows = rows,
                                   .images = run->data.train_images,
                                   .labels = run->data.train_labels};
    const size_t row = run->data.sample_bytes + sizeof(*run->data.train_labels);
    const size_t expected = run->device->host_memory ? 0 : first * row;
    struct dp_trainer *t = NULL;
    size_t wrong, bytes;

    if (make_trainer(run, group, &t) != DP_OK) {
        return 1;
    }
    seen.count = 0;
    wrong = dp_micro_batch_send(&t->compute.micro_batches, &batch) != DP_OK;
    bytes = copied(t->compute.stream, false, true) + copied(t->compute.stream, false, false);
    wrong += bytes != expected || copied(t->compute.stream, true, false) != 0;
    wrong += dp_pass_drop_rows(t->compute.pass) != DP_OK;
    dp_trainer_destroy(t);
    return wrong;
}

static void a_batch_is_sent_by_the_rows_of_its_first_pass(void **state)
{
    static const char *const passes[] = {"train.micro_batch=5", NULL};
    (void)state;

    check_seen(sends_a_batch, NULL);
    check_seen(sends_a_batch, passes);
}

/* ---- what comes in between ---- */

static dp_status evaluates(struct dp_trainer *t)
{
    struct dp_evaluation evaluation;

    return t->state.step % 3 == 1 ? dp_trainer_evaluate(t, &evaluation) : DP_OK;
}

/* One rank alone computes on the same pass, and sends its own batches. */
static dp_status measures(struct dp_trainer *t)
{
    struct dp_baseline baseline;

    return t->state.step % 4 == 2 ? dp_baseline_measure(t, 1, 1.0, true, &baseline) : DP_OK;
}

static void check_in_between(const char *layers, const char *const *sets, int ranks)
{
    small_interlude *const interludes[] = {evaluates, measures};
    struct outcome expected, found;
    struct small_run run;

    assert_int_equal(small_run_create(&run, layers, sets), 0);
    assert_int_equal(small_train(&run, ranks, 2 * STEPS, NULL, &expected), 0);
    for (size_t i = 0; i < DP_COUNT(interludes); i++) {
        assert_int_equal(small_train(&run, ranks, 2 * STEPS, interludes[i], &found), 0);
        assert_memory_equal(found.hash, expected.hash, sizeof(expected.hash));
        assert_memory_equal(found.loss, expected.loss, sizeof(expected.loss));
        outcome_fini(&found);
    }
    outcome_fini(&expected);
    small_run_destroy(&run);
}

static void work_between_sending_and_using_a_batch_changes_no_bit(void **state)
{
    static const char *const plain[] = {NULL};
    static const char *const passes[] = {"train.micro_batch=5", "comm.overlap=on", NULL};
    (void)state;

    for (int ranks = 1; ranks <= 2; ranks++) {
        check_in_between(small_dropout, plain, ranks);
        check_in_between(small_dense, passes, ranks);
    }
}

/* Many short passes, each sent while the previous one is computed, give the same as without. */
static void passes_that_are_sent_ahead_give_the_bits_of_ref(void **state)
{
    static const char *const there[] = {"train.micro_batch=1", NULL};
    static const char *const here[] = {"train.micro_batch=1", "device.name=ref", NULL};
    struct outcome found, expected;
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, there), 0);
    assert_int_equal(small_train(&run, 1, STEPS, NULL, &found), 0);
    small_run_destroy(&run);
    assert_int_equal(small_run_create(&run, small_dense, here), 0);
    assert_int_equal(small_train(&run, 1, STEPS, NULL, &expected), 0);
    assert_true(small_distance(&run, &found, &expected) < 1e-4);
    small_run_destroy(&run);
    outcome_fini(&found);
    outcome_fini(&expected);
}

/* ---- the end ---- */

enum { ROWS = 3, PAGES = 4096 };

static dp_status load(struct dp_trainer *t, const struct dp_pass_rows *rows, float *numbers)
{
    const struct dp_normalize *n = &t->compute.normalize;
    const size_t count = rows->count * t->input.data->sample_bytes;

    DP_TRY(dp_pass_load(t->compute.pass, rows, n->scale, n->shift, n->channels));
    return dp_device_read(t->compute.stream, numbers, dp_pass_input(t->compute.pass),
                          count * sizeof(*numbers));
}

/* Rows that change after sending are sent again; rows that are gone are not read. */
static size_t drops_rows(struct dp_group *group, const void *arg)
{
    const struct small_run *run = arg;
    const size_t count = ROWS * run->data.sample_bytes, at = PAGES - sizeof(int32_t) * ROWS;
    unsigned char *memory =
        mmap(NULL, PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const struct dp_pass_rows rows = {memory, (const int32_t *)(void *)(memory + at), ROWS, false};
    const struct dp_pass_rows others = {run->data.train_images, run->data.train_labels, ROWS,
                                        false};
    float *found = zeros(count), *expected = zeros(count);
    struct dp_trainer *t = NULL;
    size_t wrong = memory == MAP_FAILED || make_trainer(run, group, &t) != DP_OK;

    if (wrong == 0) {
        wrong += dp_pass_send(t->compute.pass, &rows) != DP_OK;
        wrong += dp_pass_drop_rows(t->compute.pass) != DP_OK;
        memcpy(memory, others.images, count);
        wrong += load(t, &rows, found) != DP_OK;
        wrong += load(t, &others, expected) != DP_OK;
        wrong += memcmp(found, expected, count * sizeof(*found)) != 0;
        wrong += dp_pass_send(t->compute.pass, &rows) != DP_OK;
        wrong += dp_pass_drop_rows(t->compute.pass) != DP_OK;
        (void)munmap(memory, PAGES);
        wrong += load(t, &others, found) != DP_OK;
        wrong += memcmp(found, expected, count * sizeof(*found)) != 0;
    }
    dp_trainer_destroy(t);
    dp_free(found);
    dp_free(expected);
    return wrong;
}

static void dropped_rows_are_neither_read_nor_taken_for_sent(void **state)
{
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, NULL), 0);
    for (int i = 0; i < 8; i++) { /* queued work runs at random times */
        assert_int_equal(on_local_ranks(1, drops_rows, &run), 0);
    }
    small_run_destroy(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_copies_the_next_batch_while_computing_from_pinned_memory),
        cmocka_unit_test(a_batch_is_sent_by_the_rows_of_its_first_pass),
        cmocka_unit_test(work_between_sending_and_using_a_batch_changes_no_bit),
        cmocka_unit_test(passes_that_are_sent_ahead_give_the_bits_of_ref),
        cmocka_unit_test(dropped_rows_are_neither_read_nor_taken_for_sent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
