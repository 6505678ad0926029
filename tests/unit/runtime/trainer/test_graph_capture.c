/*
 * test_graph_capture.c - steps that are recorded and replayed: the same bits as steps that are not,
 * on a device that can; and what is refused. Runs a second time on device cuda.
 */
#include "tests/support/arrays.h"

#include <stdatomic.h>

#include "runtime/trainer/compute/graph_capture.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"
#include "tests/support/stderr_text.h"

enum { STEPS = 14, WHOLE = 12 /* two epochs end in a short batch */ };

static bool records(void)
{
    const struct dp_device *device = NULL;

    OK(dp_device_find(tested_device_or("ref"), &device));
    return device->replay != NULL;
}

/* ---- trainings ---- */

static atomic_ullong replays; /* of all ranks, in the last training */
static atomic_ullong skipped; /* steps of any of them */
static uint64_t grow_after;   /* good steps in fp16, if not 0 */

static dp_status count_replays(struct dp_trainer *t)
{
    static _Thread_local uint64_t before;
    const uint64_t now = dp_graph_capture_replays(t->compute.capture);

    atomic_fetch_add(&replays, now >= before ? now - before : now);
    before = now;
    t->state.scaler.grow_after = grow_after != 0 ? grow_after : t->state.scaler.grow_after;
    atomic_store(&skipped, t->state.scaler.skipped);
    return DP_OK;
}

static void train(const char *layers, const char *const *sets, const char *graph, int ranks,
                  struct outcome *out)
{
    const char *all[12] = {graph};
    struct small_run run;
    int count = 1;

    for (; sets[count - 1] != NULL; count++) {
        all[count] = sets[count - 1];
    }
    atomic_store(&replays, 0);
    assert_int_equal(small_run_create(&run, layers, all), 0);
    assert_int_equal(small_train(&run, ranks, STEPS, count_replays, out), 0);
    small_run_destroy(&run);
}

/* Trains with recordings and without: on 1, 2 and 3 ranks. `passes`: of all ranks, for a whole
 * batch. */
static void check_same(const char *layers, const char *const *sets, const int passes[3])
{
    for (int ranks = 1; ranks <= 3; ranks++) {
        const int all = passes[ranks - 1];
        struct outcome plain, recorded;
        train(layers, sets, "device.graph=off", ranks, &plain);
        assert_int_equal(atomic_load(&replays), 0);
        train(layers, sets, "device.graph=auto", ranks, &recorded);
        assert_int_equal(atomic_load(&replays),
                         records() ? all * (WHOLE - DP_GRAPH_CAPTURE_PLAIN) : 0);
        assert_memory_equal(recorded.hash, plain.hash, sizeof(plain.hash));
        assert_memory_equal(recorded.loss, plain.loss, sizeof(plain.loss));
        for (int rank = 0; rank < ranks; rank++) {
            assert_true(recorded.evaluation[rank].loss == plain.evaluation[rank].loss);
        }
        outcome_fini(&plain);
        outcome_fini(&recorded);
    }
}

static void recorded_steps_give_the_same_bits(void **state)
{
    static const char *const plain[] = {NULL}, *const overlap[] = {"comm.overlap=on", NULL};
    static const char *const zero1[] = {"comm.strategy=zero1:over=ring", "comm.overlap=on",
                                        "optimizer.name=adamw", "optimizer.lr=0.003", NULL};
    static const char *const clip[] = {"optimizer.clip_norm=0.05", "comm.strategy=direct", NULL};
    static const int once[] = {1, 2, 3};
    (void)state;

    check_same(small_dropout, plain, once);
    check_same(small_own_norm, overlap, once);
    check_same(small_dense, zero1, once);
    check_same(small_dense, clip, once);
}

static void recorded_passes_of_a_few_rows_give_the_same_bits(void **state)
{
    static const char *const sets[] = {"train.micro_batch=5", "comm.overlap=on", NULL};
    static const int passes[] = {7, 8, 8}; /* of 32; 16 and 16; 10, 11 and 11 rows */
    (void)state;

    check_same(small_dropout, sets, passes);
}

static void narrow_types_and_local_steps_give_the_same_bits(void **state)
{
    static const char *const half[] = {"train.precision=fp16", NULL};
    static const char *const held[] = {"train.precision=fp16", "comm.compressor=topk:ratio=0.2",
                                       NULL};
    static const char *const local[] = {"train.local_steps=3", "train.local_after=2", NULL};
    static const int once[] = {1, 2, 3};
    (void)state;

    check_same(small_dense, half, once);
    check_same(small_dense, held, once);
    check_same(small_dense, local, once);
}

/* The scale doubles after every good step, until a gradient overflows. */
static void a_loss_scale_that_changes_gives_the_same_bits(void **state)
{
    static const char *const half[] = {"train.precision=fp16", NULL};
    static const char *const parts[] = {"train.precision=fp16", "comm.strategy=zero1:over=ring",
                                        "comm.overlap=on", NULL};
    static const int once[] = {1, 2, 3};
    (void)state;

    grow_after = 1;
    check_same(small_dense, half, once);
    assert_in_range(atomic_load(&skipped), 2, STEPS / 2);
    check_same(small_dense, parts, once);
    assert_in_range(atomic_load(&skipped), 2, STEPS / 2);
    grow_after = 0;
}

/* All rows in every step and a learning rate of 0: only the order of the rows, within rounding, and
 * dropout change the loss. */
static void dropout_differs_from_replay_to_replay(void **state)
{
    static const char *const sets[] = {"train.global_batch=131", "optimizer.lr=0", NULL};
    struct outcome with, without;
    (void)state;

    train(small_dropout, sets, "device.graph=auto", 1, &with);
    train(small_dense, sets, "device.graph=auto", 1, &without);
    for (int step = 1; step < STEPS; step++) {
        assert_true(fabsf(without.loss[step][0] - without.loss[0][0]) < 1e-5f);
        for (int earlier = 0; earlier < step; earlier++) {
            assert_true(fabsf(with.loss[step][0] - with.loss[earlier][0]) > 1e-5f);
        }
    }
    outcome_fini(&with);
    outcome_fini(&without);
}

/* ---- what cannot be recorded ---- */

static size_t cannot_create(struct dp_group *group, const void *run)
{
    struct dp_trainer *t = NULL;

    return small_run_trainer(run, group, STEPS, &t) == DP_OK;
}

static void refuse(const char *layers, const char *set, const char *text)
{
    const char *sets[] = {"device.graph=on", set, NULL};
    struct small_run run;

    assert_int_equal(small_run_create(&run, layers, sets), 0);
    stderr_begin();
    const size_t wrong = on_local_ranks(2, cannot_create, &run);
    stderr_end();
    assert_int_equal(wrong, 0);
    assert_non_null(strstr(stderr_text, "device.graph is 'on', but steps cannot be recorded: "));
    assert_non_null(strstr(stderr_text, text));
    small_run_destroy(&run);
}

static void steps_that_cannot_be_recorded_are_refused(void **state)
{
    (void)state;

    if (!records()) {
        refuse(small_dense, NULL, "this device queues nothing");
        return;
    }
    refuse(small_dense, "train.lanes=2", "lanes");
    refuse(small_conv, NULL, "synchronised batch norm");
}

/* ---- the graph capture itself ---- */

enum { COUNT = 100 };

/* Adds x to y, three times; tensors 2 and 0 are ready after the first and the last one. */
struct work {
    struct dp_stream *stream;
    float *x, *y, *host;
    bool waits; /* as nothing may that is recorded */
    int calls;
    float seen[3]; /* y[0] when each tensor became ready; -1: it did not */
};

static dp_status add_thrice(void *context, const struct dp_model_hooks *hooks)
{
    struct work *w = context;

    w->calls++;
    for (int i = 0; i < 3; i++) {
        DP_TRY(w->stream->ops->add(w->stream, w->y, w->x, COUNT));
        DP_TRY(w->waits && i == 1 ? w->stream->device->synchronize(w->stream) : DP_OK);
        DP_TRY(i == 1 ? DP_OK : hooks->ready(hooks->context, 2 - i));
    }
    return DP_OK;
}

static dp_status look(void *context, int tensor)
{
    struct work *w = context;

    DP_TRY(dp_device_read(w->stream, w->host, w->y, COUNT * sizeof(float)));
    w->seen[tensor] = w->host[0];
    return DP_OK;
}

static bool after_two(const void *context, int tensor)
{
    (void)context;
    return tensor == 2;
}

static void work_open(struct work *w)
{
    float one[COUNT];

    memset(w, 0, sizeof(*w));
    for (int i = 0; i < COUNT; i++) {
        one[i] = 1;
    }
    w->stream = stream_on(tested_device_or("ref"), 1);
    w->x = w->stream->device->alloc(DP_MEM_OTHER, sizeof(one));
    w->y = w->stream->device->alloc(DP_MEM_OTHER, sizeof(one));
    w->host = zeros(COUNT);
    assert_non_null(w->x);
    assert_non_null(w->y);
    OK(dp_device_write(w->stream, w->x, one, sizeof(one)));
}

static void work_close(struct work *w)
{
    const struct dp_device *device = w->stream->device;

    device->release(w->y);
    device->release(w->x);
    stream_close(w->stream);
    dp_free(w->host);
}

static struct dp_graph_capture_config config_of(const struct work *w, bool must)
{
    return (struct dp_graph_capture_config){.stream = w->stream,
                                            .rows = 32,
                                            .passes = 1,
                                            .tensors = 3,
                                            .buckets = 2,
                                            .must = must,
                                            .hands_over = after_two};
}

static void a_replay_reports_tensors_when_they_are_ready(void **state)
{
    struct dp_graph_capture *capture = NULL;
    struct work w;
    (void)state;

    if (!records()) {
        return;
    }
    work_open(&w);
    const struct dp_graph_capture_config config = config_of(&w, true);
    const struct dp_model_hooks hooks = {.context = &w, .ready = look};
    OK(dp_graph_capture_create(&config, &capture));
    for (int turn = 0; turn < 6; turn++) {
        const size_t rows = turn == 3 ? 7 : 32; /* a short batch */
        w.seen[0] = w.seen[1] = w.seen[2] = -1;
        OK(dp_graph_capture_run(capture, 0, rows, add_thrice, &w, &hooks));
        assert_true(w.seen[2] == (float)(3 * turn + 1));
        assert_true(w.seen[0] == (float)(3 * turn + 3) && w.seen[1] == -1);
    }
    assert_int_equal(w.calls, 4); /* two without recording, one recorded, the short one */
    assert_int_equal(dp_graph_capture_replays(capture), 3);
    dp_graph_capture_destroy(capture);
    work_close(&w);
}

static void a_step_that_waits_is_not_recorded(void **state)
{
    struct dp_graph_capture *capture = NULL;
    struct work w;
    (void)state;

    for (int must = 0; records() && must < 2; must++) {
        work_open(&w);
        const struct dp_graph_capture_config config = config_of(&w, must == 1);
        const struct dp_model_hooks hooks = {.context = &w, .ready = look};
        w.waits = true;
        OK(dp_graph_capture_create(&config, &capture));
        for (int turn = 0; turn < 4; turn++) {
            stderr_begin();
            const dp_status status = dp_graph_capture_run(capture, 0, 32, add_thrice, &w, &hooks);
            stderr_end();
            assert_int_equal(status, must == 1 && turn >= 2 ? DP_ERR_UNAVAILABLE : DP_OK);
            assert_true(status != DP_OK || w.seen[0] == (float)(3 * turn + 3));
            assert_true((strstr(stderr_text, "recorded: ") != NULL) ==
                        (turn == 2 || status != DP_OK));
        }
        assert_int_equal(dp_graph_capture_replays(capture), 0);
        dp_graph_capture_destroy(capture);
        work_close(&w);
    }
}

static void creating_survives_every_failed_allocation(void **state)
{
    dp_status status = DP_ERR_NOMEM;
    struct work w;
    (void)state;

    if (!records()) {
        return;
    }
    work_open(&w);
    const struct dp_graph_capture_config config = config_of(&w, false);
    const size_t live = dp_mem_live();
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_graph_capture *capture = NULL;
        dp_mem_fail_nth(nth);
        status = dp_graph_capture_create(&config, &capture);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((capture != NULL) == (status == DP_OK));
        dp_graph_capture_destroy(capture);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_mem_fail_nth(0);
    work_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_steps_give_the_same_bits),
        cmocka_unit_test(recorded_passes_of_a_few_rows_give_the_same_bits),
        cmocka_unit_test(narrow_types_and_local_steps_give_the_same_bits),
        cmocka_unit_test(a_loss_scale_that_changes_gives_the_same_bits),
        cmocka_unit_test(dropout_differs_from_replay_to_replay),
        cmocka_unit_test(steps_that_cannot_be_recorded_are_refused),
        cmocka_unit_test(a_replay_reports_tensors_when_they_are_ready),
        cmocka_unit_test(a_step_that_waits_is_not_recorded),
        cmocka_unit_test(creating_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests_name("graph_capture", tests, NULL, NULL);
}
