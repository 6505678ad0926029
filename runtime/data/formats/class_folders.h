/*
 * class_folders.h - pictures in folders that are named after their classes: which there are.
 *
 *     DIR/train/CLASS/PICTURE.png, DIR/test/CLASS/...    two sets
 *     DIR/CLASS/PICTURE.png                              one set
 *
 * Pictures are files that end in .png, .jpg or .jpeg, in any case. Classes are in the order of
 * their names' bytes, and so are the pictures of a class. Names that begin with a dot are left out,
 * and what else lies there is left out with a warning. Links that lead out of DIR are refused, and
 * so are names with control characters.
 */
#ifndef DP_RUNTIME_DATA_FORMATS_CLASS_FOLDERS_H
#define DP_RUNTIME_DATA_FORMATS_CLASS_FOLDERS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/files/file.h"
#include "base/status.h"
#include "runtime/data/sample.h"

struct dp_class_folders;

/* other_names: where there is no test/, the test set may be val/, valid/ or validation/.
 * Errors: DP_ERR_NOINPUT (no folder, or it cannot be read), DP_ERR_DATA (no classes, a class
 * without pictures, one that is only in test, a name or link as above), DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_class_folders_create(const char *dir, bool other_names,
                                             struct dp_class_folders **out);
void dp_class_folders_destroy(struct dp_class_folders *folders);

int dp_class_folders_classes(const struct dp_class_folders *folders);
const char *const *dp_class_folders_names(const struct dp_class_folders *folders);

/* Pictures of a set; the test set has none where there is one set only. */
size_t dp_class_folders_count(const struct dp_class_folders *folders, enum dp_set set);

/* Picture `row` of a set: its path, and its class. They are in the order of the classes. */
int dp_class_folders_path(const struct dp_class_folders *folders, enum dp_set set, size_t row,
                          char path[DP_PATH_BYTES]);

/* The folder of the test set: "test", or another name. */
const char *dp_class_folders_test_name(const struct dp_class_folders *folders);

/* How many other entries class folders have, and folders among them (below); the name of the first
 * one, in printable characters. */
const char *dp_class_folders_left_out(const struct dp_class_folders *folders, size_t *count,
                                      size_t *below);

#endif
