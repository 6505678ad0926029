#include "runtime/data/pictures/jpeg.h"

#include <turbojpeg.h>

#include "base/mem.h"

struct dp_jpeg {
    tjhandle decoder; /* NULL: made for the next picture */
    tjhandle encoder; /* NULL: none was needed yet */
};

dp_status dp_jpeg_create(struct dp_jpeg **out)
{
    struct dp_jpeg *jpeg = dp_zalloc(1, sizeof(*jpeg));

    if (jpeg != NULL) {
        jpeg->decoder = tjInitDecompress();
    }
    if (jpeg == NULL || jpeg->decoder == NULL) {
        dp_free(jpeg);
        return DP_FAIL(DP_ERR_NOMEM, "decoder of JPEG");
    }
    *out = jpeg;
    return DP_OK;
}

static void drop_decoder(struct dp_jpeg *jpeg)
{
    if (jpeg->decoder != NULL) {
        (void)tjDestroy(jpeg->decoder);
        jpeg->decoder = NULL;
    }
}

void dp_jpeg_destroy(struct dp_jpeg *jpeg)
{
    if (jpeg != NULL) {
        drop_decoder(jpeg);
        if (jpeg->encoder != NULL) {
            (void)tjDestroy(jpeg->encoder);
        }
        dp_free(jpeg);
    }
}

bool dp_jpeg_is(const uint8_t *bytes, size_t count)
{
    return count >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

/* The library's own words. Its decoder may go on in the middle of that file with the next one
 * (libjpeg-turbo 2.1: it keeps the marker at which it stopped), so another one is taken. */
static dp_status damaged(struct dp_jpeg *jpeg, struct dp_problem *problem)
{
    const dp_status status =
        dp_problem_refuse(problem, DP_ERR_DATA,
                          "is damaged, or of a kind that is not read (libjpeg-turbo: %s): replace "
                          "it",
                          tjGetErrorStr2(jpeg->decoder));

    drop_decoder(jpeg);
    return status;
}

dp_status dp_jpeg_decode(struct dp_jpeg *jpeg, const uint8_t *bytes, size_t count, int channels,
                         struct dp_buffer *memory, struct dp_picture *out,
                         struct dp_problem *problem)
{
    /* A file that claims thousands of refinements would take minutes. */
    const int flags = TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS;
    /* Of a file of tables alone the library sets none of them. */
    int width = 0, height = 0, subsampling, space = TJCS_RGB, found;

    if (jpeg->decoder == NULL) {
        jpeg->decoder = tjInitDecompress();
    }
    if (jpeg->decoder == NULL) {
        return dp_problem_refuse(problem, DP_ERR_NOMEM, "decoder of JPEG");
    }
    if (tjDecompressHeader3(jpeg->decoder, bytes, count, &width, &height, &subsampling, &space) !=
        0) {
        return damaged(jpeg, problem);
    }
    if (space == TJCS_CMYK || space == TJCS_YCCK) {
        return dp_problem_refuse(problem, DP_ERR_DATA, "is a JPEG in CMYK: convert it to RGB");
    }
    DP_TRY(dp_picture_check_size((unsigned)width, (unsigned)height, problem));
    found = channels == 1 || space == TJCS_GRAY ? 1 : 3;
    if (!dp_buffer_reserve(memory, (size_t)width * (size_t)height * (size_t)found)) {
        return dp_problem_refuse(problem, DP_ERR_NOMEM, "%d x %d pixels", width, height);
    }
    if (tjDecompress2(jpeg->decoder, bytes, count, memory->data, width, 0, height,
                      found == 1 ? TJPF_GRAY : TJPF_RGB, flags) != 0) {
        return damaged(jpeg, problem);
    }
    *out = (struct dp_picture){height, width, found, memory->data, 0};
    return DP_OK;
}

dp_status dp_jpeg_encode(struct dp_jpeg *jpeg, const struct dp_picture *picture, int quality,
                         struct dp_buffer *memory, size_t *bytes)
{
    const bool grey = picture->channels == 1;
    const int subsampling = grey ? TJSAMP_GRAY : TJSAMP_420;
    const unsigned long room = tjBufSize(picture->width, picture->height, subsampling);
    unsigned char *out;
    unsigned long length = room;

    if (jpeg->encoder == NULL) {
        jpeg->encoder = tjInitCompress();
    }
    if (jpeg->encoder == NULL || !dp_buffer_reserve(memory, room)) {
        return DP_FAIL(DP_ERR_NOMEM, "encoder of JPEG");
    }
    out = memory->data;
    if (tjCompress2(jpeg->encoder, picture->pixels, picture->width, 0, picture->height,
                    grey ? TJPF_GRAY : TJPF_RGB, &out, &length, subsampling, quality,
                    TJFLAG_NOREALLOC) != 0) {
        return DP_FAIL(DP_ERR_NOMEM, "%d x %d pixels as JPEG: %s", picture->width, picture->height,
                       tjGetErrorStr2(jpeg->encoder));
    }
    *bytes = length;
    return DP_OK;
}
