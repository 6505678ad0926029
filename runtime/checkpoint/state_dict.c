#include "runtime/checkpoint/state_dict.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { HEX_BYTES = 32 };

static void add(struct dp_state_dict *list, const struct dp_state_entry *row)
{
    assert(list->count < DP_STATE_DICT_MOST && dp_state_dict_find(list, row->name) == NULL);
    list->rows[list->count++] = *row;
}

void dp_state_dict_add_array(struct dp_state_dict *list, const char *name, float *data,
                             size_t count, enum dp_state_kind kind, enum dp_spread spread)
{
    add(list, &(struct dp_state_entry){name, data, count * sizeof(float), kind, spread});
}

void dp_state_dict_add_u32(struct dp_state_dict *list, const char *name, uint32_t *value)
{
    add(list, &(struct dp_state_entry){name, value, sizeof(*value), DP_STATE_U32, DP_SPREAD_SAME});
}

void dp_state_dict_add_u64(struct dp_state_dict *list, const char *name, uint64_t *value)
{
    add(list, &(struct dp_state_entry){name, value, sizeof(*value), DP_STATE_U64, DP_SPREAD_SAME});
}

void dp_state_dict_add_i64(struct dp_state_dict *list, const char *name, int64_t *value)
{
    add(list, &(struct dp_state_entry){name, value, sizeof(*value), DP_STATE_I64, DP_SPREAD_SAME});
}

void dp_state_dict_add_f64(struct dp_state_dict *list, const char *name, double *value)
{
    add(list, &(struct dp_state_entry){name, value, sizeof(*value), DP_STATE_F64, DP_SPREAD_SAME});
}

void dp_state_dict_add_flag(struct dp_state_dict *list, const char *name, bool *value)
{
    add(list, &(struct dp_state_entry){name, value, sizeof(*value), DP_STATE_FLAG, DP_SPREAD_SAME});
}

const struct dp_state_entry *dp_state_dict_find(const struct dp_state_dict *list, const char *name)
{
    for (int i = 0; i < list->count; i++) {
        if (strcmp(list->rows[i].name, name) == 0) {
            return &list->rows[i];
        }
    }
    return NULL;
}

bool dp_state_is_own(const struct dp_state_entry *row)
{
    return row->spread == DP_SPREAD_RANK || row->spread == DP_SPREAD_OWNER;
}

bool dp_state_is_array(const struct dp_state_entry *row)
{
    return row->kind == DP_STATE_WEIGHTS || row->kind == DP_STATE_RUNNING ||
           row->kind == DP_STATE_SLOT || row->kind == DP_STATE_ARRAY;
}

static dp_status write_scalar(const struct dp_state_entry *row, struct dp_json *object)
{
    char hex[HEX_BYTES];

    switch (row->kind) {
    case DP_STATE_U32:
        return dp_json_set_int(object, row->name, *(const uint32_t *)row->data);
    case DP_STATE_U64:
        return dp_json_set_int(object, row->name, (int64_t)(*(const uint64_t *)row->data));
    case DP_STATE_I64:
        return dp_json_set_int(object, row->name, *(const int64_t *)row->data);
    case DP_STATE_FLAG:
        return dp_json_set_bool(object, row->name, *(const bool *)row->data);
    default:
        (void)snprintf(hex, sizeof(hex), "%a", *(const double *)row->data);
        return dp_json_set_text(object, row->name, hex);
    }
}

dp_status dp_state_dict_write(const struct dp_state_dict *list, struct dp_json *object)
{
    for (int i = 0; i < list->count; i++) {
        if (!dp_state_is_array(&list->rows[i])) {
            DP_TRY(write_scalar(&list->rows[i], object));
        }
    }
    return DP_OK;
}

static bool read_hex(const struct dp_json *json, double *value)
{
    const char *text = dp_json_text(json);
    char *end = NULL;

    if (text == NULL || *text == '\0') {
        return false;
    }
    *value = strtod(text, &end);
    return *end == '\0';
}

/* False: it does not have the row's kind. */
static bool read_scalar(const struct dp_state_entry *row, const struct dp_json *json)
{
    int64_t number = 0;

    if (row->kind == DP_STATE_FLAG) {
        return dp_json_switch(json, row->data);
    }
    if (row->kind == DP_STATE_F64) {
        return read_hex(json, row->data);
    }
    if (!dp_json_int(json, &number)) {
        return false;
    }
    if (row->kind != DP_STATE_U32) {
        memcpy(row->data, &number, sizeof(number)); /* I64, or the same bits as U64 */
        return true;
    }
    *(uint32_t *)row->data = (uint32_t)number;
    return number >= 0 && number <= UINT32_MAX;
}

dp_status dp_state_dict_read(const struct dp_state_dict *list, const struct dp_json *object,
                             const char *source)
{
    for (int i = 0; i < list->count; i++) {
        const struct dp_state_entry *row = &list->rows[i];
        const struct dp_json *value = dp_json_get(object, row->name);

        if (dp_state_is_array(row)) {
            continue;
        }
        if (value == NULL) {
            DP_WARN("%s has no '%s': it starts from its initial value", source, row->name);
        } else if (!read_scalar(row, value)) {
            return DP_FAIL(DP_ERR_DATA, "%s: '%s' has a wrong type or value", source, row->name);
        }
    }
    return DP_OK;
}
