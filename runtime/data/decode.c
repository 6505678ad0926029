#include "runtime/data/decode.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/data/pictures/picture.h"
#include "runtime/data/pictures/resize.h"

struct dp_decoder {
    struct dp_jpeg *jpeg; /* owned */
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
    if (status != DP_OK) {
        dp_free(decoder);
        return status;
    }
    *out = decoder;
    return DP_OK;
}

void dp_decoder_destroy(struct dp_decoder *decoder)
{
    if (decoder != NULL) {
        dp_jpeg_destroy(decoder->jpeg);
        dp_buffer_release(&decoder->pixels);
        dp_resizer_release(&decoder->resizer);
        dp_free(decoder);
    }
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
    return dp_problem_refuse(problem, DP_ERR_DATA,
                             "%s%s do not fit model.input of %s: change model.input to [%s]%s",
                             have->height > 0 ? "images of " : "rows with so many numbers: ", own,
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
    *out = (struct dp_picture){raw->shape.height, raw->shape.width, raw->shape.channels,
                               decoder->pixels.data};
    if (channels == 1) {
        dp_picture_make_grey(out);
    }
    return DP_OK;
}

dp_status dp_decode(struct dp_decoder *decoder, const struct dp_raw *raw,
                    const struct dp_sample_shape *want, enum dp_resize resize, void *out,
                    struct dp_problem *problem)
{
    struct dp_picture picture = {0, 0, 0, NULL};

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
