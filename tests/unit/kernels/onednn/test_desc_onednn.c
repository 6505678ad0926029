/*
 * test_desc_onednn.c - which of oneDNN's implementations a convolution gets: "jit" in the place of
 * "brgconv" where there are fewer than 64 channels, and none that is not safe; and products of
 * bfloats.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#if DP_HAVE_ONEDNN

#include "kernels/cpu/mixed.h"
#include "kernels/cpu/onednn/conv_desc_onednn.h"

enum { SIDE = 14, ROWS = 8 };

/* Whether a forward convolution over these channels is one of oneDNN's blocked ones. */
static bool is_blocked(dnnl_engine_t engine, size_t in, size_t out, size_t kernel)
{
    const struct dp_window w = {.in_c = in,
                                .out_c = out,
                                .in_h = SIDE,
                                .in_w = SIDE,
                                .out_h = SIDE,
                                .out_w = SIDE,
                                .kernel_h = kernel,
                                .kernel_w = kernel,
                                .stride = 1,
                                .padding = kernel / 2};
    const struct dp_onednn_conv conv = {engine, &w, ROWS, DP_CONV_FORWARD, DP_TYPE_F32};
    dnnl_primitive_desc_t desc = NULL;
    bool blocked;

    assert_int_equal(dp_onednn_conv_desc(&conv, &desc), DP_OK);
    blocked = strncmp(dp_onednn_desc_code(desc), "brg", 3) == 0;
    (void)dnnl_primitive_desc_destroy(desc);
    return blocked;
}

/* One of the library's own would be memory that no plan knows of, and be shared by threads. */
static void scratch_memory_is_the_callers(void **state)
{
    static const unsigned uses[] = {DP_CONV_FORWARD, DP_CONV_BACKWARD_DATA,
                                    DP_CONV_BACKWARD_WEIGHTS};
    const struct dp_window w = {.in_c = 8,
                                .out_c = 8,
                                .in_h = SIDE,
                                .in_w = SIDE,
                                .out_h = SIDE,
                                .out_w = SIDE,
                                .kernel_h = 3,
                                .kernel_w = 3,
                                .stride = 1,
                                .padding = 1};
    dnnl_engine_t engine = NULL;
    (void)state;

    assert_int_equal(dnnl_engine_create(&engine, dnnl_cpu, 0), dnnl_success);
    for (size_t i = 0; i < sizeof(uses) / sizeof(uses[0]); i++) {
        const struct dp_onednn_conv conv = {engine, &w, ROWS, uses[i], DP_TYPE_F32};
        dnnl_scratchpad_mode_t mode = dnnl_scratchpad_mode_library;
        const_dnnl_primitive_attr_t attr = NULL;
        dnnl_primitive_desc_t desc = NULL;
        assert_int_equal(dp_onednn_conv_desc(&conv, &desc), DP_OK);
        assert_int_equal(dnnl_primitive_desc_get_attr(desc, &attr), dnnl_success);
        assert_int_equal(dnnl_primitive_attr_get_scratchpad_mode(attr, &mode), dnnl_success);
        assert_int_equal(mode, dnnl_scratchpad_mode_user);
        (void)dnnl_primitive_desc_destroy(desc);
    }
    (void)dnnl_engine_destroy(engine);
}

static void blocked_kernels_are_for_64_channels_and_more(void **state)
{
    dnnl_engine_t engine = NULL;
    (void)state;

    assert_int_equal(dnnl_engine_create(&engine, dnnl_cpu, 0), dnnl_success);
    for (size_t kernel = 1; kernel <= 3; kernel += 2) {
        /* Whether this processor and oneDNN have them at all. */
        const bool has = is_blocked(engine, 128, 128, kernel);
        assert_int_equal(is_blocked(engine, 64, 64, kernel), has);
        assert_int_equal(is_blocked(engine, 64, 128, kernel), has);
        assert_int_equal(is_blocked(engine, 128, 64, kernel), has);
        assert_false(is_blocked(engine, 48, 64, kernel));
        assert_false(is_blocked(engine, 64, 48, kernel));
        assert_false(is_blocked(engine, 16, 16, kernel));
        print_message("kernel %zu: %s\n", kernel, has ? "blocked from 64 channels on" : "none");
    }
    (void)dnnl_engine_destroy(engine);
}

static bool has_product(dnnl_engine_t engine, bool bias)
{
    const struct dp_onednn_product product = {.m = 8, .n = 16, .k = 24, .bias = bias};
    dnnl_primitive_desc_t desc = NULL;
    const bool has = dp_onednn_try_product(engine, &product, &desc) == dnnl_success;

    if (has) {
        (void)dnnl_primitive_desc_destroy(desc);
    }
    return has;
}

/* Else products of bfloats would be computed as float32 without a word. */
static void a_product_of_bfloats_may_have_a_bias(void **state)
{
    dnnl_engine_t engine = NULL;
    (void)state;

    assert_int_equal(dnnl_engine_create(&engine, dnnl_cpu, 0), dnnl_success);
    assert_int_equal(has_product(engine, true), has_product(engine, false));
    (void)dnnl_engine_destroy(engine);
}

/* Whether the kernel lists a flag, or a vendor, of the first processor. */
static bool listed(const char *word)
{
    static char text[8192];
    FILE *file = fopen("/proc/cpuinfo", "r");
    size_t got;

    if (file == NULL) {
        return false;
    }
    got = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[got] = '\0';
    return strstr(text, word) != NULL;
}

/* Tiles are found by cpuid; Linux says the same. */
static void bfloats_are_preferred_where_the_processor_has_tiles(void **state)
{
    (void)state;
    if (!listed("GenuineIntel")) {
        skip();
    }
    assert_int_equal(dp_cpu_prefers_bf16(), dp_cpu_has_bf16() && listed(" amx_bf16"));
}

/* Else bfloats would be computed as float32 without a word. */
static void bfloats_are_multiplied_where_the_processor_can(void **state)
{
    const unsigned wanted = dnnl_cpu_isa_avx512_core_bf16, allowed = dnnl_get_effective_cpu_isa();
    (void)state;

    assert_int_equal(dp_cpu_has_bf16(), listed(" avx512_bf16") && (allowed & wanted) == wanted);
}

static bool note_1x1(void *context, const_dnnl_primitive_desc_t desc)
{
    bool *found = context;

    *found = *found || strncmp(dp_onednn_desc_code(desc), "jit_1x1", 7) == 0;
    return *found;
}

/* Whether gradients of 1x1 weights over this many channels may be made by a 1x1 kernel. */
static bool may_gather(dnnl_engine_t engine, size_t in, size_t stride)
{
    const struct dp_window w = {.in_c = in,
                                .out_c = 32,
                                .in_h = SIDE,
                                .in_w = SIDE,
                                .out_h = SIDE / stride,
                                .out_w = SIDE / stride,
                                .kernel_h = 1,
                                .kernel_w = 1,
                                .stride = stride};
    const struct dp_onednn_conv conv = {engine, &w, ROWS, DP_CONV_BACKWARD_WEIGHTS, DP_TYPE_F32};
    bool found = false;

    assert_int_equal(dp_onednn_each_conv(&conv, note_1x1, &found), DP_OK);
    return found;
}

static void strided_pixels_are_gathered_if_they_fill_a_vector(void **state)
{
    dnnl_engine_t engine = NULL;
    (void)state;

    assert_int_equal(dnnl_engine_create(&engine, dnnl_cpu, 0), dnnl_success);
    const bool has = may_gather(engine, 32, 2); /* whether this processor and oneDNN have them */
    assert_int_equal(may_gather(engine, 16, 2), has);
    assert_false(may_gather(engine, 8, 2));
    assert_int_equal(may_gather(engine, 8, 1), has);
    (void)dnnl_engine_destroy(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scratch_memory_is_the_callers),
        cmocka_unit_test(blocked_kernels_are_for_64_channels_and_more),
        cmocka_unit_test(a_product_of_bfloats_may_have_a_bias),
        cmocka_unit_test(bfloats_are_preferred_where_the_processor_has_tiles),
        cmocka_unit_test(bfloats_are_multiplied_where_the_processor_can),
        cmocka_unit_test(strided_pixels_are_gathered_if_they_fill_a_vector),
    };

    return cmocka_run_group_tests_name("desc_onednn", tests, NULL, NULL);
}

#else

int main(void)
{
    print_message("skipped: built without oneDNN\n");
    return 77;
}

#endif
