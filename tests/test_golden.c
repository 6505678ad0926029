/*
 * test_golden.c - steps of the real trainer against PyTorch's in float64.
 *
 * A right answer in float32 is at most twice as far from the float64 one as PyTorch's own float32
 * answers are (tests/golden/README.md); nothing here is a tolerance of ours.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "tests/golden_file.h"
#include "tests/local_world.h"
#include "tests/read_source.h"
#include "tests/tested_device.h"

#define DATA_DIR "/usr/share/datasets/fashion-mnist"

enum { RANKS_MAX = 3, RESULTS_MAX = 2 };

static const char *const small[] = {
    "mlp-small-sgd",      "mlp-small-clipped",      "mlp-small-adamw",
    "lenet-small-sgd",    "lenet-small-nesterov",   "lenet-small-adamw",
    "resnet20-small-sgd", "resnet20-small-clipped", "resnet20-small-adamw",
};

/* One run: what all ranks share. */
struct run {
    const struct golden *golden;
    const struct dp_config *config;
    const struct dp_model *model;
    const char *device;
    struct dp_dataset data;
    char result[16]; /* "p1" */
    uint64_t steps;
    double loss[RANKS_MAX]; /* of the first step */
    struct golden_distance found[RANKS_MAX][RESULTS_MAX][GOLDEN_GROUPS];
};

/* ---- on a rank ---- */

static dp_status make_trainer(struct dp_group *group, const struct run *run,
                              struct dp_trainer **out)
{
    struct dp_trainer_config config = {
        .config = run->config,
        .model = run->model,
        .group = group,
        .data = &run->data,
        .threads = 1,
        .global_batch = (size_t)run->config->train.global_batch,
        .total_steps = run->steps,
        .schedule_steps = run->steps,
    };

    DP_TRY(dp_device_find(run->device, &config.device));
    return dp_trainer_create(&config, out);
}

/* All steps; behind the first and the last one the distances are taken. */
static size_t take_steps(struct dp_trainer *t, struct run *run, int rank)
{
    size_t wrong = golden_load(run->golden, t);

    for (uint64_t step = 1; step <= run->steps; step++) {
        struct dp_step_report report;
        char result[48];

        if (dp_trainer_step(t, &report) != DP_OK) {
            return wrong + 1;
        }
        if (step == 1) {
            run->loss[rank] = (double)report.loss;
            wrong += golden_measure(run->golden, t, run->result, run->found[rank][0]);
        } else if (step == run->steps) {
            (void)snprintf(result, sizeof(result), "%s.step%llu", run->result,
                           (unsigned long long)step);
            wrong += golden_measure(run->golden, t, result, run->found[rank][1]);
        }
    }
    return wrong;
}

static size_t run_rank(struct dp_group *group, const void *arg)
{
    struct run *run = *(struct run *const *)arg;
    struct dp_trainer *trainer = NULL;
    size_t wrong;

    if (make_trainer(group, run, &trainer) != DP_OK) {
        return 1;
    }
    wrong = dp_trainer_init(trainer) != DP_OK ? 1 : take_steps(trainer, run, group->rank);
    dp_trainer_destroy(trainer);
    return wrong;
}

/* ---- on the main thread ---- */

/* The largest ratio of a whole program, for people. */
static double largest;

/* Prints what was off; returns how many groups were. */
static int judge(const char *title, const struct golden_distance *found)
{
    int missed = 0;

    for (int i = 0; i < GOLDEN_GROUPS && found[i].group != NULL; i++) {
        const struct golden_distance *d = &found[i];
        largest = d->ours / d->own > largest ? d->ours / d->own : largest;
        if (!(d->ours <= 2.0 * d->own)) {
            print_error("%s %s: distance %.3e, PyTorch's own %.3e, %.2f times; worst %.3e %s, "
                        "PyTorch's %s\n",
                        title, d->group, d->ours, d->own, d->ours / d->own, d->worst,
                        d->worst_tensor, d->own_worst);
            missed++;
        }
    }
    return missed;
}

/* The mean loss of the first step. Logits and their softmax are off by some 1e-6 in float32. */
static int judge_loss(const struct run *run, const char *title, int rank)
{
    char key[32];
    const char *note;

    (void)snprintf(key, sizeof(key), "loss.%s", run->result);
    note = dp_safetensors_note(run->golden->file, key);
    assert_non_null(note);
    if (fabs(run->loss[rank] - strtod(note, NULL)) <= 1e-5) {
        return 0;
    }
    print_error("%s: loss %.9g, expected %s\n", title, run->loss[rank], note);
    return 1;
}

/* As many ranks as are asked for make the golden's steps, with the configuration of this note.
 * Returns how many things were wrong. */
static int check(struct run *run, const char *name, const char *note, int ranks)
{
    static const char *const sets[] = {"comm.strategy=shm", "comm.bucket_mb=0.05",
                                       "comm.first_bucket_mb=0.01", "comm.overlap=on"};
    static char *const no_environment[] = {NULL};
    const char *content = dp_safetensors_note(run->golden->file, note);
    struct dp_config *config = NULL;
    struct dp_model *model = NULL;
    char *text = NULL, title[128];
    int missed = 0;

    assert_non_null(content);
    assert_int_equal(dp_config_resolve_text(content, strlen(content), name, no_environment, sets,
                                            (int)(sizeof(sets) / sizeof(sets[0])), &text),
                     DP_OK);
    assert_int_equal(dp_config_parse(text, name, &config), DP_OK);
    dp_free(text);
    assert_int_equal(dp_model_create(config->model.layers, config->model.layer_count,
                                     &config->model.input, &model),
                     DP_OK);
    run->config = config;
    run->model = model;
    (void)snprintf(title, sizeof(title), "%s, %s, %s, %d ranks:", name, note, run->device, ranks);
    memset(run->found, 0, sizeof(run->found));
    const size_t wrong = on_local_ranks(ranks, run_rank, &run);
    dp_model_destroy(model);
    dp_config_destroy(config);
    if (wrong != 0) {
        print_error("%s %zu things are wrong\n", title, wrong);
    }
    for (int rank = 0; rank < ranks && wrong == 0; rank++) {
        missed += judge_loss(run, title, rank);
        missed += judge(title, run->found[rank][0]) + judge(title, run->found[rank][1]);
    }
    return missed + (int)wrong;
}

/* Every way in which the file says what `ranks` ranks give. */
static int check_ranks(struct run *run, const char *name, int ranks)
{
    const bool normalises = dp_safetensors_note(run->golden->file, "config.sync") != NULL;
    char key[32];
    int wrong;

    (void)snprintf(run->result, sizeof(run->result), "p1");
    wrong = check(run, name, normalises ? "config.sync" : "config", ranks);
    (void)snprintf(key, sizeof(key), "loss.p%d", ranks);
    if (normalises && dp_safetensors_note(run->golden->file, key) != NULL) {
        (void)snprintf(run->result, sizeof(run->result), "p%d", ranks);
        wrong += check(run, name, "config", ranks);
    }
    return wrong;
}

static void check_small(const char *device)
{
    int wrong = 0;

    largest = 0.0;
    for (size_t i = 0; i < sizeof(small) / sizeof(small[0]); i++) {
        struct golden golden;
        assert_int_equal(golden_open(small[i], &golden), DP_OK);
        for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
            struct run run = {.golden = &golden,
                              .device = device,
                              .steps = 1,
                              .data = {golden.images, golden.images, golden.labels, golden.labels,
                                       golden.rows, golden.rows, 784}};
            wrong += check_ranks(&run, small[i], ranks);
        }
        golden_close(&golden);
    }
    print_message("device %s: at most %.2f times PyTorch-float32's own distance\n", device,
                  largest);
    assert_int_equal(wrong, 0);
    assert_int_equal(dp_mem_live(), 0);
}

static void small_models_step_as_pytorch_in_float64_on_cpu(void **state)
{
    (void)state;
    check_small(tested_device());
}

static void small_models_step_as_pytorch_in_float64_on_ref(void **state)
{
    (void)state;
    check_small("ref");
}

static void check_full(const char *name, uint64_t steps)
{
    const struct dp_source_config source = {.dir = DATA_DIR,
                                            .sample_bytes = 784,
                                            .height = 28,
                                            .width = 28,
                                            .channels = 1,
                                            .classes = 10};
    struct golden golden;
    struct outcome o;
    int wrong = 0;

    if (access(DATA_DIR "/train-images-idx3-ubyte.gz", R_OK) != 0) {
        print_message("skipped: " DATA_DIR " is missing: apt-get install dataset-fashion-mnist\n");
        skip();
    }
    largest = 0.0;
    o = run_source("fashion-mnist", &source);
    assert_int_equal(o.loaded, DP_OK);
    assert_int_equal(golden_open(name, &golden), DP_OK);
    for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
        struct run run = {.golden = &golden,
                          .device = tested_device(),
                          .steps = steps,
                          .data = {o.images[0], o.images[1], o.labels[0], o.labels[1],
                                   o.info.train_count, o.info.test_count, 784}};
        wrong += check_ranks(&run, name, ranks);
    }
    golden_close(&golden);
    print_message("%s: at most %.2f times PyTorch-float32's own distance\n", name, largest);
    outcome_free(&o);
    assert_int_equal(wrong, 0);
}

/* Convolutions of this size take minutes where a GPU is simulated. */
static void skip_if_quick(void)
{
    if (getenv("DP_TEST_QUICK") != NULL) {
        skip();
    }
}

static void mlp_makes_twenty_steps_as_pytorch(void **state)
{
    (void)state;
    check_full("mlp", 20);
}

static void lenet_makes_twenty_steps_as_pytorch(void **state)
{
    (void)state;
    skip_if_quick();
    check_full("lenet", 20);
}

static void resnet20_makes_a_step_as_pytorch(void **state)
{
    (void)state;
    skip_if_quick();
    check_full("resnet20", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_models_step_as_pytorch_in_float64_on_cpu),
        cmocka_unit_test(small_models_step_as_pytorch_in_float64_on_ref),
        cmocka_unit_test(mlp_makes_twenty_steps_as_pytorch),
        cmocka_unit_test(lenet_makes_twenty_steps_as_pytorch),
        cmocka_unit_test(resnet20_makes_a_step_as_pytorch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
