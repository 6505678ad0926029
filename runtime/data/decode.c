#include "runtime/data/decode.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/data/pictures/jpeg_part.h"
#include "runtime/data/pictures/picture.h"
#include "runtime/data/pictures/resize.h"

struct dp_decoder {
    struct dp_jpeg *jpeg;           /* owned */
    struct dp_jpeg_part *jpeg_part; /* owned */
    struct dp_buffer pixels;
    struct dp_resizer resizer;
};

enum { SHAPE_BYTES = 64 };

dp_status dp_decoder_create(struct dp_decoder **out)
{
    struct dp_decoder *decoder = dp_zalloc(1, sizeof(*decoder));
    dp_status status;

    if (decoder == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "decoder of samples");
    }
    status = dp_jpeg_create(&decoder->jpeg);
    status = status == DP_OK ? dp_jpeg_part_create(&decoder->jpeg_part) : status;
    if (status != DP_OK) {
        dp_decoder_destroy(decoder);
        return status;
    }
    *out = decoder;
    return DP_OK;
}

void dp_decoder_destroy(struct dp_decoder *decoder)
{
    if (decoder != NULL) {
        dp_jpeg_destroy(decoder->jpeg);
        dp_jpeg_part_destroy(decoder->jpeg_part);
        dp_buffer_release(&decoder->pixels);
        dp_resizer_release(&decoder->resizer);
        dp_free(decoder);
    }
}

size_t dp_decoder_memory(const struct dp_decoder *decoder)
{
    const struct dp_resizer *r = &decoder->resizer;

    return decoder->pixels.room + r->rows.room + r->columns.room + r->pairs.room + r->last.room +
           r->between.room;
}

/* "28x28x1", or "784". */
static const char *shape_text(const struct dp_sample_shape *shape, char text[SHAPE_BYTES])
{
    if (shape->height > 0) {
        (void)snprintf(text, SHAPE_BYTES, "%dx%dx%d", shape->height, shape->width, shape->channels);
    } else {
        (void)snprintf(text, SHAPE_BYTES, "%zu", shape->count);
    }
    return text;
}

static bool same_shape(const struct dp_sample_shape *a, const struct dp_sample_shape *b)
{
    if (a->height == 0 || b->height == 0) {
        return a->count == b->count;
    }
    return a->height == b->height && a->width == b->width && a->channels == b->channels;
}

static bool is_picture(const struct dp_sample_shape *shape)
{
    return shape->height > 0 && (shape->channels == 1 || shape->channels == 3);
}

dp_status dp_decode_check(const struct dp_sample_shape *have, const struct dp_sample_shape *want,
                          enum dp_resize resize, struct dp_problem *problem)
{
    const bool pictures = have->count == 0;
    const bool resizable = have->element == DP_ELEMENT_BYTE && is_picture(have);
    char own[SHAPE_BYTES], input[SHAPE_BYTES], axes[SHAPE_BYTES] = "";

    (void)shape_text(want, input);
    if (pictures && !is_picture(want)) {
        return dp_problem_refuse(problem, DP_ERR_DATA,
                                 "pictures do not fit model.input of %s: change model.input to "
                                 "[height, width, 3], or 1 for grey",
                                 input);
    }
    if (pictures || same_shape(have, want)) {
        return DP_OK;
    }
    if (resizable && resize != DP_RESIZE_AUTO && is_picture(want)) {
        return DP_OK;
    }
    (void)shape_text(have, own);
    if (have->height > 0 && have->height == want->channels && have->width == want->height &&
        have->channels == want->width) {
        return dp_problem_refuse(problem, DP_ERR_DATA,
                                 "images of %s have their channels first, and do not fit "
                                 "model.input of %s: put them last (numpy: transpose(0, 2, 3, 1))",
                                 own, input);
    }
    if (have->height > 0) {
        (void)snprintf(axes, sizeof(axes), "%d, %d, %d", have->height, have->width, have->channels);
    }
    return dp_problem_refuse(
        problem, DP_ERR_DATA,
        "%s of %s%s do not fit model.input of %s: change model.input to [%s]%s",
        have->height > 0 ? "images" : "rows", own,
        have->height > 0   ? ""
        : have->count == 1 ? " number"
                           : " numbers",
        input, have->height > 0 ? axes : own,
        resizable && is_picture(want) ? ", or data.resize to bilinear" : "");
}

dp_status dp_decode_pixels(struct dp_decoder *decoder, const struct dp_raw *raw, int channels,
                           struct dp_picture *out, struct dp_problem *problem)
{
    if (raw->kind == DP_RAW_PICTURE) {
        return dp_picture_decode(decoder->jpeg, raw->data, raw->bytes, channels, &decoder->pixels,
                                 out, problem);
    }
    /* A copy, since grey is made in place. */
    if (!dp_buffer_reserve(&decoder->pixels, raw->bytes)) {
        return dp_problem_refuse(problem, DP_ERR_NOMEM, "%zu bytes of pixels", raw->bytes);
    }
    memcpy(decoder->pixels.data, raw->data, raw->bytes);
    *out = (struct dp_picture){.height = raw->shape.height,
                               .width = raw->shape.width,
                               .channels = raw->shape.channels,
                               .pixels = decoder->pixels.data};
    if (channels == 1) {
        dp_picture_make_grey(out);
    }
    return DP_OK;
}

dp_status dp_decode(struct dp_decoder *decoder, const struct dp_raw *raw,
                    const struct dp_sample_shape *want, enum dp_resize resize, void *out,
                    struct dp_problem *problem)
{
    struct dp_picture picture = {.pixels = NULL};

    if (raw->kind == DP_RAW_ARRAY && same_shape(&raw->shape, want)) {
        memcpy(out, raw->data, raw->bytes);
        return DP_OK;
    }
    DP_TRY(dp_decode_pixels(decoder, raw, want->channels, &picture, problem));
    if (!dp_resize(&decoder->resizer, &picture, resize, want->height, want->width, want->channels,
                   out)) {
        return dp_problem_refuse(problem, DP_ERR_NOMEM, "resizing %d x %d pixels", picture.width,
                                 picture.height);
    }
    return DP_OK;
}

/* ---- parts ---- */

/* That of a picture in memory. */
static struct dp_picture cut(const struct dp_picture *whole, const struct dp_part *part)
{
    const size_t line = dp_picture_line(whole);

    return (struct dp_picture){.height = part->height,
                               .width = part->width,
                               .channels = whole->channels,
                               .pixels = whole->pixels + (size_t)part->top * line +
                                         (size_t)part->left * (size_t)whole->channels,
                               .line = line};
}

static dp_status scale_part(struct dp_decoder *decoder, const struct dp_picture *picture,
                            struct dp_stretch rows, struct dp_stretch columns,
                            const struct dp_sample_shape *want, void *out,
                            struct dp_problem *problem)
{
    return dp_resize_part(&decoder->resizer, picture, rows, columns, want->height, want->width,
                          want->channels, out)
               ? DP_OK
               : dp_problem_refuse(problem, DP_ERR_NOMEM, "resizing %d x %d pixels", picture->width,
                                   picture->height);
}

/* How much smaller a part may be read without becoming smaller than what is wanted. */
static int scale_of(const struct dp_part *part, const struct dp_sample_shape *want)
{
    int scale = 8;

    while (scale > 1 &&
           (part->height / scale < want->height || part->width / scale < want->width)) {
        scale /= 2;
    }
    return scale;
}

/* The pixels of a picture that is `scale` times smaller in which `length` from `begin` on lie. */
static void shrink(int begin, int length, int scale, int *first, int *count,
                   struct dp_stretch *inside)
{
    *first = begin / scale;
    *count = (begin + length + scale - 1) / scale - *first;
    *inside = (struct dp_stretch){.begin = (double)begin / scale - *first,
                                  .length = (double)length / scale};
}

static dp_status decode_jpeg_part(struct dp_decoder *decoder, const struct dp_part *part,
                                  const struct dp_sample_shape *want, void *out,
                                  struct dp_problem *problem)
{
    const int scale = scale_of(part, want);
    struct dp_stretch rows, columns;
    struct dp_picture picture;
    struct dp_part small = {.mirrored = false};

    shrink(part->top, part->height, scale, &small.top, &small.height, &rows);
    shrink(part->left, part->width, scale, &small.left, &small.width, &columns);
    columns.backwards = part->mirrored;
    DP_TRY(dp_jpeg_part_decode(decoder->jpeg_part, scale, &small, &decoder->pixels, &picture,
                               problem));
    return scale_part(decoder, &picture, rows, columns, want, out, problem);
}

dp_status dp_decode_part(struct dp_decoder *decoder, const struct dp_raw *raw,
                         const struct dp_sample_shape *want, const struct dp_crop *crop, void *out,
                         struct dp_problem *problem)
{
    struct dp_picture picture = {.pixels = NULL};
    bool parts = false;
    struct dp_part part;

    if (raw->kind == DP_RAW_PICTURE && dp_jpeg_is(raw->data, raw->bytes)) {
        DP_TRY(dp_jpeg_part_open(decoder->jpeg_part, raw->data, raw->bytes, want->channels,
                                 &picture, &parts, problem));
    }
    if (!parts) {
        DP_TRY(dp_decode_pixels(decoder, raw, want->channels, &picture, problem));
    }
    crop->choose(crop->context, picture.height, picture.width, &part);
    if (parts) {
        return decode_jpeg_part(decoder, &part, want, out, problem);
    }
    const struct dp_stretch rows = {.length = part.height};
    const struct dp_stretch columns = {.length = part.width, .backwards = part.mirrored};
    picture = cut(&picture, &part);
    return scale_part(decoder, &picture, rows, columns, want, out, problem);
}
