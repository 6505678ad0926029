/*
 * test_conv_bounds.c - oneDNN's convolutions write nothing outside of the arrays that they ask for,
 * by any implementation that may be chosen.
 *
 * Its kernels are made at run time, so that AddressSanitizer does not see what they write.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tests/support/share_of_cases.h"

#if DP_HAVE_ONEDNN

#include "kernels/cpu/onednn/conv_desc_onednn.h"
#include "kernels/cpu/onednn/memory_onednn.h"
#include "kernels/cpu/onednn/prepared_onednn.h"

/* Bytes on either side of an array that must not change. */
enum { GUARD = 1 << 16, MARK = 0x5a, ARRAYS = 4 };

static const struct use {
    const char *name;
    unsigned use;
    int args[ARRAYS];
    dnnl_query_t queries[ARRAYS];
} uses[] = {
    {"forward",
     DP_CONV_FORWARD,
     {DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_SCRATCHPAD},
     {dnnl_query_src_md, dnnl_query_dst_md, dnnl_query_weights_md, dnnl_query_scratchpad_md}},
    {"gradient of the input",
     DP_CONV_BACKWARD_DATA,
     {DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_SCRATCHPAD},
     {dnnl_query_diff_src_md, dnnl_query_diff_dst_md, dnnl_query_weights_md,
      dnnl_query_scratchpad_md}},
    {"gradient of the weights",
     DP_CONV_BACKWARD_WEIGHTS,
     {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_SCRATCHPAD},
     {dnnl_query_src_md, dnnl_query_diff_dst_md, dnnl_query_diff_weights_md,
      dnnl_query_scratchpad_md}},
};

/* How many bytes around the array of `bytes` bytes have changed. */
static size_t changed(const char *memory, size_t bytes)
{
    static char marks[GUARD];
    size_t count = 0;

    memset(marks, MARK, sizeof(marks));
    if (memcmp(memory, marks, GUARD) == 0 && memcmp(memory + GUARD + bytes, marks, GUARD) == 0) {
        return 0;
    }
    for (size_t i = 0; i < GUARD; i++) {
        count += memory[i] != MARK;
        count += memory[GUARD + bytes + i] != MARK;
    }
    return count;
}

struct run {
    dnnl_engine_t engine;
    const struct use *use;
    const struct dp_window *window;
    size_t rows, wrong, count;
};

/* Runs one implementation. */
static bool run_one(void *context, const_dnnl_primitive_desc_t desc)
{
    struct run *run = context;
    const struct dp_window *w = run->window;
    const struct use *use = run->use;
    dnnl_exec_arg_t args[ARRAYS];
    char *memory[ARRAYS];
    dnnl_primitive_t primitive = NULL;
    dnnl_stream_t stream = NULL;

    run->count++;
    if (strncmp(dp_onednn_desc_code(desc), "ref", 3) == 0) {
        return false; /* plain C++, and slow */
    }
    assert_int_equal(dnnl_primitive_create(&primitive, desc), dnnl_success);
    assert_int_equal(dnnl_stream_create(&stream, run->engine, dnnl_stream_default_flags),
                     dnnl_success);
    for (int i = 0; i < ARRAYS; i++) {
        args[i].arg = use->args[i];
        assert_int_equal(dp_onednn_argument(run->engine, desc, use->queries[i], &args[i].memory),
                         DP_OK);
        const size_t bytes = dp_prepared_bytes(args[i].memory);
        memory[i] = dp_zalloc(1, bytes + GUARD + GUARD);
        assert_non_null(memory[i]);
        memset(memory[i], MARK, bytes + GUARD + GUARD);
        memset(memory[i] + GUARD, 0, bytes);
        assert_int_equal(dp_prepared_point(args[i].memory, memory[i] + GUARD), DP_OK);
    }
    assert_int_equal(dnnl_primitive_execute(primitive, stream, ARRAYS, args), dnnl_success);
    assert_int_equal(dnnl_stream_wait(stream), dnnl_success);
    for (int i = 0; i < ARRAYS; i++) {
        const size_t count = changed(memory[i], dp_prepared_bytes(args[i].memory));
        if (count != 0) {
            print_error("%s of %zux%zux%zu to %zu channels, kernel %zu, stride %zu, %zu rows, by "
                        "%s: %zu bytes outside of array %d\n",
                        use->name, w->in_h, w->in_w, w->in_c, w->out_c, w->kernel_h, w->stride,
                        run->rows, dp_onednn_desc_code(desc), count, i);
            run->wrong++;
        }
        dp_onednn_memory_destroy(args[i].memory);
        dp_free(memory[i]);
    }
    (void)dnnl_stream_destroy(stream);
    (void)dnnl_primitive_destroy(primitive);
    return false;
}

static void nothing_is_written_outside(void **state)
{
    static const size_t channels[] = {1, 2, 3, 6, 8, 12, 20}, outs[] = {4, 10, 16};
    static const size_t sides[] = {9, 28}, kernels[] = {1, 3, 5};
    dnnl_engine_t engine = NULL;
    size_t wrong = 0;
    const int before = dp_prepared_threads(1);

    (void)state;
    assert_int_equal(dnnl_engine_create(&engine, dnnl_cpu, 0), dnnl_success);
    for (size_t i = 0; i < (size_t)7 * 3 * 2 * 3 * 2 * 2; i++) {
        if (!in_share(i + i / 21 + i / 42 + i / 126)) {
            continue;
        }
        struct dp_window w = {.in_c = channels[i % 7],
                              .out_c = outs[i / 7 % 3],
                              .in_h = sides[i / 21 % 2],
                              .kernel_h = kernels[i / 42 % 3],
                              .stride = i % 252 < 126 ? 1 : 2};
        if (i >= 252) { /* depthwise, or in two groups */
            w.out_c = w.in_c % 2 == 0 && i % 2 == 0 ? 2 * w.in_c : w.in_c;
            w.groups = w.out_c == w.in_c ? w.in_c : 2;
        }
        w.in_w = w.in_h;
        w.kernel_w = w.kernel_h;
        w.padding = w.kernel_h / 2;
        w.out_h = (w.in_h + 2 * w.padding - w.kernel_h) / w.stride + 1;
        w.out_w = w.out_h;
        for (size_t u = 0; u < sizeof(uses) / sizeof(uses[0]); u++) {
            const struct dp_onednn_conv conv = {engine, &w, 5, uses[u].use, DP_TYPE_F32};
            struct run run = {engine, &uses[u], &w, conv.rows, 0, 0};
            assert_int_equal(dp_onednn_each_conv(&conv, run_one, &run), DP_OK);
            assert_true(run.count > 0);
            wrong += run.wrong;
        }
    }
    (void)dnnl_engine_destroy(engine);
    (void)dp_prepared_threads(before);
    assert_int_equal(wrong, 0);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_written_outside)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    printf("skipped: built without oneDNN\n");
    return 77;
}

#endif
