#include "runtime/data/pictures/jpeg_part.h"

#include <setjmp.h>
#include <stdio.h> /* which jpeglib.h needs */

#include <jpeglib.h>

#include "base/mem.h"

struct dp_jpeg_part {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jmp_buf leave; /* where the library's error handler goes */
    char text[JMSG_LENGTH_MAX];
    /* What the body of guarded() works on. */
    const uint8_t *bytes;
    size_t count;
    int scale;
    struct dp_part part;
    struct dp_buffer *memory;
    struct dp_picture picture;
    bool no_memory;
};

static struct dp_jpeg_part *decoder_of(j_common_ptr jpeg)
{
    return (struct dp_jpeg_part *)jpeg; /* its first member */
}

static void leave(j_common_ptr jpeg)
{
    struct dp_jpeg_part *d = decoder_of(jpeg);

    jpeg->err->format_message(jpeg, d->text);
    longjmp(d->leave, 1);
}

/* A warning is about damage, too. The library's own would print it. */
static void on_message(j_common_ptr jpeg, int level)
{
    if (level < 0) {
        leave(jpeg);
    }
}

/* Runs what calls the library. False: it has failed, for the reason in d->text. */
static bool guarded(struct dp_jpeg_part *d, void (*body)(struct dp_jpeg_part *))
{
    if (setjmp(d->leave) != 0) { /* NOLINT(cert-err52-cpp): the library knows no other way */
        return false;
    }
    body(d);
    return true;
}

static void create(struct dp_jpeg_part *d)
{
    jpeg_create_decompress(&d->jpeg);
}

dp_status dp_jpeg_part_create(struct dp_jpeg_part **out)
{
    struct dp_jpeg_part *d = dp_zalloc(1, sizeof(*d));

    if (d != NULL) {
        d->jpeg.err = jpeg_std_error(&d->errors);
        d->errors.error_exit = leave;
        d->errors.emit_message = on_message;
    }
    if (d == NULL || !guarded(d, create)) {
        dp_free(d);
        return DP_FAIL(DP_ERR_NOMEM, "decoder of parts of JPEG");
    }
    *out = d;
    return DP_OK;
}

void dp_jpeg_part_destroy(struct dp_jpeg_part *d)
{
    if (d != NULL) {
        jpeg_destroy_decompress(&d->jpeg);
        dp_free(d);
    }
}

static dp_status damaged(struct dp_jpeg_part *d, struct dp_problem *problem)
{
    jpeg_abort_decompress(&d->jpeg);
    return dp_problem_refuse(problem, DP_ERR_DATA,
                             "is damaged, or of a kind that is not read (libjpeg-turbo: %s): "
                             "replace it",
                             d->text);
}

static void read_header(struct dp_jpeg_part *d)
{
    jpeg_abort_decompress(&d->jpeg); /* what is left of the file before */
    jpeg_mem_src(&d->jpeg, d->bytes, d->count);
    (void)jpeg_read_header(&d->jpeg, TRUE);
}

dp_status dp_jpeg_part_open(struct dp_jpeg_part *d, const uint8_t *bytes, size_t count,
                            int channels, struct dp_picture *size, bool *parts,
                            struct dp_problem *problem)
{
    const struct jpeg_decompress_struct *jpeg = &d->jpeg;
    bool grey;

    d->bytes = bytes;
    d->count = count;
    if (!guarded(d, read_header)) {
        return damaged(d, problem);
    }
    if (jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK) {
        return dp_problem_refuse(problem, DP_ERR_DATA, "is a JPEG in CMYK: convert it to RGB");
    }
    DP_TRY(dp_picture_check_size(jpeg->image_width, jpeg->image_height, problem));
    grey = channels == 1 || jpeg->jpeg_color_space == JCS_GRAYSCALE;
    d->jpeg.out_color_space = grey ? JCS_GRAYSCALE : JCS_RGB;
    *size = (struct dp_picture){.height = (int)jpeg->image_height,
                                .width = (int)jpeg->image_width,
                                .channels = grey ? 1 : 3};
    *parts = !jpeg_has_multiple_scans(&d->jpeg) && !jpeg->arith_code;
    return DP_OK;
}

/* Columns that are decoded with the part: the library takes whole blocks, and its upsampling treats
 * the first and last columns that it is asked for as the edges of a picture. */
static void take_columns(struct dp_jpeg_part *d, int *skipped)
{
    enum { BESIDE = 2 };
    const int all = (int)d->jpeg.output_width;
    const int left = d->part.left > BESIDE ? d->part.left - BESIDE : 0;
    const int end = d->part.left + d->part.width;
    const int right = all - end > BESIDE ? end + BESIDE : all;
    JDIMENSION begin = (JDIMENSION)left, width = (JDIMENSION)(right - left);

    jpeg_crop_scanline(&d->jpeg, &begin, &width); /* all of them: as they are */
    *skipped = d->part.left - (int)begin;
}

static void decode(struct dp_jpeg_part *d)
{
    struct jpeg_decompress_struct *jpeg = &d->jpeg;
    int skipped;

    jpeg->scale_num = 1;
    jpeg->scale_denom = (unsigned)d->scale;
    (void)jpeg_start_decompress(jpeg);
    take_columns(d, &skipped);
    const size_t channels = (size_t)jpeg->output_components;
    const size_t line = (size_t)jpeg->output_width * channels;
    d->no_memory = !dp_buffer_reserve(d->memory, line * (size_t)d->part.height);
    if (d->no_memory) {
        return;
    }
    if (d->part.top > 0) {
        (void)jpeg_skip_scanlines(jpeg, (JDIMENSION)d->part.top);
    }
    for (int y = 0; y < d->part.height; y++) {
        JSAMPROW row = (uint8_t *)d->memory->data + (size_t)y * line;
        (void)jpeg_read_scanlines(jpeg, &row, 1);
    }
    d->picture =
        (struct dp_picture){.height = d->part.height,
                            .width = d->part.width,
                            .channels = (int)channels,
                            .pixels = (uint8_t *)d->memory->data + (size_t)skipped * channels,
                            .line = line};
}

dp_status dp_jpeg_part_decode(struct dp_jpeg_part *d, int scale, const struct dp_part *part,
                              struct dp_buffer *memory, struct dp_picture *out,
                              struct dp_problem *problem)
{
    d->scale = scale;
    d->part = *part;
    d->memory = memory;
    if (!guarded(d, decode)) {
        return damaged(d, problem);
    }
    jpeg_abort_decompress(&d->jpeg);
    if (d->no_memory) {
        return dp_problem_refuse(problem, DP_ERR_NOMEM, "%d x %d pixels", part->width,
                                 part->height);
    }
    *out = d->picture;
    return DP_OK;
}
