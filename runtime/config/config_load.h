/*
 * config_load.h - from a model.cfg, the environment and the command line to a configuration.
 */
#ifndef DP_RUNTIME_CONFIG_CONFIG_LOAD_H
#define DP_RUNTIME_CONFIG_CONFIG_LOAD_H

#include "runtime/config/config.h"

/*
 * Rank 0 only: reads `path`, then the DP_* variables of `environment` (NULL-terminated, as
 * environ), then `sets` ("train.global_batch=512"), checks every key and value, and gives the
 * resolved configuration as one text, owned by the caller (dp_free).
 *
 * The text is YAML with every key, also those at their default, `repeat` as it was written; of
 * train.epochs and train.steps the one that counts. Behind that stands a tail of comments that say
 * where each key came from, so that every rank can name the place in the user's file. People get
 * the text without the tail: its first dp_config_text_length() bytes, which are a model.cfg again.
 *
 * Problems are logged as one line that begins with "path:line:column: key: " (or
 * "--set key=value: key: ", "DP_TRAIN_SEED: key: ").
 *
 * Errors: DP_ERR_NOINPUT (no such file), DP_ERR_CONFIG, DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_config_resolve(const char *path, char *const *environment,
                                       const char *const *sets, int set_count, char **text);

/* As dp_config_resolve(), with the file's content from memory; `path` is only its name. */
DP_CHECKED dp_status dp_config_resolve_text(const char *content, size_t length, const char *path,
                                            char *const *environment, const char *const *sets,
                                            int set_count, char **text);

/* Builds the configuration from resolved text; `source` stands in error messages for a file name
 * where the text has no tail. Owned by the caller (dp_config_destroy). */
DP_CHECKED dp_status dp_config_parse(const char *text, const char *source, struct dp_config **out);

void dp_config_destroy(struct dp_config *config);

/*
 * Where a key got its value, for error messages of those who check it later:
 * "model.cfg:14:18: comm.strategy", "--set comm.strategy=rnig: comm.strategy", or only
 * "comm.strategy" for a default. Returns `text`.
 */
const char *dp_config_where(const struct dp_config *config, const char *key, char *text,
                            size_t size);

#endif
