/*
 * config_print.h - a configuration as text: resolved, value by value, and as help.
 */
#ifndef DP_RUNTIME_CONFIG_CONFIG_PRINT_H
#define DP_RUNTIME_CONFIG_CONFIG_PRINT_H

#include "runtime/config/config.h"

/* The length of a resolved text without its tail: the part for people. */
size_t dp_config_text_length(const char *text);

/* The value of a key outside of `model` ("train.seed"), as it is printed; empty: no such key. */
void dp_config_value(const struct dp_config *config, const char *key, char *text, size_t size);

/* Whether it is the key's default, given or not; for keys with a number or a choice. */
bool dp_config_is_default(const struct dp_config *config, const char *key);

enum { DP_CONFIG_KEY = 64 }; /* bytes of the longest key outside of `model`, and a NUL */

/* The i-th key that has flags (enum dp_key_flag), in the order of the printed configuration; false:
 * there are no more. */
bool dp_config_flagged(int i, char key[DP_CONFIG_KEY], unsigned *flags);

/* Prints every key with type, default, range and help, section by section: for --help. */
void dp_config_help(void);

#endif
