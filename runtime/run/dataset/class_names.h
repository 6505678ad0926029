/*
 * class_names.h - what the classes of a data set are called: kept by the run, in run.json and in
 * checkpoints. Output i of a model means class i, so weights are of no use under other names.
 */
#ifndef DP_RUNTIME_RUN_DATASET_CLASS_NAMES_H
#define DP_RUNTIME_RUN_DATASET_CLASS_NAMES_H

#include "base/json.h"
#include "base/status.h"

/* Begins with zeros. */
struct dp_class_names {
    const char **at; /* owned; [count], with the texts after them; NULL: the classes have none */
    int count;
};

/* Takes copies of the names; NULL: there are none. Errors: DP_ERR_DATA (more text than a checkpoint
 * takes), DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_class_names_copy(struct dp_class_names *names, const char *const *from,
                                         int count);
void dp_class_names_release(struct dp_class_names *names);

/* Sets `classes` of a checkpoint's state, where there are names. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_class_names_write(const struct dp_class_names *names,
                                          struct dp_json *state);

/* Refuses a checkpoint whose state has other names, or as many in another order. What has none, as
 * one of an older version, is taken. `source` is the checkpoint. Errors: DP_ERR_CONFIG (one line
 * names the first that differs). */
DP_CHECKED dp_status dp_class_names_check(const struct dp_class_names *names,
                                          const struct dp_json *state, const char *source);

#endif
