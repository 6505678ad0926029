/*
 * folder_list.h - several folders as one text, "[A, B]", as a list is written in model.cfg. A
 * folder in a list has no comma, "[" or "]" in its name, and no space at an end of it. One folder
 * that is named as a list is written "./[A]".
 */
#ifndef DP_BASE_FILES_FOLDER_LIST_H
#define DP_BASE_FILES_FOLDER_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Whether the text is a list; otherwise it is one folder. */
bool dp_folder_list_is(const char *text);

/* Whether a folder of that name can be in a list. */
bool dp_folder_list_takes(const char *name);

struct dp_folder_list {
    const char **name; /* owned, [count]; what it points to, too */
    size_t count;      /* 1 or more */
};

/* The folders of a text: those of the list, or the one. Errors: DP_ERR_NOMEM; DP_ERR_CONFIG: a
 * folder of the list has no name, or one folder is named as the whole list. Nothing is left then.
 */
DP_CHECKED dp_status dp_folder_list_read(const char *text, struct dp_folder_list *out);
void dp_folder_list_release(struct dp_folder_list *list);

#endif
