# What `make install` puts where. DESTDIR is honoured by CMake itself.
include(GNUInstallDirs)

if(TARGET belay)
  install(TARGETS belay RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS belay_shared belay_static
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/belay.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES include/belay/store.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/belay)

configure_file(cmake/belay.pc.in belay.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/belay.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

file(GLOB man_pages CONFIGURE_DEPENDS man/*.1)
install(FILES ${man_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES completions/belay.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
  RENAME belay OPTIONAL)
install(FILES completions/_belay DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions OPTIONAL)
install(FILES completions/belay.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d OPTIONAL)
