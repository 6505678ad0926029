/*
 * config_load.h - makes a configuration of a model.cfg, the environment and the command line.
 */
#ifndef DP_RUNTIME_CONFIG_CONFIG_LOAD_H
#define DP_RUNTIME_CONFIG_CONFIG_LOAD_H

#include "runtime/config/config.h"

/*
 * Rank 0 only: reads `path`, then the DP_* variables of `environment` (NULL-terminated, as
 * environ), then `sets` ("train.global_batch=512"). Checks every key and value, and writes the
 * resolved configuration as one text, owned by the caller (dp_free).
 *
 * The text is YAML with every key, including defaults; `repeat` is not unrolled. Of train.epochs
 * and train.steps it has the one that counts. A tail of comments follows, which says where each key
 * came from, so that every rank can name the place in the user's file. People get the text without
 * the tail: its first dp_config_text_length() bytes, which are a model.cfg again.
 *
 * Problems are logged as one line that begins with "path:line:column: key: " (or "--set key=value:
 * key: ", "DP_TRAIN_SEED: key: ").
 *
 * Errors: DP_ERR_NOINPUT (no such file), DP_ERR_CONFIG, DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_config_resolve(const char *path, char *const *environment,
                                       const char *const *sets, int set_count, char **text);

enum { DP_VARIABLE = 128 }; /* bytes of the longest name of a variable, and a NUL */

/*
 * Finds one of our variables; *value is NULL if it is not set. Its name is DP_NAME, with the alias
 * DDP_NAME; both may be set to the same value.
 *
 *   name  in   "DP_TRAIN_SEED"
 *         out  the one that is set: "DDP_TRAIN_SEED"
 *
 * Errors: DP_ERR_CONFIG (they are set to different values).
 */
DP_CHECKED dp_status dp_config_variable(char *const *environment, char name[DP_VARIABLE],
                                        const char **value);

/* As dp_config_resolve(), with the file's content from memory; `path` is only its name. */
DP_CHECKED dp_status dp_config_resolve_text(const char *content, size_t length, const char *path,
                                            char *const *environment, const char *const *sets,
                                            int set_count, char **text);

/* Builds the configuration from resolved text; `source` replaces the file name in error messages if
 * the text has no tail. Owned by the caller (dp_config_destroy). */
DP_CHECKED dp_status dp_config_parse(const char *text, const char *source, struct dp_config **out);

void dp_config_destroy(struct dp_config *config);

/*
 * Where a key got its value, for error messages of later checks: "model.cfg:14:18: comm.strategy",
 * "--set comm.strategy=rnig: comm.strategy", or only "comm.strategy" for a default. Returns `text`.
 */
const char *dp_config_where(const struct dp_config *config, const char *key, char *text,
                            size_t size);

#endif
