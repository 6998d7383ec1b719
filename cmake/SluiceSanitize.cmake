# SPDX-License-Identifier: Apache-2.0
# Everything about instrumented builds (SLUICE_SANITIZE) is here: the flags, where the run-time is,
# and the options its programs run with. docs/testing.md says why.
if(NOT SLUICE_SANITIZE)
  return()
endif()
if(SLUICE_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
  set(runtime libasan.so)
elseif(SLUICE_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
  set(runtime libtsan.so)
else()
  message(FATAL_ERROR "SLUICE_SANITIZE is \"${SLUICE_SANITIZE}\": write address or thread")
endif()

# The run-time has to be loaded before everything else, in programs that were not linked with it too:
# `sluice run` of an instrumented build preloads it before libsluice, and so do the tests.
execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=${runtime}
                OUTPUT_VARIABLE SLUICE_SANITIZER_RUNTIME OUTPUT_STRIP_TRAILING_WHITESPACE)
get_filename_component(SLUICE_SANITIZER_RUNTIME "${SLUICE_SANITIZER_RUNTIME}" REALPATH)

# Reports go to files: an arbiter has no terminal, and a test that reads its program's output must not
# find one there. tools/sanitizer.sh prints them and fails if there are any. Every test runs with
# these options, whichever way ctest was started.
set(reports "${CMAKE_BINARY_DIR}/reports")
file(MAKE_DIRECTORY "${reports}")
file(CHMOD "${reports}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_WRITE
     GROUP_EXECUTE WORLD_READ WORLD_WRITE WORLD_EXECUTE) # one test runs as another user
foreach(list lsan tsan)
  configure_file("${CMAKE_SOURCE_DIR}/tests/support/${list}.supp" "${CMAKE_BINARY_DIR}/${list}.supp" COPYONLY)
endforeach()
set(sanitizer_environment "${CMAKE_BINARY_DIR}/sanitizer_environment.cmake")
file(WRITE "${sanitizer_environment}" "
set(ENV{ASAN_OPTIONS} \"log_path=${reports}/address\")
set(ENV{UBSAN_OPTIONS} \"log_path=${reports}/undefined:print_stacktrace=1\")
set(ENV{LSAN_OPTIONS} \"suppressions=${CMAKE_BINARY_DIR}/lsan.supp:print_suppressions=0\")
set(ENV{TSAN_OPTIONS} \"log_path=${reports}/thread:suppressions=${CMAKE_BINARY_DIR}/tsan.supp:die_after_fork=0:atexit_sleep_ms=20\")
")
set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${sanitizer_environment}")
