# SPDX-License-Identifier: Apache-2.0
# Compiler settings and the two functions every CMakeLists.txt below uses.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

add_compile_definitions(_GNU_SOURCE SLUICE_VERSION="${PROJECT_VERSION}")
add_compile_options(
  -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wformat=2 -Wstrict-prototypes
  -Wmissing-prototypes -Wold-style-definition -Wpointer-arith -Wcast-qual -Wwrite-strings
  -Wundef -Wvla -Wimplicit-fallthrough -fno-strict-aliasing -fstack-protector-strong)
if(SLUICE_WERROR)
  add_compile_options(-Werror)
endif()
add_link_options(-Wl,-z,relro,-z,now -Wl,-z,noexecstack)

include(SluiceSanitize)
if(SLUICE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=address,undefined)
endif()
if(SLUICE_COVERAGE)
  add_compile_options(--coverage -fprofile-update=atomic -O0)
  add_link_options(--coverage)
endif()

include_directories("${CMAKE_SOURCE_DIR}/include" "${CMAKE_SOURCE_DIR}/src")
find_package(Threads REQUIRED)

# One room = one static library sl_<room>. DEPS name the rooms below it. Beside it stands
# sl_<room>_faults, the same code with its named fault points live, built only where a test links it.
function(sluice_room name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_library(sl_${name} STATIC ${A_SOURCES})
  set_property(GLOBAL APPEND PROPERTY SLUICE_ROOMS ${name})
  add_library(sl_${name}_faults STATIC EXCLUDE_FROM_ALL ${A_SOURCES})
  target_compile_definitions(sl_${name}_faults PUBLIC SLUICE_FAULTS)
  foreach(d ${A_DEPS})
    target_link_libraries(sl_${name} PUBLIC sl_${d})
    target_link_libraries(sl_${name}_faults PUBLIC sl_${d}_faults)
  endforeach()
endfunction()
