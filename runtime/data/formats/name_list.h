/*
 * name_list.h - the names in a folder, in one piece of memory.
 */
#ifndef DP_RUNTIME_DATA_FORMATS_NAME_LIST_H
#define DP_RUNTIME_DATA_FORMATS_NAME_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* Begins with zeros. */
struct dp_name_list {
    const char **at; /* owned; [count]; set by dp_name_list_sort() */
    size_t count;
    char *text; /* owned: the names, one after another, each with its NUL */
    size_t used, room;
};

/* Adds a copy of the name. False: there is no memory. */
bool dp_name_list_add(struct dp_name_list *list, const char *name);

/* Puts all names in the order of their bytes, into `at`. False: there is no memory. */
bool dp_name_list_sort(struct dp_name_list *list);

/* The place of a name in a sorted list; `count` where it is not in it. */
size_t dp_name_list_find(const struct dp_name_list *list, const char *name);

void dp_name_list_release(struct dp_name_list *list);

#endif
