# Adds kernels/cuda to dp_kernels, compiled by themselves: its other objects are those of a build
# without device cuda, which a compiler cache has. dp_cuda_headers: the target that has the headers
# of CUDA.
#   DP_CUDA=on    by nvcc, for the GPUs below; runs where there is one
#   DP_CUDA=host  by the C++ compiler, against tests/cuda_on_host: runs everywhere, slowly
file(GLOB_RECURSE dp_cuda_sources CONFIGURE_DEPENDS kernels/cuda/*.c)
file(GLOB_RECURSE dp_cuda_kernels CONFIGURE_DEPENDS kernels/cuda/*.cu)
target_link_libraries(dp_kernels PUBLIC ${CMAKE_DL_LIBS})

# nvcc compiles with it, too.
include(CheckLanguage)
check_language(CXX)
if(NOT CMAKE_CXX_COMPILER)
  message(FATAL_ERROR "missing: a C++ compiler, for DP_CUDA=${DP_CUDA} - on Debian or Ubuntu: "
                      "apt-get install g++")
endif()

# dp_add_cuda(library ...): once the language of the kernels is enabled, or CMake gives its compiler
# no launcher (ccache).
macro(dp_add_cuda)
  add_library(dp_cuda OBJECT ${dp_cuda_sources} ${dp_cuda_kernels})
  target_link_libraries(dp_cuda PRIVATE dp_flags dp_base dp_ext_blas ${ARGN})
  target_sources(dp_kernels PRIVATE $<TARGET_OBJECTS:dp_cuda>)
  foreach(library ${ARGN})
    target_link_libraries(dp_kernels INTERFACE $<LINK_ONLY:${library}>)
  endforeach()
endmacro()

if(DP_CUDA STREQUAL "host")
  enable_language(CXX)
  set(CMAKE_CXX_STANDARD 17)
  set(CMAKE_CXX_STANDARD_REQUIRED ON)
  set(CMAKE_CXX_EXTENSIONS OFF)
  # Where fma() is one instruction: the same bits, in less time. Not -march=native, whose objects a
  # compiler cache would give to other machines.
  include(CheckCXXSourceRuns)
  check_cxx_source_runs("int main() {
    return !(__builtin_cpu_supports(\"fma\") && __builtin_cpu_supports(\"avx2\"));
  }" DP_HAVE_FMA)
  set(dp_host_options -ffp-contract=off -Wall -Wextra $<$<BOOL:${DP_HAVE_FMA}>:-mavx2;-mfma>
                      $<$<BOOL:${DP_WERROR}>:-Werror>)
  set_source_files_properties(${dp_cuda_kernels} PROPERTIES LANGUAGE CXX
    COMPILE_OPTIONS "${dp_host_options};-Wno-unknown-pragmas")
  file(GLOB dp_on_host CONFIGURE_DEPENDS tests/cuda_on_host/*.cpp)
  add_library(dp_cuda_on_host STATIC ${dp_on_host})
  target_compile_options(dp_cuda_on_host PRIVATE -O3 ${dp_host_options})
  target_link_libraries(dp_cuda_on_host PUBLIC dp_flags dp_ext_blas)
  target_include_directories(dp_cuda_on_host SYSTEM PUBLIC tests/cuda_on_host)
  dp_add_cuda(dp_cuda_on_host)
  # NCCL is looked for in the program itself: tests/cuda_on_host/nccl.cpp.
  set_source_files_properties(collectives/gpu/nccl_api.c PROPERTIES
    COMPILE_DEFINITIONS DP_NCCL_LIBRARY=NULL)
  # Asserts stay on where the device makes a difference. All other objects are those of a release
  # build, which a compiler cache has.
  file(GLOB_RECURSE dp_asserting CONFIGURE_DEPENDS collectives/exchange/*.c collectives/gpu/*.c
       runtime/trainer/*.c)
  foreach(source ${dp_cuda_sources} ${dp_asserting})
    file(STRINGS ${source} uses REGEX "assert\\(")
    if(uses)
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -UNDEBUG)
    endif()
  endforeach()
  set(dp_cuda_headers dp_cuda_on_host)
  target_link_options(dp_cuda_on_host INTERFACE -rdynamic -Wl,-u,ncclGetVersion)
elseif(DP_CUDA STREQUAL "on")
  find_package(CUDAToolkit 12.0 QUIET)
  if(NOT CUDAToolkit_FOUND)
    message(FATAL_ERROR "DP_CUDA=on: no CUDA toolkit of version 12 or newer was found; is nvcc in "
                        "the PATH?")
  endif()
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
  endif()
  include(kernels/cuda/architectures.cmake)
  dp_default_architectures()
  enable_language(CUDA)
  dp_add_cuda(CUDA::cudart_static CUDA::cublasLt)
  set_target_properties(dp_kernels PROPERTIES CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
  dp_least_capability(dp_least)
  if(DEFINED dp_least)
    target_compile_definitions(dp_cuda PRIVATE DP_LEAST_CAPABILITY=${dp_least})
  endif()
  set(dp_nvcc_options -std=c++17 --fmad=false -lineinfo
      -Xcompiler=-Wall,-Wextra,-Wno-unknown-pragmas --Werror=all-warnings)
  set_source_files_properties(${dp_cuda_kernels} PROPERTIES COMPILE_OPTIONS "${dp_nvcc_options}")
  set(dp_cuda_headers CUDA::cudart_static)
  # CMake takes it for granted that the toolkit's libraries are found when a program starts.
  get_target_property(dp_cublas CUDA::cublasLt IMPORTED_LOCATION)
  get_filename_component(dp_cublas ${dp_cublas} DIRECTORY)
  target_link_options(dp_kernels PUBLIC "LINKER:-rpath,${dp_cublas}")
else()
  message(FATAL_ERROR "DP_CUDA is '${DP_CUDA}': it can be off, on or host")
endif()
