# cmake --install: the program, the public headers, the shared libraries and find_package(Nestor).
include(CMakePackageConfigHelpers)

install(TARGETS nestor_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# Manual pages and completions, as the program writes them.
install(CODE "
  set(root \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
  function(write_by_program file)
    get_filename_component(folder \"\${root}/\${file}\" DIRECTORY)
    file(MAKE_DIRECTORY \"\${folder}\")
    execute_process(COMMAND \"\${root}/${CMAKE_INSTALL_BINDIR}/nestor\" \${ARGN} OUTPUT_FILE \"\${root}/\${file}\" COMMAND_ERROR_IS_FATAL ANY)
  endfunction()
  write_by_program(share/man/man1/nestor.1 manual)
  foreach(command tune query explore show verify bench db devices)
    write_by_program(share/man/man1/nestor-\${command}.1 manual \${command})
  endforeach()
  write_by_program(share/bash-completion/completions/nestor completion bash)
  write_by_program(share/zsh/site-functions/_nestor completion zsh)
  write_by_program(share/fish/vendor_completions.d/nestor.fish completion fish)
")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/nestor)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/schemas DESTINATION share/nestor)
# Found from the program's own place: ../share/nestor/records.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tuning_db/ DESTINATION share/nestor/records FILES_MATCHING PATTERN "*.jsonl"
        PATTERN "*.pack" PATTERN migrations EXCLUDE)
if(NESTOR_PORTABLE)
  return()
endif()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/nestor DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} PATTERN halide.h EXCLUDE)
set(libraries nestor)
if(TARGET nestor_runtime)
  set_target_properties(nestor_runtime PROPERTIES EXPORT_NAME runtime)
  list(APPEND libraries nestor_runtime)
endif()
install(TARGETS ${libraries} EXPORT NestorTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Nestor)
install(EXPORT NestorTargets NAMESPACE Nestor:: DESTINATION ${package_folder})
# In a set of targets of its own: NestorConfig.cmake loads it where the Halide that it was built with is found.
if(NESTOR_HALIDE)
  install(FILES ${PROJECT_SOURCE_DIR}/include/nestor/halide.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/nestor)
  install(TARGETS nestor_halide_library EXPORT NestorHalideTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT NestorHalideTargets NAMESPACE Nestor:: DESTINATION ${package_folder})
  cmake_path(GET HALIDE_LIBRARY FILENAME NESTOR_HALIDE_LIBRARY_NAME)
  cmake_path(GET HALIDE_LIBRARY PARENT_PATH NESTOR_HALIDE_LIBRARY_FOLDER)
  cmake_path(GET HALIDE_INCLUDE_DIR FILENAME NESTOR_HALIDE_INCLUDE_NAME)
  cmake_path(GET HALIDE_INCLUDE_DIR PARENT_PATH NESTOR_HALIDE_INCLUDE_PARENT)
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/NestorConfig.cmake.in ${PROJECT_BINARY_DIR}/NestorConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/NestorConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/NestorConfig.cmake ${PROJECT_BINARY_DIR}/NestorConfigVersion.cmake DESTINATION ${package_folder})
