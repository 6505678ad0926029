/*
 * dlfcn.h - opening libraries at run time: cuDNN is the one of cudnn.cpp, others are the machine's.
 */
#ifndef DP_TESTS_CUDA_ON_HOST_DLFCN_H
#define DP_TESTS_CUDA_ON_HOST_DLFCN_H

#include_next <dlfcn.h>

#ifdef __cplusplus
extern "C" {
#endif

void *cuda_on_host_open(const char *name, int flags);
char *cuda_on_host_open_error(void);
void *cuda_on_host_symbol(void *library, const char *name);

#ifdef __cplusplus
}
#endif

#define dlopen cuda_on_host_open
#define dlerror cuda_on_host_open_error
#define dlsym cuda_on_host_symbol

#endif
