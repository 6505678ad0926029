/*
 * config_folders.c - a list of folders, such as that of data.dir, as one text (folder_list.h).
 */
#include "base/files/folder_list.h"
#include "runtime/config/config_own.h"

dp_status dp_config_read_folders(struct dp_pool *pool, struct dp_yaml_node *node, const char *key)
{
    const char *text = "";

    if (node->kind != DP_YAML_LIST || node->first == NULL) {
        return DP_OK; /* one folder, or an error that is found later */
    }
    for (const struct dp_yaml_node *item = node->first; text != NULL && item != NULL;
         item = item->next) {
        if (item->kind != DP_YAML_SCALAR || dp_yaml_is_null(item) ||
            !dp_folder_list_takes(item->text)) {
            return dp_config_refuse(&item->at, key,
                                    "expected a folder whose name has no comma, [ or ]");
        }
        text = dp_pool_format(pool, "%s%s%s", text, text[0] != '\0' ? ", " : "[", item->text);
    }
    text = text != NULL ? dp_pool_format(pool, "%s]", text) : NULL;
    if (text == NULL) {
        return dp_config_no_memory();
    }
    node->kind = DP_YAML_SCALAR;
    node->text = text;
    node->plain = false;
    node->first = NULL;
    return DP_OK;
}
