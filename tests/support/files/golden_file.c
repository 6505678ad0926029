#include "tests/support/files/golden_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/file.h"
#include "base/mem.h"

enum { SAMPLE_BYTES = 784 };

/* ---- reading ---- */

/* Element i of a stored tensor of numbers. The reader's pointer need not be aligned. */
static double element(const struct dp_stored *tensor, size_t i)
{
    const char *at = (const char *)tensor->data + i * dp_stored_width(tensor->type);
    union {
        double f64;
        float f32;
        int32_t i32;
        int64_t i64;
    } value;

    memcpy(&value, at, dp_stored_width(tensor->type));
    if (strcmp(tensor->type, "F64") == 0) {
        return value.f64;
    }
    if (strcmp(tensor->type, "F32") == 0) {
        return (double)value.f32;
    }
    return strcmp(tensor->type, "I32") == 0 ? (double)value.i32 : (double)value.i64;
}

static size_t count_of(const struct dp_stored *tensor)
{
    return tensor->bytes / dp_stored_width(tensor->type);
}

/* Tensor "<a>.<b>.<c>"; empty parts are left out. NULL: the file has none. */
static const struct dp_stored *find(const struct golden *g, const char *a, const char *b,
                                    const char *c)
{
    char name[2 * DP_TENSOR_NAME];

    (void)snprintf(name, sizeof(name), "%s.%s%s%s", a, b, b[0] == '\0' ? "" : ".", c);
    return dp_safetensors_find(g->file, name);
}

/* Classes, or the numbers that outputs are compared with. */
static dp_status read_labels(struct golden *g, const struct dp_stored *labels, bool numbers)
{
    const size_t count = count_of(labels);

    g->targets = numbers ? count / g->rows : 0;
    g->labels = dp_zalloc(count, sizeof(*g->labels));
    if (g->labels == NULL) {
        return DP_ERR_NOMEM;
    }
    for (size_t i = 0; i < count && !numbers; i++) {
        g->labels[i] = (int32_t)element(labels, i);
    }
    if (numbers) {
        memcpy(g->labels, labels->data, labels->bytes);
    }
    return DP_OK;
}

static dp_status read_batch(struct golden *g, const char *name)
{
    const struct dp_stored *images = dp_safetensors_find(g->file, "images");
    const struct dp_stored *targets = dp_safetensors_find(g->file, "targets");
    const struct dp_stored *labels =
        targets != NULL ? targets : dp_safetensors_find(g->file, "labels");

    if (images == NULL) {
        return DP_OK;
    }
    g->rows = images->bytes / SAMPLE_BYTES;
    if (labels == NULL || strcmp(labels->type, targets != NULL ? "F32" : "I64") != 0 ||
        strcmp(images->type, "U8") != 0 || count_of(labels) % g->rows != 0) {
        return DP_FAIL(DP_ERR_DATA, "%s: images and labels do not fit", name);
    }
    g->images = dp_zalloc(g->rows, SAMPLE_BYTES);
    if (g->images == NULL || read_labels(g, labels, targets != NULL) != DP_OK) {
        return DP_FAIL(DP_ERR_NOMEM, "%s", name);
    }
    memcpy(g->images, images->data, images->bytes);
    return DP_OK;
}

dp_status golden_open(const char *name, struct golden *out)
{
    struct golden g = {0};
    const char *before;
    char path[512];
    dp_status status;

    (void)snprintf(path, sizeof(path), DP_SOURCE_DIR "/tests/golden/%s.safetensors", name);
    DP_TRY(dp_safetensors_open(path, &g.file));
    before = dp_safetensors_note(g.file, "steps_before");
    status =
        before == NULL ? DP_FAIL(DP_ERR_DATA, "%s: no steps_before", name) : read_batch(&g, name);
    if (status != DP_OK) {
        golden_close(&g);
        return status;
    }
    g.before = strtoll(before, NULL, 10);
    *out = g;
    return DP_OK;
}

void golden_close(struct golden *g)
{
    dp_free(g->labels);
    dp_free(g->images);
    dp_safetensors_close(g->file);
}

/* ---- the trainer's side ---- */

/* One group of tensors: where its numbers lie, and what its names have in the middle. */
struct group {
    const char *name, *middle;
    const struct dp_tensor *tensors;
    int count;
    float *values;
};

/* The groups of this trainer; returns how many. */
static int groups_of(const struct dp_trainer *t, struct group out[GOLDEN_GROUPS])
{
    const struct dp_model *m = t->model;
    int count = 0;

    out[count++] =
        (struct group){"params", "", m->tensors, m->tensor_count, t->state.host->flat.master};
    if (m->buffer_count > 0) {
        out[count++] =
            (struct group){"running", "", m->buffers, m->buffer_count, t->state.host->flat.running};
    }
    for (int i = 0; i < 2 && t->state.optimizer->slots[i] != NULL; i++) {
        const char *slot = t->state.optimizer->slots[i];
        out[count++] =
            (struct group){slot, slot, m->tensors, m->tensor_count, t->state.host->flat.slots[i]};
    }
    return count;
}

/* Where element i that the file holds of this tensor lies in ours. */
static float *place(const struct golden *g, const struct group *group,
                    const struct dp_tensor *tensor, size_t i)
{
    const struct dp_stored *index = find(g, "index", "", tensor->name);
    const size_t theirs = index == NULL ? i : (size_t)element(index, i);

    return group->values + tensor->begin + dp_tensor_index(tensor, theirs);
}

size_t golden_load(const struct golden *g, struct dp_trainer *t)
{
    struct group groups[GOLDEN_GROUPS];
    const int count = groups_of(t, groups);
    size_t wrong = dp_host_state_fetch(t->state.host) != DP_OK;

    for (int k = 0; k < count; k++) {
        const struct group *group = &groups[k];
        for (int i = 0; i < group->count; i++) {
            const struct dp_tensor *tensor = &group->tensors[i];
            const struct dp_stored *before = find(g, "before", group->middle, tensor->name);
            const bool partly = find(g, "index", "", tensor->name) != NULL;
            for (size_t n = 0; before != NULL && n < count_of(before); n++) {
                float *at = place(g, group, tensor, n);
                const float value = (float)element(before, n);
                wrong += partly && *at != value;
                *at = value;
            }
            wrong += before == NULL && !(partly && group->middle[0] != '\0');
            wrong += before != NULL && !partly && count_of(before) != tensor->count;
        }
    }
    t->state.step_params->applied = (uint32_t)g->before;
    t->state.batches_tracked = g->before;
    wrong += dp_host_state_put(t->state.host) != DP_OK;
    return wrong;
}

/* ---- distance ---- */

/* What the distance of a group adds up. */
struct sums {
    double error, update; /* of squares */
};

static struct sums measure_tensor(const struct golden *g, const struct group *group,
                                  const struct dp_tensor *tensor, const struct dp_stored *after)
{
    const struct dp_stored *before = find(g, "before", group->middle, tensor->name);
    struct sums sums = {0.0, 0.0};

    for (size_t n = 0; n < count_of(after); n++) {
        const double expected = element(after, n);
        const double start = before == NULL ? 0.0 : element(before, n);
        const double error = (double)*place(g, group, tensor, n) - expected;
        sums.error += error * error;
        sums.update += (expected - start) * (expected - start);
    }
    return sums;
}

/* Returns how many tensors of the group the file has. */
static size_t measure_group(const struct golden *g, const struct group *group, const char *result,
                            struct golden_distance *out)
{
    struct sums all = {0.0, 0.0};
    char prefix[64];
    size_t found = 0;

    (void)snprintf(prefix, sizeof(prefix), "after.%s", result);
    for (int i = 0; i < group->count; i++) {
        const struct dp_tensor *tensor = &group->tensors[i];
        const struct dp_stored *after = find(g, prefix, group->middle, tensor->name);
        struct sums one;
        double distance;

        if (after == NULL) {
            continue;
        }
        one = measure_tensor(g, group, tensor, after);
        distance = one.update > 0.0 ? sqrt(one.error / one.update) : 0.0;
        if (!(distance <= out->worst)) {
            out->worst = distance;
            (void)snprintf(out->worst_tensor, sizeof(out->worst_tensor), "%s", tensor->name);
        }
        all.error += one.error;
        all.update += one.update;
        found++;
    }
    out->ours = sqrt(all.error / all.update);
    return found;
}

/* How many tensors the file has of this result. */
static size_t count_results(const struct golden *g, const char *result)
{
    char prefix[64];
    size_t count = 0;
    const int length = snprintf(prefix, sizeof(prefix), "after.%s.", result);

    for (int i = 0; i < dp_safetensors_count(g->file); i++) {
        const char *name = dp_safetensors_at(g->file, i)->name;
        count +=
            strncmp(name, prefix, (size_t)length) == 0 && strncmp(name + length, "step", 4) != 0;
    }
    return count;
}

size_t golden_measure(const struct golden *g, const struct dp_trainer *t, const char *result,
                      struct golden_distance *out)
{
    struct group groups[GOLDEN_GROUPS];
    const int count = groups_of(t, groups);
    size_t found = 0, wrong = dp_host_state_fetch(t->state.host) != DP_OK;
    int used = 0;

    memset(out, 0, GOLDEN_GROUPS * sizeof(*out));
    for (int k = 0; k < count; k++) {
        struct golden_distance *d = &out[used];
        char key[96];
        const char *own, *worst;

        (void)snprintf(key, sizeof(key), "own.%s.%s", result, groups[k].name);
        own = dp_safetensors_note(g->file, key);
        (void)snprintf(key, sizeof(key), "own.%s.%s.worst", result, groups[k].name);
        worst = dp_safetensors_note(g->file, key);
        if (own == NULL || worst == NULL) {
            continue;
        }
        d->group = groups[k].name;
        d->own = strtod(own, NULL);
        (void)snprintf(d->own_worst, sizeof(d->own_worst), "%s", worst);
        const size_t some = measure_group(g, &groups[k], result, d);
        wrong += some != (size_t)groups[k].count;
        found += some;
        used++;
    }
    return wrong + (used == 0) + (found != count_results(g, result));
}

/* ---- narrow types ---- */

dp_status golden_autocast_open(struct dp_json **out)
{
    char *text = NULL;
    size_t bytes = 0;
    dp_status status;

    DP_TRY(dp_file_read(DP_SOURCE_DIR "/tests/golden/autocast.json", 1 << 20, &text, &bytes));
    status = dp_json_parse(text, bytes, "autocast.json", out);
    dp_free(text);
    return status;
}

const struct dp_json *golden_autocast(const struct dp_json *all, const char *name,
                                      const char *result, const char *precision)
{
    const struct dp_json *of_name = dp_json_get(all, name);
    const struct dp_json *of_result = of_name == NULL ? NULL : dp_json_get(of_name, result);

    return of_result == NULL ? NULL : dp_json_get(of_result, precision);
}

size_t golden_narrow(const struct dp_json *autocast, struct golden_distance *found)
{
    size_t wrong = 0;

    for (int i = 0; i < GOLDEN_GROUPS && found[i].group != NULL; i++) {
        wrong += !dp_json_real(dp_json_get(autocast, found[i].group), &found[i].own);
        (void)snprintf(found[i].own_worst, sizeof(found[i].own_worst), "not known");
    }
    return wrong;
}
