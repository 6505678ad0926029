#include "runtime/data/records/pack_sample.h"

#include <math.h>
#include <string.h>

#include "base/trace.h"
#include "runtime/data/decode.h"
#include "runtime/data/pictures/picture.h"
#include "runtime/data/pictures/png.h"
#include "runtime/data/pictures/resize.h"

struct dp_pack_maker {
    const struct dp_pack_form *form;
    struct dp_sample_reader *reader; /* owned */
    struct dp_decoder *decoder;      /* owned */
    struct dp_jpeg *jpeg;            /* owned: of pictures that are made smaller */
    struct dp_resizer resizer;
    struct dp_buffer small, file, again; /* such a picture, its file, and what that decodes to */
    struct dp_statistics statistics;
    struct dp_pack_effect effect;
};

void dp_packed_release(struct dp_packed *packed)
{
    dp_buffer_release(&packed->memory);
    dp_buffer_release(&packed->label_memory);
}

static dp_status keep(struct dp_packed *out, const void *data, size_t bytes)
{
    if (!dp_buffer_reserve(&out->memory, bytes)) {
        return DP_FAIL(DP_ERR_NOMEM, "%zu bytes", bytes);
    }
    memcpy(out->memory.data, data, bytes);
    out->bytes = bytes;
    return DP_OK;
}

/* ---- pictures ---- */

/* A shorter side of at most `resize`; it never gets larger. */
static struct dp_picture size_of(const struct dp_picture *in, int resize)
{
    const int shorter = in->height < in->width ? in->height : in->width;
    const double scale = resize > 0 && shorter > resize ? (double)resize / shorter : 1.0;
    const int height = (int)lround(in->height * scale), width = (int)lround(in->width * scale);

    return (struct dp_picture){.height = height < 1 ? 1 : height,
                               .width = width < 1 ? 1 : width,
                               .channels = in->channels};
}

static size_t pixel_bytes(const struct dp_picture *picture)
{
    return (size_t)picture->height * (size_t)picture->width * (size_t)picture->channels;
}

static bool is_smaller(const struct dp_picture *a, const struct dp_picture *b)
{
    return a->height != b->height || a->width != b->width;
}

static void count_resized(struct dp_pack_maker *m, size_t before, size_t after)
{
    m->effect.resized++;
    m->effect.bytes += before;
    m->effect.resized_bytes += after;
}

static bool scale(struct dp_pack_maker *m, const struct dp_picture *in,
                  const struct dp_picture *size, uint8_t *out)
{
    return dp_resize(&m->resizer, in, DP_RESIZE_BILINEAR, size->height, size->width, in->channels,
                     out);
}

static dp_status store_pixels(struct dp_pack_maker *m, const struct dp_picture *picture,
                              struct dp_packed *out)
{
    const struct dp_picture size = size_of(picture, m->form->resize);
    const size_t bytes = pixel_bytes(&size);

    out->bytes = DP_BLOCK_PIXELS_HEAD + bytes;
    if (!dp_buffer_reserve(&out->memory, out->bytes) ||
        !scale(m, picture, &size, (uint8_t *)out->memory.data + DP_BLOCK_PIXELS_HEAD)) {
        return DP_FAIL(DP_ERR_NOMEM, "%d x %d pixels", size.width, size.height);
    }
    dp_block_pixels_head(out->memory.data, size.height, size.width, size.channels);
    if (is_smaller(&size, picture)) {
        count_resized(m, pixel_bytes(picture), bytes);
    }
    return DP_OK;
}

static dp_status encode(struct dp_pack_maker *m, const struct dp_picture *small, bool png,
                        size_t *bytes)
{
    const struct dp_sample_shape shape = {.height = small->height,
                                          .width = small->width,
                                          .channels = small->channels,
                                          .count = pixel_bytes(small)};

    return png ? dp_png_encode(&shape, small->pixels, &m->file, bytes)
               : dp_jpeg_encode(m->jpeg, small, m->form->quality, &m->file, bytes);
}

/* Decodes the new file once: it can be read, and what that costs is known. */
static dp_status store_file(struct dp_pack_maker *m, const struct dp_raw *raw,
                            const struct dp_picture *picture, uint64_t decode_ns,
                            struct dp_packed *out)
{
    struct dp_picture small = size_of(picture, m->form->resize), again;
    struct dp_problem problem;
    const bool file = raw->kind == DP_RAW_PICTURE; /* else records of pixels, packed again */
    size_t bytes = 0;
    uint64_t begin;
    dp_status status;

    if (file && !is_smaller(&small, picture)) {
        m->effect.resized_decode_ns += decode_ns;
        return keep(out, raw->data, raw->bytes);
    }
    if (!dp_buffer_reserve(&m->small, pixel_bytes(&small)) ||
        !scale(m, picture, &small, m->small.data)) {
        return DP_FAIL(DP_ERR_NOMEM, "%d x %d pixels", small.width, small.height);
    }
    small.pixels = m->small.data;
    DP_TRY(encode(m, &small, !file || dp_png_is(raw->data, raw->bytes), &bytes));
    begin = dp_now_ns();
    status = dp_picture_decode(m->jpeg, m->file.data, bytes, small.channels, &m->again, &again,
                               &problem);
    if (status != DP_OK) {
        return DP_FAIL(status, "a picture made smaller %s", problem.text);
    }
    m->effect.resized_decode_ns += dp_now_ns() - begin;
    if (is_smaller(&small, picture)) {
        count_resized(m, raw->bytes, bytes);
    }
    return keep(out, m->file.data, bytes);
}

/* Pictures are decoded in any case: damaged ones come to light here, and statistics are of pixels.
 */
static dp_status make_picture(struct dp_pack_maker *m, enum dp_set set, size_t at,
                              const struct dp_raw *raw, struct dp_packed *out)
{
    const uint64_t begin = dp_now_ns();
    struct dp_picture picture = {.pixels = NULL};
    struct dp_problem problem;
    char name[DP_PATH_BYTES];
    const dp_status status = dp_decode_pixels(m->decoder, raw, 3, &picture, &problem);
    const uint64_t decode_ns = dp_now_ns() - begin;

    if (status != DP_OK) {
        dp_samples_name(m->form->samples, set, at, name, sizeof(name));
        return DP_FAIL(status, "%s: %s", name, problem.text);
    }
    m->effect.pictures++;
    m->effect.decode_ns += decode_ns;
    if (set == DP_SET_TRAIN) {
        dp_statistics_bytes(&m->statistics, picture.pixels,
                            (size_t)picture.height * (size_t)picture.width, picture.channels);
    }
    return m->form->kind == DP_RECORDS_PIXELS ? store_pixels(m, &picture, out)
                                              : store_file(m, raw, &picture, decode_ns, out);
}

/* ---- any sample ---- */

static dp_status keep_label(const struct dp_pack_form *form, const struct dp_raw *raw,
                            struct dp_packed *out)
{
    const size_t bytes = form->label_numbers * sizeof(double);

    if (!dp_buffer_reserve(&out->label_memory, bytes)) {
        return DP_FAIL(DP_ERR_NOMEM, "a label of %zu bytes", bytes);
    }
    memcpy(out->label_memory.data, raw->targets != NULL ? raw->targets : &raw->label, bytes);
    return DP_OK;
}

dp_status dp_pack_maker_make(struct dp_pack_maker *m, enum dp_set set, size_t at,
                             struct dp_packed *out)
{
    struct dp_raw raw;

    DP_TRY(dp_sample_reader_raw(m->reader, set, at, &raw));
    DP_TRY(keep_label(m->form, &raw, out));
    if (m->form->kind != DP_RECORDS_ARRAYS) {
        return make_picture(m, set, at, &raw, out);
    }
    DP_TRY(keep(out, raw.data, raw.bytes));
    if (set == DP_SET_TRAIN && raw.shape.element == DP_ELEMENT_BYTE) {
        const int channels = m->statistics.channels;
        dp_statistics_bytes(&m->statistics, raw.data, raw.shape.count / (size_t)channels, channels);
    }
    return DP_OK;
}

dp_status dp_pack_maker_create(const struct dp_pack_form *form, struct dp_pack_maker **out)
{
    struct dp_pack_maker *m = dp_zalloc(1, sizeof(*m));
    dp_status status;

    if (m == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "a thread that reads samples");
    }
    m->form = form;
    m->statistics.channels = dp_statistics_channels(&form->shape);
    status = dp_sample_reader_create(form->samples, &m->reader);
    status = status == DP_OK ? dp_decoder_create(&m->decoder) : status;
    status = status == DP_OK ? dp_jpeg_create(&m->jpeg) : status;
    if (status != DP_OK) {
        dp_pack_maker_destroy(m);
        return status;
    }
    *out = m;
    return DP_OK;
}

void dp_pack_maker_destroy(struct dp_pack_maker *m)
{
    if (m == NULL) {
        return;
    }
    dp_sample_reader_destroy(m->reader);
    dp_decoder_destroy(m->decoder);
    dp_jpeg_destroy(m->jpeg);
    dp_resizer_release(&m->resizer);
    dp_buffer_release(&m->small);
    dp_buffer_release(&m->file);
    dp_buffer_release(&m->again);
    dp_free(m);
}

void dp_pack_maker_sum(const struct dp_pack_maker *m, struct dp_statistics *statistics,
                       struct dp_pack_effect *effect)
{
    dp_statistics_merge(statistics, &m->statistics);
    effect->pictures += m->effect.pictures;
    effect->resized += m->effect.resized;
    effect->bytes += m->effect.bytes;
    effect->resized_bytes += m->effect.resized_bytes;
    effect->decode_ns += m->effect.decode_ns;
    effect->resized_decode_ns += m->effect.resized_decode_ns;
}
