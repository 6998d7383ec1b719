# SPDX-License-Identifier: Apache-2.0
# Writes the header that says which commit is built. It runs in every build and touches the file only when it changes:
#   cmake -DSOURCE=... -DHEADER=... [-DGIT=...] [-DCOMMIT=...] -P SluiceCommit.cmake
# COMMIT (SLUICE_COMMIT of the configuration) comes first. A source inside somebody else's checkout is not that checkout.
if(NOT COMMIT AND GIT AND EXISTS "${SOURCE}/.git")
  execute_process(
    COMMAND "${GIT}" --no-optional-locks -C "${SOURCE}" describe --always --abbrev=12 --dirty --exclude=*
    OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT "${COMMIT}" MATCHES "^[0-9A-Za-z._-]+$")
  set(COMMIT unknown)
endif()
set(text "#define SLUICE_COMMIT \"${COMMIT}\"\n")
set(old "")
if(EXISTS "${HEADER}")
  file(READ "${HEADER}" old)
endif()
if(NOT old STREQUAL text)
  file(WRITE "${HEADER}" "${text}")
endif()
