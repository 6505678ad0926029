/*
 * config_synonyms.h - words of other tools for what model.cfg calls otherwise: what is meant.
 */
#ifndef DP_RUNTIME_CONFIG_CONFIG_SYNONYMS_H
#define DP_RUNTIME_CONFIG_CONFIG_SYNONYMS_H

#include <stddef.h>

/*
 * What an unknown word is called here, or NULL.
 *
 *   where  in  the path of a section ("" at the top), "layers" for a kind of layer, or a layer's
 *              kind for one of its options
 *   word   in  as it is written; capitals, '-' and '_' do not count
 */
const char *dp_config_synonym(const char *where, const char *word);

/*
 * What an unknown flag such as "--batch-size" means: "--set train.global_batch=...", in text, or
 * the flag for it. NULL: nothing is known of it.
 */
const char *dp_config_flag_meant(const char *flag, char *text, size_t size);

/* Why there is no layer of that kind, in words that continue a sentence; NULL: nothing is known. */
const char *dp_config_no_layer(const char *word);

#endif
