# SPDX-License-Identifier: Apache-2.0
# What `make install` puts where. Rooms install their own programs and libraries; this is the rest.
file(GLOB SLUICE_MAN_PAGES CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/docs/man/*.1")
install(FILES ${SLUICE_MAN_PAGES} DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
if(NOT SLUICE_CORE)
  install(FILES "${CMAKE_SOURCE_DIR}/docs/man/sluiced.8" DESTINATION "${CMAKE_INSTALL_MANDIR}/man8")
endif()
install(FILES "${CMAKE_SOURCE_DIR}/completions/sluice.bash"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" RENAME sluice)
install(FILES "${CMAKE_SOURCE_DIR}/completions/_sluice" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
install(FILES "${CMAKE_SOURCE_DIR}/completions/sluice.fish"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
# One arbiter for all users of a machine. Nothing enables the units; systemd also searches /usr/local/lib.
configure_file("${CMAKE_SOURCE_DIR}/packaging/sluice-arbiter.service.in"
  "${CMAKE_BINARY_DIR}/packaging/sluice-arbiter.service" @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/packaging/sluice-arbiter.service" "${CMAKE_SOURCE_DIR}/packaging/sluice-arbiter.socket"
  DESTINATION lib/systemd/system)
install(FILES "${CMAKE_SOURCE_DIR}/packaging/arbiter.yaml" DESTINATION "${CMAKE_INSTALL_DATADIR}/sluice")
if(TARGET sim_cuda)
  install(TARGETS sim_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/sluice/sim" NAMELINK_SKIP)
endif()
