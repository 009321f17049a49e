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

# The program makes its own man pages and completions, from the tables that --help is made from.
if(TARGET belay AND NOT BELAY_TESTS)
  add_custom_command(TARGET belay POST_BUILD VERBATIM
    COMMAND ${PROJECT_SOURCE_DIR}/tools/gen_docs $<TARGET_FILE:belay> ${CMAKE_BINARY_DIR})
endif()
install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL FILES_MATCHING PATTERN *.1)
set(completions ${CMAKE_BINARY_DIR}/completions)
install(FILES ${completions}/belay.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
  RENAME belay OPTIONAL)
install(FILES ${completions}/_belay DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions OPTIONAL)
install(FILES ${completions}/belay.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d OPTIONAL)
