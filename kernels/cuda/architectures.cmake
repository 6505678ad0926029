# Which GPUs kernels are compiled for. tests/runs/tools/build.py tries both functions without a
# compiler.

# Machine code for A100 and H100/H200; newer ones make theirs from the last. Asked for others, or
# for one alone, by CMAKE_CUDA_ARCHITECTURES or CUDAARCHS, those. Call it before CUDA is enabled.
function(dp_default_architectures)
  if(NOT CMAKE_CUDA_ARCHITECTURES AND "$ENV{CUDAARCHS}" STREQUAL "")
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual PARENT_SCOPE)
  endif()
endfunction()

# The compute capability of the first of them, 90 for 9.0: device_cuda.c refuses GPUs below. Unset
# where it has no number ("native").
function(dp_least_capability variable)
  list(GET CMAKE_CUDA_ARCHITECTURES 0 first)
  if(first MATCHES "^([0-9]+)")
    set(${variable} "${CMAKE_MATCH_1}" PARENT_SCOPE)
  endif()
endfunction()
