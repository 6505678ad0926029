/*
 * augment_mixup.c - each sample becomes a weighted mean with another one of the training set, and
 * so does its label; the weight is drawn from Beta(alpha, alpha), for each sample by itself.
 *
 * Source: Zhang, Cisse, Dauphin and Lopez-Paz, "mixup: beyond empirical risk minimization", ICLR
 * 2018, equation 2.
 */
#include <math.h>

#include "runtime/data/augment/augmentation.h"

struct mixup {
    double alpha;
};

static const struct dp_option options[] = {
    DP_DOUBLE(struct mixup, alpha, "0.2", 0.01, 100,
              "of Beta(alpha, alpha), the share of each sample; small: mostly near 0 or 1"),
    {0},
};

enum { BLOCKS = 16, NUMBERS = 4 * BLOCKS };

/* The random numbers of a sample, one after another. Block 0 chooses the other sample. */
struct numbers {
    const struct dp_draw *draw;
    uint32_t bits[4];
    uint32_t next; /* number of the next one */
};

static double take(struct numbers *n)
{
    if (n->next % 4 == 0) {
        dp_draw_block(n->draw, n->next / 4, n->bits);
    }
    return dp_draw_inside(n->bits[n->next++ % 4]);
}

/*
 * A number of the gamma distribution of shape `a`. Of 9 tries, for which there are numbers, one
 * succeeds: each does so with a probability above 0.95.
 *
 * Source: Marsaglia and Tsang, "A simple method for generating gamma variables", ACM Transactions
 * on Mathematical Software 26, 2000; below 1 by its section 6; normal numbers by Box and Muller.
 */
static double gamma_of(struct numbers *n, double a, uint32_t end)
{
    const double two_pi = 6.283185307179586;
    const double boost = a < 1 ? pow(take(n), 1 / a) : 1;
    const double d = (a < 1 ? a + 1 : a) - 1.0 / 3, c = 1 / sqrt(9 * d);

    while (n->next + 3 <= end) {
        const double radius = sqrt(-2 * log(take(n)));
        const double x = radius * cos(two_pi * take(n)), v = pow(1 + c * x, 3);
        if (v > 0 && log(take(n)) < x * x / 2 + d - d * v + d * log(v)) {
            return boost * d * v;
        }
    }
    return boost * d;
}

static double share(const void *state, const struct dp_draw *draw)
{
    const struct mixup *mixup = state;
    struct numbers n = {.draw = draw, .next = 4};
    const double one = gamma_of(&n, mixup->alpha, NUMBERS / 2);
    const double other = gamma_of(&n, mixup->alpha, NUMBERS);

    /* Both vanish where alpha is small: then it is all of one, or of the other. */
    return one + other > 0 ? one / (one + other) : take(&n) < 0.5 ? 0 : 1;
}

const struct dp_augmentation dp_augmentation_mixup = {
    .plugin = {.name = "mixup",
               .help = "a weighted mean with another sample; comes last",
               .options = options,
               .state_bytes = sizeof(struct mixup)},
    .share = share,
};
