/*
 * element.h - elements of arrays in a stream's compute type: read as float32, rounded when written.
 */
#ifndef DP_KERNELS_REF_ELEMENT_H
#define DP_KERNELS_REF_ELEMENT_H

#include <stdint.h>

#include "kernels/device.h"

/* The value of 16 bits, and the 16 bits nearest to x (ties to even): code_ref.c. */
float dp_ref_value(enum dp_type type, uint16_t bits);
uint16_t dp_ref_round(enum dp_type type, float x);

static inline float dp_ref_get(const struct dp_stream *s, const void *x, size_t i)
{
    return s->type == DP_TYPE_F32 ? ((const float *)x)[i]
                                  : dp_ref_value(s->type, ((const uint16_t *)x)[i]);
}

static inline void dp_ref_put(const struct dp_stream *s, void *y, size_t i, float value)
{
    if (s->type == DP_TYPE_F32) {
        ((float *)y)[i] = value;
    } else {
        ((uint16_t *)y)[i] = dp_ref_round(s->type, value);
    }
}

static inline const void *dp_ref_at(const struct dp_stream *s, const void *x, size_t i)
{
    return (const char *)x + i * dp_type_bytes(s->type);
}

static inline void *dp_ref_to(const struct dp_stream *s, void *y, size_t i)
{
    return (char *)y + i * dp_type_bytes(s->type);
}

#endif
