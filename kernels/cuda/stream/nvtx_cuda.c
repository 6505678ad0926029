#include "kernels/cuda/stream/nvtx_cuda.h"

#include "base/trace.h"

#if defined(__has_include)
/* cppcheck-suppress preprocessorErrorDirective ; it cannot evaluate this */
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define HAVE_NVTX 1
#endif
#endif

#ifdef HAVE_NVTX

static void begin_range(const char *phase)
{
    (void)nvtxRangePushA(phase);
}

static void end_range(void)
{
    (void)nvtxRangePop();
}

bool dp_cuda_show_spans(void)
{
    static const struct dp_trace_tool nvtx = {begin_range, end_range};

    dp_trace_show(&nvtx);
    return true;
}

#else

bool dp_cuda_show_spans(void)
{
    return false;
}

#endif
