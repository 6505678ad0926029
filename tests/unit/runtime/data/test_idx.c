/*
 * test_idx.c - data files: whole ones are read exactly, damaged ones are refused with the right
 * status, and nothing leaks.
 */
#define _DEFAULT_SOURCE /* syscall() */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "runtime/data/formats/idx.h"
#include "tests/support/files/idx_files.h"
#include "tests/support/files/read_source.h"

/* Most bytes that a read gives; and the most that have been asked for of the place that they go to,
 * which has 64 KB in all. 0: as many as are wanted. */
static size_t read_most, room_most;

static int read_error; /* of the next read; 0: none */

/* The linker takes this one, and not libc's. */
ssize_t read(int fd, void *buf, size_t nbytes)
{
    static const char *begin, *next; /* where a buffer begins; what follows the last read */

    if (read_error != 0) {
        errno = read_error;
        read_error = 0;
        return -1;
    }
    begin = buf == next ? begin : buf;
    if (read_most > 0 && (size_t)((const char *)buf - begin) + nbytes > room_most) {
        room_most = (size_t)((const char *)buf - begin) + nbytes;
    }
    const ssize_t got = (ssize_t)syscall(SYS_read, fd, buf,
                                         read_most > 0 && nbytes > read_most ? read_most : nbytes);
    next = got > 0 ? (const char *)buf + got : NULL;
    return got;
}

static struct dp_source_config small_config(void)
{
    return (struct dp_source_config){
        .dir = folder,
        .input = {.height = H, .width = W, .channels = 1, .count = PIXELS},
        .classes = CLASSES,
        .seed = 5};
}

static void assert_small_set(const struct outcome *o)
{
    assert_int_equal(o->opened, DP_OK);
    assert_int_equal(o->loaded, DP_OK);
    assert_int_equal(o->info.count[DP_SET_TRAIN], TRAIN);
    assert_int_equal(o->info.count[DP_SET_TEST], TEST);
    assert_int_equal(o->bytes, PIXELS);
    for (int i = 0; i < 2; i++) {
        for (size_t row = 0; row < (i == 0 ? TRAIN : TEST); row++) {
            assert_int_equal(o->labels[i][row], label(row, i == 0));
            for (size_t j = 0; j < PIXELS; j++) {
                assert_int_equal(o->images[i][row * PIXELS + j], pixel(row, j, i == 0));
            }
        }
    }
}

/* Fails unless the data set in the folder gives `opened`, or then `loaded`. */
static void assert_refused(dp_status opened, dp_status loaded)
{
    const struct dp_source_config config = small_config();
    const int errors = dp_log_errors();
    struct outcome o = run_source("idx", &config);

    assert_int_equal(o.opened, opened);
    if (opened == DP_OK) {
        assert_int_equal(o.loaded, loaded);
    }
    assert_int_equal(dp_log_errors(), errors + 1); /* reported once */
    outcome_free(&o);
}

static void plain_and_gzipped_files_give_the_same_rows(void **state)
{
    const struct dp_source_config config = small_config();
    (void)state;

    for (int gzip = 0; gzip < 2; gzip++) {
        struct outcome o;
        write_set(gzip != 0);
        o = run_source("idx", &config);
        assert_small_set(&o);
        outcome_free(&o);
    }
}

static void reads_that_end_early_are_continued_within_the_buffer(void **state)
{
    const struct dp_source_config config = small_config();
    (void)state;

    for (int gzip = 0; gzip < 2; gzip++) {
        struct outcome o;
        write_set(gzip != 0);
        room_most = 0;
        read_most = 7;
        o = run_source("idx", &config);
        read_most = 0;
        assert_small_set(&o);
        assert_int_equal(room_most, 1 << 16);
        outcome_free(&o);
    }
}

static void the_plain_file_is_taken_when_both_are_there(void **state)
{
    const struct dp_source_config config = small_config();
    struct content broken = {.bytes = "not gzip", .count = 8};
    struct outcome o;
    (void)state;

    write_set(false);
    write_file(file_names[0], ".gz", &broken);
    o = run_source("idx", &config);
    assert_small_set(&o);
    outcome_free(&o);
}

/* As pigz and cat make them. */
static void several_gzip_members_are_one_file(void **state)
{
    const struct dp_source_config config = small_config();
    static struct content whole, head, tail;
    struct outcome o;
    (void)state;

    write_set(true);
    make_images(&whole, true);
    head = whole;
    head.count = 333;
    tail.count = whole.count - head.count;
    memcpy(tail.bytes, whole.bytes + head.count, tail.count);
    compress_content(&head);
    compress_content(&tail);
    memcpy(head.bytes + head.count, tail.bytes, tail.count);
    head.count += tail.count;
    write_file(file_names[0], ".gz", &head);
    o = run_source("idx", &config);
    assert_small_set(&o);
    outcome_free(&o);
}

static void images_with_channels_have_four_dimensions(void **state)
{
    static const unsigned dims[2][4] = {{TRAIN, 2, 2, 3}, {TEST, 2, 2, 3}};
    static const char *const names[] = {"train-images-idx4-ubyte", "t10k-images-idx4-ubyte"};
    struct dp_source_config config = small_config();
    static struct content content;
    struct outcome o;
    (void)state;

    write_set(false);
    for (int i = 0; i < 2; i++) {
        put_header(&content, 0x804, dims[i], 4);
        for (size_t k = 0; k < (size_t)dims[i][0] * 12; k++) {
            put_byte(&content, pixel(k / 12, k % 12, i == 0));
        }
        remove_file(file_names[i == 0 ? 0 : 2], "");
        write_file(names[i], "", &content);
    }
    config.input.height = config.input.width = 2;
    config.input.channels = 3;
    o = run_source("idx", &config);
    assert_small_set(&o);
    outcome_free(&o);
    config.input.channels = 1;
    config.input.count = 4;
    o = run_source("idx", &config);
    assert_int_equal(o.opened, DP_ERR_DATA);
    outcome_free(&o);
}

static void a_flat_input_accepts_images_of_equal_size(void **state)
{
    struct dp_source_config config = small_config();
    struct outcome o;
    (void)state;

    write_set(true);
    config.input.height = config.input.width = config.input.channels = 0;
    o = run_source("idx", &config);
    assert_small_set(&o);
    outcome_free(&o);
    config.input.count = PIXELS + 1;
    o = run_source("idx", &config);
    assert_int_equal(o.opened, DP_ERR_DATA);
    outcome_free(&o);
}

/* ---- damage ---- */

static void an_error_of_the_disk_is_reported_and_a_signal_is_none(void **state)
{
    const struct dp_source_config config = small_config();
    struct outcome o;
    (void)state;

    write_set(false);
    read_error = EIO;
    assert_source_refuses("idx", &config, DP_ERR_NOINPUT, "cannot be read: Input/output error");
    read_error = EINTR;
    o = run_source_well("idx", &config);
    assert_small_set(&o);
    outcome_free(&o);
}

static void a_missing_file_or_folder_is_missing_input(void **state)
{
    struct dp_source_config config = small_config();
    struct outcome o;
    (void)state;

    for (int i = 0; i < 4; i++) {
        write_set(i % 2 == 0);
        remove_file(file_names[i], i % 2 == 0 ? ".gz" : "");
        assert_refused(DP_ERR_NOINPUT, DP_OK);
    }
    config.dir = "/nonexistent";
    o = run_source("fashion-mnist", &config);
    assert_int_equal(o.opened, DP_ERR_NOINPUT);
    outcome_free(&o);
    config.dir = "";
    o = run_source("idx", &config);
    assert_int_equal(o.opened, DP_ERR_CONFIG);
    outcome_free(&o);
}

static void every_truncation_is_found(void **state)
{
    static struct content whole, cut;
    (void)state;

    for (int file = 0; file < 4; file++) {
        for (int gzip = 0; gzip < 2; gzip++) {
            write_set(gzip != 0);
            make_file(&whole, file);
            if (gzip != 0) {
                compress_content(&whole);
            }
            for (size_t keep = 0; keep < whole.count; keep += keep < 40 ? 1 : 13) {
                cut = whole;
                cut.count = keep;
                write_file(file_names[file], gzip != 0 ? ".gz" : "", &cut);
                const struct dp_source_config config = small_config();
                struct outcome o = run_source("idx", &config);
                assert_true(o.opened == DP_ERR_DATA ||
                            (gzip != 0 && o.opened == DP_OK && o.loaded == DP_ERR_DATA));
                outcome_free(&o);
            }
        }
    }
}

/* Flags and times in gzip's header may change without harm; so only damage that is let through
 * with wrong rows is an error. */
static void no_flipped_bit_of_a_gzip_file_changes_a_row(void **state)
{
    static struct content whole, flipped;
    const struct dp_source_config config = small_config();
    size_t refused = 0, tried = 0;
    (void)state;

    write_set(true);
    make_images(&whole, true);
    compress_content(&whole);
    for (size_t at = 0; at < whole.count; at++) {
        struct outcome o;
        flipped = whole;
        flipped.bytes[at] ^= (uint8_t)(1 << at % 8);
        write_file(file_names[0], ".gz", &flipped);
        o = run_source("idx", &config);
        tried++;
        if (o.opened != DP_OK || o.loaded != DP_OK) {
            assert_true(o.opened == DP_ERR_DATA || o.loaded == DP_ERR_DATA);
            refused++;
        } else {
            assert_small_set(&o);
        }
        outcome_free(&o);
    }
    assert_true(refused > tried * 9 / 10);
}

static void bytes_after_the_end_are_refused(void **state)
{
    static struct content content;
    (void)state;

    write_set(false);
    make_labels(&content, false);
    put_byte(&content, 1);
    write_file(file_names[3], "", &content);
    assert_refused(DP_ERR_DATA, DP_OK);

    write_set(true); /* too much plain data in the gzip file */
    compress_content(&content);
    write_file(file_names[3], ".gz", &content);
    assert_refused(DP_OK, DP_ERR_DATA);

    write_set(true); /* something after the gzip data */
    make_labels(&content, false);
    compress_content(&content);
    put_byte(&content, 'x');
    write_file(file_names[3], ".gz", &content);
    assert_refused(DP_OK, DP_ERR_DATA);

    write_set(true); /* a stream of zlib, which gzip would not take either */
    make_labels(&content, false);
    compress_content(&content);
    uLongf more = FILE_MOST - content.count;
    assert_int_equal(compress(content.bytes + content.count, &more, content.bytes, 0), Z_OK);
    content.count += more;
    write_file(file_names[3], ".gz", &content);
    assert_refused(DP_OK, DP_ERR_DATA);
}

static void wrong_headers_are_refused(void **state)
{
    /* file, byte of the header, new value */
    static const int damages[][3] = {
        {0, 0, 1},   /* magic */
        {0, 2, 13},  /* floats */
        {0, 3, 0},   /* no dimension */
        {0, 3, 5},   /* five */
        {0, 3, 1},   /* images as labels: too long */
        {1, 3, 2},   /* labels as a matrix */
        {0, 7, 49},  /* fewer rows than there are */
        {2, 4, 255}, /* more */
        {0, 11, 5},  /* another height */
        {0, 8, 255}, /* and one that overflows */
    };
    static struct content content;
    (void)state;

    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        const int file = damages[i][0];
        for (int gzip = 0; gzip < 2; gzip++) {
            write_set(gzip != 0);
            make_file(&content, file);
            content.bytes[damages[i][1]] = (uint8_t)damages[i][2];
            if (gzip != 0) {
                compress_content(&content);
            }
            write_file(file_names[file], gzip != 0 ? ".gz" : "", &content);
            assert_refused(DP_ERR_DATA, DP_OK);
        }
    }
}

static void counts_of_images_and_labels_must_agree(void **state)
{
    static const unsigned fewer = TRAIN - 1, none = 0, no_images[] = {0, H, W};
    static struct content content;
    (void)state;

    write_set(false);
    put_header(&content, 0x801, &fewer, 1);
    for (unsigned i = 0; i < fewer; i++) {
        put_byte(&content, 0);
    }
    write_file(file_names[1], "", &content);
    assert_refused(DP_ERR_DATA, DP_OK);

    write_set(false); /* both agree that there is nothing */
    put_header(&content, 0x801, &none, 1);
    write_file(file_names[3], "", &content);
    put_header(&content, 0x803, no_images, 3);
    write_file(file_names[2], "", &content);
    assert_refused(DP_ERR_DATA, DP_OK);
}

static void labels_out_of_range_are_refused(void **state)
{
    static struct content content;
    (void)state;

    for (int file = 1; file < 4; file += 2) {
        write_set(false);
        make_file(&content, file);
        content.bytes[content.count - 1] = CLASSES;
        write_file(file_names[file], "", &content);
        assert_refused(DP_OK, DP_ERR_DATA);
    }
}

static void images_of_another_size_do_not_fit_the_model(void **state)
{
    struct dp_source_config config = small_config();
    struct outcome o;
    (void)state;

    write_set(false);
    config.input.height = W; /* as many bytes, but turned */
    config.input.width = H;
    o = run_source("idx", &config);
    assert_int_equal(o.opened, DP_ERR_DATA);
    outcome_free(&o);
    config = small_config(); /* fits the model, but is no Fashion-MNIST */
    o = run_source("fashion-mnist", &config);
    assert_int_equal(o.opened, DP_ERR_DATA);
    outcome_free(&o);
}

static void a_header_with_too_many_rows_is_refused_at_once(void **state)
{
    static const unsigned most = 0xffffffff,
                          dims[] = {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff};
    static struct content content;
    struct dp_idx *idx = NULL;
    (void)state;

    put_header(&content, 0x804, dims, 4);
    assert_int_equal(dp_idx_create_memory(content.bytes, content.count, "m", &idx), DP_ERR_DATA);
    put_header(&content, 0x801, &most, 1);
    compress_content(&content);
    assert_int_equal(dp_idx_create_memory(content.bytes, content.count, "m", &idx), DP_ERR_DATA);
    assert_int_equal(dp_idx_create_memory(content.bytes, 0, "m", &idx), DP_ERR_DATA);
    assert_null(idx);
    assert_int_equal(dp_mem_live(), 0);
}

/* The lowest free descriptor stays the same, whether the data set was good or bad. It is 0, as in a
 * process without standard input. */
static void all_files_are_closed(void **state)
{
    const struct dp_source_config config = small_config();
    const int input = dup(STDIN_FILENO);
    struct outcome o;
    (void)state;

    assert_true(input > 0);
    assert_int_equal(close(STDIN_FILENO), 0);
    write_set(true);
    o = run_source("idx", &config);
    assert_int_equal(o.loaded, DP_OK);
    outcome_free(&o);
    remove_file(file_names[3], ".gz");
    assert_refused(DP_ERR_NOINPUT, DP_OK);
    assert_int_equal(dup(input), STDIN_FILENO);
    assert_int_equal(close(input), 0);
}

static void open_survives_every_failed_allocation(void **state)
{
    const struct dp_source_config config = small_config();
    (void)state;

    write_set(true);
    assert_open_survives_failed_allocations("idx", &config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_and_gzipped_files_give_the_same_rows),
        cmocka_unit_test(reads_that_end_early_are_continued_within_the_buffer),
        cmocka_unit_test(the_plain_file_is_taken_when_both_are_there),
        cmocka_unit_test(several_gzip_members_are_one_file),
        cmocka_unit_test(images_with_channels_have_four_dimensions),
        cmocka_unit_test(a_flat_input_accepts_images_of_equal_size),
        cmocka_unit_test(an_error_of_the_disk_is_reported_and_a_signal_is_none),
        cmocka_unit_test(a_missing_file_or_folder_is_missing_input),
        cmocka_unit_test(every_truncation_is_found),
        cmocka_unit_test(no_flipped_bit_of_a_gzip_file_changes_a_row),
        cmocka_unit_test(bytes_after_the_end_are_refused),
        cmocka_unit_test(wrong_headers_are_refused),
        cmocka_unit_test(counts_of_images_and_labels_must_agree),
        cmocka_unit_test(labels_out_of_range_are_refused),
        cmocka_unit_test(images_of_another_size_do_not_fit_the_model),
        cmocka_unit_test(a_header_with_too_many_rows_is_refused_at_once),
        cmocka_unit_test(all_files_are_closed),
        cmocka_unit_test(open_survives_every_failed_allocation),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
