/* test_safetensors.c - the file format of weights: what is written, and what is refused. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/files/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "runtime/checkpoint/safetensors.h"
#include "tests/support/scratch.h"

static const float matrix[6] = {1, 2, 3, 4, 5, 6};
static const int64_t counter = 42;

/* Element i is i + the context's offset. */
static void fill_ramp(const void *context, size_t begin, size_t count, void *out)
{
    const float *offset = context;
    float *values = out;

    for (size_t i = 0; i < count; i++) {
        values[i] = *offset + (float)(begin + i);
    }
}

enum { RAMP = 100001 };
static const float ramp_offset = 0.5f;

static const struct dp_stored sample[] = {
    {.name = "b", .type = "U8", .dims = 1, .shape = {3}, .data = "xyz"},
    {.name = "w", .type = "F32", .dims = 2, .shape = {2, 3}, .data = matrix},
    {.name = "n", .type = "I64", .data = &counter},
    {.name = "r",
     .type = "F32",
     .dims = 1,
     .shape = {RAMP},
     .fill = fill_ramp,
     .context = &ramp_offset},
    {.name = "empty", .type = "F32", .dims = 2, .shape = {0, 5}},
};
enum { SAMPLE_COUNT = sizeof(sample) / sizeof(sample[0]) };

static const struct dp_stored_note notes[] = {{"format", "pt"}};

/* Readers that map a file want its numbers at such addresses. */
static void data_begin_at_a_multiple_of_eight(void **state)
{
    static const char *const values[8] = {"",     "1",     "22",     "333",
                                          "4444", "55555", "666666", "7777777"};
    (void)state;

    for (int i = 0; i < 8; i++) {
        const struct dp_stored_note note = {"n", values[i]};
        uint64_t length;
        char *bytes = NULL;
        size_t size = 0;

        assert_int_equal(dp_safetensors_write(scratch_path("f"), sample, 1, &note, 1, NULL, NULL),
                         DP_OK);
        assert_int_equal(dp_file_read(scratch_path("f"), 1 << 20, &bytes, &size), DP_OK);
        memcpy(&length, bytes, sizeof(length));
        assert_int_equal(length % 8, 0);
        assert_int_equal(size, sizeof(length) + length + 3);
        dp_free(bytes);
    }
}

static void written_tensors_are_read_back(void **state)
{
    struct dp_safetensors *file = NULL;
    const struct dp_stored *tensor;
    (void)state;

    assert_int_equal(
        dp_safetensors_write(scratch_path("f"), sample, SAMPLE_COUNT, notes, 1, NULL, NULL), DP_OK);
    assert_int_equal(dp_safetensors_open(scratch_path("f"), &file), DP_OK);
    assert_int_equal(dp_safetensors_count(file), SAMPLE_COUNT);
    assert_string_equal(dp_safetensors_note(file, "format"), "pt");
    assert_null(dp_safetensors_note(file, "other"));
    assert_null(dp_safetensors_find(file, "other"));
    assert_null(dp_safetensors_at(file, SAMPLE_COUNT));

    tensor = dp_safetensors_find(file, "w");
    assert_non_null(tensor);
    assert_string_equal(tensor->type, "F32");
    assert_int_equal(tensor->dims, 2);
    assert_int_equal(tensor->shape[0], 2);
    assert_int_equal(tensor->shape[1], 3);
    assert_int_equal(tensor->bytes, sizeof(matrix));
    assert_memory_equal(tensor->data, matrix, sizeof(matrix));

    tensor = dp_safetensors_find(file, "n");
    assert_non_null(tensor);
    assert_int_equal(tensor->dims, 0);
    assert_memory_equal(tensor->data, &counter, sizeof(counter));

    tensor = dp_safetensors_find(file, "r");
    assert_non_null(tensor);
    for (size_t i = 0; i < RAMP; i++) {
        float value;

        memcpy(&value, (const char *)tensor->data + i * sizeof(value), sizeof(value));
        assert_true(value == ramp_offset + (float)i);
    }
    dp_safetensors_close(file);
    assert_int_equal(dp_mem_live(), 0);
}

static void every_tensor_is_aligned_to_its_elements(void **state)
{
    struct dp_safetensors *file = NULL;
    char text[1024] = "";
    uint64_t length = 0;
    (void)state;

    assert_int_equal(
        dp_safetensors_write(scratch_path("f"), sample, SAMPLE_COUNT, notes, 1, NULL, NULL), DP_OK);
    assert_true(scratch_read(scratch_path("f"), text, sizeof(text)) > 8);
    memcpy(&length, text, sizeof(length));
    assert_int_equal(length % 8, 0);
    assert_int_equal(text[8], '{');
    assert_int_equal(dp_safetensors_open(scratch_path("f"), &file), DP_OK);
    for (int i = 0; i < SAMPLE_COUNT; i++) {
        const struct dp_stored *tensor = dp_safetensors_at(file, i);

        assert_int_equal((uintptr_t)tensor->data % dp_stored_width(tensor->type), 0);
    }
    dp_safetensors_close(file);
}

static void types_are_as_wide_as_their_names_say(void **state)
{
    static const char *const types[] = {"F32",     "I64",     "F16", "BF16", "F64", "I32",
                                        "I16",     "I8",      "U8",  "BOOL", "U16", "U32",
                                        "F8_E5M2", "F8_E4M3", "U64", "F4",   ""};
    static const size_t widths[] = {4, 8, 2, 2, 8, 4, 2, 1, 1, 1, 2, 4, 1, 1, 8, 0, 0};
    (void)state;

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        assert_int_equal(dp_stored_width(types[i]), widths[i]);
    }
}

static void a_file_may_hold_no_tensor(void **state)
{
    struct dp_safetensors *file = NULL;
    (void)state;

    assert_int_equal(dp_safetensors_write(scratch_path("f"), NULL, 0, NULL, 0, NULL, NULL), DP_OK);
    assert_int_equal(dp_safetensors_open(scratch_path("f"), &file), DP_OK);
    assert_int_equal(dp_safetensors_count(file), 0);
    assert_null(dp_safetensors_note(file, "format"));
    dp_safetensors_close(file);
}

static void the_writer_refuses_invalid_tensors(void **state)
{
    const struct dp_stored unknown = {.name = "a", .type = "F31", .data = matrix};
    const struct dp_stored twice[] = {sample[1], sample[1]};
    const struct dp_stored reserved[] = {{.name = "__metadata__", .type = "I64", .data = &counter}};
    const struct dp_stored dims = {.name = "a", .type = "U8", .dims = 9, .data = matrix};
    const struct dp_stored most = {
        .name = "a", .type = "U8", .dims = 8, .shape = {1, 1, 1, 1, 1, 1, 1, 2}, .data = matrix};
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(dp_safetensors_write(scratch_path("f"), &unknown, 1, NULL, 0, NULL, NULL),
                     DP_ERR_ARG);
    assert_int_equal(dp_safetensors_write(scratch_path("f"), twice, 2, NULL, 0, NULL, NULL),
                     DP_ERR_ARG);
    assert_int_equal(dp_safetensors_write(scratch_path("f"), reserved, 1, notes, 1, NULL, NULL),
                     DP_ERR_ARG);
    assert_int_equal(dp_safetensors_write(scratch_path("f"), &dims, 1, NULL, 0, NULL, NULL),
                     DP_ERR_ARG);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(scratch_count("."), 0);
    assert_int_equal(dp_safetensors_write(scratch_path("f"), &most, 1, NULL, 0, NULL, NULL), DP_OK);
}

static void a_full_disk_is_reported(void **state)
{
    (void)state;
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(dp_safetensors_write("/dev/full", sample, SAMPLE_COUNT, notes, 1, NULL, NULL),
                     DP_ERR_WRITE);
    assert_int_equal(
        dp_safetensors_write(scratch_path("no/f"), sample, SAMPLE_COUNT, notes, 1, NULL, NULL),
        DP_ERR_WRITE);
    assert_int_equal(
        dp_safetensors_write(scratch_folder, sample, SAMPLE_COUNT, notes, 1, NULL, NULL),
        DP_ERR_WRITE);
    scratch_limit(200000); /* in the middle of the ramp */
    assert_int_equal(
        dp_safetensors_write(scratch_path("f"), sample, SAMPLE_COUNT, notes, 1, NULL, NULL),
        DP_ERR_WRITE);
    scratch_limit(-1);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(dp_mem_live(), 0);
}

/* Reads a header and `data` bytes after it. */
static dp_status parse(const char *header, size_t data)
{
    unsigned char bytes[4096] = {0};
    const uint64_t length = strlen(header);
    struct dp_safetensors *file = NULL;
    dp_status status;

    memcpy(bytes, &length, sizeof(length));
    (void)snprintf((char *)bytes + 8, sizeof(bytes) - 8, "%s", header);
    status = dp_safetensors_parse(bytes, 8 + length + data, "test", &file);
    assert_true((file != NULL) == (status == DP_OK));
    dp_safetensors_close(file);
    assert_int_equal(dp_mem_live(), 0);
    return status;
}

static void whole_headers_are_accepted(void **state)
{
    (void)state;
    assert_int_equal(parse("{}", 0), DP_OK);
    assert_int_equal(parse("{}      ", 0), DP_OK);
    assert_int_equal(parse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8),
                     DP_OK);
    assert_int_equal(parse("{\"a\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[3,11]},"
                           "\"b\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]},"
                           "\"c\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[3,3]},"
                           "\"__metadata__\":{\"k\":\"v\"}}",
                           11),
                     DP_OK);
    assert_int_equal(parse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,2,1,1,1,1,1],"
                           "\"data_offsets\":[0,8]}}",
                           8),
                     DP_OK);
}

/* The reference implementation reads headers of 100 million bytes. */
static void the_longest_header_is_accepted_and_a_longer_one_is_not(void **state)
{
    enum { MOST = 100 * 1000 * 1000 };
    unsigned char *bytes = dp_zalloc(1, 8 + MOST + 1);
    struct dp_safetensors *file = NULL;
    (void)state;

    assert_non_null(bytes);
    memset(bytes + 8, ' ', MOST + 1);
    bytes[8] = '{';
    bytes[9] = '}';
    for (uint64_t length = MOST; length <= MOST + 1; length++) {
        const dp_status expected = length == MOST ? DP_OK : DP_ERR_DATA;
        memcpy(bytes, &length, sizeof(length));
        dp_log_set_level(DP_LOG_NONE);
        assert_int_equal(dp_safetensors_parse(bytes, 8 + length, "test", &file), expected);
        dp_log_set_level(DP_LOG_INFO);
    }
    dp_safetensors_close(file);
    dp_free(bytes);
}

static void damaged_headers_are_refused(void **state)
{
    static const struct {
        const char *header;
        size_t data;
    } cases[] = {
        {"", 0},
        {"[]", 0},
        {" {}", 0},
        {"{\"a\":1}", 0},
        {"{\"a\":{}}", 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}", 8},
        {"{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8},
        {"{\"a\":{\"dtype\":4,\"shape\":[2],\"data_offsets\":[0,8]}}", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905,2],"
         "\"data_offsets\":[0,8]}}",
         8}, /* 4 * 2^62 * 2 wraps around to 8 */
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]}}", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":{\"0\":0,\"1\":8}}}", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1,9]}}", 9},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}",
         16},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
         12},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[12,20]}}",
         20},
        {"{\"__metadata__\":1}", 0},
        {"{\"__metadata__\":{\"a\":1}}", 0},
    };
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (parse(cases[i].header, cases[i].data) != DP_ERR_DATA) {
            fail_msg("accepted: %s", cases[i].header);
        }
    }
    dp_log_set_level(DP_LOG_INFO);
}

static void files_that_are_cut_off_anywhere_are_refused(void **state)
{
    static unsigned char bytes[2048];
    struct dp_safetensors *file = NULL;
    long size;
    (void)state;

    assert_int_equal(dp_safetensors_write(scratch_path("f"), sample, 3, notes, 1, NULL, NULL),
                     DP_OK);
    size = scratch_read(scratch_path("f"), (char *)bytes, sizeof(bytes));
    assert_int_equal(dp_safetensors_parse(bytes, (size_t)size, "whole", &file), DP_OK);
    dp_safetensors_close(file);
    file = NULL;
    dp_log_set_level(DP_LOG_NONE);
    for (long cut = 0; cut < size; cut++) {
        assert_int_equal(dp_safetensors_parse(bytes, (size_t)cut, "cut", &file), DP_ERR_DATA);
        assert_null(file);
    }
    memset(bytes, 0xff, 8); /* a length that would overflow */
    assert_int_equal(dp_safetensors_parse(bytes, (size_t)size, "huge", &file), DP_ERR_DATA);
    dp_log_set_level(DP_LOG_INFO);
}

static void a_missing_file_is_not_reported_as_damage(void **state)
{
    struct dp_safetensors *file = NULL;
    (void)state;

    scratch_write(scratch_path("empty"), "", 0);
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(dp_safetensors_open(scratch_path("none"), &file), DP_ERR_NOINPUT);
    assert_int_equal(dp_safetensors_open(scratch_path("empty"), &file), DP_ERR_DATA);
    assert_int_equal(dp_safetensors_open(scratch_folder, &file), DP_ERR_DATA);
    dp_log_set_level(DP_LOG_INFO);
    assert_null(file);
}

/* As happens when a new file is saved under the same name. */
static void truncating_an_open_file_changes_nothing(void **state)
{
    struct dp_safetensors *file = NULL;
    const struct dp_stored *tensor;
    (void)state;

    assert_int_equal(
        dp_safetensors_write(scratch_path("f"), sample, SAMPLE_COUNT, notes, 1, NULL, NULL), DP_OK);
    assert_int_equal(dp_safetensors_open(scratch_path("f"), &file), DP_OK);
    assert_int_equal(truncate(scratch_path("f"), 0), 0);
    for (int i = 0; i < SAMPLE_COUNT; i++) {
        tensor = dp_safetensors_find(file, sample[i].name);
        assert_non_null(tensor);
        if (sample[i].data != NULL) {
            assert_memory_equal(tensor->data, sample[i].data, tensor->bytes);
        }
    }
    dp_safetensors_close(file);
}

/* After any failed allocation reading and writing fail and leave nothing. */
static void survives_every_failed_allocation(void **state)
{
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        dp_mem_fail_nth(nth);
        status =
            dp_safetensors_write(scratch_path("f"), sample, SAMPLE_COUNT, notes, 1, NULL, NULL);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_int_equal(dp_mem_live(), 0);
    }
    status = DP_ERR_NOMEM;
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_safetensors *file = NULL;

        dp_mem_fail_nth(nth);
        status = dp_safetensors_open(scratch_path("f"), &file);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((file != NULL) == (status == DP_OK));
        dp_safetensors_close(file);
        assert_int_equal(dp_mem_live(), 0);
    }
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(data_begin_at_a_multiple_of_eight),
        WITH_FOLDER(written_tensors_are_read_back),
        WITH_FOLDER(every_tensor_is_aligned_to_its_elements),
        cmocka_unit_test(types_are_as_wide_as_their_names_say),
        WITH_FOLDER(a_file_may_hold_no_tensor),
        WITH_FOLDER(the_writer_refuses_invalid_tensors),
        WITH_FOLDER(a_full_disk_is_reported),
        cmocka_unit_test(whole_headers_are_accepted),
        cmocka_unit_test(the_longest_header_is_accepted_and_a_longer_one_is_not),
        cmocka_unit_test(damaged_headers_are_refused),
        WITH_FOLDER(files_that_are_cut_off_anywhere_are_refused),
        WITH_FOLDER(truncating_an_open_file_changes_nothing),
        WITH_FOLDER(a_missing_file_is_not_reported_as_damage),
        WITH_FOLDER(survives_every_failed_allocation),
    };

    (void)signal(SIGXFSZ, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
