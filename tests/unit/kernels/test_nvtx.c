/* test_nvtx.c - in builds with CUDA spans are NVTX ranges: a tool that is linked in sees them. It
 * needs no GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#if DP_HAVE_CUDA && defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#define NVTX_NO_IMPL /* only types: the calls are in nvtx_cuda.c */
#include <nvtx3/nvToolsExt.h>
#define HAVE_NVTX 1
#endif
#endif

#ifndef HAVE_NVTX

int main(void)
{
    puts("skipped: a build without CUDA, or without its headers nvtx3");
    return 77;
}

#else

#include "base/trace.h"
#include "kernels/cuda/stream/nvtx_cuda.h"

static char seen[256];

static int push(const char *text)
{
    (void)snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), "(%s", text);
    return 0;
}

static int pop(void)
{
    (void)snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), ")");
    return 0;
}

static int attach(NvtxGetExportTableFunc_t export_table)
{
    const NvtxExportTableCallbacks *callbacks = export_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned count = 0;

    if (callbacks == NULL ||
        !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &count)) {
        return 0;
    }
    *table[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    return 1;
}

/* By that name NVTX finds a tool that is linked in. */
extern NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr;
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = attach;

static void spans_are_ranges_by_their_phase(void **state)
{
    struct dp_span step, wait;
    (void)state;

    dp_span_open(&step, DP_PHASE_STEP, 1); /* before: nobody sees it open */
    dp_span_close(&step);
    assert_true(dp_cuda_show_spans());
    dp_span_open(&step, DP_PHASE_STEP, 2);
    dp_span_open(&wait, DP_PHASE_WAIT, 3);
    dp_span_close(&wait);
    dp_span_close(&step);
    assert_string_equal(seen, "(step(wait))");
    dp_trace_show(NULL);
    dp_span_open(&step, DP_PHASE_STEP, 3);
    dp_span_close(&step);
    assert_string_equal(seen, "(step(wait))");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(spans_are_ranges_by_their_phase)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
