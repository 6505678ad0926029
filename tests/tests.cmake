# Labels: unit (no MPI, no GPU, seconds), mpi (mpirun), slow (trains to an accuracy), lint (every
# commit), tidy and sanitize (every push). A test that cannot run here prints "skipped: why" and
# exits with 77. Every test has a timeout: a hang is a failure, not a wait. PROCESSORS counts halves
# of a core: most of the time of a whole run is waiting.

# mold links some 200 programs in a tenth of the time; what users run is linked as they do.
include(CheckLinkerFlag)
check_linker_flag(C -fuse-ld=mold DP_HAVE_MOLD)
if(DP_HAVE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# Sanitizers and the emulation take their time, and other tests run beside them.
if(DP_SANITIZE OR DP_CUDA STREQUAL "host")
  set(dp_patience 600)
else()
  set(dp_patience 120)
endif()

# Every tests/unit/**/test_<noun>.c is a program of cmocka tests: no MPI, no GPU, seconds.
file(GLOB_RECURSE dp_test_sources CONFIGURE_DEPENDS tests/unit/test_*.c)
file(GLOB dp_test_helpers CONFIGURE_DEPENDS tests/support/*.c tests/support/*/*.c)
add_library(dp_test_helpers STATIC ${dp_test_helpers})
target_link_libraries(dp_test_helpers PUBLIC dp_bench dp_runtime dp_ext_cmocka dp_ext_png
                      dp_ext_turbojpeg)
# Only sources that need them know where the project lies, and whether the device is on the host:
# all other objects are the same in other builds and folders, for a compiler cache.
foreach(source ${dp_test_sources} ${dp_test_helpers})
  file(STRINGS ${source} uses REGEX "DP_(SOURCE_DIR|CUDA_ON_HOST)")
  if(uses)
    set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS
      "DP_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\";DP_CUDA_ON_HOST=$<STREQUAL:${DP_CUDA},host>")
  endif()
endforeach()
add_custom_target(unit_tests)
foreach(source ${dp_test_sources})
  get_filename_component(program ${source} NAME_WE)
  add_executable(${program} ${source})
  target_link_libraries(${program} PRIVATE dp_test_helpers)
  add_dependencies(unit_tests ${program})
  add_test(NAME ${program} COMMAND ${program})
  set_tests_properties(${program} PROPERTIES LABELS unit PROCESSORS 2 TIMEOUT ${dp_patience}
    SKIP_RETURN_CODE 77)
endforeach()

# In it dlsym() finds functions in the place of Open MPI's.
set_target_properties(test_mpi_calls PROPERTIES ENABLE_EXPORTS ON)

# A library that stands in for NVML.
add_library(dp_fake_nvml SHARED tests/fake_nvml/fake_nvml.c)
target_link_libraries(dp_fake_nvml PRIVATE dp_flags)
target_compile_definitions(test_gpu_sensors PRIVATE
                           DP_FAKE_NVML="$<TARGET_FILE:dp_fake_nvml>")
add_dependencies(test_gpu_sensors dp_fake_nvml)

# Compares numbers of cuDNN's headers, where CUDA is built; calls CUDA itself.
target_compile_definitions(test_cudnn PRIVATE ${dp_have_cuda})
target_link_libraries(test_cudnn PRIVATE ${dp_cuda_headers})
target_compile_definitions(test_fold_pieces PRIVATE ${dp_have_cuda})
target_compile_definitions(test_nvtx PRIVATE ${dp_have_cuda})
target_link_libraries(test_nvtx PRIVATE ${dp_cuda_headers})
target_link_libraries(test_cuda_on_host PRIVATE ${dp_cuda_headers})
target_link_libraries(test_nccl_on_host PRIVATE ${dp_cuda_headers})
target_link_libraries(test_block_on_host PRIVATE ${dp_cuda_headers})

# dp_cuda_test(suffix noun variable=value ...): test_<noun> on device cuda, as test_<suffix>. On the
# host it needs no GPU, and is given a share of some combinations (tests/support/share_of_cases.h).
function(dp_cuda_test suffix noun)
  set(name test_${suffix})
  set(label gpu)
  if(DP_CUDA STREQUAL "host")
    set(label unit)
  endif()
  add_test(NAME ${name} COMMAND test_${noun})
  set_tests_properties(${name} PROPERTIES LABELS ${label} PROCESSORS 2 TIMEOUT ${dp_patience}
    SKIP_RETURN_CODE 77 ENVIRONMENT "DP_TEST_DEVICE=cuda;${ARGN}")
  if(DP_CUDA STREQUAL "on") # most of their time is the start of a GPU; some need all of it
    set_tests_properties(${name} PROPERTIES PROCESSORS 1)
    if(noun MATCHES "^(memory_plan|bench_measure|baseline)$")
      set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
    endif()
  endif()
  add_dependencies(cuda_tests test_${noun})
endfunction()

if(NOT DP_CUDA STREQUAL "off")
  add_custom_target(cuda_tests)
  if(DP_CUDA STREQUAL "host")
    set(dp_share_sharding DP_TEST_SHARE=0/3)
    set(dp_share_strategy DP_TEST_SHARE=1/3)
    set(dp_share_compressor_training DP_TEST_SHARE=0/3)
    set(dp_share_limits DP_CUDA_GPUS=8) # so that all ways to sum can run
  endif()
  # Of operations, on memory of the tests (tests/support/reach.h).
  foreach(noun ops conv norm norm_whole pool dense softmax output_loss optimizer narrow layer
      batchnorm code_ops cudnn fold fold_pieces grad_norm forms recorded_memory)
    dp_cuda_test(${noun}_cuda ${noun})
  endforeach()
  dp_cuda_test(conv_cublas_cuda conv DP_TEST_CONV=cublas)
  # Of the device itself, and of whole trainings.
  foreach(noun model_lifetimes device gpu_peers gpu_peers_start strategy async_devices baseline
      limits bench bench_measure compressor_training evaluation fault_injection float_samples lanes
      local_steps losses overlap precision replica_check resume memory_plan sharding snapshot
      snapshot_share graph_capture trainer algo_agreement send_ahead whole_norm)
    dp_cuda_test(${noun}_cuda ${noun} ${dp_share_${noun}})
  endforeach()
endif()
if(DP_CUDA STREQUAL "on")
  dp_cuda_test(golden_cuda golden)
elseif(DP_CUDA STREQUAL "host")
  dp_cuda_test(golden_cuda golden DP_TEST_QUICK=1 DP_TEST_SHARE=2/3)
  dp_cuda_test(on_host_cuda cuda_on_host)
  dp_cuda_test(nccl_on_host_cuda nccl_on_host)
  dp_cuda_test(block_on_host_cuda block_on_host)
  dp_cuda_test(step_budget_cuda step_budget)
  add_dependencies(cuda_tests bench_gpu) # for tests/runs/gpu/bench_gpu.py
  # One rank a GPU, which is what NCCL wants; without it ranks share one.
  dp_cuda_test(strategy_gpus_cuda strategy DP_CUDA_GPUS=8 DP_TEST_SHARE=2/3)
  dp_cuda_test(gpu_peers_apart_cuda gpu_peers DP_CUDA_GPUS=8)
  dp_cuda_test(gpu_peers_start_apart_cuda gpu_peers_start DP_CUDA_GPUS=8)
  dp_cuda_test(bench_measure_gpus_cuda bench_measure DP_CUDA_GPUS=8)
  # With gradients in memory of the host; powersgd has sums in the order of ref, which many threads
  # have not.
  foreach(noun compressor compressor_methods compressor_powersgd compressor_randomk)
    dp_cuda_test(${noun}_cuda ${noun} CUDA_LAUNCH_BLOCKING=1 DP_CUDA_PAGEABLE=1 DP_TEST_SHARE=0/3)
  endforeach()
  # Arrays as allocations of their own, as for a memory checker.
  dp_cuda_test(ops_apart_cuda ops DP_TEST_APART=1)
  # Found or not, the library of tests/cuda_on_host.
  set_tests_properties(test_cudnn_cuda PROPERTIES ENVIRONMENT
    "DP_TEST_DEVICE=cuda;DP_HOST_CUDNN=9")
  foreach(cudnn off lacking broken 8 failing)
    dp_cuda_test(cudnn_${cudnn}_cuda cudnn DP_HOST_CUDNN=${cudnn})
  endforeach()
  dp_cuda_test(cudnn_hungry_cuda cudnn DP_HOST_CUDNN=hungry DP_CUDA_MEMORY=134217728)
  dp_cuda_test(golden_cublas_cuda golden DP_TEST_QUICK=1 DP_HOST_CUDNN=off DP_TEST_SHARE=0/3)
  dp_cuda_test(lanes_cublas_cuda lanes DP_HOST_CUDNN=off DP_TEST_SHARE=1/3)
  # Other orders of what is queued, and memory that the host cannot touch.
  foreach(order 1 2 3)
    math(EXPR part "${order} - 1")
    dp_cuda_test(lanes_order_${order}_cuda lanes DP_CUDA_ORDER=${order} DP_TEST_SHARE=${part}/3)
  endforeach()
  dp_cuda_test(compressor_training_order_1_cuda compressor_training DP_CUDA_ORDER=1
               DP_TEST_SHARE=2/3)
  dp_cuda_test(send_ahead_order_1_cuda send_ahead DP_CUDA_ORDER=1)
  foreach(noun bench_measure fault_injection local_steps snapshot)
    dp_cuda_test(${noun}_guard_cuda ${noun} DP_CUDA_GUARD=1 DP_TEST_SHARE=1/3)
  endforeach()
endif()

# Every tests/fuzz/fuzz_<noun>.c is fed by libFuzzer for a while, in the build of preset fuzz. It
# begins with tests/fuzz/corpus/<noun>, and keeps what it finds in the build's folder. Only rooms
# that read files are compiled for it; warnings of clang about all others: .clang-tidy.
if(DP_SANITIZE MATCHES "fuzzer")
  set(dp_fuzzed kernels/algo_choices.c)
  foreach(room models models/layers models/pass runtime/checkpoint runtime/config runtime/data
      runtime/data/formats runtime/data/pictures runtime/data/records runtime/data/remote
      runtime/optim runtime/report runtime/report/files runtime/report/record runtime/run/plan)
    file(GLOB sources CONFIGURE_DEPENDS ${room}/*.c)
    list(APPEND dp_fuzzed ${sources})
  endforeach()
  add_library(dp_fuzzed STATIC ${dp_fuzzed})
  target_link_libraries(dp_fuzzed PUBLIC dp_base dp_ext_yaml dp_ext_zlib dp_ext_turbojpeg
                        dp_ext_jpeg dp_ext_png dp_ext_zstd dp_ext_curl MPI::MPI_C)
  file(GLOB dp_fuzz_sources CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
  add_custom_target(fuzzers)
  foreach(source ${dp_fuzz_sources})
    get_filename_component(program ${source} NAME_WE)
    add_executable(${program} EXCLUDE_FROM_ALL ${source})
    target_link_libraries(${program} PRIVATE dp_fuzzed -fsanitize=fuzzer)
    add_dependencies(fuzzers ${program})
    string(REPLACE "fuzz_" "" noun ${program})
    set(found ${PROJECT_BINARY_DIR}/corpus/${noun})
    set(corpus ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${noun})
    file(MAKE_DIRECTORY ${found})
    add_test(NAME ${program} COMMAND sh -c
             "exec \"$0\" \"$@\" -max_total_time=\${DP_FUZZ_SECONDS:-15}"
             $<TARGET_FILE:${program}> -seed=1 -max_len=65536 -use_value_profile=1 -timeout=10
             ${found} ${corpus})
    # Seconds of wall time, of which each has a share: longer ones are for who looks for more.
    set_tests_properties(${program} PROPERTIES LABELS sanitize PROCESSORS 1 TIMEOUT 300)
  endforeach()
endif()

# Leaks of MPI are not ours. The others are what Open MPI would find out at each start where there
# is no special network, as in tests/runs/harness.py.
set(dp_mpi_environment "ASAN_OPTIONS=detect_leaks=0;OMPI_MCA_pml=ob1")
if(EXISTS /dev/shm)
  list(APPEND dp_mpi_environment OMPI_MCA_osc_sm_backing_directory=/dev/shm)
endif()

# dp_mpi_test(name ranks command ...): a program under mpirun, with the settings of launch/env.sh.
# All logic is also tested with ranks as threads, leaks checked.
function(dp_mpi_test name ranks)
  add_test(NAME ${name} COMMAND ${PROJECT_SOURCE_DIR}/launch/mpirun -np ${ranks} ${ARGN}
           WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS mpi PROCESSORS ${ranks} TIMEOUT 120 COST 50
    SKIP_RETURN_CODE 77
    ENVIRONMENT "${dp_mpi_environment}")
endfunction()

# dp_nomem_test(name ranks program when codes): one rank of the program has no memory from `when`
# on, and the job ends with one of the codes, written as 69|70.
function(dp_nomem_test name ranks program when codes)
  add_test(NAME ${name} COMMAND sh -c "\"$@\"; case $? in ${codes}) ;; *) exit 1 ;; esac" sh
           ${PROJECT_SOURCE_DIR}/launch/mpirun -np ${ranks} ${program} nomem ${when})
  set_tests_properties(${name} PROPERTIES LABELS mpi PROCESSORS ${ranks} TIMEOUT 60
    ENVIRONMENT "${dp_mpi_environment}")
endfunction()

# Every tests/mpi/mpi_<noun>.c is a program for mpirun.
foreach(program mpi_collectives mpi_leave mpi_lockstep mpi_shrink mpi_trainer)
  add_executable(${program} tests/mpi/${program}.c)
  target_link_libraries(${program} PRIVATE dp_test_helpers)
endforeach()
foreach(ranks 1 2 3 4 8)
  dp_mpi_test(mpi_collectives_${ranks} ${ranks} $<TARGET_FILE:mpi_collectives>)
endforeach()
# Of other sizes what cannot run on local ranks, which have them all.
foreach(ranks 5 6 7)
  dp_mpi_test(mpi_collectives_${ranks} ${ranks} $<TARGET_FILE:mpi_collectives> mpi
    mpi:nonblocking=1 hier:inner=mpi ring)
endforeach()
dp_mpi_test(mpi_torn 3 $<TARGET_FILE:mpi_collectives> torn)
dp_mpi_test(mpi_full 3 $<TARGET_FILE:mpi_collectives> full)
dp_mpi_test(mpi_narrow 3 $<TARGET_FILE:mpi_collectives> narrow)
set_tests_properties(mpi_torn mpi_full mpi_narrow PROPERTIES
  FAIL_REGULAR_EXPRESSION "lockstep: error:")
add_test(NAME mpi_abort COMMAND sh -c "\"$@\"; test $? = 3" sh
         ${PROJECT_SOURCE_DIR}/launch/mpirun -np 2 $<TARGET_FILE:mpi_collectives> abort)
set_tests_properties(mpi_abort PROPERTIES LABELS mpi PROCESSORS 2 TIMEOUT 60
  ENVIRONMENT "${dp_mpi_environment}")
# A rank stops when all has been done.
foreach(when before within)
  add_test(NAME mpi_leave_${when} COMMAND sh -c "\"$@\"; test $? = 76" sh
           ${PROJECT_SOURCE_DIR}/launch/mpirun -np 2 $<TARGET_FILE:mpi_leave> ${when})
  set_tests_properties(mpi_leave_${when} PROPERTIES LABELS mpi PROCESSORS 1 TIMEOUT 60
    ENVIRONMENT "${dp_mpi_environment}")
endforeach()
# One rank has no memory for a group, or to watch its ranks: before and after they share memory. The
# 7th piece is for a window of small pieces, without which each has a window of its own.
foreach(nth 1 3 5 6 8 9 11)
  dp_nomem_test(mpi_group_nomem_${nth} 3 $<TARGET_FILE:mpi_collectives> ${nth} "69|70")
endforeach()
dp_mpi_test(mpi_shrink 4 $<TARGET_FILE:mpi_shrink>)
# Of the group, of the names of its hosts, and of what watches its ranks.
foreach(nth 2 8 10)
  dp_nomem_test(mpi_shrink_nomem_${nth} 4 $<TARGET_FILE:mpi_shrink> ${nth} "76")
endforeach()
if(DP_CUDA STREQUAL "host")
  # Memory of GPUs between processes, on one of them and on one each.
  foreach(gpus 1 3)
    dp_mpi_test(mpi_gpus_${gpus}_cuda 3 $<TARGET_FILE:mpi_collectives> ipc staged
      staged:over=ring shm)
    set_property(TEST mpi_gpus_${gpus}_cuda APPEND PROPERTY ENVIRONMENT
      DP_TEST_DEVICE=cuda DP_CUDA_GPUS=${gpus})
  endforeach()
  dp_mpi_test(mpi_nccl_cuda 3 $<TARGET_FILE:mpi_collectives> nccl)
  set_property(TEST mpi_nccl_cuda APPEND PROPERTY ENVIRONMENT DP_TEST_DEVICE=cuda DP_CUDA_GPUS=3)
  add_dependencies(cuda_tests mpi_collectives ddp_train ddp_bench)
endif()
foreach(ranks 2 3 4)
  dp_mpi_test(mpi_trainer_${ranks} ${ranks} $<TARGET_FILE:mpi_trainer>)
endforeach()
# One rank has no memory for its trainer, early or late: the whole job ends, with the right code.
foreach(percent 0 50 90)
  dp_nomem_test(mpi_nomem_${percent} 2 $<TARGET_FILE:mpi_trainer> ${percent} "69")
endforeach()

# dp_check(name label timeout command ...): a check of the sources, or of another build.
function(dp_check name label timeout)
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${timeout} SKIP_RETURN_CODE 77)
endfunction()

find_package(Python3 QUIET COMPONENTS Interpreter)
if(Python3_FOUND)
  dp_check(lint lint 60 ${Python3_EXECUTABLE} tests/lint.py)
  dp_check(lint_rules lint 60 ${Python3_EXECUTABLE} tests/lint.py --self)
  dp_check(lint_tests lint 60 ${Python3_EXECUTABLE} tests/lint.py --tests ${PROJECT_BINARY_DIR})
  dp_check(analyse_rules lint 60 ${Python3_EXECUTABLE} tests/analyse.py --self)
  dp_check(format lint 60 ${Python3_EXECUTABLE} tests/analyse.py format)
  # Every tests/runs/<room>/<subject>.py starts whole runs of a program, as its user does.
  file(GLOB runs CONFIGURE_DEPENDS tests/runs/*/*.py)
  list(TRANSFORM runs REPLACE ".*/(.*)[.]py$" "\\1")
  set(run_cases ${Python3_EXECUTABLE} -B tests/runs/run.py ${PROJECT_BINARY_DIR})
  if(DP_CUDA STREQUAL "host")
    dp_check(runs_gpu_memory_cuda unit ${dp_patience} ${run_cases} gpu_memory)
    add_dependencies(cuda_tests ddp_train)
  endif()
  list(REMOVE_ITEM runs gpu_memory) # elsewhere nothing in it can run
  foreach(subject ${runs})
    if(subject MATCHES "^(gpus|algo_tuning|bench_gpu)$")
      if(DP_CUDA STREQUAL "host") # elsewhere nothing in them can run
        dp_check(runs_${subject}_cuda mpi 600 ${run_cases} ${subject})
        set_tests_properties(runs_${subject}_cuda PROPERTIES COST 100) # the longest begin first
      endif()
      continue()
    endif()
    if(subject STREQUAL accuracy)
      dp_check(runs_${subject} slow 900 ${run_cases} ${subject})
      set_tests_properties(runs_${subject} PROPERTIES PROCESSORS 3)
    else() # most of their time is waiting: for mpirun, for signals, for a wire
      dp_check(runs_${subject} mpi 900 ${run_cases} ${subject})
      set_tests_properties(runs_${subject} PROPERTIES COST 100) # the longest begin first
    endif()
  endforeach()
else()
  message(STATUS
          "no Python 3: the tests of whole runs, and those of labels lint and tidy, are left out")
endif()

# Only the plain build analyses sources and looks after the other ones: one of each kind at a time,
# the longest first, on the cores that tests of whole runs leave. Two rows of sanitizers at once
# would end earlier, but whole runs beside them then waited in vain.
function(dp_heavy_check name label cost)
  dp_check(${name} ${label} 1800 nice -n 10 ${ARGN})
  set_tests_properties(${name} PROPERTIES PROCESSORS 2 RESOURCE_LOCK ${label} COST ${cost})
endfunction()

if(NOT DP_SANITIZE)
  dp_heavy_check(cuda_host sanitize 1006 ${PROJECT_SOURCE_DIR}/tests/sanitize cuda-host)
  dp_heavy_check(asan sanitize 1005 ${PROJECT_SOURCE_DIR}/tests/sanitize asan)
  dp_heavy_check(tsan sanitize 1004 ${PROJECT_SOURCE_DIR}/tests/sanitize tsan)
  dp_heavy_check(fuzz sanitize 1003 ${PROJECT_SOURCE_DIR}/tests/sanitize fuzz)
  dp_heavy_check(cuda sanitize 1002 ${PROJECT_SOURCE_DIR}/tests/sanitize cuda)
  if(Python3_FOUND)
    dp_heavy_check(tidy tidy 1001 ${Python3_EXECUTABLE} tests/analyse.py tidy
                   ${PROJECT_BINARY_DIR})
    dp_heavy_check(cppcheck tidy 1000 ${Python3_EXECUTABLE} tests/analyse.py cppcheck)
  endif()
endif()
