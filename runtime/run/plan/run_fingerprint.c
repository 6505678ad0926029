#include "runtime/run/plan/run_fingerprint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "collectives/compressors/compressor.h"
#include "runtime/config/config_print.h"
#include "runtime/optim/optimizer.h"
#include "runtime/run/job.h"

enum { TEXT_BYTES = 160, LIST_BYTES = 600 };

/* Another enum dp_key_flag: weights get other bits, unless lanes fix the order of all sums. */
enum { LAYOUT = 1 << 8 };

/* Keys whose text is not their value. */
struct view {
    const char *key;
    void (*put)(const struct dp_run_job *job, char *text);
};

/* Something that a run depends on: a key of the configuration, or its surroundings. */
struct field {
    char name[DP_CONFIG_KEY];
    unsigned flags;
    void (*put)(const struct dp_run_job *job, char *text); /* NULL: the key's value */
};

static void put_number(char *text, int64_t value)
{
    (void)snprintf(text, TEXT_BYTES, "%" PRId64, value);
}

static void put_hash(char *text, uint64_t hash)
{
    (void)snprintf(text, TEXT_BYTES, "%016" PRIx64, hash);
}

static void put_switch(char *text, bool value)
{
    (void)snprintf(text, TEXT_BYTES, "%s", value ? "true" : "false");
}

static void put_shuffle(const struct dp_run_job *job, char *text)
{
    if (job->config->data.shuffle == DP_SHUFFLE_WINDOW) {
        (void)snprintf(text, TEXT_BYTES, "window of %d", job->config->data.window);
    } else {
        put_switch(text, job->config->data.shuffle != DP_SHUFFLE_OFF);
    }
}

static void put_rows(const struct dp_run_job *job, char *text)
{
    put_number(text, (int64_t)job->data.train_count);
}

/* Differs between data sets of as many rows, wherever they lie. */
static void put_labels(const struct dp_run_job *job, char *text)
{
    put_hash(text, job->spread_labels);
}

/* data.cache is no field: what it does else changes no bit. */
static void put_repeated(const struct dp_run_job *job, char *text)
{
    (void)snprintf(text, TEXT_BYTES, "%s", dp_run_cached_input(job) ? "the first" : "");
}

static void put_device(const struct dp_run_job *job, char *text)
{
    (void)snprintf(text, TEXT_BYTES, "%s", job->device->plugin.name);
}

/* What computes convolutions, and its version: "cudnn 9.19.0"; empty where there is no choice. */
static void put_conv(const struct dp_run_job *job, char *text)
{
    const char *engine = NULL;

    text[0] = '\0';
    if (dp_device_find_conv(job->device, (enum dp_conv_engine)job->config->device.conv, &engine) ==
            DP_OK &&
        engine != NULL) {
        (void)snprintf(text, TEXT_BYTES, "%.*s", (int)strcspn(engine, "("), engine);
    }
}

/* What the algorithms of a GPU's libraries depend on; empty where none are chosen. */
static void put_machine(const struct dp_run_job *job, char *text)
{
    text[0] = '\0';
    if (job->device->machine != NULL) {
        job->device->machine(text, TEXT_BYTES);
    }
}

/* Whether they are chosen by measuring. The choices themselves are in the checkpoint. */
static void put_tune(const struct dp_run_job *job, char *text)
{
    put_switch(text, job->algo_choices != NULL);
}

static void put_isa(const struct dp_run_job *job, char *text)
{
    (void)snprintf(text, TEXT_BYTES, "%s", job->machine->isa);
}

static void put_threads(const struct dp_run_job *job, char *text)
{
    put_number(text, job->threads);
}

static void put_compressor(const struct dp_run_job *job, char *text)
{
    dp_plugin_spell(&dp_compressors, job->config->comm.compressor, text, TEXT_BYTES);
}

static void put_ranks(const struct dp_run_job *job, char *text)
{
    put_number(text, dp_trainer_ranks(job->trainer));
}

static void put_strategy(const struct dp_run_job *job, char *text)
{
    (void)snprintf(text, TEXT_BYTES, "%s", dp_exchange_label(dp_trainer_exchange(job->trainer)));
}

/* Where the gradient is cut: in a ring that decides which rank begins a sum. */
static void put_plan(const struct dp_run_job *job, char *text)
{
    put_hash(text, dp_exchange_plan(dp_trainer_exchange(job->trainer))->hash);
}

/* Steps that the learning rate is made for; 0: it does not depend on them. */
static void put_schedule_steps(const struct dp_run_job *job, char *text)
{
    const bool stretches = dp_schedule_of(&job->config->optimizer.schedule)->stretches;

    put_number(text, stretches ? (int64_t)job->schedule_steps : 0);
}

/* Kinds and options of layers, `repeat` unrolled; also options without a tensor, such as a
 * dropout's rate. */
static uint64_t hash_layers(const struct dp_layer_spec *layers, int count, uint64_t hash)
{
    char value[DP_OPTION_PRINTED];

    for (int i = 0; i < count; i++) {
        const struct dp_layer_spec *layer = &layers[i];
        const struct dp_option *row = layer->type->plugin.options;

        hash = XXH3_64bits_withSeed(layer->type->plugin.name, strlen(layer->type->plugin.name),
                                    hash + (uint64_t)layer->body_count);
        for (; row != NULL && row->kind != DP_OPTION_END; row++) {
            dp_option_print(row, layer->options, value, sizeof(value));
            hash = XXH3_64bits_withSeed(value, strlen(value), hash);
        }
        hash = hash_layers(layer->body, layer->body_count, hash);
        hash = hash_layers(layer->shortcut, layer->shortcut_count, hash);
    }
    return hash;
}

static void put_layers(const struct dp_run_job *job, char *text)
{
    const struct dp_model_config *model = &job->config->model;

    put_hash(text, hash_layers(model->layers, model->layer_count, 0));
}

static const struct view views[] = {
    {"data.shuffle", put_shuffle},
    {"device.conv", put_conv},
    {"device.tune", put_tune},
    {"comm.compressor", put_compressor},
};

/* Fields that are no keys. */
static const struct field others[] = {
    {"training rows", DP_KEY_BINDS, put_rows},
    {"training labels", DP_KEY_BITS, put_labels},
    {"repeated batch", DP_KEY_BITS, put_repeated},
    {"model.layers", DP_KEY_BITS, put_layers},
    {"steps of the schedule", DP_KEY_BITS, put_schedule_steps},
    {"device", DP_KEY_BITS | DP_KEY_AUTO, put_device},
    {"GPU", DP_KEY_BITS, put_machine},
    {"instructions", DP_KEY_BITS, put_isa},
    {"ranks", LAYOUT, put_ranks},
    {"threads a rank", LAYOUT, put_threads},
    {"comm.strategy", LAYOUT, put_strategy},
    {"buckets", LAYOUT, put_plan},
};

enum { OTHERS = sizeof(others) / sizeof(others[0]), VIEWS = sizeof(views) / sizeof(views[0]) };

/* Field number `i`, from 0; false: there are no more. */
static bool field_at(int i, struct field *field)
{
    if (i < OTHERS) {
        *field = others[i];
        return true;
    }
    field->put = NULL;
    if (!dp_config_flagged(i - OTHERS, field->name, &field->flags)) {
        return false;
    }
    for (int v = 0; v < VIEWS; v++) {
        field->put = strcmp(views[v].key, field->name) == 0 ? views[v].put : field->put;
    }
    return true;
}

static void put_field(const struct dp_run_job *job, const struct field *field, char *text)
{
    if (field->put != NULL) {
        field->put(job, text);
    } else {
        dp_config_value(job->config, field->name, text, TEXT_BYTES);
    }
}

dp_status dp_run_fingerprint_write(const struct dp_run_job *job, struct dp_json *object)
{
    char text[TEXT_BYTES];
    struct field field;

    for (int i = 0; field_at(i, &field); i++) {
        put_field(job, &field, text);
        DP_TRY(dp_json_set_text(object, field.name, text));
    }
    return DP_OK;
}

/* Adds "NAME THEN -> NOW" where a field differs from what the checkpoint says. */
static bool differs(const struct dp_run_job *job, const struct dp_json *object,
                    const struct field *field, char *list, size_t size)
{
    const char *then = dp_json_text(dp_json_get(object, field->name));
    const size_t used = strlen(list);
    char now[TEXT_BYTES];

    if (then == NULL) {
        return false;
    }
    put_field(job, field, now);
    if (strcmp(then, now) == 0) {
        return false;
    }
    (void)snprintf(list + used, size - used, "%s%s %.80s -> %s", used == 0 ? "" : ", ", field->name,
                   then[0] != '\0' ? then : "none", now[0] != '\0' ? now : "none");
    return true;
}

/* The same for a field that the checkpoint does not have, since it is of an older version. */
static bool is_unknown(const struct dp_run_job *job, const struct dp_json *object,
                       const struct field *field, char *list, size_t size)
{
    const size_t used = strlen(list);
    char now[TEXT_BYTES];

    put_field(job, field, now);
    if (now[0] == '\0' || dp_json_text(dp_json_get(object, field->name)) != NULL) {
        return false;
    }
    (void)snprintf(list + used, size - used, "%s%s not known -> %s", used == 0 ? "" : ", ",
                   field->name, now);
    return true;
}

bool dp_run_fingerprint_same(const struct dp_run_job *job, const struct dp_json *object,
                             const char *name)
{
    char ignored[LIST_BYTES] = "";
    struct field field;

    for (int i = 0; field_at(i, &field); i++) {
        if (strcmp(field.name, name) == 0) {
            return !differs(job, object, &field, ignored, sizeof(ignored));
        }
    }
    return false;
}

bool dp_run_fingerprint_same_for_auto(const struct dp_run_job *job, const struct dp_json *object)
{
    char ignored[LIST_BYTES] = "";
    struct field field;
    bool same = true;

    for (int i = 0; field_at(i, &field); i++) {
        same = same && ((field.flags & DP_KEY_AUTO) == 0 ||
                        !differs(job, object, &field, ignored, sizeof(ignored)));
    }
    return same;
}

uint64_t dp_run_fingerprint_hash_for_auto(const struct dp_run_job *job, uint64_t seed)
{
    char text[TEXT_BYTES];
    struct field field;

    for (int i = 0; field_at(i, &field); i++) {
        if ((field.flags & DP_KEY_AUTO) != 0) {
            put_field(job, &field, text);
            seed = XXH3_64bits_withSeed(text, strlen(text) + 1, seed);
        }
    }
    return seed;
}

dp_status dp_run_fingerprint_check(const struct dp_run_job *job, const struct dp_json *object,
                                   const char *source)
{
    char list[LIST_BYTES] = "";
    struct field field;
    bool any = false;

    for (int i = 0; field_at(i, &field); i++) {
        any |=
            (field.flags & DP_KEY_BINDS) != 0 && differs(job, object, &field, list, sizeof(list));
    }
    if (any) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "%s is of another run: %s; to begin a new one with its weights: --init "
                       "%s/model.safetensors",
                       source, list, source);
    }
    return DP_OK;
}

bool dp_run_fingerprint_compare(const struct dp_run_job *job, const struct dp_json *object,
                                char *text, size_t size)
{
    const unsigned alone = job->config->train.local_steps > 1 ? DP_KEY_AVERAGES : 0;
    const bool lanes = job->config->train.lanes > 0;
    struct field field;
    bool same = true;

    text[0] = '\0';
    for (int i = 0; field_at(i, &field); i++) {
        if ((field.flags & (DP_KEY_BITS | LAYOUT | alone)) != 0 &&
            (differs(job, object, &field, text, size) ||
             is_unknown(job, object, &field, text, size))) {
            same = same && (field.flags & LAYOUT) != 0 && lanes;
        }
    }
    return same;
}
