#include "runtime/data/permute.h"

#include <assert.h>

#include "base/random.h"

/*
 * Four rounds already resist an adversary (Luby and Rackoff); two more are margin. Tiny domains mix
 * more slowly: with 6 rounds and n 5 some numbers stand at some positions measurably too often,
 * with 12 none do, and from n 16 on 6 rounds show nothing either (as
 * tests/unit/runtime/data/test_permute.c measures).
 */
enum { ROUNDS = 6, TINY_ROUNDS = 12, TINY = 64 };

/* The smallest integer whose square is not below n. */
static uint64_t square_root_up(uint64_t n)
{
    uint64_t root = 0;

    for (uint64_t bit = (uint64_t)1 << 31; bit != 0; bit >>= 1) {
        const uint64_t larger = root | bit;
        if (larger * larger <= n) {
            root = larger;
        }
    }
    return root * root < n ? root + 1 : root;
}

void dp_permutation_init(struct dp_permutation *permutation, uint64_t seed, uint32_t epoch,
                         uint64_t n)
{
    assert(n >= 1 && n <= (uint64_t)1 << 62);
    permutation->seed = seed;
    permutation->epoch = epoch;
    permutation->n = n;
    permutation->rounds = n < TINY ? TINY_ROUNDS : ROUNDS;
    permutation->left = square_root_up(n);
    permutation->right = (n + permutation->left - 1) / permutation->left;
}

/* A random number below `size`, which is at most 2^31: a function of round and `half`. */
static uint64_t scramble(const struct dp_permutation *p, uint32_t round, uint64_t half,
                         uint64_t size)
{
    return dp_random_u32(p->seed, DP_RANDOM_SHUFFLE + round, p->epoch, half) * size >> 32;
}

static uint64_t add_modulo(uint64_t a, uint64_t b, uint64_t size)
{
    const uint64_t sum = a + b;

    return sum < size ? sum : sum - size;
}

uint64_t dp_permutation_at(const struct dp_permutation *p, uint64_t i)
{
    assert(i < p->n);
    do {
        uint64_t left = i / p->right, right = i % p->right;
        for (uint32_t round = 0; round < p->rounds; round += 2) {
            left = add_modulo(left, scramble(p, round, right, p->left), p->left);
            right = add_modulo(right, scramble(p, round + 1, left, p->right), p->right);
        }
        i = left * p->right + right;
    } while (i >= p->n);
    return i;
}
