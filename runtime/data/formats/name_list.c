#include "runtime/data/formats/name_list.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { FIRST_ROOM = 4096 };

bool dp_name_list_add(struct dp_name_list *list, const char *name)
{
    const size_t bytes = strlen(name) + 1;

    if (bytes > list->room - list->used) {
        const size_t room = 2 * list->room + bytes + FIRST_ROOM;
        char *text = dp_zalloc(1, room);
        if (text == NULL) {
            return false;
        }
        if (list->used > 0) {
            memcpy(text, list->text, list->used);
        }
        dp_free(list->text);
        list->text = text;
        list->room = room;
    }
    memcpy(list->text + list->used, name, bytes);
    list->used += bytes;
    list->count++;
    return true;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool dp_name_list_sort(struct dp_name_list *list)
{
    const char *name = list->text;

    list->at = dp_zalloc(list->count, sizeof(*list->at));
    if (list->at == NULL) {
        return false;
    }
    for (size_t i = 0; i < list->count; i++) {
        list->at[i] = name;
        name += strlen(name) + 1;
    }
    if (list->count > 1) {
        qsort(list->at, list->count, sizeof(*list->at), compare);
    }
    return true;
}

size_t dp_name_list_find(const struct dp_name_list *list, const char *name)
{
    size_t low = 0, high = list->count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strcmp(list->at[middle], name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < list->count && strcmp(list->at[low], name) == 0 ? low : list->count;
}

void dp_name_list_release(struct dp_name_list *list)
{
    dp_free(list->at);
    dp_free(list->text);
    *list = (struct dp_name_list){NULL, 0, NULL, 0, 0};
}
