/*
 * augment.h - changes training samples at random: data.augment, in its order.
 */
#ifndef DP_RUNTIME_DATA_AUGMENT_AUGMENT_H
#define DP_RUNTIME_DATA_AUGMENT_AUGMENT_H

#include "runtime/data/augment/augmentation.h"

struct dp_augment;

/*
 * Parses "random_crop:padding=4;flip".
 *
 *   shape    of every sample
 *   out      out  owned by the caller; NULL where the text is empty
 *   problem  out  on error: one line for people; nothing is logged
 *
 * Errors: DP_ERR_CONFIG (unknown name or option, bad value, samples that do not fit), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_augment_create(const char *text, const struct dp_sample_shape *shape,
                                       uint64_t seed, struct dp_augment **out, char *problem,
                                       size_t problem_size);

/* Another one for another thread: its stages are those of `augment`, which is destroyed last. */
DP_CHECKED dp_status dp_augment_share(const struct dp_augment *augment, struct dp_augment **out);

/* Writes sample `row` as epoch `epoch` sees it. in, out: as in augmentation.h. One thread at a time
 * calls this. */
void dp_augment_sample(struct dp_augment *augment, uint64_t epoch, uint64_t row, const uint8_t *in,
                       uint8_t *out);

/* Whether the text has an augmentation that mixes samples. */
bool dp_augment_text_mixes(const char *text);

/* Whether it changes samples by themselves; and whether it then mixes each with another one, which
 * dp_augment_mix() chooses. */
bool dp_augment_changes(const struct dp_augment *augment);
bool dp_augment_mixes(const struct dp_augment *augment);

struct dp_mix {
    uint64_t row;  /* the other sample */
    uint32_t part; /* of the sample itself, of DP_MIX_WHOLE */
};
enum { DP_MIX_WHOLE = 1 << 16 };

/* What sample `row` of `count` is mixed with in an epoch. */
struct dp_mix dp_augment_mix(const struct dp_augment *augment, uint64_t epoch, uint64_t row,
                             uint64_t count);

/* Mixes `other` into `sample`, of the shape; bytes are rounded to the nearest. */
void dp_augment_mix_samples(const struct dp_augment *augment, const struct dp_mix *mix,
                            uint8_t *sample, const uint8_t *other);

/* Whether it begins with taking a part, which may then be mirrored. That can be done on a picture
 * of any size, when it is decoded: dp_augment_part() says which part, and whether to mirror it;
 * dp_augment_rest() does what comes after it; without `more` there is nothing to do. */
bool dp_augment_takes_part(const struct dp_augment *augment, bool *more);
void dp_augment_part(const struct dp_augment *augment, uint64_t epoch, uint64_t row, int height,
                     int width, struct dp_part *part);
void dp_augment_rest(struct dp_augment *augment, uint64_t epoch, uint64_t row, const uint8_t *in,
                     uint8_t *out);

/* NULL is allowed. */
void dp_augment_destroy(struct dp_augment *augment);

#endif
