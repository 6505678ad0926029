/*
 * permute.h - the order of an epoch: an exact permutation of [0, n) without a table.
 *
 * Where a row stands is computed when it is asked for, in O(1) memory, so any rank can take any
 * part of any epoch, and a resumed run needs no saved state. The permutation depends on the seed,
 * the epoch and n alone: not on ranks, batch size or machine.
 *
 * Numbers are written as pairs (left, right) of [0, a) x [0, b) with a * b >= n, as square as
 * possible. Each round adds to one half a random function of the other one, modulo the half's own
 * size, which can be undone and so is a bijection of [0, a * b) whatever that function is. Results
 * that are not below n are sent through again until they are; as a b < n + a, that is rare.
 *
 * Sources: Luby and Rackoff, "How to construct pseudorandom permutations from pseudorandom
 * functions", SIAM J. Comput. 17 (1988): the rounds. Black and Rogaway, "Ciphers with arbitrary
 * finite domains", CT-RSA 2002: sections 4 (cycle walking) and 5 (halves that are no powers of 2).
 */
#ifndef DP_RUNTIME_DATA_PERMUTE_H
#define DP_RUNTIME_DATA_PERMUTE_H

#include <stdint.h>

/* In memory of the caller; holds no resources. */
struct dp_permutation {
    uint64_t seed;
    uint64_t n;           /* of what */
    uint64_t left, right; /* sizes of the halves */
    uint32_t epoch, rounds;
};

/* n is 1 to 2^62. */
void dp_permutation_init(struct dp_permutation *permutation, uint64_t seed, uint32_t epoch,
                         uint64_t n);

/* What stands at position `i` < n: each number of [0, n) stands at exactly one position. */
uint64_t dp_permutation_at(const struct dp_permutation *permutation, uint64_t i);

#endif
