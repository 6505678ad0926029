/*
 * test_sample_file.c - samples of a file that belongs to no data set: pictures, arrays and lines as
 * the model takes them, and what is refused.
 */
#define _DEFAULT_SOURCE /* syscall() */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/sample_file.h"
#include "tests/support/files/array_files.h"
#include "tests/support/files/picture_files.h"
#include "tests/support/scratch.h"

enum { PIECE = 1 << 16 /* what is read at once */, SIDE = 4, IMAGE = SIDE * SIDE * 3, MOST = 64 };

/* Models that take three numbers, and images of 4 x 4 colours. */
static const struct dp_sample_file_form flat = {.input = {.count = 3}, .outputs = 2};
static const struct dp_sample_file_form images = {
    .input = {.height = SIDE, .width = SIDE, .channels = 3, .count = IMAGE}, .outputs = 10};

/* Whether a descriptor was read that a program started now would get, too. */
static bool inherited;

/* So many reads fail first, by default since a signal interrupts them. */
static int failures, failure = EINTR;

/* The linker takes this one, and not libc's. */
ssize_t read(int fd, void *buf, size_t nbytes)
{
    if (failures > 0) {
        failures--;
        errno = failure;
        return -1;
    }
    inherited = inherited || (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0;
    return (ssize_t)syscall(SYS_read, fd, buf, nbytes);
}

static struct dp_sample_file *opened(const char *name, const struct dp_sample_file_form *form)
{
    struct dp_sample_file *file = NULL;
    struct dp_problem problem = {""};

    if (dp_sample_file_open(scratch_path(name), form, &file, &problem) != DP_OK) {
        fail_msg("%s %s", name, problem.text);
    }
    return file;
}

/* Nothing is set, and nothing is left. */
static void assert_refused(const char *name, const struct dp_sample_file_form *form,
                           dp_status expected, const char *words)
{
    struct dp_sample_file *file = NULL;
    struct dp_problem problem = {""};
    const dp_status status = dp_sample_file_open(scratch_path(name), form, &file, &problem);

    if (status != expected || strstr(problem.text, words) == NULL) {
        fail_msg("%s: status %d: '%s' instead of '%s'", name, (int)status, problem.text, words);
    }
    assert_null(file);
    assert_int_equal(dp_mem_live(), 0);
}

static void assert_info(const struct dp_sample_file *file, size_t rows, enum dp_element element,
                        bool has_rows)
{
    const struct dp_sample_file_info *info = dp_sample_file_info(file);

    assert_int_equal(info->rows, rows);
    assert_int_equal(info->element, element);
    assert_int_equal(info->has_rows, has_rows);
}

static void write_text(const char *name, const char *text)
{
    scratch_write(scratch_path(name), text, strlen(text));
}

static void assert_numbers(const struct dp_sample_file *file, size_t row, const float *expected,
                           size_t count)
{
    struct dp_problem problem;
    float out[MOST];

    assert_int_equal(dp_sample_file_read(file, NULL, row, out, &problem), DP_OK);
    assert_memory_equal(out, expected, count * sizeof(float));
}

/* ---- lines ---- */

static void check_lines(const char *text, bool label_last)
{
    static const float rows[2][3] = {{1, 2.5f, -3}, {4, 5, 6e3f}};
    struct dp_sample_file_form form = flat;
    struct dp_sample_file *file;

    form.label_last = label_last;
    write_text("lines", text);
    file = opened("lines", &form);
    assert_info(file, 2, DP_ELEMENT_FLOAT, true);
    assert_numbers(file, 1, rows[1], 3);
    assert_numbers(file, 0, rows[0], 3);
    dp_sample_file_close(file);
}

/* One label, or as many as the model has outputs. */
static void lines_are_read_with_or_without_labels_and_headers(void **state)
{
    (void)state;
    check_lines("1,2.5,-3\n4,5,6e3\n", false);
    check_lines("1,2.5,-3\n4,5,6e3", true);
    check_lines("7,1,2.5,-3\n8,4,5,6e3\n", false);
    check_lines("1,2.5,-3,7\n4,5,6e3,8\n", true);
    check_lines("7;7;1;2.5;-3\n8;8;4;5;6e3", false);
    check_lines("1\t2.5\t-3\t7\t7\r\n4\t5\t6e3\t8\t8\r\n", true);
    check_lines("a,b,c\n1,2.5,-3\n4,5,6e3\n", false);
    check_lines("\xef\xbb\xbf"
                "1,2.5,-3\n4,5,6e3\n",
                false);
    check_lines("\xef\xbb\xbf"
                "class,a,b,c\n9,1,2.5,-3\n9,4,5,6e3\n",
                false);
}

static void a_bad_line_is_named_by_its_number_in_the_file(void **state)
{
    static const char *const texts[] = {"1,2,3\n4,x,6\n1,2,3\n", "a,b,c\n1,2,3\n4,x,6\n"};
    struct dp_problem problem;
    float out[3];
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        struct dp_sample_file *file;
        write_text("lines", texts[i]);
        file = opened("lines", &flat);
        assert_int_equal(dp_sample_file_read(file, NULL, 0, out, &problem), DP_OK);
        assert_int_equal(dp_sample_file_read(file, NULL, 1, out, &problem), DP_ERR_DATA);
        assert_non_null(strstr(problem.text, i == 0 ? "line 2: " : "line 3: "));
        dp_sample_file_close(file);
    }
}

static void a_header_alone_is_refused(void **state)
{
    (void)state;
    write_text("header", "a,b,c\n");
    assert_refused("header", &flat, DP_ERR_DATA, "has no rows, only a header");
}

static void lines_with_another_number_of_fields_are_refused(void **state)
{
    const struct dp_sample_file_form three = {.input = flat.input, .outputs = 3};
    (void)state;

    write_text("one", "5\n");
    assert_refused("one", &flat, DP_ERR_DATA, "has 1 field a line: the model takes 3 numbers");
    write_text("two", "5,6\n");
    assert_refused("two", &flat, DP_ERR_DATA, "has 2 fields a line: the model takes 3 numbers");
    write_text("six", "1,2,3,4,5,6\n"); /* three labels of a model with two outputs */
    assert_refused("six", &flat, DP_ERR_DATA, "has 6 fields a line");
    write_text("five", "1,2,3,4,5\n"); /* two labels */
    assert_refused("five", &three, DP_ERR_DATA, "has 5 fields a line");
    dp_sample_file_close(opened("six", &three));
    dp_sample_file_close(opened("five", &flat));
}

/* Files that end at, before and after what is read at once: a digit and a line end, and perhaps a
 * digit without one. */
static void files_of_any_length_are_read_whole(void **state)
{
    static char text[3 * PIECE];
    const struct dp_sample_file_form one = {.input = {.count = 1}, .outputs = 1};
    const size_t sizes[] = {1,         2,         PIECE - 2,     PIECE - 1,    PIECE,
                            PIECE + 1, PIECE + 2, 2 * PIECE - 1, 2 * PIECE + 1};
    (void)state;

    for (size_t i = 0; i < sizeof(text); i++) {
        text[i] = (char)(i % 2 == 0 ? '0' + i / 2 % 10 : '\n');
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const size_t rows = (sizes[i] + 1) / 2;
        const float last = (float)((rows - 1) % 10), middle = (float)(rows / 2 % 10);
        struct dp_sample_file *file;
        scratch_write(scratch_path("lines"), text, sizes[i]);
        file = opened("lines", &one);
        assert_info(file, rows, DP_ELEMENT_FLOAT, true);
        assert_numbers(file, rows / 2 < rows ? rows / 2 : 0, &middle, 1);
        assert_numbers(file, rows - 1, &last, 1);
        dp_sample_file_close(file);
    }
}

static void a_signal_does_not_end_a_file(void **state)
{
    const float expected[] = {1, 2, 3};
    struct dp_sample_file *file;
    (void)state;

    write_text("numbers.csv", "1,2,3\n");
    failures = 3;
    file = opened("numbers.csv", &flat);
    assert_int_equal(failures, 0);
    assert_numbers(file, 0, expected, 3);
    dp_sample_file_close(file);
}

static void what_cannot_be_read_is_refused_with_the_reason(void **state)
{
    (void)state;

    write_text("numbers.csv", "1,2,3\n");
    failures = 1;
    failure = EIO;
    assert_refused("numbers.csv", &flat, DP_ERR_DATA, "cannot be read: Input/output error");
    failure = EINTR;
}

static void standard_input_is_read_to_its_end(void **state)
{
    static const float row[] = {4, 5, 6};
    const int real = dup(STDIN_FILENO);
    struct dp_sample_file *file = NULL;
    struct dp_problem problem;
    int ends[2];
    (void)state;

    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "1,2,3\n4,5,6\n", 12), 12);
    (void)close(ends[1]);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    (void)close(ends[0]);
    assert_int_equal(dp_sample_file_open("-", &flat, &file, &problem), DP_OK);
    if (real >= 0) {
        assert_int_equal(dup2(real, STDIN_FILENO), STDIN_FILENO);
        (void)close(real);
    }
    assert_info(file, 2, DP_ELEMENT_FLOAT, true);
    assert_numbers(file, 1, row, 3);
    dp_sample_file_close(file);
}

/* As a service may be started: then a file is opened in its place. */
static void standard_input_may_be_closed(void **state)
{
    static const float row[] = {1, 2, 3};
    const int real = dup(STDIN_FILENO);
    struct dp_sample_file *file;
    (void)state;

    write_text("lines", "1,2,3\n");
    (void)close(STDIN_FILENO);
    file = opened("lines", &flat);
    assert_numbers(file, 0, row, 3);
    dp_sample_file_close(file);
    assert_int_equal(dup(STDERR_FILENO), STDIN_FILENO); /* it is free again */
    if (real >= 0) {
        assert_int_equal(dup2(real, STDIN_FILENO), STDIN_FILENO);
        (void)close(real);
    }
}

/* ---- arrays ---- */

static const float numbers[2 * IMAGE] = {1, -2, 3.5f, 4, 5, 6, 7, 8, 9};
static const uint8_t bytes[2 * IMAGE] = {9, 8, 7, 6, 5, 4, 3, 2, 1};

static void arrays_are_rows_or_one_sample(void **state)
{
    static const double wide[] = {1, -2, 3.5, 4, 5, 6};
    static const struct {
        const char *descr, *shape;
        const void *elements;
        size_t bytes, rows;
        const struct dp_sample_file_form *form;
    } cases[] = {
        {"<f4", "(2, 3)", numbers, 24, 2, &flat},
        {"<f8", "(2, 3)", wide, 48, 2, &flat},
        {"<f4", "(3,)", numbers, 12, 0, &flat}, /* without rows */
        {"<f4", "(2, 4, 4, 3)", numbers, sizeof(numbers), 2, &images},
        {"<f4", "(4, 4, 3)", numbers, sizeof(numbers) / 2, 0, &images},
        {"<f4", "(2, 48)", numbers, sizeof(numbers), 2, &images},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const size_t rows = cases[i].rows, count = cases[i].form->input.count;
        struct dp_sample_file *file;
        npy_file(scratch_folder, "a.npy", cases[i].descr, cases[i].shape, cases[i].elements,
                 cases[i].bytes);
        file = opened("a.npy", cases[i].form);
        assert_info(file, rows == 0 ? 1 : rows, DP_ELEMENT_FLOAT, rows > 0);
        for (size_t row = 0; row < (rows == 0 ? 1 : rows); row++) {
            assert_numbers(file, row, numbers + row * count, count);
        }
        dp_sample_file_close(file);
    }
}

static void assert_bytes(const char *shape, size_t count, const struct dp_sample_file_form *form,
                         bool has_rows)
{
    const size_t each = form->input.count, rows = has_rows ? count / each : 1;
    struct dp_decoder *decoder = NULL;
    struct dp_sample_file *file;
    struct dp_problem problem;
    uint8_t out[MOST];

    npy_file(scratch_folder, "b.npy", "|u1", shape, bytes, count);
    file = opened("b.npy", form);
    assert_info(file, rows, DP_ELEMENT_BYTE, has_rows);
    assert_int_equal(dp_decoder_create(&decoder), DP_OK);
    for (size_t row = 0; row < rows; row++) {
        assert_int_equal(dp_sample_file_read(file, decoder, row, out, &problem), DP_OK);
        assert_memory_equal(out, bytes + row * each, each);
    }
    dp_decoder_destroy(decoder);
    dp_sample_file_close(file);
}

static void arrays_of_bytes_stay_bytes(void **state)
{
    struct dp_sample_file_form grey = images;
    (void)state;

    grey.input.channels = 1;
    grey.input.count = (size_t)SIDE * SIDE;
    assert_bytes("(3, 3)", 9, &flat, true);
    assert_bytes("(2, 4, 4, 3)", 96, &images, true);
    assert_bytes("(4, 4, 3)", 48, &images, false);
    assert_bytes("(3, 4, 4)", 48, &grey, true); /* a channel of its own is not needed */
    assert_bytes("(4, 4)", 16, &grey, false);
}

static void other_arrays_are_refused(void **state)
{
    (void)state;
    npy_file(scratch_folder, "i4.npy", "<i4", "(2, 3)", numbers, 24);
    assert_refused("i4.npy", &flat, DP_ERR_DATA, "holds int32: save it with astype('float32')");
    npy_file(scratch_folder, "u2.npy", "<u2", "(2, 3)", numbers, 12);
    assert_refused("u2.npy", &flat, DP_ERR_DATA, "holds uint16: save it");
    npy_file(scratch_folder, "5.npy", "<f4", "(1, 1, 1, 1, 3)", numbers, 12);
    assert_refused("5.npy", &flat, DP_ERR_DATA, "has 5 dimensions: ");
    npy_file(scratch_folder, "1.npy", "<f4", "(4,)", numbers, 16);
    assert_refused("1.npy", &flat, DP_ERR_DATA, "has 1 dimension: ");
    npy_file(scratch_folder, "4.npy", "<f4", "(2, 4)", numbers, 32);
    assert_refused("4.npy", &flat, DP_ERR_DATA, "has samples of 4 numbers: the model takes 3");
    /* No numbers at all, and a height that is 4 in 32 bits. */
    npy_file(scratch_folder, "long.npy", "<f4", "(0, 4294967300, 4, 3)", numbers, 0);
    assert_refused("long.npy", &images, DP_ERR_DATA, "has 4 dimensions: ");
    npy_file(scratch_folder, "5x4.npy", "<f4", "(1, 5, 4, 3)", numbers, 240);
    assert_refused("5x4.npy", &images, DP_ERR_DATA,
                   "has samples of 60 numbers (5 x 4 x 3): the model takes 48 (4 x 4 x 3)");
}

/* ---- pictures ---- */

static void a_picture_is_one_sample_whatever_its_name(void **state)
{
    struct dp_decoder *decoder = NULL;
    struct dp_sample_file *file;
    struct dp_problem problem;
    uint8_t out[IMAGE];
    (void)state;

    assert_int_equal(dp_decoder_create(&decoder), DP_OK);
    picture_file(scratch_folder, "x.png", SIDE, SIDE, 3, 5);
    assert_int_equal(rename(scratch_path("x.png"), scratch_path("x.csv")), 0);
    file = opened("x.csv", &images);
    assert_info(file, 1, DP_ELEMENT_BYTE, false);
    assert_int_equal(dp_sample_file_read(file, decoder, 0, out, &problem), DP_OK);
    for (int i = 0; i < IMAGE; i++) {
        assert_int_equal(out[i], picture_value(5, i / 3 % SIDE, i / 3 / SIDE, i % 3));
    }
    dp_sample_file_close(file);
    picture_file(scratch_folder, "y.jpg", 3 * SIDE, 2 * SIDE, 3, 5); /* of another size */
    file = opened("y.jpg", &images);
    assert_info(file, 1, DP_ELEMENT_BYTE, false);
    assert_int_equal(dp_sample_file_read(file, decoder, 0, out, &problem), DP_OK);
    dp_sample_file_close(file);
    dp_decoder_destroy(decoder);
    assert_refused("x.csv", &flat, DP_ERR_DATA,
                   "is a picture: the model takes 3 numbers that are none");
}

static void a_damaged_picture_is_found_when_it_is_read(void **state)
{
    struct dp_decoder *decoder = NULL;
    struct dp_sample_file *file;
    struct dp_problem problem = {""};
    uint8_t out[IMAGE];
    (void)state;

    assert_int_equal(dp_decoder_create(&decoder), DP_OK);
    scratch_write(scratch_path("cut.png"), "\x89PNG\r\n\x1a\n", 8);
    file = opened("cut.png", &images);
    assert_int_equal(dp_sample_file_read(file, decoder, 0, out, &problem), DP_ERR_DATA);
    assert_true(strlen(problem.text) > 0);
    dp_sample_file_close(file);
    dp_decoder_destroy(decoder);
}

/* ---- anything else ---- */

static void programs_that_are_started_meanwhile_do_not_get_the_file(void **state)
{
    (void)state;
    write_text("lines", "1,2,3\n");
    inherited = false;
    dp_sample_file_close(opened("lines", &flat));
    assert_false(inherited);
}

static void what_is_no_file_of_samples_is_refused(void **state)
{
    (void)state;
    assert_refused("missing", &flat, DP_ERR_NOINPUT, "No such file");
    assert_refused(".", &flat, DP_ERR_DATA, "is no regular file");
    assert_int_equal(mkfifo(scratch_path("pipe"), 0600), 0);
    assert_refused("pipe", &flat, DP_ERR_DATA, "is no regular file"); /* without waiting */
    write_text("empty", "");
    assert_refused("empty", &flat, DP_ERR_DATA, "is empty");
    scratch_write(scratch_path("zero"), "1,2,3\n\0", 7);
    assert_refused("zero", &flat, DP_ERR_DATA, "is no PNG or JPEG, no array of numpy and no lines");
    write_text("delete", "1,2,\x7f\n");
    assert_refused("delete", &flat, DP_ERR_DATA, "is no PNG or JPEG");
    scratch_write(scratch_path("half.npy"), "\x93NUMPY\1", 7);
    assert_refused("half.npy", &flat, DP_ERR_DATA, "is no .npy file");
    scratch_write(scratch_path("cut.npy"), "\x93NUMPY\1\0\x76\0{", 11);
    assert_refused("cut.npy", &flat, DP_ERR_DATA, "ends inside its header");
}

static void opening_survives_every_failed_allocation(void **state)
{
    dp_status status = DP_ERR_NOMEM;
    int nth = 0;
    (void)state;

    write_text("lines", "1,2,3\n4,5,6\n");
    while (status != DP_OK) {
        struct dp_sample_file *file = NULL;
        struct dp_problem problem;
        dp_mem_fail_nth(++nth);
        status = dp_sample_file_open(scratch_path("lines"), &flat, &file, &problem);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((file != NULL) == (status == DP_OK));
        dp_sample_file_close(file);
        assert_int_equal(dp_mem_live(), 0);
    }
    assert_int_equal(nth, 4); /* itself, its bytes, where lines begin */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_create_fast, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(lines_are_read_with_or_without_labels_and_headers),
        TEST(a_header_alone_is_refused),
        TEST(a_bad_line_is_named_by_its_number_in_the_file),
        TEST(lines_with_another_number_of_fields_are_refused),
        TEST(files_of_any_length_are_read_whole),
        TEST(a_signal_does_not_end_a_file),
        TEST(what_cannot_be_read_is_refused_with_the_reason),
        TEST(standard_input_is_read_to_its_end),
        TEST(standard_input_may_be_closed),
        TEST(programs_that_are_started_meanwhile_do_not_get_the_file),
        TEST(arrays_are_rows_or_one_sample),
        TEST(arrays_of_bytes_stay_bytes),
        TEST(other_arrays_are_refused),
        TEST(a_picture_is_one_sample_whatever_its_name),
        TEST(a_damaged_picture_is_found_when_it_is_read),
        TEST(what_is_no_file_of_samples_is_refused),
        TEST(opening_survives_every_failed_allocation),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests_name("sample_file", tests, NULL, NULL);
}
