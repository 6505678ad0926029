/* test_picture.c - PNG and JPEG become pixels; what is damaged, too large or of another kind is
 * refused, with a line that says what it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include "base/mem.h"
#include "runtime/data/pictures/picture.h"
#include "tests/support/files/picture_files.h"

static struct picture_bytes file;
static struct dp_jpeg *jpeg;
static struct dp_buffer memory;
static struct dp_problem problem;

static int open_decoder(void **state)
{
    (void)state;
    return dp_jpeg_create(&jpeg) != DP_OK;
}

static int close_decoder(void **state)
{
    (void)state;
    dp_jpeg_destroy(jpeg);
    dp_buffer_release(&memory);
    return dp_mem_live() != 0;
}

static dp_status decode(int channels, struct dp_picture *out)
{
    problem.text[0] = '\0';
    return dp_picture_decode(jpeg, file.bytes, file.count, channels, &memory, out, &problem);
}

static struct dp_picture decoded(int channels, int width, int height, int expected)
{
    struct dp_picture picture = {.pixels = NULL};

    assert_int_equal(decode(channels, &picture), DP_OK);
    assert_int_equal(picture.width, width);
    assert_int_equal(picture.height, height);
    assert_int_equal(picture.channels, expected);
    return picture;
}

static void assert_refused(const char *words)
{
    struct dp_picture picture;

    assert_int_equal(decode(3, &picture), DP_ERR_DATA);
    if (strstr(problem.text, words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", problem.text, words);
    }
    assert_null(strchr(problem.text, '\n'));
}

/* Of the pixels the seed means; JPEG may be off by `most`. */
static void assert_pixels(const struct dp_picture *p, unsigned seed, int most)
{
    for (int y = 0; y < p->height; y++) {
        for (int x = 0; x < p->width; x++) {
            for (int c = 0; c < p->channels; c++) {
                const int at = (y * p->width + x) * p->channels + c;
                assert_true(abs(p->pixels[at] - picture_value(seed, x, y, c)) <= most);
            }
        }
    }
}

/* ---- what is taken ---- */

static void every_kind_of_png_gives_its_pixels(void **state)
{
    static const int found[] = {1, 1, 3, 3}; /* without alpha */
    (void)state;

    for (int channels = 1; channels <= 4; channels++) {
        for (int interlaced = 0; interlaced < 2; interlaced++) {
            const struct picture_spec spec = {.width = 23,
                                              .height = 9,
                                              .channels = channels,
                                              .seed = 3,
                                              .interlaced = interlaced};
            picture_png(&spec, &file);
            const struct dp_picture picture = decoded(3, 23, 9, found[channels - 1]);
            assert_pixels(&picture, 3, 0);
        }
    }
}

static void a_palette_is_looked_up(void **state)
{
    const struct picture_spec spec = {.width = 20, .height = 5, .channels = 3, .palette = 1};
    struct dp_picture picture;
    (void)state;

    picture_png(&spec, &file);
    picture = decoded(3, 20, 5, 3);
    for (size_t i = 0; i < 100; i++) {
        const size_t entry = (i % 20 + i / 20) % 16;
        assert_int_equal(picture.pixels[3 * i], entry);
        assert_int_equal(picture.pixels[3 * i + 2], 3 * entry);
    }
}

static void jpegs_give_their_pixels(void **state)
{
    (void)state;

    for (int channels = 1; channels <= 3; channels += 2) {
        const struct picture_spec spec = {
            .width = 31, .height = 17, .channels = channels, .seed = 5};
        picture_jpeg(&spec, 0, &file);
        const struct dp_picture picture = decoded(3, 31, 17, channels);
        assert_pixels(&picture, 5, 24); /* of quality 95, with edges of 80 */
    }
}

/* A file is as good as the picture, and no more is read of it than there is. */
static void what_is_encoded_as_jpeg_is_decoded_again(void **state)
{
    struct dp_buffer encoded = {NULL, 0};
    (void)state;

    for (int channels = 1; channels <= 3; channels += 2) {
        uint8_t *pixels = dp_zalloc(sizeof(uint8_t[17][31]), (size_t)channels);
        const struct dp_picture in = {17, 31, channels, pixels, 0};
        assert_non_null(pixels);
        for (int i = 0; i < 31 * 17 * channels; i++) {
            pixels[i] = picture_value(5, i / channels % 31, i / channels / 31, i % channels);
        }
        assert_int_equal(dp_jpeg_encode(jpeg, &in, 95, &encoded, &file.count), DP_OK);
        assert_in_range(file.count, 1, sizeof(file.bytes));
        memcpy(file.bytes, encoded.data, file.count);
        const struct dp_picture picture = decoded(3, 31, 17, channels);
        assert_pixels(&picture, 5, 24);
        dp_free(pixels);
    }
    dp_buffer_release(&encoded);
}

static void colour_becomes_grey_by_its_luma(void **state)
{
    const struct picture_spec spec = {.width = 7, .height = 4, .channels = 3, .seed = 2};
    struct dp_picture picture;
    (void)state;

    picture_png(&spec, &file);
    picture = decoded(1, 7, 4, 1);
    for (int i = 0; i < 28; i++) {
        const double luma = 0.299 * picture_value(2, i % 7, i / 7, 0) +
                            0.587 * picture_value(2, i % 7, i / 7, 1) +
                            0.114 * picture_value(2, i % 7, i / 7, 2);
        assert_true((double)picture.pixels[i] > luma - 0.51 &&
                    (double)picture.pixels[i] < luma + 0.51);
    }
    picture_jpeg(&spec, 0, &file);
    (void)decoded(1, 7, 4, 1);
}

/* ---- what is refused ---- */

static void other_kinds_are_named(void **state)
{
    static const struct {
        const char *bytes;
        size_t count;
        const char *words;
    } kinds[] = {
        {"", 0, "is empty: put a PNG or JPEG"},
        {"hello", 5, "is no PNG and no JPEG"},
        {"\xff\xd8\xff", 3, "is damaged"}, /* a JPEG that was cut off after its first marker */
        {"\xff\xd8\xff\xd9", 4, "has no pixels: it is damaged"}, /* one of tables alone */
        {"GIF89a......", 12, "is a GIF, not a PNG or JPEG: convert it"},
        {"RIFF....WEBPVP8 ", 16, "is a WebP picture"},
        {"BM..............", 16, "is a BMP"},
        {"II*\0............", 16, "is a TIFF"},
        {"MM\0*............", 16, "is a TIFF"},
        {"....ftypheic....", 16, "is a HEIF, an AVIF or a video"},
        {"....ftypavis....", 16, "is a HEIF, an AVIF or a video"},  /* animated */
        {"RIFF....WEBPVP8X....\2...ANIM", 28, "is a WebP picture"}, /* animated */
        {"\x8aMNG\r\n\x1a\n", 8, "is an MNG"},
        {"\xff\x0a..", 4, "is a JPEG XL picture"},
        {"\0\0\0\x0cJXL \r\n\x87\n", 12, "is a JPEG XL picture"},
        {"\0\0\0\x0cjP  \r\n\x87\n", 12, "is a JPEG 2000 picture"},
        {"\0\0\1\0\1\0", 6, "is an icon"},
        {"%PDF-1.7", 8, "is a PDF"},
        {"\x1f\x8b\x08\0", 4, "is a gzip file"},
        {"PK\3\4....", 8, "is a zip file"},
        {"version https://git-lfs.github.com/spec/v1", 42, "is a pointer of Git LFS (git lfs pull"},
        {"<html>", 6, "is a web page"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        memcpy(file.bytes, kinds[i].bytes, kinds[i].count);
        file.count = kinds[i].count;
        assert_refused(kinds[i].words);
    }
}

/* Nothing need follow; with the last byte missing, or another one, they say nothing. */
static void other_kinds_are_known_by_their_first_bytes_alone(void **state)
{
    static const struct {
        const char *begin;
        size_t count;
        const char *words;
    } kinds[] = {
        {"GIF8", 4, "is a GIF"},
        {"RIFF....WEBP", 12, "is a WebP picture"},
        {"BM", 2, "is a BMP"},
        {"II*\0", 4, "is a TIFF"},
        {"MM\0*", 4, "is a TIFF"},
        {"....ftyp", 8, "is a HEIF"},
        {"\x8aMNG", 4, "is an MNG"},
        {"\xff\x0a", 2, "is a JPEG XL picture"},
        {"....JXL ", 8, "is a JPEG XL picture"},
        {"....jP  ", 8, "is a JPEG 2000 picture"},
        {"\0\0\1\0", 4, "is an icon"},
        {"%PDF", 4, "is a PDF"},
        {"\x1f\x8b", 2, "is a gzip file"},
        {"PK\3\4", 4, "is a zip file"},
        {"version https://git-lfs", 23, "is a pointer of Git LFS"},
        {"<", 1, "is a web page"},
        {"\xff\xd8\xff", 3, "is damaged"},
        {"\x89PNG\r\n\x1a\n", 8, "is a PNG without a header"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        memcpy(file.bytes, kinds[i].begin, kinds[i].count);
        file.count = kinds[i].count;
        assert_refused(kinds[i].words);
        file.bytes[file.count - 1] ^= 0x40;
        assert_refused("is no PNG and no JPEG");
        file.bytes[file.count - 1] ^= 0x40; /* is still there, after what counts */
        file.count--;
        assert_refused(file.count == 0 ? "is empty" : "is no PNG and no JPEG");
    }
}

static void sixteen_bits_animation_and_cmyk_are_refused(void **state)
{
    const struct picture_spec deep = {.width = 4, .height = 4, .channels = 3, .depth = 16};
    const struct picture_spec plain = {.width = 4, .height = 4, .channels = 3};
    static const uint8_t frames[8] = {0, 0, 0, 2};
    (void)state;

    picture_png(&deep, &file);
    assert_refused("has 16 bits a channel: convert it to 8 bits");
    picture_png(&plain, &file);
    picture_add_chunk(&file, "IDAT", "acTL", frames, sizeof(frames));
    assert_refused("is animated: keep one of its pictures");
    picture_jpeg(&plain, 1, &file);
    assert_refused("is a JPEG in CMYK: convert it to RGB");
}

/* The header is whole with its checksum, and has its name. */
static void a_png_begins_with_its_header(void **state)
{
    enum { NAME_END = 15, HEADER_END = 33 };
    const struct picture_spec spec = {.width = 4, .height = 4, .channels = 3};
    (void)state;

    picture_png(&spec, &file);
    file.count = HEADER_END;
    assert_refused("is damaged (libpng: ");
    file.count = HEADER_END - 1;
    assert_refused("is a PNG without a header");
    picture_png(&spec, &file);
    file.bytes[NAME_END] ^= 1;
    assert_refused("is a PNG without a header");
}

static size_t find_chunk(const char *name)
{
    size_t at = 8;

    while (memcmp(file.bytes + at + 4, name, 4) != 0) {
        at += 12 + ((size_t)file.bytes[at + 2] << 8 | file.bytes[at + 3]);
        assert_true(at + 8 <= file.count);
    }
    return at;
}

/* By the whole name of a chunk, whatever stands before it, until the pixels begin. */
static void animation_is_looked_for_before_the_pixels(void **state)
{
    const struct picture_spec plain = {.width = 4, .height = 4, .channels = 3};
    static const uint8_t frames[8] = {1, 0, 0, 2};
    size_t at;
    (void)state;

    picture_png(&plain, &file);
    picture_add_chunk(&file, "IDAT", "acTX", frames, sizeof(frames));
    (void)decoded(3, 4, 4, 3);
    picture_png(&plain, &file);
    picture_add_chunk(&file, "IEND", "acTL", frames, sizeof(frames));
    (void)decoded(3, 4, 4, 3);
    picture_png(&plain, &file);
    picture_add_chunk(&file, "IDAT", "acTL", frames, sizeof(frames));
    picture_add_chunk(&file, "acTL", "IDAX", frames, sizeof(frames));
    assert_refused("is animated");
    at = find_chunk("acTL"); /* the file may end after the name */
    file.count = at + 8;
    assert_refused("is animated");
    file.count = at + 7;
    assert_refused("is damaged");
}

/* Cameras append others to one (MPO); PIL takes the first, too. */
static void the_first_picture_of_several_is_taken(void **state)
{
    const struct picture_spec first = {.width = 31, .height = 17, .channels = 3, .seed = 5};
    const struct picture_spec second = {.width = 8, .height = 4, .channels = 3, .seed = 9};
    static uint8_t kept[100000];
    (void)state;

    picture_jpeg(&second, 0, &file);
    const size_t more = file.count;
    assert_true(more < sizeof(kept));
    memcpy(kept, file.bytes, more);
    picture_jpeg(&first, 0, &file);
    memcpy(file.bytes + file.count, kept, more);
    file.count += more;
    const struct dp_picture picture = decoded(3, 31, 17, 3);
    assert_pixels(&picture, 5, 24);
}

static void put_number(size_t at, unsigned number)
{
    for (int i = 0; i < 4; i++) {
        file.bytes[at + (size_t)i] = (uint8_t)(number >> (24 - 8 * i));
    }
}

/* The size is known before memory is taken for it. */
static void too_large_pictures_are_refused_before_they_are_decoded(void **state)
{
    static const unsigned sizes[][2] = {{20000, 4}, {4, 20000}, {16384, 16384}, {0x7fffffff, 1}};
    const struct picture_spec spec = {.width = 4, .height = 4, .channels = 3};
    const size_t room = memory.room;
    char words[64];
    (void)state;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        picture_png(&spec, &file);
        put_number(16, sizes[i][0]);
        put_number(20, sizes[i][1]);
        picture_mend_header(&file);
        (void)snprintf(words, sizeof(words), "is %u x %u pixels; at most 16384 x 16384",
                       sizes[i][0], sizes[i][1]);
        assert_refused(words);
    }
    picture_png(&spec, &file);
    put_number(16, 0);
    picture_mend_header(&file);
    assert_refused("has no pixels");
    picture_jpeg(&spec, 0, &file);
    for (size_t i = 0; i + 9 < file.count; i++) {
        if (file.bytes[i] == 0xff && file.bytes[i + 1] == 0xc0) { /* the frame's header */
            file.bytes[i + 7] = 20000 >> 8;
            file.bytes[i + 8] = 20000 & 255;
        }
    }
    assert_refused("is 20000 x 4 pixels");
    assert_int_equal(memory.room, room);
}

/* A few bytes that inflate to far more than a picture may hold beside its pixels. */
static void a_decompression_bomb_is_refused(void **state)
{
    enum { INFLATED = 64 << 20 };
    const struct picture_spec spec = {.width = 4, .height = 4, .channels = 3};
    static uint8_t chunk[200000] = "bomb";
    uLongf bytes = sizeof(chunk) - 6;
    uint8_t *zeros = calloc(1, INFLATED);
    (void)state;

    if (zeros == NULL) {
        abort();
    }
    memset(zeros, 'x', INFLATED);
    assert_int_equal(compress2(chunk + 6, &bytes, zeros, INFLATED, 9), Z_OK);
    free(zeros);
    picture_png(&spec, &file);
    picture_add_chunk(&file, "IDAT", "zTXt", chunk, bytes + 6);
    /* libpng leaves such a text out, or ends: what counts is that it takes no memory for it. */
    struct dp_picture picture;
    const dp_status status = decode(3, &picture);
    assert_true(status == DP_OK || status == DP_ERR_DATA);
    assert_true(memory.room < INFLATED / 8);
    /* A picture that claims the most pixels, and has next to none. */
    picture_png(&spec, &file);
    put_number(16, 8192);
    put_number(20, 8192);
    picture_mend_header(&file);
    assert_refused("is damaged");
}

static void whatever_is_cut_off_is_refused(void **state)
{
    const struct picture_spec spec = {.width = 12, .height = 8, .channels = 3, .seed = 1};
    (void)state;

    for (int kind = 0; kind < 2; kind++) {
        if (kind == 0) {
            picture_png(&spec, &file);
        } else {
            picture_jpeg(&spec, 0, &file);
        }
        /* The end of a JPEG is a mark of two bytes; without it nothing is missing. */
        for (size_t count = file.count - (kind == 0 ? 1 : 3); count > 0; count--) {
            file.count = count;
            assert_refused("");
        }
    }
}

/* PNG has checksums. A JPEG may lose a bit unseen, but never harms. */
static void flipped_bits_are_found_or_do_no_harm(void **state)
{
    const struct picture_spec spec = {.width = 12, .height = 8, .channels = 3, .seed = 1};
    (void)state;

    for (int kind = 0; kind < 2; kind++) {
        if (kind == 0) {
            picture_png(&spec, &file);
        } else {
            picture_jpeg(&spec, 0, &file);
        }
        for (size_t at = 8; at < file.count; at++) {
            struct dp_picture picture;
            file.bytes[at] ^= (uint8_t)(1 << at % 8);
            const dp_status status = decode(3, &picture);
            assert_true(status == DP_ERR_DATA || status == DP_OK);
            file.bytes[at] ^= (uint8_t)(1 << at % 8);
            (void)decoded(3, 12, 8, 3); /* the decoder is as good as new */
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_png_gives_its_pixels),
        cmocka_unit_test(a_palette_is_looked_up),
        cmocka_unit_test(jpegs_give_their_pixels),
        cmocka_unit_test(what_is_encoded_as_jpeg_is_decoded_again),
        cmocka_unit_test(colour_becomes_grey_by_its_luma),
        cmocka_unit_test(other_kinds_are_named),
        cmocka_unit_test(other_kinds_are_known_by_their_first_bytes_alone),
        cmocka_unit_test(sixteen_bits_animation_and_cmyk_are_refused),
        cmocka_unit_test(a_png_begins_with_its_header),
        cmocka_unit_test(animation_is_looked_for_before_the_pixels),
        cmocka_unit_test(the_first_picture_of_several_is_taken),
        cmocka_unit_test(too_large_pictures_are_refused_before_they_are_decoded),
        cmocka_unit_test(a_decompression_bomb_is_refused),
        cmocka_unit_test(whatever_is_cut_off_is_refused),
        cmocka_unit_test(flipped_bits_are_found_or_do_no_harm),
    };

    return cmocka_run_group_tests(tests, open_decoder, close_decoder) != 0 ||
           dp_mem_live() != 0; /* cmocka counts no failed teardown of a group */
}
