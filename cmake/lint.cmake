# Nothing is built, but each file is parsed by itself (tests a few at a time, as they are compiled;
# unit tests only if they are named), with all of Clang's warnings. As a build it knows what has
# changed since the last time.
foreach(language C CXX)
  set(arguments "<DEFINES> <INCLUDES> <FLAGS>")
  set(parse_${language} "<CMAKE_${language}_COMPILER> ${arguments} -fsyntax-only <SOURCE>")
  set(CMAKE_${language}_COMPILE_OBJECT "${parse_${language}}" "${CMAKE_COMMAND} -E touch <OBJECT>")
  set(CMAKE_${language}_CREATE_STATIC_LIBRARY "${CMAKE_COMMAND} -E touch <TARGET>")
  set(CMAKE_${language}_CREATE_SHARED_MODULE "${CMAKE_COMMAND} -E touch <TARGET>")
  set(CMAKE_${language}_LINK_EXECUTABLE "${CMAKE_COMMAND} -E touch <TARGET>")
endforeach()
# Unless attest_parse_after says so nothing is precompiled: what a file includes only because of
# another one is found.
set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS OFF)  # they would end in "&& touch"

# What cmake/NAME.h includes is read once for all files to come, which halves their time. They are
# to include the libraries that they name all the same: spec/layering_test sees to it.
macro(attest_parse_after name)
  separate_arguments(flags NATIVE_COMMAND "${CMAKE_CXX_FLAGS_RELEASE}")
  execute_process(COMMAND_ERROR_IS_FATAL ANY COMMAND
    ${CMAKE_CXX_COMPILER} -std=c++20 -fPIC ${flags} -DGTEST_HAS_PTHREAD=1 -fpch-instantiate-templates
    -x c++-header ${CMAKE_SOURCE_DIR}/cmake/${name}.h -o ${CMAKE_BINARY_DIR}/${name}.pch)
  set(CMAKE_CXX_COMPILE_OBJECT
    "${parse_CXX} -Xclang -fno-validate-pch -include-pch ${CMAKE_BINARY_DIR}/${name}.pch"
    "${CMAKE_COMMAND} -E touch <OBJECT>")
endmacro()

function(attest_targets_below directory targets)
  get_property(found DIRECTORY ${directory} PROPERTY BUILDSYSTEM_TARGETS)
  get_property(folders DIRECTORY ${directory} PROPERTY SUBDIRECTORIES)
  foreach(folder ${folders})
    attest_targets_below(${folder} more)
    list(APPEND found ${more})
  endforeach()
  set(${targets} ${found} PARENT_SCOPE)
endfunction()

# clang-tidy looks at all files of a target at a time: most of its time goes into the headers
# that all of them include. It knows no -MD, so Clang lists what they include.
macro(attest_tidy)
  set(CMAKE_CXX_COMPILE_OBJECT
    "<CMAKE_CXX_COMPILER> ${arguments} -E -o /dev/null <SOURCE>"
    "clang-tidy --quiet <SOURCE> -- ${arguments}" "${CMAKE_COMMAND} -E touch <OBJECT>")
  foreach(layer ${ARGN})
    attest_targets_below(${layer} targets)
    foreach(target ${targets})
      attest_tidy_target(${target})
    endforeach()
  endforeach()
endmacro()
function(attest_tidy_target target)
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  set(files)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder})
    cmake_path(IS_PREFIX CMAKE_BINARY_DIR ${source} is_generated)
    if(is_generated)
      continue()
    endif()
    list(APPEND files ${source})
  endforeach()
  if(NOT files)
    return()
  endif()
  add_library(tidy_${target} OBJECT ${files})
  foreach(property COMPILE_DEFINITIONS COMPILE_OPTIONS INCLUDE_DIRECTORIES LINK_LIBRARIES)
    get_target_property(value ${target} ${property})
    if(value)
      set_target_properties(tidy_${target} PROPERTIES ${property} "${value}")
    endif()
  endforeach()
  set_target_properties(tidy_${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
endfunction()
