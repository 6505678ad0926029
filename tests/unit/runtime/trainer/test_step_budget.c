/*
 * test_step_budget.c - what a step asks of GPUs: numbers that may only change on purpose. They are
 * counted by tests/cuda_on_host; in other builds all of it is skipped.
 *
 *   test_step_budget            compares with benchmarks/results/gpu_steps.md, which explains them
 *   test_step_budget write      writes them there
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/files/file.h"
#include "base/random.h"
#include "collectives/exchange/exchange_calls.h"
#include "kernels/algo_choices.h"
#include "runtime/config/config_load.h"
#include "runtime/trainer/trainer.h"
#include "runtime/trainer/trainer_parts.h"
#include "tests/support/local_world.h"

#define OK(call) assert_int_equal(call, DP_OK)

#if DP_CUDA_ON_HOST
#include "tests/cuda_on_host/meter.h"

/* Steps until one is replayed, and those that are counted; bytes that a step may copy of memory
 * that is not pinned. */
enum { WARM = 3, COUNTED = 2, STEPS = WARM + COUNTED, PAGEABLE = 64 << 10, SETS = 8, ROWS = 16 };

static const char file[] = DP_SOURCE_DIR "/benchmarks/results/gpu_steps.md";

/* A line of the table. A shipped model, some of them with smaller images, since the host is slow:
 * that changes bytes, and no other number. */
static const struct line {
    const char *name, *model, *sets[SETS];
    int ranks;
} lines[ROWS] = {
    {"mlp", "mlp", {"train.global_batch=16"}, 1},
    {"mlp, bf16", "mlp", {"train.global_batch=16", "train.precision=bf16"}, 1},
    {"lenet", "lenet", {"train.global_batch=16"}, 1},
    {"resnet20", "resnet20", {"train.global_batch=8"}, 1},
    {"resnet50, bf16",
     "resnet50",
     {"train.global_batch=2", "model.input=[32, 32, 3]", "train.precision=bf16"},
     1},
    {"mlp, nccl", "mlp", {"train.global_batch=16", "comm.strategy=nccl"}, 2},
    {"mlp, ipc", "mlp", {"train.global_batch=16", "comm.strategy=ipc"}, 2},
    {"mlp, staged", "mlp", {"train.global_batch=16", "comm.strategy=staged:over=shm"}, 2},
    {"mlp, zero1 nccl", "mlp", {"train.global_batch=16", "comm.strategy=zero1:over=nccl"}, 2},
    {"mlp, zero1 ipc", "mlp", {"train.global_batch=16", "comm.strategy=zero1:over=ipc"}, 2},
    {"mlp, zero1 shm", "mlp", {"train.global_batch=16", "comm.strategy=zero1:over=shm"}, 2},
    {"mlp, bf16, zero1 nccl",
     "mlp",
     {"train.global_batch=16", "train.precision=bf16", "comm.strategy=zero1:over=nccl"},
     2},
    {"mlp, zero1 alone", "mlp", {"train.global_batch=16", "comm.strategy=zero1:over=shm"}, 1},
    {"mlp, fp16, clipped",
     "mlp",
     {"train.global_batch=16", "train.precision=fp16", "optimizer.clip_norm=1"},
     1},
    {"mlp, slow BGRADB", "mlp", {"train.global_batch=16"}, 1},
};

static struct cuda_on_host_meter steps[ROWS][COUNTED];   /* what each one took */
static uint64_t said[ROWS][COUNTED][DP_COPY_DIRECTIONS]; /* bytes copied, as the device says */

struct budget {
    const struct line *line;
    struct dp_config *config;
    struct dp_model *model;
    struct dp_dataset data;
    struct dp_algo_choices *algo_choices; /* or NULL */
    uint8_t *images;
    int32_t *labels;
};

static dp_status read_config(const struct line *line, struct dp_config **config)
{
    static char *const no_environment[] = {NULL};
    const char *sets[SETS + 4] = {"data.source=synthetic", "device.name=cuda", "comm.overlap=on"};
    int count = 3;
    char path[256], *text = NULL;

    for (int i = 0; i < SETS && line->sets[i] != NULL; i++) {
        sets[count++] = line->sets[i];
    }
    (void)snprintf(path, sizeof(path), "%s/models/%s.cfg", DP_SOURCE_DIR, line->model);
    DP_TRY(dp_config_resolve(path, no_environment, sets, count, &text));
    const dp_status status = dp_config_parse(text, path, config);
    dp_free(text);
    return status;
}

static dp_status make_data(struct budget *b)
{
    const size_t count = (size_t)b->config->train.global_batch * (STEPS + 1);
    const size_t sample = dp_shape_count(&b->config->model.input);

    b->images = dp_zalloc(count, sample);
    b->labels = dp_zalloc(count, sizeof(*b->labels));
    if (b->images == NULL || b->labels == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "data of a budget");
    }
    for (size_t i = 0; i < count * sample; i++) {
        b->images[i] = (uint8_t)dp_random_u32(1, DP_RANDOM_TEST, 0, i);
    }
    for (size_t i = 0; i < count; i++) {
        b->labels[i] = (int32_t)(i % 10);
    }
    b->data = (struct dp_dataset){.train_images = b->images,
                                  .test_images = b->images,
                                  .train_labels = b->labels,
                                  .test_labels = b->labels,
                                  .train_count = count,
                                  .test_count = 1,
                                  .sample_bytes = sample};
    return DP_OK;
}

static void budget_fini(struct budget *b)
{
    dp_algo_choices_destroy(b->algo_choices);
    dp_free(b->labels);
    dp_free(b->images);
    dp_model_destroy(b->model);
    dp_config_destroy(b->config);
}

/* After a pause, until the loader has the next batch: else it is sometimes sent ahead. */
static void await_batch(const struct dp_trainer *t)
{
    struct dp_batch next;

    while (!dp_input_peek(&t->input, &next)) {
        const struct timespec pause = {.tv_nsec = 100000};
        (void)nanosleep(&pause, NULL);
    }
}

static struct cuda_on_host_meter difference(const struct cuda_on_host_meter *a,
                                            const struct cuda_on_host_meter *b)
{
    struct cuda_on_host_meter d = *b; /* what a table does not show stays */

#define X(name) d.name = b->name - a->name;
    CUDA_ON_HOST_COUNTS(X)
    X(up_pinned)
    X(up_pageable)
    X(down_pinned)
    X(down_pageable)
    X(within)
#undef X
    d.registered = b->registered;
    return d;
}

static dp_status count_steps(const struct budget *b, struct dp_trainer *t)
{
    struct cuda_on_host_meter before, after;
    uint64_t copied[2][DP_COPY_DIRECTIONS];
    struct dp_step_report report;

    for (int step = 0; step < STEPS; step++) {
        await_batch(t);
        DP_TRY(dp_exchange_barrier(t->exchange));
        cuda_on_host_meter_step(PAGEABLE);
        cuda_on_host_meter_read(&before);
        t->device->copied(copied[0]);
        DP_TRY(dp_exchange_barrier(t->exchange));
        DP_TRY(dp_trainer_step(t, &report));
        DP_TRY(dp_exchange_barrier(t->exchange));
        cuda_on_host_meter_read(&after);
        t->device->copied(copied[1]);
        DP_TRY(dp_exchange_barrier(t->exchange));
        if (step >= WARM && t->group->rank == 0) {
            steps[b->line - lines][step - WARM] = difference(&before, &after);
            for (int i = 0; i < DP_COPY_DIRECTIONS; i++) {
                said[b->line - lines][step - WARM][i] = copied[1][i] - copied[0][i];
            }
        }
    }
    return DP_OK;
}

static size_t run_rank(struct dp_group *group, const void *arg)
{
    const struct budget *b = arg;
    const struct dp_device *device = NULL;
    struct dp_trainer *t = NULL;
    dp_status status = dp_device_find("cuda", &device);
    const struct dp_trainer_config config = {
        .config = b->config,
        .model = b->model,
        .device = device,
        .group = group,
        .data = &b->data,
        .threads = 1,
        .algo_choices = b->algo_choices,
        .global_batch = (size_t)b->config->train.global_batch,
        .total_steps = STEPS + 1, /* the last one has a batch to send ahead, too */
        .schedule_steps = STEPS + 1,
    };

    status = status == DP_OK ? dp_trainer_create(&config, &t) : status;
    status = status == DP_OK ? dp_trainer_init(t) : status;
    status = status == DP_OK ? count_steps(b, t) : status;
    if (status != DP_OK) {
        dp_group_leave(group, DP_ERR_CANCELLED);
    }
    dp_trainer_destroy(t);
    return status != DP_OK;
}

static void measure(const struct line *line)
{
    struct budget b = {.line = line};

    assert_int_equal(read_config(line, &b.config), DP_OK);
    assert_int_equal(make_data(&b), DP_OK);
    assert_int_equal(dp_model_create(b.config->model.layers, b.config->model.layer_count,
                                     &b.config->model.input, &b.model),
                     DP_OK);
    if (strstr(line->name, "slow BGRADB") != NULL) { /* where choices are measured */
        assert_int_equal(dp_algo_choices_create("here", &b.algo_choices), DP_OK);
        assert_int_equal(setenv("DP_HOST_SLOW", "sums", 1), 0);
    }
    assert_int_equal(on_local_ranks(line->ranks, run_rank, &b), 0);
    assert_int_equal(unsetenv("DP_HOST_SLOW"), 0);
    budget_fini(&b);
}

/* ---- the table ---- */

enum { LINE = 400 };

static char *line_of_table(const struct line *line, const struct cuda_on_host_meter *m)
{
    static char text[LINE];
    int length = snprintf(text, LINE, "| %s | %d |", line->name, line->ranks);

#define X(name) \
    length +=   \
        snprintf(text + length, LINE - (size_t)length, " %llu |", (unsigned long long)m->name);
    CUDA_ON_HOST_COUNTS(X)
    CUDA_ON_HOST_BYTES(X)
#undef X
    (void)snprintf(text + length, LINE - (size_t)length, " %llu |\n",
                   (unsigned long long)m->registered);
    return text;
}

/* Where the table's first line of numbers begins in the file, and what is after the last one. */
static char *find_table(char *text, char **after)
{
    char *begin = strstr(text, "|---|"), *end;

    assert_non_null(begin);
    begin = strchr(begin, '\n') + 1;
    for (end = begin; *end == '|'; end = strchr(end, '\n') + 1) {
    }
    *after = end;
    return begin;
}

/* Each step asks for the same, and for what the table says. */
static void a_step_asks_gpus_for_what_the_table_says(void **state)
{
    char *text = NULL, *kept, *after;
    size_t bytes;
    (void)state;

    OK(dp_file_read(file, 1 << 16, &text, &bytes));
    kept = find_table(text, &after);
    for (const struct line *line = lines; line->name != NULL; line++) {
        measure(line);
        for (int i = 0; i < COUNTED; i++) {
            const struct cuda_on_host_meter *met = &steps[line - lines][i];
            const char *found = line_of_table(line, met);
            assert_int_equal(said[line - lines][i][DP_COPY_TO_DEVICE],
                             met->up_pinned + met->up_pageable);
            assert_int_equal(said[line - lines][i][DP_COPY_FROM_DEVICE],
                             met->down_pinned + met->down_pageable);
            if (strncmp(kept, found, strlen(found)) != 0) {
                const int length = (int)strcspn(kept, "\n") + 1;
                fail_msg("step %d asks GPUs for other things than %s says; "
                         "if that is what it should: %s write\nnow:  %skept: %.*s",
                         WARM + i, file, "test_step_budget", found, length, kept);
            }
        }
        kept = strchr(kept, '\n') + 1;
    }
    assert_ptr_equal(kept, after);
    dp_free(text);
}

static void write_table(void)
{
    char *text = NULL, *after, *begin, *fresh;
    size_t bytes, length;

    OK(dp_file_read(file, 1 << 16, &text, &bytes));
    begin = find_table(text, &after);
    fresh = dp_zalloc(1, bytes + (size_t)ROWS * LINE);
    assert_non_null(fresh);
    length = (size_t)(begin - text);
    memcpy(fresh, text, length);
    for (const struct line *line = lines; line->name != NULL; line++) {
        measure(line);
        length += (size_t)snprintf(fresh + length, LINE, "%s",
                                   line_of_table(line, &steps[line - lines][0]));
    }
    memcpy(fresh + length, after, strlen(after));
    OK(dp_file_replace(file, fresh, strlen(fresh)));
    dp_free(fresh);
    dp_free(text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_asks_gpus_for_what_the_table_says),
    };

    if (setenv("DP_CUDA_GPUS", "2", 1) != 0) { /* before any are looked for */
        return 1;
    }
    if (argc > 1 && strcmp(argv[1], "write") == 0) {
        write_table();
        return 0;
    }
    return cmocka_run_group_tests_name("step budget", tests, NULL, NULL);
}
#else
int main(void)
{
    puts("skipped: tests/cuda_on_host counts, which is not built in");
    return 77;
}
#endif
