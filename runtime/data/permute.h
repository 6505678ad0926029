/*
 * permute.h - the order of an epoch: an exact permutation of [0, n) without a table.
 *
 * A position is computed when it is needed, in O(1) memory. So any rank can take any part of any
 * epoch, and a resumed run needs no saved state. The permutation depends only on the seed, the
 * epoch and n: not on ranks, batch size or machine.
 *
 * Numbers are written as pairs (left, right) of [0, a) x [0, b) with a * b >= n, as square as
 * possible. Each round adds a random function of one half to the other half, modulo that half's
 * size. This can be undone, so it is a bijection of [0, a * b) for any such function. A result that
 * is not below n goes through the rounds again until it is; as a b < n + a, that is rare.
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
    uint64_t n;           /* size of the permuted range */
    uint64_t left, right; /* sizes of the halves */
    uint32_t epoch, rounds;
};

/* n is 1 to 2^62. */
void dp_permutation_init(struct dp_permutation *permutation, uint64_t seed, uint32_t epoch,
                         uint64_t n);

/* The number at position `i` < n: each number of [0, n) is at exactly one position. */
uint64_t dp_permutation_at(const struct dp_permutation *permutation, uint64_t i);

#endif
