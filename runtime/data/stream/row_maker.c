#include "runtime/data/stream/row_maker.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "runtime/data/row_print.h"

enum {
    LINE = 64,      /* bytes of a cache's line */
    EXPECTED = 4096 /* of a row that are fetched; after so many a processor fetches by itself */
};

struct dp_row_maker {
    struct dp_row_maker_config config;
    struct dp_augment *augment;      /* owned; NULL: none */
    struct dp_sample_reader *reader; /* owned; NULL: images lie in memory */
    uint8_t *sample;                 /* owned; what is changed; NULL: nothing is */
    struct dp_crop crop;             /* of the picture as it is, where that comes first */
    bool crops, changes;             /* whether that is so; whether anything else is changed */
    uint8_t *other;                  /* owned; what a sample is mixed with; NULL: with nothing */
    int32_t *other_label;            /* owned; [label_words] */
    uint64_t epoch, row;             /* that are made now */
    struct dp_stage_times times;
};

/* The part of a picture of that size for the row that is made now. */
static void choose_part(void *context, int height, int width, struct dp_part *part)
{
    const struct dp_row_maker *m = context;

    dp_augment_part(m->augment, m->epoch, m->row, height, width, part);
}

static dp_status fill(struct dp_row_maker *m)
{
    const struct dp_row_maker_config *c = &m->config;
    bool more;

    if (c->augment != NULL) {
        DP_TRY(dp_augment_share(c->augment, &m->augment));
    }
    if (c->augment != NULL && dp_augment_mixes(c->augment)) {
        m->other = dp_mem_arena(DP_MEM_DATA, c->sample_bytes);
        m->other_label = dp_zalloc(c->label_words, sizeof(*m->other_label));
        if (m->other == NULL || m->other_label == NULL) {
            return DP_FAIL(DP_ERR_NOMEM, "thread that mixes rows of %zu bytes", c->sample_bytes);
        }
    }
    if (c->images != NULL) {
        return DP_OK;
    }
    DP_TRY(dp_sample_reader_create(c->samples, &m->reader));
    m->changes = c->augment != NULL && dp_augment_changes(c->augment);
    if (c->augment != NULL && dp_samples_info(c->samples)->resized &&
        dp_augment_takes_part(c->augment, &more)) {
        m->crop = (struct dp_crop){choose_part, m};
        dp_sample_reader_crop(m->reader, &m->crop);
        m->crops = true;
        m->changes = more;
    }
    if (!m->changes) {
        return DP_OK;
    }
    m->sample = dp_mem_arena(DP_MEM_DATA, c->sample_bytes);
    return m->sample != NULL
               ? DP_OK
               : DP_FAIL(DP_ERR_NOMEM, "thread that makes rows of %zu bytes", c->sample_bytes);
}

dp_status dp_row_maker_create(const struct dp_row_maker_config *config, struct dp_row_maker **out)
{
    struct dp_row_maker *m = dp_zalloc(1, sizeof(*m));
    dp_status status;

    if (m == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "thread that makes rows");
    }
    m->config = *config;
    status = fill(m);
    if (status != DP_OK) {
        dp_row_maker_destroy(m);
        return status;
    }
    *out = m;
    return DP_OK;
}

void dp_row_maker_destroy(struct dp_row_maker *m)
{
    if (m != NULL) {
        dp_sample_reader_destroy(m->reader);
        dp_augment_destroy(m->augment);
        dp_free(m->sample);
        dp_free(m->other);
        dp_free(m->other_label);
        dp_free(m);
    }
}

static void copy_label(const struct dp_row_maker_config *c, uint64_t row, int32_t *label)
{
    memcpy(label, c->labels + row * c->label_words, c->label_words * sizeof(*label));
}

/* Without a clock: one call may take no longer than that. */
static dp_status make_resident(struct dp_row_maker *m, uint64_t epoch, uint64_t row, uint8_t *image,
                               int32_t *label)
{
    const struct dp_row_maker_config *c = &m->config;
    const uint8_t *sample = c->images + row * c->sample_bytes;
    const struct dp_row_prints rows = {c->images,       c->labels,      c->count,
                                       c->sample_bytes, c->label_words, c->prints};

    DP_TRY(dp_row_prints_check(&rows, DP_SET_TRAIN, row, 1));

    if (m->augment != NULL) {
        dp_augment_sample(m->augment, epoch, row, sample, image);
    } else {
        memcpy(image, sample, c->sample_bytes);
    }
    copy_label(c, row, label);
    return DP_OK;
}

static dp_status make_read(struct dp_row_maker *m, uint64_t epoch, uint64_t row, uint8_t *image,
                           int32_t *label, size_t *skipped)
{
    const struct dp_row_maker_config *c = &m->config;
    uint8_t *sample = m->changes ? m->sample : image;
    uint64_t begin_ns;

    m->epoch = epoch;
    m->row = row;
    DP_TRY(c->skips
               ? dp_sample_reader_read_good(m->reader, DP_SET_TRAIN, row, sample, label, skipped)
               : dp_sample_reader_read(m->reader, DP_SET_TRAIN, row, sample, label));
    if (m->changes) {
        begin_ns = dp_now_ns();
        if (m->crops) {
            dp_augment_rest(m->augment, epoch, row, sample, image);
        } else {
            dp_augment_sample(m->augment, epoch, row, sample, image);
        }
        m->times.ns[DP_STAGE_AUGMENT] += dp_now_ns() - begin_ns;
    }
    return DP_OK;
}

static dp_status make(struct dp_row_maker *m, uint64_t epoch, uint64_t row, uint8_t *image,
                      int32_t *label, size_t *skipped)
{
    if (m->reader != NULL) {
        return make_read(m, epoch, row, image, label, skipped);
    }
    return make_resident(m, epoch, row, image, label);
}

/* Numbers become weighted means, two classes a pair. */
static void mix_labels(const struct dp_row_maker *m, const struct dp_mix *mix, int32_t *label)
{
    const float share = (float)mix->part / DP_MIX_WHOLE;
    const float rest = (float)(DP_MIX_WHOLE - mix->part) / DP_MIX_WHOLE;

    if (m->config.pairs) {
        label[1] = m->other_label[0]; /* the first one is there already */
        memcpy(&label[2], &share, sizeof(share));
        return;
    }
    for (size_t i = 0; i < m->config.label_words; i++) {
        float one, other;
        memcpy(&one, &label[i], sizeof(one));
        memcpy(&other, &m->other_label[i], sizeof(other));
        one = share * one + rest * other;
        memcpy(&label[i], &one, sizeof(one));
    }
}

void dp_row_maker_expect(const struct dp_row_maker *m, uint64_t row)
{
    const struct dp_row_maker_config *c = &m->config;

    if (m->reader == NULL) {
        const size_t most = c->sample_bytes < EXPECTED ? c->sample_bytes : EXPECTED;
        for (size_t at = 0; at < most; at += LINE) {
            __builtin_prefetch(c->images + row * c->sample_bytes + at);
        }
    }
}

dp_status dp_row_maker_make(struct dp_row_maker *m, uint64_t epoch, uint64_t row, uint8_t *image,
                            int32_t *label, size_t *skipped)
{
    size_t of_other = 0; /* which its own row counts */
    struct dp_mix mix;
    dp_status status;

    m->times.rows++;
    m->times.bytes[DP_STAGE_AUGMENT] += m->config.sample_bytes;
    DP_TRY(make(m, epoch, row, image, label, skipped));
    if (m->other == NULL) {
        return DP_OK;
    }
    mix = dp_augment_mix(m->augment, epoch, row, m->config.count);
    if (m->reader != NULL) {
        dp_sample_reader_pass(m->reader, true); /* it may be any of the set */
    }
    status = make(m, epoch, mix.row, m->other, m->other_label, &of_other);
    if (m->reader != NULL) {
        dp_sample_reader_pass(m->reader, false);
    }
    DP_TRY(status);
    dp_augment_mix_samples(m->augment, &mix, image, m->other);
    mix_labels(m, &mix, label);
    return DP_OK;
}

void dp_row_maker_take_times(struct dp_row_maker *m, struct dp_stage_times *out)
{
    *out = m->times;
    memset(&m->times, 0, sizeof(m->times));
    if (m->reader != NULL) {
        dp_sample_reader_take_times(m->reader, out);
    }
}
