/*
 * shape_cases.h - for tests: small models that together have every way in which layers can share
 * memory, be fused, or be read by others.
 */
#ifndef DP_TESTS_SUPPORT_MODELS_SHAPE_CASES_H
#define DP_TESTS_SUPPORT_MODELS_SHAPE_CASES_H

#include <stdbool.h>
#include <stddef.h>

struct shape_case {
    const char *input, *layers;
    bool splits; /* rows do not depend on each other: no batch norm */
};

extern const struct shape_case shape_cases[];
extern const size_t shape_case_count;

#endif
