/*
 * split.h - which samples of a set are held out to test with, where there is no test set.
 *
 * Of n samples k are: the set is cut into k stretches of equal length, and of each one sample is
 * taken, by a random number that depends on n, k and the stretch alone. So it is the same for every
 * seed and any number of ranks; and where samples lie in the order of their classes, each class
 * gives its share. Nothing has to be remembered. Source: Cochran, "Sampling techniques", 1977,
 * section 5.9 (stratified sampling, one unit a stratum).
 */
#ifndef DP_RUNTIME_DATA_SPLIT_H
#define DP_RUNTIME_DATA_SPLIT_H

#include <stddef.h>

struct dp_split {
    size_t count; /* of all samples */
    size_t test;  /* of those that are held out; 0: none */
};

/* A share of `fraction` is held out: at least one sample, and not all of them. count >= 2. */
struct dp_split dp_split_of(size_t count, double fraction);

/* The place of held-out sample i < test among all samples, and that of sample i of the others;
 * both grow with i. */
size_t dp_split_test_row(const struct dp_split *split, size_t i);
size_t dp_split_train_row(const struct dp_split *split, size_t i);

#endif
