/*
 * share_of_cases.h - of a test's combinations those that a build is given which looks at the same
 * code in another way: with a sanitizer, or on simulated GPUs. The plain build tries them all.
 */
#ifndef DP_TESTS_SUPPORT_SHARE_OF_CASES_H
#define DP_TESTS_SUPPORT_SHARE_OF_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

/* Whether to try the combination of this number: where the environment has DP_TEST_SHARE=1/3 every
 * third one, beginning with the second. With the sum of two indices as number each value of both is
 * still tried. All of them with tests/run --long. */
static inline bool in_share(size_t number)
{
    const char *share = getenv("DP_TEST_SHARE");
    char *end = NULL;

    if (share == NULL || getenv("DP_TEST_LONG") != NULL) {
        return true;
    }
    const unsigned long part = strtoul(share, &end, 10);
    const unsigned long parts = *end == '/' ? strtoul(end + 1, NULL, 10) : 0;
    return part >= parts || number % parts == part;
}

#endif
