#include "base/files/folder_list.h"

#include <string.h>
#include <unistd.h>

#include "base/mem.h"

bool dp_folder_list_is(const char *text)
{
    const size_t length = strlen(text);

    return length >= 2 && text[0] == '[' && text[length - 1] == ']';
}

bool dp_folder_list_takes(const char *name)
{
    const size_t length = strlen(name);

    return length > 0 && name[0] != ' ' && name[length - 1] != ' ' &&
           name[strcspn(name, ",[]")] == '\0';
}

static size_t count_of(const char *text)
{
    size_t count = 1;

    for (const char *at = text; *at != '\0'; at++) {
        count += *at == ',';
    }
    return dp_folder_list_is(text) ? count : 1;
}

/* Cuts a text at its commas, in place. */
static dp_status cut(char *text, const char **name)
{
    for (char *next = text; next != NULL; text = next) {
        next = strchr(text, ',');
        if (next != NULL) {
            *next++ = '\0';
        }
        text += strspn(text, " ");
        if (!dp_folder_list_takes(text)) {
            return DP_FAIL(DP_ERR_CONFIG, "data.dir: '%s' cannot be a folder of a list", text);
        }
        *name++ = text;
    }
    return DP_OK;
}

/* What is meant cannot be told. */
static dp_status refuse_name(const char *text)
{
    return DP_FAIL(DP_ERR_CONFIG,
                   "data.dir: %s is read as a list of folders, and one folder has that name: write "
                   "./%s for it",
                   text, text);
}

dp_status dp_folder_list_read(const char *text, struct dp_folder_list *out)
{
    const size_t count = count_of(text), length = strlen(text);
    const char **name = dp_zalloc(1, count * sizeof(*name) + length + 1);
    dp_status status = DP_OK;
    char *copy;

    if (name == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: list of folders", text);
    }
    copy = (char *)(name + count); /* after the names, in the same memory */
    memcpy(copy, text, length + 1);
    if (dp_folder_list_is(text)) {
        copy[length - 1] = '\0';
        status = access(text, F_OK) == 0 ? refuse_name(text) : cut(copy + 1, name);
    } else {
        name[0] = copy;
    }
    if (status != DP_OK) {
        dp_free(name);
        return status;
    }
    *out = (struct dp_folder_list){name, count};
    return DP_OK;
}

void dp_folder_list_release(struct dp_folder_list *list)
{
    dp_free(list->name);
    *list = (struct dp_folder_list){NULL, 0};
}
