/*
 * test_jpeg_part.c - a part of a JPEG is that part of the whole one, bit for bit; a damaged file is
 * refused, and does no harm to the next one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <turbojpeg.h>

#include "base/mem.h"
#include "base/random.h"
#include "runtime/data/decode.h"
#include "runtime/data/pictures/jpeg_part.h"
#include "runtime/data/pictures/picture.h"
#include "tests/support/files/picture_files.h"

enum { HEIGHT = 150, WIDTH = 203, FILE_ROOM = 1 << 18 };

static const int samplings[] = {TJSAMP_444, TJSAMP_422, TJSAMP_420, TJSAMP_440, TJSAMP_GRAY};
enum { SAMPLINGS = sizeof(samplings) / sizeof(samplings[0]) };

static uint8_t pixels[HEIGHT * WIDTH * 3], file[FILE_ROOM];
static size_t file_bytes;
static struct dp_jpeg *whole;
static struct dp_jpeg_part *decoder;
static struct dp_buffer whole_memory, memory;
static struct dp_problem problem;

/* Edges everywhere. */
static void make_rough(void)
{
    for (size_t i = 0; i < sizeof(pixels); i++) {
        pixels[i] = (uint8_t)(dp_random_u32(1, DP_RANDOM_TEST, 0, i / 40) % 200 + i % 3 * 20);
    }
}

static void make_smooth(void)
{
    for (size_t i = 0; i < sizeof(pixels); i++) {
        pixels[i] = (uint8_t)(i / 3 % WIDTH / 2 + i / 3 / WIDTH + i % 3 * 5);
    }
}

static int open_decoders(void **state)
{
    (void)state;
    make_rough();
    return dp_jpeg_create(&whole) != DP_OK || dp_jpeg_part_create(&decoder) != DP_OK;
}

static int close_decoders(void **state)
{
    (void)state;
    dp_jpeg_destroy(whole);
    dp_jpeg_part_destroy(decoder);
    dp_buffer_release(&whole_memory);
    dp_buffer_release(&memory);
    return dp_mem_live() != 0;
}

static void make_file(int sampling, int flags)
{
    tjhandle handle = tjInitCompress();
    unsigned char *out = file;
    unsigned long bytes = sizeof(file);

    assert_int_equal(tjCompress2(handle, pixels, WIDTH, 0, HEIGHT, TJPF_RGB, &out, &bytes, sampling,
                                 90, TJFLAG_NOREALLOC | flags),
                     0);
    (void)tjDestroy(handle);
    file_bytes = bytes;
}

static struct dp_picture part_of(int channels, int scale, const struct dp_part *part)
{
    struct dp_picture size, picture = {.pixels = NULL};
    bool parts = false;

    assert_int_equal(
        dp_jpeg_part_open(decoder, file, file_bytes, channels, &size, &parts, &problem), DP_OK);
    assert_true(parts);
    assert_int_equal(size.height, HEIGHT);
    assert_int_equal(size.width, WIDTH);
    assert_int_equal(dp_jpeg_part_decode(decoder, scale, part, &memory, &picture, &problem), DP_OK);
    assert_int_equal(picture.height, part->height);
    assert_int_equal(picture.width, part->width);
    return picture;
}

static void assert_part(const struct dp_picture *found, const struct dp_picture *all,
                        const struct dp_part *part)
{
    const size_t channels = (size_t)all->channels;

    assert_int_equal(found->channels, all->channels);
    for (int y = 0; y < part->height; y++) {
        assert_memory_equal(found->pixels + (size_t)y * dp_picture_line(found),
                            all->pixels + (size_t)(part->top + y) * dp_picture_line(all) +
                                (size_t)part->left * channels,
                            (size_t)part->width * channels);
    }
}

static struct dp_part random_part(uint32_t number, int height, int width)
{
    uint32_t bits[4];
    struct dp_part part = {.mirrored = false};

    dp_random_block(3, DP_RANDOM_TEST, 0, number, bits);
    part.height = 1 + (int)(bits[0] % (uint32_t)height);
    part.width = 1 + (int)(bits[1] % (uint32_t)width);
    part.top = (int)(bits[2] % (uint32_t)(height - part.height + 1));
    part.left = (int)(bits[3] % (uint32_t)(width - part.width + 1));
    return part;
}

static void a_part_has_the_pixels_of_the_whole(void **state)
{
    (void)state;
    for (int s = 0; s < SAMPLINGS; s++) {
        make_file(samplings[s], 0);
        for (int channels = 1; channels <= 3; channels += 2) {
            struct dp_picture all;
            assert_int_equal(
                dp_picture_decode(whole, file, file_bytes, channels, &whole_memory, &all, &problem),
                DP_OK);
            for (uint32_t i = 0; i < 150; i++) {
                const struct dp_part part = random_part(i, HEIGHT, WIDTH);
                const struct dp_picture found = part_of(channels, 1, &part);
                assert_part(&found, &all, &part);
            }
        }
    }
}

static void a_part_of_a_smaller_picture_is_that_of_all_of_it(void **state)
{
    struct dp_buffer mine = {NULL, 0};
    (void)state;

    for (int s = 0; s < SAMPLINGS; s++) {
        make_file(samplings[s], 0);
        for (int scale = 2; scale <= 8; scale *= 2) {
            const int height = (HEIGHT + scale - 1) / scale, width = (WIDTH + scale - 1) / scale;
            const struct dp_part everything = {.height = height, .width = width};
            struct dp_picture all = part_of(3, scale, &everything);
            const size_t bytes = (size_t)height * dp_picture_line(&all);
            assert_true(dp_buffer_reserve(&mine, bytes));
            memcpy(mine.data, all.pixels, bytes);
            all.pixels = mine.data;
            for (uint32_t i = 0; i < 50; i++) {
                const struct dp_part part = random_part(i, height, width);
                const struct dp_picture found = part_of(3, scale, &part);
                assert_part(&found, &all, &part);
            }
        }
    }
    dp_buffer_release(&mine);
}

static void a_progressive_file_is_left_to_others(void **state)
{
    struct dp_picture size;
    bool parts = true;
    (void)state;

    make_file(TJSAMP_420, TJFLAG_PROGRESSIVE);
    assert_int_equal(dp_jpeg_part_open(decoder, file, file_bytes, 3, &size, &parts, &problem),
                     DP_OK);
    assert_false(parts);
}

static void damage_is_refused_and_forgotten(void **state)
{
    const struct dp_part part = {.top = 40, .left = 30, .height = 90, .width = 100};
    struct dp_picture size, picture, all;
    bool parts;
    (void)state;

    make_file(TJSAMP_420, 0);
    for (size_t cut = 2; cut < file_bytes; cut += 97) {
        uint8_t torn[FILE_ROOM];
        memcpy(torn, file, cut);
        if (dp_jpeg_part_open(decoder, torn, cut, 3, &size, &parts, &problem) == DP_OK &&
            cut < file_bytes / 2) {
            assert_int_equal(dp_jpeg_part_decode(decoder, 1, &part, &memory, &picture, &problem),
                             DP_ERR_DATA);
        }
    }
    assert_int_equal(dp_picture_decode(whole, file, file_bytes, 3, &whole_memory, &all, &problem),
                     DP_OK);
    picture = part_of(3, 1, &part);
    assert_part(&picture, &all, &part);
}

/* Which the library has another way to report than damage, and would end the process for. */
static void what_is_no_jpeg_is_refused(void **state)
{
    static const uint8_t text[] = "hello";
    struct dp_picture size;
    bool parts;
    (void)state;

    assert_int_equal(dp_jpeg_part_open(decoder, text, sizeof(text), 3, &size, &parts, &problem),
                     DP_ERR_DATA);
    assert_non_null(strstr(problem.text, "(libjpeg-turbo: Not a JPEG file"));
}

/* Four channels as they are, or three of them as luma and chroma: Adobe's marker says it. */
static void both_kinds_of_cmyk_are_refused(void **state)
{
    enum { NAME = 5, TRANSFORM = 11 /* where the marker has it, after its name */ };
    const struct picture_spec spec = {.width = 16, .height = 16, .channels = 3};
    static struct picture_bytes cmyk;
    size_t marker = 0;
    struct dp_picture size;
    bool parts;
    (void)state;

    picture_jpeg(&spec, 1, &cmyk);
    while (memcmp(cmyk.bytes + marker, "Adobe", NAME) != 0) {
        marker++;
        assert_true(marker + TRANSFORM < cmyk.count);
    }
    for (uint8_t transform = 0; transform <= 2; transform += 2) {
        cmyk.bytes[marker + TRANSFORM] = transform;
        assert_int_equal(
            dp_jpeg_part_open(decoder, cmyk.bytes, cmyk.count, 3, &size, &parts, &problem),
            DP_ERR_DATA);
        assert_non_null(strstr(problem.text, "is a JPEG in CMYK: convert it to RGB"));
        assert_int_equal(
            dp_picture_decode(whole, cmyk.bytes, cmyk.count, 3, &whole_memory, &size, &problem),
            DP_ERR_DATA);
        assert_non_null(strstr(problem.text, "is a JPEG in CMYK: convert it to RGB"));
    }
}

/* ---- as a sample ---- */

static struct dp_part chosen;

static void choose(void *context, int height, int width, struct dp_part *part)
{
    (void)context;
    assert_int_equal(height, HEIGHT);
    assert_int_equal(width, WIDTH);
    *part = chosen;
}

/* A part that is not made smaller by the file's decoder equals that of the pixels; one that is, is
 * close to it. */
static void a_sample_is_the_part_that_was_chosen(void **state)
{
    static const struct dp_part parts[] = {{5, 7, 120, 130, false},
                                           {0, 0, HEIGHT, WIDTH, true},
                                           {9, 3, 20, 30, true},
                                           {9, 3, 120, 20, true}};
    static uint8_t found[60 * 60 * 3], expected[60 * 60 * 3];
    const struct dp_crop crop = {choose, NULL};
    struct dp_picture all;
    struct dp_decoder *d = NULL;
    size_t held;
    (void)state;

    make_smooth();
    make_file(TJSAMP_420, 0);
    assert_int_equal(dp_picture_decode(whole, file, file_bytes, 3, &whole_memory, &all, &problem),
                     DP_OK);
    held = dp_mem_bytes(DP_MEM_DATA);
    assert_int_equal(dp_decoder_create(&d), DP_OK);
    const struct dp_raw jpeg = {.kind = DP_RAW_PICTURE, .data = file, .bytes = file_bytes};
    const struct dp_raw array = {
        .kind = DP_RAW_ARRAY,
        .data = all.pixels,
        .bytes = sizeof(pixels),
        .shape = {.height = HEIGHT, .width = WIDTH, .channels = 3, .count = sizeof(pixels)}};
    for (int i = 0; i < 4; i++) {
        for (int side = 12; side <= 60; side += 48) {
            const struct dp_sample_shape want = {
                .height = side, .width = side, .channels = 3, .count = (size_t)(3 * side * side)};
            uint64_t off = 0;
            chosen = parts[i];
            assert_int_equal(dp_decode_part(d, &jpeg, &want, &crop, found, &problem), DP_OK);
            assert_int_equal(dp_decode_part(d, &array, &want, &crop, expected, &problem), DP_OK);
            for (size_t k = 0; k < want.count; k++) {
                off += (uint64_t)abs(found[k] - expected[k]);
            }
            if (parts[i].height < 2 * side ||
                parts[i].width < 2 * side) { /* it was not made smaller */
                assert_int_equal(off, 0);
            } else {
                assert_true(off <= 2 * want.count);
            }
        }
    }
    assert_true(dp_decoder_memory(d) > 0);
    assert_int_equal(dp_decoder_memory(d), dp_mem_bytes(DP_MEM_DATA) - held);
    dp_decoder_destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_has_the_pixels_of_the_whole),
        cmocka_unit_test(a_part_of_a_smaller_picture_is_that_of_all_of_it),
        cmocka_unit_test(a_progressive_file_is_left_to_others),
        cmocka_unit_test(damage_is_refused_and_forgotten),
        cmocka_unit_test(what_is_no_jpeg_is_refused),
        cmocka_unit_test(both_kinds_of_cmyk_are_refused),
        cmocka_unit_test(a_sample_is_the_part_that_was_chosen),
    };

    return cmocka_run_group_tests(tests, open_decoders, close_decoders) != 0 ||
           dp_mem_live() != 0; /* cmocka counts no failed teardown of a group */
}
