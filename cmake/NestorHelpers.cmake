# nestor_library(NAME deps...): a static library of every source in the calling folder and below.
function(nestor_warnings target)
  # Who only uses Nestor may have a compiler with warnings that nobody here has seen.
  target_compile_options(${target} PRIVATE -Wall -Wextra $<$<BOOL:${NESTOR_TESTS}>:-Werror> -fvisibility=hidden)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # False positives on std::string concatenation (GCC bug 105651).
    target_compile_options(${target} PRIVATE -Wno-restrict)
    # And on look-ups by a name, which may be a temporary, that return a reference into another argument.
    if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
      target_compile_options(${target} PRIVATE -Wno-dangling-reference)
    endif()
  endif()
  if(NESTOR_PORTABLE)
    target_compile_options(${target} PRIVATE -ffunction-sections -fdata-sections)
  endif()
endfunction()

# Headers that most sources of a layer read, compiled once: they are the larger part of each compilation.
set(NESTOR_COMMON_HEADERS <algorithm> <functional> <map> <memory> <string> <vector> <fmt/format.h> <nlohmann/json.hpp>)
set(NESTOR_HEADERS_OF_nestor_support ${NESTOR_COMMON_HEADERS})
set(NESTOR_HEADERS_OF_nestor_db ${NESTOR_COMMON_HEADERS})
set(NESTOR_HEADERS_OF_nestor_poly ${NESTOR_COMMON_HEADERS} <isl/cpp.h>)
set(NESTOR_HEADERS_OF_nestor_api ${NESTOR_HEADERS_OF_nestor_poly})
set(NESTOR_HEADERS_OF_nestor_autotune ${NESTOR_HEADERS_OF_nestor_poly})
set(NESTOR_HEADERS_OF_nestor_codegen ${NESTOR_HEADERS_OF_nestor_poly} <llvm/IR/IRBuilder.h> <llvm/IR/Module.h>)
set(NESTOR_HEADERS_OF_nestor_frontend ${NESTOR_HEADERS_OF_nestor_poly} <Halide.h>)

function(nestor_precompile target layer)
  target_precompile_headers(${target} PRIVATE ${NESTOR_HEADERS_OF_${layer}} ${ARGN})
endfunction()

function(nestor_library name folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc)
  if(NOT sources)
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(${name} INTERFACE ${ARGN})
    return()
  endif()
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${name} PUBLIC ${ARGN})
  nestor_warnings(${name})
  nestor_precompile(${name} ${name})
endfunction()

# nestor_test(NAME LABEL SOURCES ... LIBRARIES ... [PARTS n]): one GoogleTest program of the sources. With PARTS, ctest has n tests of
# it, NAME_1 and so on, each of which runs every n-th case: processors share them.
function(nestor_test name label)
  cmake_parse_arguments(arg "" "PARTS" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT arg_SOURCES)
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} GTest::gtest_main GTest::gmock)
  nestor_warnings(${name})
  list(LENGTH arg_SOURCES count)
  if(count GREATER 2 AND NOT "${arg_SOURCES}" MATCHES "\\.c(;|$)")
    list(GET arg_LIBRARIES 0 layer)
    nestor_precompile(${name} ${layer} <gtest/gtest.h>)
  endif()
  if(NOT arg_PARTS)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT 900)  # processors may be shared
    return()
  endif()
  foreach(part RANGE 1 ${arg_PARTS})
    math(EXPR index "${part} - 1")
    add_test(NAME ${name}_${part} COMMAND ${name})
    set_tests_properties(${name}_${part} PROPERTIES LABELS ${label} TIMEOUT 900
                         ENVIRONMENT "GTEST_TOTAL_SHARDS=${arg_PARTS};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

# nestor_shared_library(NAME EXPORT_NAME libraries...): a shared library of whole static ones (none of which another one of
# its dependencies links again), exporting the public API alone.
function(nestor_shared_library name export_name)
  add_library(${name} SHARED ${PROJECT_SOURCE_DIR}/cmake/shared_library.cc)
  list(JOIN ARGN "," whole)
  set_target_properties(${name} PROPERTIES EXPORT_NAME ${export_name} VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                        LINK_LIBRARY_OVERRIDE "WHOLE_ARCHIVE,${whole}")
  target_link_libraries(${name} PRIVATE "$<LINK_LIBRARY:WHOLE_ARCHIVE,${whole}>")
  target_include_directories(${name} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
  target_link_options(${name} PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/nestor_exports.map -Wl,--gc-sections)
  set_target_properties(${name} PROPERTIES LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/nestor_exports.map)
endfunction()
