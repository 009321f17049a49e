# What `make install` puts where, in the parts that packaging/package makes packages of: program, library,
# development and postgresql. DESTDIR is honoured by CMake itself.
include(GNUInstallDirs)

install(TARGETS belay RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
# The program looks for its modules in ../lib/belay (src/base/paths.c, src/network/loader.c), and libbelay.so in
# a folder beside it: mostly the same one.
install(TARGETS belay_serve belay_otlp belay_net LIBRARY DESTINATION lib/belay COMPONENT program)
# Apart from the program, which runs without libpq; for the library, as below.
install(TARGETS belay_pg LIBRARY DESTINATION lib/belay COMPONENT postgresql)
install(TARGETS belay_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
install(FILES $<TARGET_FILE:belay_net> DESTINATION ${CMAKE_INSTALL_LIBDIR}/belay COMPONENT library)
install(FILES ${BELAY_ARCHIVE} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(FILES include/belay.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(FILES include/belay/store.h include/belay/blob.h include/belay/shared_db.h include/belay/state.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/belay COMPONENT development)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT program FILES_MATCHING PATTERN "*.md" PATTERN "img" EXCLUDE)
install(DIRECTORY deploy/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/deploy COMPONENT program PATTERN ".terraform*" EXCLUDE)
install(FILES packaging/config.yaml DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)

# Written when it is known where all this goes, and by the program itself: the man pages and the
# completions come from the same tables as --help.
set(made ${CMAKE_BINARY_DIR}/install)
install(CODE "
  set(PROJECT_VERSION ${PROJECT_VERSION})
  set(CMAKE_INSTALL_LIBDIR ${CMAKE_INSTALL_LIBDIR})
  set(CMAKE_INSTALL_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})
  set(HTTP_PARSER_NAME ${HTTP_PARSER_NAME})
  configure_file(${PROJECT_SOURCE_DIR}/cmake/belay.pc.in ${made}/belay.pc @ONLY)" COMPONENT development)
include(CMakePackageConfigHelpers)
configure_file(cmake/belay-config.cmake.in ${made}/belay-config.cmake @ONLY)
write_basic_package_version_file(${made}/belay-config-version.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${made}/belay-config.cmake ${made}/belay-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/belay COMPONENT development)
install(FILES ${made}/belay.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
install(CODE "
  execute_process(COMMAND ${CMAKE_COMMAND} -E env \"EMULATOR=${CMAKE_CROSSCOMPILING_EMULATOR}\"
    ${PROJECT_SOURCE_DIR}/tools/gen_docs $<TARGET_FILE:belay> ${made} COMMAND_ERROR_IS_FATAL ANY)
  foreach(unit belay.service belay.socket)
    file(READ ${PROJECT_SOURCE_DIR}/deploy/systemd/\${unit} text)
    string(REPLACE /usr/local \${CMAKE_INSTALL_PREFIX} text \"\${text}\")
    file(WRITE ${made}/\${unit} \"\${text}\")
  endforeach()" COMPONENT program)
install(FILES ${made}/belay.service ${made}/belay.socket DESTINATION lib/systemd/system COMPONENT program)
install(DIRECTORY ${made}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program FILES_MATCHING PATTERN "*.1")
install(FILES ${made}/completions/belay.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
  COMPONENT program RENAME belay)
install(FILES ${made}/completions/_belay DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT program)
install(FILES ${made}/completions/belay.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT program)
