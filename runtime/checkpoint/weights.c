#include "runtime/checkpoint/weights.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/cpu/parallel.h"
#include "kernels/flat.h"
#include "runtime/checkpoint/safetensors.h"

enum { BLOCK = 4096, PROBLEMS_SHOWN = 3 };

/* ---- the list of a file's tensors ---- */

/* One tensor of a model file, and the address of its elements. */
struct item {
    char name[DP_TENSOR_NAME + 48];
    const struct dp_tensor *tensor; /* NULL: a counter */
    struct dp_tensor own;           /* where `tensor` points for an array that is not a parameter */
    float *values;                  /* the tensor's first element in our layout */
    int64_t *counter;
    const char **broken; /* gets the tensor's name if an element is not finite; NULL: not checked */
};

/* Order inside a layer, as PyTorch writes it. */
static int leaf_order(const char *word, size_t length)
{
    static const char *const leaves[] = {"weight", "bias", "running_mean", "running_var",
                                         "num_batches_tracked"};
    const int count = sizeof(leaves) / sizeof(leaves[0]);

    for (int i = 0; i < count; i++) {
        if (strlen(leaves[i]) == length && memcmp(leaves[i], word, length) == 0) {
            return i;
        }
    }
    return count;
}

/* Compares one word between dots: numbers by value, leaves as PyTorch writes them. */
static int compare_words(const char *a, size_t a_length, const char *b, size_t b_length)
{
    const size_t shorter = a_length < b_length ? a_length : b_length;
    const bool numbers = strspn(a, "0123456789") == a_length && strspn(b, "0123456789") == b_length;
    const int leaves = leaf_order(a, a_length) - leaf_order(b, b_length);
    int order;

    if (numbers && a_length != b_length) {
        return a_length < b_length ? -1 : 1;
    }
    if (leaves != 0) {
        return leaves;
    }
    order = strncmp(a, b, shorter);
    return order != 0 ? order : (a_length > b_length) - (a_length < b_length);
}

static int by_layer(const void *left, const void *right)
{
    const char *a = ((const struct item *)left)->name, *b = ((const struct item *)right)->name;

    while (*a != '\0' && *b != '\0') {
        const size_t a_length = strcspn(a, "."), b_length = strcspn(b, ".");
        const int order = compare_words(a, a_length, b, b_length);

        if (order != 0) {
            return order;
        }
        a += a_length + (a[a_length] == '.');
        b += b_length + (b[b_length] == '.');
    }
    return (*a != '\0') - (*b != '\0');
}

static void add_items(struct item *items, const struct dp_tensor *tensors, int count, float *values)
{
    for (int i = 0; i < count; i++) {
        (void)snprintf(items[i].name, sizeof(items[i].name), "%s", tensors[i].name);
        items[i].tensor = &tensors[i];
        items[i].values = values != NULL ? values + tensors[i].begin : NULL;
    }
}

/* The items of a model, sorted; owned by the caller (dp_free). NULL: no memory. */
static struct item *list_items(const struct dp_weights *weights, int *count)
{
    const int tensors = weights->param_count + weights->buffer_count;
    struct item *items;

    *count = tensors + weights->counter_count;
    items = dp_zalloc((size_t)*count, sizeof(*items));
    if (items == NULL) {
        return NULL;
    }
    add_items(items, weights->params, weights->param_count, weights->values);
    add_items(items + weights->param_count, weights->buffers, weights->buffer_count,
              weights->running);
    for (int i = 0; i < weights->counter_count; i++) {
        struct item *item = &items[tensors + i];

        (void)snprintf(item->name, sizeof(item->name), "%s", weights->counters[i]);
        item->counter = weights->batches_tracked;
    }
    qsort(items, (size_t)*count, sizeof(*items), by_layer);
    return items;
}

/* The description of an item that the file has, or should have. */
static struct dp_stored describe(const struct item *item)
{
    struct dp_stored stored = {.name = item->name, .type = "I64"};

    if (item->tensor != NULL) {
        stored.type = "F32";
        stored.dims = item->tensor->dims;
        memcpy(stored.shape, item->tensor->shape, sizeof(item->tensor->shape));
    }
    return stored;
}

/* ---- saving ---- */

/* Infinities and NaNs are the floats with all bits of the exponent set. */
DP_HOT static bool is_broken(const float *values, size_t count)
{
    uint32_t broken = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, &values[i], sizeof(bits));
        broken |= (bits & UINT32_C(0x7f800000)) == UINT32_C(0x7f800000);
    }
    return broken != 0;
}

static void fill(const void *context, size_t begin, size_t count, void *out)
{
    const struct item *item = context;

    dp_tensor_export(item->tensor, item->values, begin, count, out);
    if (item->broken != NULL && is_broken(out, count)) { /* while it is in the cache */
        *item->broken = item->tensor->name;
    }
}

static dp_status save_items(const char *path, const struct item *items, int count, void *buffer,
                            char hash[DP_HASH_TEXT])
{
    static const struct dp_stored_note notes[] = {{"format", "pt"},
                                                  {"producer", "lockstep " DP_VERSION}};
    struct dp_stored *stored = dp_zalloc((size_t)count, sizeof(*stored));
    dp_status status;

    if (stored == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: list of %d tensors", path, count);
    }
    for (int i = 0; i < count; i++) {
        stored[i] = describe(&items[i]);
        stored[i].data = items[i].counter;
        stored[i].fill = items[i].tensor != NULL ? fill : NULL;
        stored[i].context = &items[i];
    }
    status = dp_safetensors_write(path, stored, count, notes,
                                  (int)(sizeof(notes) / sizeof(notes[0])), buffer, hash);
    dp_free(stored);
    return status;
}

dp_status dp_weights_save(const char *path, const struct dp_weights *weights, void *buffer,
                          const char **broken, char hash[DP_HASH_TEXT])
{
    int count = 0;
    struct item *items = list_items(weights, &count);
    dp_status status;

    *broken = NULL;
    if (items == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: list of tensors", path);
    }
    for (int i = 0; i < count; i++) {
        items[i].broken = broken;
    }
    status = save_items(path, items, count, buffer, hash);
    dp_free(items);
    return status;
}

static void add_own(struct item *item, const struct dp_slot *slot)
{
    (void)snprintf(item->name, sizeof(item->name), "%s", slot->name);
    item->own = (struct dp_tensor){
        .dims = 1, .shape = {slot->count}, .count = slot->count, .spatial = 1, .channels = 1};
    item->tensor = &item->own;
    item->values = slot->values;
}

/* The items of optimizer state; owned by the caller (dp_free). NULL: no memory. */
static struct item *list_slots(const struct dp_tensor *params, int param_count,
                               const struct dp_slot *slots, int slot_count, int *count)
{
    struct item *items = dp_zalloc((size_t)param_count * (size_t)slot_count, sizeof(*items));

    *count = 0;
    for (int i = 0; items != NULL && i < param_count * slot_count; i++) {
        const struct dp_tensor *param = &params[i / slot_count];
        const struct dp_slot *slot = &slots[i % slot_count];
        struct item *item = &items[*count];

        if (slot->count == 0) {
            (void)snprintf(item->name, sizeof(item->name), "%s.%s", param->name, slot->name);
            item->tensor = param;
            item->values = slot->values + param->begin;
            ++*count;
        } else if (i < slot_count) { /* once, not for every parameter */
            add_own(item, slot);
            ++*count;
        }
    }
    return items;
}

dp_status dp_slots_save(const char *path, const struct dp_tensor *params, int param_count,
                        const struct dp_slot *slots, int slot_count, void *buffer,
                        char hash[DP_HASH_TEXT])
{
    int count = 0;
    struct item *items = list_slots(params, param_count, slots, slot_count, &count);
    dp_status status;

    if (items == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: list of tensors", path);
    }
    status = save_items(path, items, count, buffer, hash);
    dp_free(items);
    return status;
}

/* ---- loading ---- */

/* The first differences between a file and the model, for one message. */
struct differences {
    int count;
    char text[800];
};

static void differ(struct differences *differences, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void differ(struct differences *differences, const char *format, ...)
{
    const size_t used = strlen(differences->text);
    const int more = differences->count++;
    char problem[256];
    va_list args;

    if (more >= PROBLEMS_SHOWN) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(problem, sizeof(problem), format, args);
    va_end(args);
    (void)snprintf(differences->text + used, sizeof(differences->text) - used, "%s%s",
                   more == 0 ? "" : "; ", problem);
}

static bool same_shape(const struct dp_stored *a, const struct dp_stored *b)
{
    for (int i = 0; a->dims == b->dims && i < a->dims; i++) {
        if (a->shape[i] != b->shape[i]) {
            return false;
        }
    }
    return a->dims == b->dims;
}

static void compare(struct differences *differences, const struct item *item,
                    const struct dp_stored *found)
{
    const struct dp_stored wanted = describe(item);
    char have[80], want[80];

    if (found == NULL && item->tensor == NULL) {
        return; /* files of old PyTorch versions have no counters */
    }
    if (found == NULL) {
        differ(differences, "'%s' is missing", item->name);
    } else if (!same_shape(found, &wanted)) {
        differ(differences, "'%s' is %s, the model's is %s", item->name,
               dp_stored_shape_text(found->dims, found->shape, have, sizeof(have)),
               dp_stored_shape_text(wanted.dims, wanted.shape, want, sizeof(want)));
    } else if (strcmp(found->type, wanted.type) != 0) {
        differ(differences, "'%s' is of type %s, the model's is %s", item->name, found->type,
               wanted.type);
    }
}

/* Whether it may be missing, or ignored. `loose` NULL: no tensor may. */
static bool is_loose(const struct dp_loose *loose, const char *name)
{
    return loose != NULL && strstr(name, loose->word) != NULL;
}

/* Finds names of the file that are no item's. */
static void find_unknown(struct differences *differences, const struct item *items, int count,
                         const struct dp_safetensors *file, const struct dp_loose *loose)
{
    for (int i = 0; i < dp_safetensors_count(file); i++) {
        const char *name = dp_safetensors_at(file, i)->name;
        bool known = is_loose(loose, name);

        for (int k = 0; k < count && !known; k++) {
            known = strcmp(items[k].name, name) == 0;
        }
        if (!known) {
            differ(differences, "'%.100s' is not in the model", name);
        }
    }
}

static dp_status check_items(const char *path, const struct item *items, int count,
                             const struct dp_safetensors *file, const char *what,
                             const struct dp_loose *loose)
{
    struct differences differences = {0};
    char more[40] = "";

    for (int i = 0; i < count; i++) {
        if (!is_loose(loose, items[i].name)) {
            compare(&differences, &items[i], dp_safetensors_find(file, items[i].name));
        }
    }
    find_unknown(&differences, items, count, file, loose);
    if (differences.count > PROBLEMS_SHOWN) {
        (void)snprintf(more, sizeof(more), "; and %d more", differences.count - PROBLEMS_SHOWN);
    }
    if (differences.count > 0) {
        return DP_FAIL(DP_ERR_CONFIG, "%s holds another %s: %s%s", path, what, differences.text,
                       more);
    }
    return DP_OK;
}

/* Copies a checked tensor of the file; cannot fail. */
static void take(const struct item *item, const struct dp_stored *found)
{
    const char *data = found->data;
    float block[BLOCK]; /* the file's bytes may be unaligned */

    for (size_t begin = 0; begin < item->tensor->count; begin += BLOCK) {
        const size_t rest = item->tensor->count - begin, count = rest < BLOCK ? rest : BLOCK;

        memcpy(block, data + begin * sizeof(float), count * sizeof(float));
        dp_tensor_import(item->tensor, item->values, begin, count, block);
    }
}

/* Whether to read a tensor that may be missing or different; counts it. */
static bool take_loose(struct dp_loose *loose, const struct item *item,
                       const struct dp_stored *found)
{
    const struct dp_stored wanted = describe(item);
    const bool fits = found != NULL && !loose->skip && same_shape(found, &wanted) &&
                      strcmp(found->type, wanted.type) == 0;

    loose->taken += fits;
    loose->anew += !fits;
    return fits;
}

static void count_dropped(struct dp_loose *loose, const struct dp_safetensors *file)
{
    loose->dropped = -loose->taken;
    for (int i = 0; i < dp_safetensors_count(file); i++) {
        loose->dropped += is_loose(loose, dp_safetensors_at(file, i)->name);
    }
}

static dp_status load_items(const char *path, const struct item *items, int count,
                            const struct dp_safetensors *file, const char *what,
                            struct dp_loose *loose)
{
    DP_TRY(check_items(path, items, count, file, what, loose));
    for (int i = 0; i < count; i++) {
        const struct dp_stored *found = dp_safetensors_find(file, items[i].name);

        if (is_loose(loose, items[i].name) && !take_loose(loose, &items[i], found)) {
            continue;
        }
        if (items[i].tensor != NULL) {
            take(&items[i], found);
        } else if (found != NULL) {
            memcpy(items[i].counter, found->data, sizeof(int64_t));
        }
    }
    if (loose != NULL) {
        count_dropped(loose, file);
    }
    return DP_OK;
}

/* Releases the items, which may be NULL: no memory. */
static dp_status load_file(const char *path, struct item *items, int count, const char *what,
                           struct dp_loose *loose)
{
    struct dp_safetensors *file = NULL;
    dp_status status = items != NULL ? dp_safetensors_open(path, &file)
                                     : DP_FAIL(DP_ERR_NOMEM, "%s: list of tensors", path);

    if (status == DP_OK) {
        status = load_items(path, items, count, file, what, loose);
    }
    dp_safetensors_close(file);
    dp_free(items);
    return status;
}

dp_status dp_weights_check(const char *path, const struct dp_weights *weights)
{
    struct dp_safetensors *file = NULL;
    int count = 0;
    struct item *items = list_items(weights, &count);
    dp_status status = items != NULL ? dp_safetensors_open(path, &file)
                                     : DP_FAIL(DP_ERR_NOMEM, "%s: list of tensors", path);

    if (status == DP_OK) {
        status = check_items(path, items, count, file, "model", NULL);
    }
    dp_safetensors_close(file);
    dp_free(items);
    return status;
}

dp_status dp_weights_load(const char *path, struct dp_weights *weights)
{
    int count = 0;
    struct item *items = list_items(weights, &count);

    return load_file(path, items, count, "model", NULL);
}

dp_status dp_slots_load(const char *path, const struct dp_tensor *params, int param_count,
                        const struct dp_slot *slots, int slot_count, struct dp_loose *loose)
{
    int count = 0;
    struct item *items = list_slots(params, param_count, slots, slot_count, &count);

    return load_file(path, items, count, "optimizer", loose);
}

dp_status dp_average_load(const char *path, const struct dp_tensor *params, int param_count,
                          float *values)
{
    const struct dp_slot slot = {.name = DP_AVERAGE_NAME, .values = values};
    struct dp_loose loose = {.word = ""}; /* which all names have */

    DP_TRY(dp_slots_load(path, params, param_count, &slot, 1, &loose));
    return loose.taken == param_count
               ? DP_OK
               : DP_FAIL(DP_ERR_CONFIG, "%s: holds no average of this model's weights (train.ema)",
                         path);
}
