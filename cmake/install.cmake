# What `make install` puts where. DESTDIR is honoured by CMake itself.
include(GNUInstallDirs)

install(TARGETS belay RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# The program looks for them in ../lib/belay: see src/base/module_path.c.
install(TARGETS belay_serve belay_otlp LIBRARY DESTINATION lib/belay)
install(TARGETS belay_shared belay_net belay_pg LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${BELAY_ARCHIVE} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/belay.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES include/belay/store.h include/belay/blob.h include/belay/shared_db.h include/belay/state.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/belay)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Written when it is known where all this goes, and by the program itself: the man pages and the
# completions come from the same tables as --help.
set(made ${CMAKE_BINARY_DIR}/install)
install(CODE "
  set(PROJECT_VERSION ${PROJECT_VERSION})
  set(CMAKE_INSTALL_LIBDIR ${CMAKE_INSTALL_LIBDIR})
  set(CMAKE_INSTALL_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})
  configure_file(${PROJECT_SOURCE_DIR}/cmake/belay.pc.in ${made}/belay.pc @ONLY)
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tools/gen_docs $<TARGET_FILE:belay> ${made}
    COMMAND_ERROR_IS_FATAL ANY)")
install(FILES ${made}/belay.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(DIRECTORY ${made}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
install(FILES ${made}/completions/belay.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
  RENAME belay)
install(FILES ${made}/completions/_belay DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${made}/completions/belay.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
