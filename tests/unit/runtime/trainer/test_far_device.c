/*
 * test_far_device.c - what trainers ask of a device that has memory of its own and can record, as
 * far as one can be told that only says so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/ref/ops_ref.h"
#include "runtime/trainer/prepare/prepare.h"
#include "runtime/trainer/update/update_rule.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"

static struct {
    const struct dp_device *real;
    struct dp_device device;
    const int32_t *labels; /* of the test set */
    size_t label_bytes;    /* copied from there on */
    struct dp_ops ops;
    int updates, queued; /* updates of weights; those since the stream was waited for */
} far;

static dp_status note_upload(struct dp_stream *stream, void *device, const void *host, size_t bytes)
{
    const int32_t *from = host;

    if (from >= far.labels && from < far.labels + SMALL_TEST) {
        far.label_bytes += bytes;
    }
    return far.real->upload(stream, device, host, bytes);
}

static dp_status note_stream(const struct dp_device *device, int threads, struct dp_stream **out)
{
    DP_TRY(far.real->stream_create(device, threads, out));
    (*out)->ops = &far.ops;
    return DP_OK;
}

static dp_status note_update(struct dp_stream *s, const struct dp_update *u, float momentum,
                             bool nesterov, float decay)
{
    far.queued++;
    far.updates++;
    return dp_ref_ops.sgd(s, u, momentum, nesterov, decay);
}

static dp_status note_wait(struct dp_stream *stream)
{
    far.queued = 0;
    return far.real->synchronize(stream);
}

static dp_status never_replay(const struct dp_recording *recording, struct dp_stream *stream)
{
    (void)recording;
    (void)stream;
    return DP_ERR_INTERNAL;
}

static void create(struct small_run *run, const char *layers, const char *const *sets)
{
    assert_int_equal(small_run_create(run, layers, sets), 0);
    memset(&far, 0, sizeof(far));
    far.real = run->device;
    far.device = *far.real;
    far.labels = run->data.test_labels;
}

static size_t evaluate(struct dp_group *group, const void *arg)
{
    struct dp_evaluation found;
    struct dp_trainer *t = NULL;
    size_t wrong = 0;

    if (small_run_trainer(arg, group, 1, &t) != DP_OK) {
        return 1;
    }
    wrong += dp_trainer_evaluate(t, &found) != DP_OK || !(found.loss > 0);
    dp_trainer_destroy(t);
    return wrong;
}

/* Labels to train with are pairs of classes: three words for one. */
static void labels_to_evaluate_are_copied_as_the_data_set_has_them(void **state)
{
    static const char *const sets[] = {"device.name=ref", "train.micro_batch=8",
                                       "data.augment=mixup", NULL};
    struct small_run run;
    (void)state;

    create(&run, small_dense, sets);
    run.model->pairs = true;
    run.data.shape = (struct dp_sample_shape){.count = run.data.sample_bytes};
    far.device.host_memory = false;
    far.device.upload = note_upload;
    run.device = &far.device;
    assert_int_equal(on_local_ranks(1, evaluate, &run), 0);
    assert_int_equal(far.label_bytes, SMALL_TEST * sizeof(int32_t));
    small_run_destroy(&run);
}

static size_t put_and_fetch(struct dp_group *group, const void *run)
{
    struct dp_trainer *t = NULL;
    size_t wrong = 0;

    if (small_run_trainer(run, group, 1, &t) != DP_OK) {
        return 1;
    }
    float *here = t->state.host->flat.weights, *there = t->state.flat.weights;
    const size_t last = t->model->trained - 1;
    wrong += here == there;
    here[0] = 3.0f;
    here[last] = 4.0f;
    wrong += dp_trainer_put(t) != DP_OK || there[0] != 3.0f || there[last] != 4.0f;
    there[last] = 5.0f;
    wrong += here[last] != 4.0f || dp_trainer_fetch(t) != DP_OK || here[last] != 5.0f;
    dp_trainer_destroy(t);
    return wrong;
}

static void all_state_goes_to_the_device_and_back(void **state)
{
    static const char *const sets[] = {"device.name=ref", NULL};
    struct small_run run;
    (void)state;

    create(&run, small_dense, sets);
    far.device.host_memory = false;
    run.device = &far.device;
    assert_int_equal(on_local_ranks(1, put_and_fetch, &run), 0);
    small_run_destroy(&run);
}

static size_t step_ends(struct dp_group *group, const void *arg)
{
    struct dp_step_report report;
    struct dp_trainer *t = NULL;
    size_t wrong = 0;

    if (small_run_trainer(arg, group, 2, &t) != DP_OK) {
        return 1;
    }
    for (int twin = 0; twin < 2; twin++) {
        far.updates = 0;
        wrong += dp_trainer_step(t, &report) != DP_OK || far.updates == 0 || far.queued != 0;
        t->modes.rule = t->modes.rule->scalars_first;
    }
    dp_trainer_destroy(t);
    return wrong;
}

/* Also where weights change last: what updates read is then changed by the host. */
static void a_step_ends_when_its_updates_are_done(void **state)
{
    static const char *const sets[] = {"device.name=ref", "optimizer.name=sgd", NULL};
    struct small_run run;
    (void)state;

    create(&run, small_dense, sets);
    far.ops = dp_ref_ops;
    far.ops.sgd = note_update;
    far.device.host_memory = false;
    far.device.stream_create = note_stream;
    far.device.synchronize = note_wait;
    run.device = &far.device;
    assert_int_equal(on_local_ranks(1, step_ends, &run), 0);
    small_run_destroy(&run);
}

/* ---- the end ---- */

enum { PINS = 32, COPIES = 64 };

/* Memory of the host that is pinned, and copies from it that may not be done. */
static struct {
    struct {
        const char *memory;
        size_t bytes;
    } pins[PINS];
    struct {
        const struct dp_stream *stream;
        const char *host;
    } copies[COPIES];
    size_t pin_count, copy_count;
    int early; /* pins that ended before copies from there; what there was no room to note */
} ahead;

static void note_pin(void *memory, size_t bytes)
{
    if (ahead.pin_count == PINS) {
        ahead.early++;
        return;
    }
    ahead.pins[ahead.pin_count].memory = memory;
    ahead.pins[ahead.pin_count++].bytes = bytes;
}

static void note_unpin(void *memory)
{
    for (size_t i = 0; i < ahead.pin_count; i++) {
        const char *begin = ahead.pins[i].memory, *end = begin + ahead.pins[i].bytes;
        for (size_t k = 0; begin == memory && k < ahead.copy_count; k++) {
            ahead.early += ahead.copies[k].host >= begin && ahead.copies[k].host < end;
        }
    }
}

static dp_status note_copy(struct dp_stream *stream, void *device, const void *host, size_t bytes)
{
    if (ahead.copy_count < COPIES) {
        ahead.copies[ahead.copy_count].stream = stream;
        ahead.copies[ahead.copy_count++].host = host;
    } else {
        ahead.early++;
    }
    return far.real->upload(stream, device, host, bytes);
}

static dp_status note_done(struct dp_stream *stream)
{
    size_t left = 0;

    for (size_t i = 0; i < ahead.copy_count; i++) {
        if (ahead.copies[i].stream != stream) {
            ahead.copies[left++] = ahead.copies[i];
        }
    }
    ahead.copy_count = left;
    return far.real->synchronize(stream);
}

/* With the same batch in every step the next one is always ready. */
static size_t end_with_a_batch_under_way(struct dp_group *group, const void *arg)
{
    const struct small_run *run = arg;
    const struct dp_trainer_config config = {
        .config = run->config,
        .model = run->model,
        .device = run->device,
        .group = group,
        .data = &run->data,
        .threads = 1,
        .total_steps = 2,
        .schedule_steps = 2,
        .cached_input = true,
    };
    struct dp_step_report report;
    struct dp_trainer *t = NULL;
    size_t wrong = 0;

    if (dp_trainer_create(&config, &t) != DP_OK || dp_trainer_init(t) != DP_OK) {
        return 1;
    }
    wrong += dp_trainer_step(t, &report) != DP_OK || ahead.copy_count == 0;
    dp_trainer_destroy(t);
    return wrong;
}

static void batches_are_released_after_the_device_has_read_them(void **state)
{
    static const char *const sets[] = {"device.name=ref", NULL};
    struct small_run run;
    (void)state;

    create(&run, small_dense, sets);
    memset(&ahead, 0, sizeof(ahead));
    far.device.host_memory = false;
    far.device.pin = note_pin;
    far.device.unpin = note_unpin;
    far.device.upload = note_copy;
    far.device.synchronize = note_done;
    run.device = &far.device;
    assert_int_equal(on_local_ranks(1, end_with_a_batch_under_way, &run), 0);
    assert_true(ahead.pin_count > 0);
    assert_int_equal(ahead.early, 0);
    small_run_destroy(&run);
}

/* ---- what can be recorded ---- */

/* A trainer that has been made, asked as if its device could record. */
static size_t ask_why_not(struct dp_group *group, const void *arg)
{
    const struct small_run *run = arg;
    struct dp_trainer *t = NULL;
    const char *why_not;
    size_t wrong = 0;

    if (small_run_trainer(run, group, 1, &t) != DP_OK) {
        return 1;
    }
    wrong += dp_trainer_unrecorded(t) == NULL;
    t->device = &far.device;
    why_not = dp_trainer_unrecorded(t);
    t->device = far.real;
    if (group->size > 1 && run->model->synchronised) {
        wrong += why_not == NULL || strstr(why_not, "synchronised batch norm waits") == NULL;
    } else {
        wrong += why_not != NULL;
    }
    dp_trainer_destroy(t);
    return wrong;
}

static void steps_are_recorded_unless_a_layer_waits_for_other_ranks(void **state)
{
    static const char *const layers[] = {small_dense, small_own_norm, small_conv};
    static const char *const sets[] = {"device.name=ref", NULL};
    (void)state;

    for (size_t i = 0; i < 3; i++) {
        struct small_run run;
        create(&run, layers[i], sets);
        far.device.replay = never_replay;
        for (int ranks = 1; ranks <= 2; ranks++) {
            assert_int_equal(on_local_ranks(ranks, ask_why_not, &run), 0);
        }
        small_run_destroy(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_to_evaluate_are_copied_as_the_data_set_has_them),
        cmocka_unit_test(all_state_goes_to_the_device_and_back),
        cmocka_unit_test(a_step_ends_when_its_updates_are_done),
        cmocka_unit_test(batches_are_released_after_the_device_has_read_them),
        cmocka_unit_test(steps_are_recorded_unless_a_layer_waits_for_other_ranks),
    };

    return cmocka_run_group_tests_name("far_device", tests, NULL, NULL);
}
