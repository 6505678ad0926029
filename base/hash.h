/*
 * hash.h - xxhash, whose functions are chosen for the processor (AVX2, AVX-512) where the library
 * has several.
 */
#ifndef DP_BASE_HASH_H
#define DP_BASE_HASH_H

#ifdef DP_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#endif
