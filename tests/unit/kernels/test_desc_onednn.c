/*
 * test_desc_onednn.c - which of oneDNN's implementations a convolution gets: "jit" in the place of
 * "brgconv" where there are fewer than 64 channels, and no other change.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#if DP_HAVE_ONEDNN

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocked_kernels_are_for_64_channels_and_more)};

    return cmocka_run_group_tests_name("desc_onednn", tests, NULL, NULL);
}

#else

int main(void)
{
    print_message("skipped: built without oneDNN\n");
    return 77;
}

#endif
