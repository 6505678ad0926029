/*
 * fuzz_run_folder.c - libFuzzer: whatever the small files of a run's folder hold - state.json,
 * MANIFEST, a plan with choices of algorithms, metrics.jsonl, run.json - they are taken or refused
 * inside their memory, and nothing is kept.
 *
 * The first byte of an input chooses the reader. The second one says whether the rest is the file,
 * or changes of a good one: a place (two bytes), and what stands there instead.
 *
 * clang -g -O1 -fsanitize=fuzzer,address,undefined ...
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "kernels/algo_choices.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/report/files/metrics.h"
#include "runtime/report/files/metrics_reader.h"
#include "runtime/report/record/run_record.h"
#include "runtime/run/plan/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PATH_BYTES = 128, CHANGE = 3, SAMPLE_MOST = 1024 };

static char folder[64];

static const char *in_folder(char path[PATH_BYTES], const char *name)
{
    (void)snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    return path;
}

static void put_file(const char *name, const void *data, size_t size)
{
    char path[PATH_BYTES];
    const int file = open(in_folder(path, name), O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (file < 0 || write(file, data, size) != (ssize_t)size || close(file) != 0) {
        abort();
    }
}

static void remove_folder(void)
{
    static const char *const names[] = {"state.json", "MANIFEST", "config.yaml", "metrics.jsonl",
                                        "run.json"};
    char path[PATH_BYTES];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)unlink(in_folder(path, names[i]));
    }
    (void)rmdir(folder);
}

static void make_folder(void)
{
    (void)snprintf(folder, sizeof(folder), "%s/lockstep-fuzz-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (mkdtemp(folder) == NULL) {
        abort();
    }
    (void)atexit(remove_folder);
    dp_log_set_level(DP_LOG_NONE);
}

static void read_state(void)
{
    struct dp_json *state = NULL;
    uint64_t step = 0;

    if (dp_checkpoint_open(folder, &step, &state) == DP_OK) {
        dp_json_destroy(state);
    }
    if (dp_checkpoint_verify(folder) == DP_OK) {
        abort(); /* there are no weights */
    }
}

static void read_manifest(void)
{
    static const char *const names[] = {"state.json", "model.safetensors"};

    (void)dp_manifest_lists(folder, names, 2);
    if (dp_manifest_verify(folder, names, 2) == DP_OK) {
        abort(); /* as above */
    }
}

static void read_plan(void)
{
    struct dp_algo_choices *choices = NULL;
    struct dp_json *json = NULL;
    struct dp_plan plan = {0};
    char path[PATH_BYTES];

    if (dp_plan_read(in_folder(path, "config.yaml"), &plan) == DP_OK && plan.ranks < 0) {
        abort();
    }
    if (dp_plan_read_choices(path, &json) == DP_OK && json != NULL &&
        dp_algo_choices_create("machine", &choices) == DP_OK) {
        (void)dp_algo_choices_take(choices, json, path);
    }
    dp_algo_choices_destroy(choices);
    dp_json_destroy(json);
}

static void count_step(void *context, const struct dp_metrics_sample *sample)
{
    *(size_t *)context += sample->step >= 0.0;
}

static void count_other(void *context, const char *type, const struct dp_json *line)
{
    *(size_t *)context += type[0] != '\0' && dp_json_is_object(line);
}

static void read_metrics(void)
{
    size_t taken = 0;
    const struct dp_metrics_taker taker = {&taken, count_step, count_other};
    struct dp_metrics_reader reader = {0};
    char path[PATH_BYTES];
    struct stat before, after;

    in_folder(path, "metrics.jsonl");
    if (dp_metrics_read(&reader, path, &taker) == DP_OK && taken > reader.lines) {
        abort();
    }
    if (stat(path, &before) != 0 || dp_metrics_trim(path, 3, 2) != DP_OK ||
        stat(path, &after) != 0 || after.st_size > before.st_size) {
        abort();
    }
}

static void read_record(void)
{
    struct dp_run_record *record = NULL;

    if (dp_run_record_open(folder, &record) == DP_OK) {
        dp_run_record_close(record);
    }
}

static const struct reader {
    const char *file, *sample;
    void (*read)(void);
} readers[] = {
    {"state.json",
     "{\"schema\": \"lockstep.checkpoint/1\", \"step\": 7, \"strategy\": \"ring\", \"ranks\": 2, "
     "\"nodes\": 1, \"kept\": {\"step\": 7}}",
     read_state},
    {"MANIFEST",
     "0123456789abcdef0123456789abcdef  state.json\n"
     "0123456789abcdef0123456789abcdef  model.safetensors\n",
     read_manifest},
    {"config.yaml",
     "name: a\n# plan: {\"schema\": \"lockstep.plan/1\", \"strategy\": \"ring\", \"overlap\": "
     "\"on\","
     " \"ranks\": 2, \"nodes\": 1, \"buckets\": \"0123456789abcdef\", \"reason\": \"r\"}\n"
     "# choices: {\"schema\": \"lockstep.choices/1\", \"build\": \"" DP_VERSION
     "\", \"machines\": {\"machine\": {\"conv 1\": {\"how\": \"a\", \"ms\": 0.5}}}}\n",
     read_plan},
    {"metrics.jsonl",
     "{\"type\":\"start\",\"schema\":\"lockstep.metrics/1\"}\n"
     "{\"type\":\"step\",\"epoch\":1,\"step\":3,\"loss\":0.5,\"lr\":0.1,\"step_ms\":2.5}\n"
     "{\"type\":\"eval\",\"step\":3,\"accuracy\":0.5}\n{\"type\":\"step\",\"step\":4,\"loss\":null}"
     "\n",
     read_metrics},
    {"run.json",
     "{\"schema\": \"lockstep.run/1\", \"exit\": \"finished\", \"steps\": 4, \"ranks\": "
     "[{\"rank\": "
     "0, \"host\": \"h\"}], \"final\": {\"train_loss\": 0.5}, \"samples_per_second\": 10.0}",
     read_record},
};

/* The good file with the changes. */
static size_t change(const char *sample, const uint8_t *data, size_t size, char out[SAMPLE_MOST])
{
    const size_t length = strlen(sample);

    memcpy(out, sample, length);
    for (size_t i = 0; i + CHANGE <= size; i += CHANGE) {
        out[((size_t)data[i] << 8 | data[i + 1]) % length] = (char)data[i + 2];
    }
    return length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char changed[SAMPLE_MOST];
    const struct reader *reader;

    if (folder[0] == '\0') {
        make_folder();
    }
    if (size < 2) {
        return 0;
    }
    reader = &readers[data[0] % (sizeof(readers) / sizeof(readers[0]))];
    if (data[1] % 2 == 0) {
        put_file(reader->file, data + 2, size - 2);
    } else {
        put_file(reader->file, changed, change(reader->sample, data + 2, size - 2, changed));
    }
    reader->read();
    if (dp_mem_live() != 0) {
        abort();
    }
    return 0;
}
