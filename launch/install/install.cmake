# cmake --install: programs (CMakeLists.txt), and here liblockstep with what is needed to build on
# it, models, scripts, manual pages and completion.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(dp_share ${CMAKE_INSTALL_DATADIR}/lockstep)

# ---- the library: all rooms in one shared object, which exports what begins with dp_ ----
if(DP_LIBRARY)
  set(dp_exports ${PROJECT_SOURCE_DIR}/launch/install/exports.map)
  set(dp_no_source ${PROJECT_BINARY_DIR}/generated/library.c) # all comes from the archives
  file(CONFIGURE OUTPUT ${dp_no_source} CONTENT "typedef int dp_library;\n")
  add_library(lockstep SHARED ${dp_no_source})
  target_link_libraries(lockstep PRIVATE dp_runtime)
  set_target_properties(lockstep PROPERTIES LINK_LIBRARY_OVERRIDE
    "WHOLE_ARCHIVE,dp_runtime,dp_models,dp_collectives,dp_kernels,dp_base")
  target_link_options(lockstep PRIVATE LINKER:--version-script=${dp_exports})
  set_target_properties(lockstep PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
    LINK_DEPENDS ${dp_exports}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} VERSION ${PROJECT_VERSION})
  target_include_directories(lockstep INTERFACE
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/lockstep>)
  install(TARGETS lockstep EXPORT LockstepTargets COMPONENT library)

  # runtime/lockstep.h and all that it includes, under the names that they have here.
  set(dp_seen "")
  set(dp_next runtime/lockstep.h)
  while(dp_next)
    list(POP_FRONT dp_next header)
    if(NOT header IN_LIST dp_seen)
      list(APPEND dp_seen ${header})
      file(STRINGS ${header} lines REGEX "^#include \"")
      string(REGEX REPLACE "#include \"([^\"]+)\"" "\\1" lines "${lines}")
      list(APPEND dp_next ${lines})
      cmake_path(GET header PARENT_PATH folder)
      install(FILES ${header} COMPONENT library
              DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep/${folder})
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
    endif()
  endwhile()
  install(FILES launch/install/lockstep.h COMPONENT library
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep)

  set(dp_config ${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep)
  configure_package_config_file(launch/install/LockstepConfig.cmake.in
    ${PROJECT_BINARY_DIR}/installed/LockstepConfig.cmake INSTALL_DESTINATION ${dp_config})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/installed/LockstepConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
  install(EXPORT LockstepTargets NAMESPACE Lockstep:: DESTINATION ${dp_config} COMPONENT library)
  install(FILES ${PROJECT_BINARY_DIR}/installed/LockstepConfig.cmake
                ${PROJECT_BINARY_DIR}/installed/LockstepConfigVersion.cmake
          DESTINATION ${dp_config} COMPONENT library)
  # Written when it is installed: only then is the prefix known.
  install(CODE "
    set(PROJECT_VERSION ${PROJECT_VERSION})
    set(CMAKE_INSTALL_LIBDIR ${CMAKE_INSTALL_LIBDIR})
    set(CMAKE_INSTALL_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})
    configure_file(${PROJECT_SOURCE_DIR}/launch/install/lockstep.pc.in
      ${PROJECT_BINARY_DIR}/installed/lockstep.pc @ONLY)" COMPONENT library)
  install(FILES ${PROJECT_BINARY_DIR}/installed/lockstep.pc COMPONENT library
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

  # For Python: a copy beside the build, and one that is installed.
  get_target_property(DP_SOVERSION lockstep SOVERSION)
  set(DP_LIBRARY_FROM_PYTHON ..)
  configure_file(launch/python/lockstep.py ${PROJECT_BINARY_DIR}/python/lockstep.py @ONLY)
  set(DP_LIBRARY_FROM_PYTHON ../../../${CMAKE_INSTALL_LIBDIR})
  configure_file(launch/python/lockstep.py ${PROJECT_BINARY_DIR}/installed/lockstep.py @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/installed/lockstep.py DESTINATION ${dp_share}/python
          COMPONENT library)
endif()

# ---- programs ----
foreach(source ${dp_programs})
  get_filename_component(program ${source} NAME_WE)
  install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endforeach()

# Those in Python: launch/NAME/ddp_NAME.in finds its modules in launch/, or installed.
file(GLOB dp_scripts RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS launch/*/ddp_*.in)
foreach(source ${dp_scripts})
  get_filename_component(program ${source} NAME_WE)
  cmake_path(GET source PARENT_PATH folder)
  set(DP_LAUNCH_FOLDER ${PROJECT_SOURCE_DIR}/launch)
  configure_file(${source} ${PROJECT_BINARY_DIR}/${program} @ONLY USE_SOURCE_PERMISSIONS)
  set(DP_LAUNCH_FOLDER ../${dp_share})
  configure_file(${source} ${PROJECT_BINARY_DIR}/installed/${program} @ONLY USE_SOURCE_PERMISSIONS)
  install(PROGRAMS ${PROJECT_BINARY_DIR}/installed/${program} COMPONENT scripts
          DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY ${folder} DESTINATION ${dp_share} COMPONENT scripts
          FILES_MATCHING PATTERN "*.py" PATTERN __pycache__ EXCLUDE)
endforeach()

# ---- what runs use ----
install(PROGRAMS launch/netlab DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT scripts)
install(PROGRAMS launch/mpirun launch/mpirun_watchdog.py launch/supervise DESTINATION ${dp_share}
        COMPONENT scripts)
install(FILES launch/env.sh DESTINATION ${dp_share} COMPONENT scripts)
install(DIRECTORY launch/slurm DESTINATION ${dp_share} COMPONENT scripts)
install(FILES ${dp_page} DESTINATION ${dp_share} COMPONENT scripts) # ddp_sweep's page looks alike
install(DIRECTORY models/ DESTINATION ${dp_share}/models FILES_MATCHING PATTERN "*.cfg")
install(DIRECTORY examples DESTINATION ${dp_share})
set(dp_completions ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
foreach(source ${dp_programs} ${dp_scripts}) # bash-completion looks for a file of that name
  get_filename_component(program ${source} NAME_WE)
  install(FILES launch/install/completion.bash RENAME ${program} DESTINATION ${dp_completions})
endforeach()
install(FILES launch/install/_lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)

# ---- manual pages, made of what the programs say of themselves ----
find_program(DP_HELP2MAN help2man)
mark_as_advanced(DP_HELP2MAN)
if(DP_HELP2MAN AND DP_LIBRARY)
  set(dp_pages "")
  foreach(source ${dp_programs} ${dp_scripts})
    get_filename_component(program ${source} NAME_WE)
    set(page ${PROJECT_BINARY_DIR}/installed/${program}.1)
    set(needs ${program})
    if(NOT TARGET ${program})
      set(needs ${PROJECT_BINARY_DIR}/${program})
    endif()
    add_custom_command(OUTPUT ${page} DEPENDS ${needs} launch/install/manual_page VERBATIM
      COMMAND ${PROJECT_SOURCE_DIR}/launch/install/manual_page ${DP_HELP2MAN} ${PROJECT_VERSION}
              ${PROJECT_BINARY_DIR}/${program} ${page})
    list(APPEND dp_pages ${page})
  endforeach()
  add_custom_target(manual_pages ALL DEPENDS ${dp_pages})
  install(FILES ${dp_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()

# ---- cpack --config build/CPackConfig.cmake: a Debian package ----
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_CONTACT "the maintainers of Lockstep")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "distributed data-parallel training over MPI")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEB_COMPONENT_INSTALL OFF)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "openmpi-bin, python3, libopenblas0-openmp, libcurl4")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "dataset-fashion-mnist")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
include(CPack)
