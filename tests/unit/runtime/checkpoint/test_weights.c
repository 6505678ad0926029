/* test_weights.c - weights are written and read with PyTorch's names, shapes and layouts. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/weights.h"
#include "tests/support/scratch.h"

/* A convolution [3, 2, 2, 2], batch norm, and a dense layer [4, 12] after a flatten of 2x2x3; in
 * an order that is not the file's. Dense columns are more than one block of the loader. */
enum { OUT = 4, SPATIAL = 1600, CHANNELS = 3, COLUMNS = SPATIAL * CHANNELS };

static const struct dp_tensor params[] = {
    {.name = "10.weight",
     .dims = 2,
     .shape = {OUT, COLUMNS},
     .count = (size_t)OUT * COLUMNS,
     .begin = 0,
     .spatial = SPATIAL,
     .channels = CHANNELS},
    {.name = "2.body.0.weight",
     .dims = 4,
     .shape = {3, 2, 2, 2},
     .count = 24,
     .begin = 19264,
     .spatial = 4,
     .channels = 2},
    {.name = "10.bias",
     .dims = 1,
     .shape = {OUT},
     .count = OUT,
     .begin = 19200,
     .spatial = 1,
     .channels = OUT},
    {.name = "2.body.1.weight",
     .dims = 1,
     .shape = {3},
     .count = 3,
     .begin = 19328,
     .spatial = 1,
     .channels = 3},
};
static const struct dp_tensor buffers[] = {
    {.name = "2.body.1.running_mean",
     .dims = 1,
     .shape = {3},
     .count = 3,
     .begin = 0,
     .spatial = 1,
     .channels = 3},
    {.name = "2.body.1.running_var",
     .dims = 1,
     .shape = {3},
     .count = 3,
     .begin = 3,
     .spatial = 1,
     .channels = 3},
};
enum { PARAMS = 4, BUFFERS = 2, TOTAL = 19392, RUNNING = 6 };

static char counters[1][DP_TENSOR_NAME] = {"2.body.1.num_batches_tracked"};

struct net {
    float values[TOTAL], running[RUNNING];
    int64_t tracked;
    struct dp_weights weights;
};

static void net_init(struct net *net, float scale)
{
    memset(net, 0, sizeof(*net));
    for (int i = 0; i < TOTAL; i++) {
        net->values[i] = scale * (float)i;
    }
    for (int i = 0; i < RUNNING; i++) {
        net->running[i] = scale * (float)(100 + i);
    }
    net->tracked = (int64_t)scale * 17;
    net->weights = (struct dp_weights){.params = params,
                                       .param_count = PARAMS,
                                       .values = net->values,
                                       .buffers = buffers,
                                       .buffer_count = BUFFERS,
                                       .running = net->running,
                                       .counters = counters,
                                       .counter_count = 1,
                                       .batches_tracked = &net->tracked};
}

static struct net saved, loaded;

static dp_status save(const char *path)
{
    const char *broken = "";
    const dp_status status = dp_weights_save(path, &saved.weights, NULL, &broken, NULL);

    assert_null(broken);
    return status;
}

/* Parameters and running statistics, first and last elements, also those that are moved. */
static void writing_finds_numbers_that_are_not_finite(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    const char *broken = NULL;
    (void)state;

    net_init(&saved, 1);
    saved.values[0] = FLT_MAX;
    assert_int_equal(save(scratch_path("m")), DP_OK);
    for (int i = 0; i < 3 * (PARAMS + BUFFERS) * 2; i++) {
        const int k = i / 6;
        const struct dp_tensor *tensor = k < PARAMS ? &params[k] : &buffers[k - PARAMS];
        float *of = (k < PARAMS ? saved.values : saved.running) + tensor->begin;
        float *one = i / 3 % 2 == 0 ? of : of + tensor->count - 1;
        const float before = *one;

        *one = bad[i % 3];
        assert_int_equal(dp_weights_save(scratch_path("m"), &saved.weights, NULL, &broken, NULL),
                         DP_OK);
        *one = before;
        assert_non_null(broken);
        assert_string_equal(broken, tensor->name);
    }
}

static void the_file_has_pytorchs_layout(void **state)
{
    struct dp_safetensors *file = NULL;
    const struct dp_stored *tensor;
    (void)state;

    net_init(&saved, 1);
    assert_int_equal(save(scratch_path("m")), DP_OK);
    assert_int_equal(dp_safetensors_open(scratch_path("m"), &file), DP_OK);
    assert_int_equal(dp_safetensors_count(file), PARAMS + BUFFERS + 1);
    assert_string_equal(dp_safetensors_note(file, "format"), "pt");
    for (int i = 0; i < PARAMS; i++) {
        tensor = dp_safetensors_find(file, params[i].name);
        assert_non_null(tensor);
        assert_string_equal(tensor->type, "F32");
        for (size_t k = 0; k < params[i].count; k++) {
            float value;

            memcpy(&value, (const char *)tensor->data + k * sizeof(value), sizeof(value));
            assert_true(value == saved.values[params[i].begin + dp_tensor_index(&params[i], k)]);
        }
    }
    tensor = dp_safetensors_find(file, counters[0]);
    assert_non_null(tensor);
    assert_string_equal(tensor->type, "I64");
    assert_int_equal(tensor->dims, 0);
    assert_memory_equal(tensor->data, &saved.tracked, sizeof(saved.tracked));
    dp_safetensors_close(file);
}

static void layers_are_sorted_as_numbers_and_as_pytorch_does(void **state)
{
    static const char *const order[] = {
        "2.body.1.num_batches_tracked", /* wide elements come first */
        "2.body.0.weight",
        "2.body.1.weight",
        "2.body.1.running_mean",
        "2.body.1.running_var",
        "10.weight",
        "10.bias"};
    struct dp_safetensors *file = NULL;
    (void)state;

    net_init(&saved, 1);
    assert_int_equal(save(scratch_path("m")), DP_OK);
    assert_int_equal(dp_safetensors_open(scratch_path("m"), &file), DP_OK);
    for (int i = 0; i < PARAMS + BUFFERS + 1; i++) {
        assert_string_equal(dp_safetensors_at(file, i)->name, order[i]);
    }
    dp_safetensors_close(file);
}

static void saved_weights_are_loaded_to_the_bit(void **state)
{
    (void)state;
    net_init(&saved, 1);
    net_init(&loaded, 3);
    assert_int_equal(save(scratch_path("m")), DP_OK);
    assert_int_equal(dp_weights_load(scratch_path("m"), &loaded.weights), DP_OK);
    for (int i = 0; i < PARAMS; i++) {
        assert_memory_equal(loaded.values + params[i].begin, saved.values + params[i].begin,
                            params[i].count * sizeof(float));
    }
    assert_memory_equal(loaded.running, saved.running, sizeof(saved.running));
    assert_int_equal(loaded.tracked, saved.tracked);
    assert_true(loaded.values[19204] == 3 * 19204.0f); /* gaps belong to nobody */
    assert_int_equal(dp_mem_live(), 0);
}

/* Loads into the net of scale 3 and checks that the refusal changed nothing. */
static void refused(const char *path, dp_status expected)
{
    static struct net before;

    net_init(&loaded, 3);
    before = loaded;
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(dp_weights_load(path, &loaded.weights), expected);
    dp_log_set_level(DP_LOG_INFO);
    assert_memory_equal(loaded.values, before.values, sizeof(before.values));
    assert_memory_equal(loaded.running, before.running, sizeof(before.running));
    assert_int_equal(loaded.tracked, before.tracked);
    assert_int_equal(dp_mem_live(), 0);
}

static void another_model_is_refused_and_changes_nothing(void **state)
{
    struct dp_tensor other[PARAMS];
    (void)state;

    net_init(&saved, 1);
    memcpy(other, params, sizeof(params));
    saved.weights.params = other;

    saved.weights.param_count = PARAMS - 1; /* a tensor is missing */
    assert_int_equal(save(scratch_path("m")), DP_OK);
    refused(scratch_path("m"), DP_ERR_CONFIG);

    saved.weights.param_count = PARAMS;
    (void)snprintf(other[3].name, sizeof(other[3].name), "2.body.1.gain"); /* one is unknown */
    assert_int_equal(save(scratch_path("m")), DP_OK);
    refused(scratch_path("m"), DP_ERR_CONFIG);

    memcpy(other, params, sizeof(params));
    other[2].shape[0] = 2; /* the same number of dimensions, another size */
    other[2].shape[1] = 3;
    assert_int_equal(save(scratch_path("m")), DP_OK);
    refused(scratch_path("m"), DP_ERR_CONFIG);

    memcpy(other, params, sizeof(params));
    other[1].dims = 2; /* as many elements, another number of dimensions */
    other[1].shape[1] = 1;
    assert_int_equal(save(scratch_path("m")), DP_OK);
    refused(scratch_path("m"), DP_ERR_CONFIG);
}

static void another_element_type_is_refused(void **state)
{
    static const double wide[OUT * COLUMNS];
    struct dp_stored stored[PARAMS + BUFFERS];
    (void)state;

    for (int i = 0; i < PARAMS + BUFFERS; i++) {
        const struct dp_tensor *tensor = i < PARAMS ? &params[i] : &buffers[i - PARAMS];

        stored[i] = (struct dp_stored){.name = tensor->name,
                                       .type = i == 1 ? "F64" : "F32",
                                       .dims = tensor->dims,
                                       .data = wide};
        memcpy(stored[i].shape, tensor->shape, sizeof(tensor->shape));
    }
    assert_int_equal(
        dp_safetensors_write(scratch_path("m"), stored, PARAMS + BUFFERS, NULL, 0, NULL, NULL),
        DP_OK);
    refused(scratch_path("m"), DP_ERR_CONFIG);
    stored[1].type = "F32";
    assert_int_equal(
        dp_safetensors_write(scratch_path("m"), stored, PARAMS + BUFFERS, NULL, 0, NULL, NULL),
        DP_OK);
    net_init(&loaded, 3); /* without counters the rest is read, the counter stays */
    assert_int_equal(dp_weights_load(scratch_path("m"), &loaded.weights), DP_OK);
    assert_true(loaded.values[5] == 0);
    assert_int_equal(loaded.tracked, 51);
}

static void a_missing_file_and_a_damaged_one_are_told_apart(void **state)
{
    (void)state;
    refused(scratch_path("none"), DP_ERR_NOINPUT);
    net_init(&saved, 1);
    assert_int_equal(save(scratch_path("m")), DP_OK);
    assert_int_equal(truncate(scratch_path("m"), 70000), 0);
    refused(scratch_path("m"), DP_ERR_DATA);
}

/* Runs a load with stderr in a file, and returns what was printed. */
static void load_message(const char *path, char *text, size_t size)
{
    const int keep = dup(STDERR_FILENO);
    FILE *log = fopen(scratch_path("log"), "wb");

    assert_non_null(log);
    assert_true(keep >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
    assert_int_equal(dp_weights_load(path, &loaded.weights), DP_ERR_CONFIG);
    assert_true(dup2(keep, STDERR_FILENO) >= 0);
    (void)close(keep);
    (void)fclose(log);
    assert_true(scratch_read(scratch_path("log"), text, size) > 0);
}

static void the_message_names_the_first_differences(void **state)
{
    char text[2048];
    (void)state;

    net_init(&saved, 1);
    net_init(&loaded, 3);
    saved.weights.param_count = 1; /* 10.weight only; three tensors and two buffers are missing */
    saved.weights.buffer_count = 0;
    assert_int_equal(save(scratch_path("m")), DP_OK);
    load_message(scratch_path("m"), text, sizeof(text));
    assert_non_null(strstr(text, "another model: '2.body.0.weight' is missing; "
                                 "'2.body.1.weight' is missing; "
                                 "'2.body.1.running_mean' is missing; and 2 more"));
}

static void optimizer_state_has_pytorchs_layout_too(void **state)
{
    static float exp_avg[TOTAL], exp_avg_sq[TOTAL];
    const struct dp_slot slots[] = {{"exp_avg", exp_avg, 0}, {"exp_avg_sq", exp_avg_sq, 0}};
    struct dp_safetensors *file = NULL;
    const struct dp_stored *tensor;
    float value;
    (void)state;

    for (int i = 0; i < TOTAL; i++) {
        exp_avg[i] = (float)i;
        exp_avg_sq[i] = (float)-i;
    }
    assert_int_equal(dp_slots_save(scratch_path("o"), params, PARAMS, slots, 2, NULL, NULL), DP_OK);
    assert_int_equal(dp_safetensors_open(scratch_path("o"), &file), DP_OK);
    assert_int_equal(dp_safetensors_count(file), 2 * PARAMS);
    tensor = dp_safetensors_find(file, "2.body.0.weight.exp_avg_sq");
    assert_non_null(tensor);
    assert_int_equal(tensor->dims, 4);
    memcpy(&value, (const char *)tensor->data + 5 * sizeof(value), sizeof(value));
    assert_true(value == -(float)(19264 + dp_tensor_index(&params[1], 5)));
    dp_safetensors_close(file);

    assert_int_equal(dp_slots_save(scratch_path("o"), params, PARAMS, NULL, 0, NULL, NULL), DP_OK);
    assert_int_equal(dp_safetensors_open(scratch_path("o"), &file), DP_OK);
    assert_int_equal(dp_safetensors_count(file), 0);
    dp_safetensors_close(file);
}

/* Loose tensors are read if file and slots agree; all others are required. */
static void loose_tensors_may_be_missing_or_different(void **state)
{
    static float momentum[TOTAL], other[TOTAL], extra[TOTAL];
    float own[5] = {1, 2, 3, 4, 5}, back[6] = {0};
    const struct dp_slot saved_slots[] = {{"momentum", momentum, 0}, {"x.own", own, 5}};
    const struct dp_slot same[] = {{"momentum", other, 0}, {"x.own", back, 5}};
    const struct dp_slot longer[] = {{"x.own", back, 6}, {"momentum", other, 0}};
    const struct dp_slot more[] = {{"momentum", other, 0}, {"x.more", extra, 0}};
    struct dp_loose loose = {.word = "x."};
    (void)state;

    momentum[3] = 7;
    extra[3] = 9;
    assert_int_equal(dp_slots_save(scratch_path("o"), params, PARAMS, saved_slots, 2, NULL, NULL),
                     DP_OK);
    assert_int_equal(dp_slots_load(scratch_path("o"), params, PARAMS, same, 2, &loose), DP_OK);
    assert_memory_equal(back, own, sizeof(own));
    assert_memory_equal(other, momentum, sizeof(momentum));
    assert_true(loose.taken == 1 && loose.dropped == 0 && loose.anew == 0);

    memset(back, 0, sizeof(back));
    loose = (struct dp_loose){.word = "x."};
    assert_int_equal(dp_slots_load(scratch_path("o"), params, PARAMS, longer, 2, &loose), DP_OK);
    assert_true(back[0] == 0 && loose.taken == 0 && loose.dropped == 1 && loose.anew == 1);
    loose = (struct dp_loose){.word = "x."};
    assert_int_equal(dp_slots_load(scratch_path("o"), params, PARAMS, more, 2, &loose), DP_OK);
    assert_true(extra[3] == 9 && loose.taken == 0 && loose.dropped == 1 && loose.anew == PARAMS);
    loose = (struct dp_loose){.word = "x.", .skip = true};
    assert_int_equal(dp_slots_load(scratch_path("o"), params, PARAMS, same, 2, &loose), DP_OK);
    assert_true(back[0] == 0 && loose.taken == 0 && loose.dropped == 1 && loose.anew == 1);

    loose = (struct dp_loose){.word = "y."};
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(dp_slots_load(scratch_path("o"), params, PARAMS, longer, 2, &loose),
                     DP_ERR_CONFIG);
    assert_int_equal(dp_slots_load(scratch_path("o"), params, PARAMS, same, 1, &loose),
                     DP_ERR_CONFIG);
    dp_log_set_level(DP_LOG_INFO);
}

static void pieces_of_any_length_make_the_whole(void **state)
{
    static float theirs[OUT * COLUMNS], ours[OUT * COLUMNS];
    (void)state;

    net_init(&saved, 1);
    for (size_t begin = 0, piece = 1; begin < params[0].count; begin += piece, piece += 97) {
        const size_t rest = params[0].count - begin;

        dp_tensor_export(&params[0], saved.values, begin, rest < piece ? rest : piece,
                         theirs + begin);
    }
    for (size_t begin = 0, piece = 89; begin < params[0].count; begin += piece) {
        const size_t rest = params[0].count - begin;

        dp_tensor_import(&params[0], ours, begin, rest < piece ? rest : piece, theirs + begin);
    }
    assert_memory_equal(ours, saved.values, sizeof(ours));
    assert_true(theirs[1] == saved.values[CHANNELS]); /* the next pixel of the same channel */
}

/* Two rows, each of two pixels of three channels. */
static void two_pixels_are_enough_to_be_moved(void **state)
{
    static const struct dp_tensor tensor = {.count = 12, .spatial = 2, .channels = 3};
    static const float ours[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
                       expected[12] = {0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11};
    float theirs[13], back[12];
    (void)state;

    theirs[12] = -1; /* after them */
    dp_tensor_export(&tensor, ours, 0, 12, theirs);
    assert_memory_equal(theirs, expected, sizeof(expected));
    assert_true(theirs[12] == -1);
    dp_tensor_import(&tensor, back, 0, 12, theirs);
    assert_memory_equal(back, ours, sizeof(back));
}

static void a_full_disk_is_reported(void **state)
{
    (void)state;
    net_init(&saved, 1);
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(save("/dev/full"), DP_ERR_WRITE);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(dp_mem_live(), 0);
}

static void survives_every_failed_allocation(void **state)
{
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    net_init(&saved, 1);
    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        dp_mem_fail_nth(nth);
        status = save(scratch_path("m"));
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_int_equal(dp_mem_live(), 0);
    }
    status = DP_ERR_NOMEM;
    for (int nth = 1; status != DP_OK; nth++) {
        net_init(&loaded, 3);
        dp_mem_fail_nth(nth);
        status = dp_weights_load(scratch_path("m"), &loaded.weights);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_int_equal(loaded.tracked, status == DP_OK ? 17 : 51);
        assert_int_equal(dp_mem_live(), 0);
    }
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(writing_finds_numbers_that_are_not_finite),
        WITH_FOLDER(the_file_has_pytorchs_layout),
        WITH_FOLDER(layers_are_sorted_as_numbers_and_as_pytorch_does),
        WITH_FOLDER(saved_weights_are_loaded_to_the_bit),
        WITH_FOLDER(another_model_is_refused_and_changes_nothing),
        WITH_FOLDER(another_element_type_is_refused),
        WITH_FOLDER(a_missing_file_and_a_damaged_one_are_told_apart),
        WITH_FOLDER(the_message_names_the_first_differences),
        WITH_FOLDER(optimizer_state_has_pytorchs_layout_too),
        WITH_FOLDER(loose_tensors_may_be_missing_or_different),
        cmocka_unit_test(pieces_of_any_length_make_the_whole),
        cmocka_unit_test(two_pixels_are_enough_to_be_moved),
        cmocka_unit_test(a_full_disk_is_reported),
        WITH_FOLDER(survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
