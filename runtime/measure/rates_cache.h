/*
 * rates_cache.h - measured rates that runs of this user keep for later ones: limits.json in the
 * cache folder.
 *
 * A key says what a rate depends on: host, processor, device. A file of another build of the
 * program, or one that is damaged, counts as empty.
 */
#ifndef DP_RUNTIME_MEASURE_RATES_CACHE_H
#define DP_RUNTIME_MEASURE_RATES_CACHE_H

#include <stdbool.h>

/* Sets values [count] to what is known under `key`, each by its name; NaN where that was not
 * measured. False: nothing is known, and they are left alone. */
bool dp_rates_cache_get(const char *key, const char *const *names, double *values, int count);

/* Keeps them, in place of what was there. Without a cache, or memory, nothing happens. */
void dp_rates_cache_put(const char *key, const char *const *names, const double *values, int count);

#endif
