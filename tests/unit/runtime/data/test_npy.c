/* test_npy.c - headers of NumPy's files are read, and what is not taken says what would do. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/data/formats/npy.h"
#include "tests/support/files/array_files.h"

static struct dp_npy npy;
static struct dp_problem problem;

/* Parses a file of `bytes` zeros after such a header. */
static dp_status parse(const char *descr, int fortran, const char *shape, size_t bytes)
{
    static const unsigned char zeros[1024];
    unsigned char file[2048];

    problem.text[0] = '\0';
    const size_t count = npy_bytes(file, sizeof(file), descr, fortran, shape, zeros, bytes);
    return dp_npy_parse(file, count, count, &npy, &problem);
}

/* Of a version whose length has 32 bits, and so many more than the dictionary's. */
static dp_status parse_version(unsigned char version, const char *dictionary, size_t more)
{
    unsigned char file[2048] = {0x93, 'N', 'U', 'M', 'P', 'Y', version, 0};
    const size_t length = strlen(dictionary);

    problem.text[0] = '\0';
    for (int i = 0; i < 4; i++) {
        file[8 + i] = (unsigned char)((length + more) >> 8 * i & 255);
    }
    for (size_t i = 0; i < length; i++) {
        file[12 + i] = (unsigned char)dictionary[i];
    }
    return dp_npy_parse(file, 12 + length + 4, 12 + length + 4, &npy, &problem);
}

static dp_status parse_text(const char *dictionary)
{
    return parse_version(2, dictionary, 0);
}

/* What was just parsed. */
static void assert_refused(dp_status status, const char *words)
{
    assert_int_equal(status, DP_ERR_DATA);
    if (strstr(problem.text, words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", problem.text, words);
    }
}

static void an_array_is_described(void **state)
{
    char type[16];
    (void)state;

    assert_int_equal(parse("<f4", 0, "(3, 4, 5, 2)", 480), DP_OK);
    assert_int_equal(npy.kind, DP_NPY_FLOAT);
    assert_int_equal(npy.width, 4);
    assert_int_equal(npy.dims, 4);
    assert_int_equal(npy.rows, 3);
    assert_int_equal(npy.count, 40);
    assert_int_equal(npy.begin % 64, 0);
    dp_npy_type_text(&npy, type);
    assert_string_equal(type, "float32");
    assert_int_equal(parse("|u1", 0, "(7,)", 7), DP_OK);
    assert_int_equal(npy.count, 1);
    assert_int_equal(parse("<i8", 1, "(2,)", 16), DP_OK); /* one dimension has one order */
    assert_int_equal(parse("<f4", 0, "(0, 4)", 0), DP_OK);
    assert_int_equal(npy.rows, 0);
}

static void keys_come_in_any_order_and_versions_differ(void **state)
{
    (void)state;

    assert_int_equal(parse_text("{\"shape\": (1,), 'fortran_order':False,'descr' : '<i4'}"), DP_OK);
    assert_int_equal(npy.kind, DP_NPY_SIGNED);
    assert_int_equal(parse_text("{'shape': (1L, 2L), 'fortran_order': False, 'descr': '<i2', }\n"),
                     DP_OK);
    assert_int_equal(npy.count, 2);
    for (unsigned char version = 2; version <= 3; version++) {
        static const char one[] = "{'shape': (1,), 'fortran_order': False, 'descr': '<i4'}";
        assert_int_equal(parse_version(version, one, 0), DP_OK);
        for (int bit = 8; bit < 32; bit++) {
            assert_refused(parse_version(version, one, (size_t)1 << bit), "ends inside its header");
        }
    }
    assert_refused(parse_version(4, "{}", 0), "is of version 4 of the format, 1 to 3 are read");
    assert_refused(parse_version(0, "{}", 0), "is of version 0");
}

static void what_is_not_taken_says_what_would_do(void **state)
{
    (void)state;

    assert_refused(parse("<U3", 0, "(2,)", 24), "texts (type '<U3'): number the classes: save");
    assert_refused(parse("|S3", 0, "(2,)", 6), "numpy.unique(labels, return_inverse=True)[1]");
    assert_refused(parse("|O", 0, "(2, 2)", 4), "Python objects (type '|O'): save it with astype");
    assert_refused(parse(">f4", 0, "(2, 2)", 16), "big-endian");
    assert_refused(parse("<c8", 0, "(2, 2)", 32), "astype('float32')");
    assert_refused(parse("<f4", 1, "(2, 2)", 16), "numpy.ascontiguousarray");
    assert_refused(parse("<f4", 0, "()", 4), "is one number");
    assert_refused(parse("<f4", 0, "(2, 2)", 15), "it is cut off");
    assert_refused(parse("<f4", 0, "(2, 2)", 17), "more follows");
    assert_refused(parse_text("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}"),
                   "records of several fields");
}

static void shapes_that_cannot_be_are_refused(void **state)
{
    (void)state;

    assert_refused(parse("<f4", 0, "(4294967296, 4294967296)", 0), "impossible shape");
    assert_refused(parse("<f8", 0, "(2305843009213693952,)", 0), "impossible shape");
    assert_refused(parse("<f4", 0, "(99999999999999999999,)", 0), "damaged");
    assert_refused(parse("<f4", 0, "(1, 1, 1, 1, 1, 1, 1, 1, 1)", 4), "damaged");
    assert_refused(parse("<f4", 0, "(-1,)", 4), "damaged");
    assert_refused(parse("<f4", 0, "(1 1)", 4), "damaged");
    assert_refused(parse("<f4", 0, "(1,", 4), "damaged");
}

static void what_is_no_npy_is_refused(void **state)
{
    static const char *const dictionaries[] = {
        "",
        "{",
        "{}",
        "[]",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)",
        "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}",
        "{'descr': <f4, 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': [1]}",
        "{'a name that is longer than any key of the format': '<f4'}",
    };
    (void)state;

    for (size_t i = 0; i < sizeof(dictionaries) / sizeof(dictionaries[0]); i++) {
        assert_refused(parse_text(dictionaries[i]), "it is damaged");
    }
    assert_refused(dp_npy_parse((const uint8_t *)"", 0, 0, &npy, &problem), "is empty");
    assert_refused(dp_npy_parse((const uint8_t *)"P5 28 28", 8, 8, &npy, &problem), "no .npy");
    assert_refused(dp_npy_parse((const uint8_t *)"PK\3\4......", 10, 10, &npy, &problem), ".npz");
    assert_refused(dp_npy_parse((const uint8_t *)"\x93NUMPY\x09\x00..", 10, 10, &npy, &problem),
                   "version 9");
}

/* A header that is cut off anywhere is refused, and nothing after it is read. */
static void every_beginning_of_a_file_is_refused(void **state)
{
    unsigned char file[256];
    const size_t count = npy_bytes(file, sizeof(file), "<f4", 0, "(1,)", "\0\0\0\0", 4);
    (void)state;

    for (size_t length = 0; length < count; length++) {
        assert_int_equal(dp_npy_parse(file, length, length, &npy, &problem), DP_ERR_DATA);
    }
    assert_int_equal(dp_npy_parse(file, count, count, &npy, &problem), DP_OK);
}

static void numbers_of_every_type_are_read(void **state)
{
    static const struct {
        const char *descr;
        unsigned char bytes[8];
        double value;
    } cases[] = {
        {"|u1", {0xff}, 255},
        {"|i1", {0xff}, -1},
        {"<u2", {0x01, 0x80}, 32769},
        {"<i2", {0x01, 0x80}, -32767},
        {"<u4", {0xff, 0xff, 0xff, 0xff}, 4294967295.0},
        {"<i4", {0xfe, 0xff, 0xff, 0xff}, -2},
        {"<u8", {0, 0, 0, 0, 0, 0, 0, 0x80}, 9223372036854775808.0},
        {"<i8", {0, 0, 0, 0, 0, 0, 0, 0x80}, -9223372036854775808.0},
        {"<f4", {0, 0, 0xc0, 0xbf}, -1.5},
        {"<f8", {0, 0, 0, 0, 0, 0, 0x04, 0x40}, 2.5},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const size_t width = (size_t)(cases[i].descr[2] - '0');
        unsigned char two[16];
        assert_int_equal(parse(cases[i].descr, 0, "(1,)", width), DP_OK);
        memset(two, 0x55, sizeof(two));
        memcpy(two + width, cases[i].bytes, width);
        assert_true(dp_npy_number(&npy, two, 1) == cases[i].value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_array_is_described),
        cmocka_unit_test(keys_come_in_any_order_and_versions_differ),
        cmocka_unit_test(what_is_not_taken_says_what_would_do),
        cmocka_unit_test(shapes_that_cannot_be_are_refused),
        cmocka_unit_test(what_is_no_npy_is_refused),
        cmocka_unit_test(every_beginning_of_a_file_is_refused),
        cmocka_unit_test(numbers_of_every_type_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
