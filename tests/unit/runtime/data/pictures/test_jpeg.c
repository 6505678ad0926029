/*
 * test_jpeg.c - what is taken from libjpeg-turbo is given back, and where it gives nothing, that
 * is an error. Of pixels: test_picture.c.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <turbojpeg.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/pictures/jpeg.h"

enum { SIDE = 8 };

static uint8_t pixels[SIDE * SIDE];
static const struct dp_picture picture = {SIDE, SIDE, 1, pixels, 0};

static int handles; /* that the library gave and has not got back */
static bool refuses;

static tjhandle take(const char *name)
{
    tjhandle (*of_library)(void);

    if (refuses) {
        return NULL;
    }
    *(void **)&of_library = dlsym(RTLD_NEXT, name);
    handles++;
    return of_library();
}

/* The linker takes these, and not the library's. */
tjhandle tjInitCompress(void)
{
    return take("tjInitCompress");
}

tjhandle tjInitDecompress(void)
{
    return take("tjInitDecompress");
}

int tjDestroy(tjhandle handle)
{
    int (*of_library)(tjhandle);

    *(void **)&of_library = dlsym(RTLD_NEXT, "tjDestroy");
    handles--;
    return of_library(handle);
}

static dp_status decode(struct dp_jpeg *jpeg, const struct dp_buffer *file, size_t bytes)
{
    struct dp_buffer memory = {NULL, 0};
    struct dp_problem problem;
    struct dp_picture out;
    const dp_status status = dp_jpeg_decode(jpeg, file->data, bytes, 1, &memory, &out, &problem);

    dp_buffer_release(&memory);
    return status;
}

static void what_the_library_gives_is_given_back(void **state)
{
    struct dp_buffer file = {NULL, 0};
    struct dp_jpeg *jpeg = NULL;
    size_t bytes;
    (void)state;

    assert_int_equal(dp_jpeg_create(&jpeg), DP_OK);
    assert_int_equal(handles, 1);
    assert_int_equal(dp_jpeg_encode(jpeg, &picture, 90, &file, &bytes), DP_OK);
    assert_int_equal(handles, 2);
    assert_int_equal(decode(jpeg, &file, bytes), DP_OK);
    assert_int_equal(handles, 2);
    assert_int_equal(decode(jpeg, &file, bytes / 2), DP_ERR_DATA);
    assert_int_equal(handles, 1); /* a decoder that met damage is not used again */
    assert_int_equal(decode(jpeg, &file, bytes), DP_OK);
    assert_int_equal(handles, 2);
    dp_jpeg_destroy(jpeg);
    assert_int_equal(handles, 0);
    dp_buffer_release(&file);
    assert_int_equal(dp_mem_live(), 0);
}

static void a_library_without_memory_is_an_error(void **state)
{
    struct dp_buffer file = {NULL, 0};
    struct dp_jpeg *jpeg = NULL;
    size_t bytes = 0;
    (void)state;

    refuses = true;
    assert_int_equal(dp_jpeg_create(&jpeg), DP_ERR_NOMEM);
    assert_null(jpeg);
    refuses = false;
    assert_int_equal(dp_jpeg_create(&jpeg), DP_OK);
    refuses = true;
    assert_int_equal(dp_jpeg_encode(jpeg, &picture, 90, &file, &bytes), DP_ERR_NOMEM);
    refuses = false;
    assert_int_equal(dp_jpeg_encode(jpeg, &picture, 90, &file, &bytes), DP_OK);
    assert_int_equal(decode(jpeg, &file, bytes / 2), DP_ERR_DATA);
    refuses = true;
    assert_int_equal(decode(jpeg, &file, bytes), DP_ERR_NOMEM);
    refuses = false;
    assert_int_equal(decode(jpeg, &file, bytes), DP_OK);
    dp_jpeg_destroy(jpeg);
    assert_int_equal(handles, 0);
    dp_buffer_release(&file);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_library_gives_is_given_back),
        cmocka_unit_test(a_library_without_memory_is_an_error),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
