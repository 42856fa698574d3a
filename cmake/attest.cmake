# How every folder of Attest is built: one call for a layer, a plug-in, a test, a benchmark.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
# Plug-ins lie in a folder of their own: `attest run --testee NAME` looks beside the command.
set(ATTEST_PLUGIN_DIRECTORY ${CMAKE_BINARY_DIR}/lib/attest)
set(CMAKE_CXX_FLAGS_RELEASE "-O1 -DNDEBUG")
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()

# What all our own targets are compiled with. Contraction into FMA is off everywhere, because it
# would make generated inputs and exact values depend on the machine; kernels that want FMA ask
# for it.
add_library(attest_options INTERFACE)
target_compile_options(attest_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -ffp-contract=off $<$<BOOL:${ATTEST_WERROR}>:-Werror>)
# GCC collects garbage early and often; with more memory to itself it takes a tenth less time.
target_compile_options(attest_options INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:
  --param=ggc-min-heapsize=500000 --param=ggc-min-expand=300>)
target_include_directories(attest_options INTERFACE ${CMAKE_SOURCE_DIR})
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  target_compile_options(attest_options INTERFACE -Wno-psabi)  # GCC before 10 is not supported
endif()
if(ATTEST_SANITIZE)
  # GCC's own advice: with a sanitizer, -Wmaybe-uninitialized sees what is not there.
  target_compile_options(attest_options INTERFACE
    -fsanitize=${ATTEST_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(attest_options INTERFACE -fsanitize=${ATTEST_SANITIZE})
  target_compile_definitions(attest_options INTERFACE ATTEST_SANITIZED)
endif()
if(ATTEST_SANITIZE STREQUAL thread)
  # Threads meet alike whatever the vectors that they compute with.
  target_compile_definitions(attest_options INTERFACE HWY_COMPILE_ONLY_STATIC)
endif()

# The kernels that any processor runs use no vectors, whichever compiler makes them.
target_compile_definitions(attest_options INTERFACE HWY_BROKEN_EMU128=1)

# For what computes. All else is compiled in less time without it.
add_library(attest_fast INTERFACE)
target_compile_options(attest_fast INTERFACE $<$<CONFIG:Release>:-O3>
  $<$<CONFIG:RelWithDebInfo>:-O1>)
if(ATTEST_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
  # Checks of each access, written out, take Clang many minutes where all is inlined.
  target_compile_options(attest_fast INTERFACE
    "SHELL:-mllvm -asan-instrumentation-with-call-threshold=0"
    -fno-sanitize=null,alignment,object-size,vptr,pointer-overflow)
endif()

# The same of single files of a layer.
function(attest_fast_files)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
    COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>;$<$<CONFIG:RelWithDebInfo>:-O1>")
endfunction()

# With ATTEST_UNITY the files of a target are compiled together, so many at a time (0: all): most of
# the time goes into templates that all of them instantiate.
function(attest_unity target files)
  if(ATTEST_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files})
  endif()
endfunction()

# attest_layer(NAME SOURCES ... [HEADERS ...] [DEPS ...] [APART] [FAST]): the library attest_NAME.
# Its files may be compiled as one, unless they are to be kept APART.
function(attest_layer name)
  cmake_parse_arguments(ARG "APART;FAST" "" "HEADERS;SOURCES;DEPS" ${ARGN})
  add_library(attest_${name} STATIC ${ARG_SOURCES} ${ARG_HEADERS})
  if(NOT ARG_APART)
    attest_unity(attest_${name} 0)
  endif()
  target_link_libraries(attest_${name} PUBLIC attest_options ${ARG_DEPS}
    PRIVATE $<$<BOOL:${ARG_FAST}>:attest_fast>)
  if(NOT ARG_FAST)  # which includes little
    if(NOT TARGET attest_layer_headers)
      set(source ${CMAKE_BINARY_DIR}/layer_headers.cpp)
      file(CONFIGURE OUTPUT ${source} CONTENT "int layer_headers;\n")
      add_library(attest_layer_headers OBJECT ${source})
      target_link_libraries(attest_layer_headers PRIVATE
        attest_options CLI11::CLI11 fmt::fmt nlohmann_json::nlohmann_json)
      target_precompile_headers(attest_layer_headers PRIVATE ${CMAKE_SOURCE_DIR}/cmake/layer_headers.h)
    endif()
    target_precompile_headers(attest_${name} REUSE_FROM attest_layer_headers)
  endif()
endfunction()

add_custom_target(plugins)  # all bundled kernels

# attest_plugin(NAME SOURCES ... [DEPS ...] [DIRECTORY folder]): a testee as a vendor would build it,
# NAME.so. Without DIRECTORY it lies where `attest` finds bundled kernels.
function(attest_plugin name)
  cmake_parse_arguments(ARG "" "DIRECTORY" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_DIRECTORY)
    set(ARG_DIRECTORY ${ATTEST_PLUGIN_DIRECTORY})
  endif()
  add_library(plugin_${name} MODULE ${ARG_SOURCES})
  if(ARG_DIRECTORY STREQUAL ATTEST_PLUGIN_DIRECTORY)
    add_dependencies(plugins plugin_${name})
  endif()
  target_link_libraries(plugin_${name} PRIVATE attest_options attest_fast ${ARG_DEPS})
  set_target_properties(plugin_${name} PROPERTIES
    PREFIX "" OUTPUT_NAME ${name} LIBRARY_OUTPUT_DIRECTORY ${ARG_DIRECTORY}
    INSTALL_RPATH $ORIGIN/.. BUILD_WITH_INSTALL_RPATH ON)  # as it is, it is installed
endfunction()

# The name of a test or benchmark: its folder below tests/, then its own name.
macro(attest_test_name name)
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  set(path ${folder}/${name})
  string(REPLACE "/" "_" target ${path})
endmacro()

# What is tested is what sanitizers look after; tests take several times as long with them.
add_library(attest_unsanitized INTERFACE)
if(ATTEST_SANITIZE)
  target_compile_options(attest_unsanitized INTERFACE -fno-sanitize=all)
endif()

# How tests are compiled: quickly. What they test is optimised; those that compute much themselves
# are OPTIMISED a little.
function(attest_compile_test target optimised)
  if(optimised)
    set(headers test_headers_optimised)
    set(level -O1)
  else()
    set(headers test_headers)
    set(level -O0)
  endif()
  target_compile_options(${target} PRIVATE ${level})
  target_link_libraries(${target} PRIVATE attest_unsanitized)
  # Lets the compiler read once what nearly every test includes.
  if(NOT TARGET ${headers})
    set(source ${CMAKE_BINARY_DIR}/${headers}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "int main() {}\n")
    add_executable(${headers} EXCLUDE_FROM_ALL ${source})
    target_link_libraries(${headers} PRIVATE
      attest_options attest_unsanitized rapidcheck rapidcheck_gtest GTest::gmock GTest::gtest
      nlohmann_json::nlohmann_json)
    target_compile_options(${headers} PRIVATE ${level})
    target_precompile_headers(${headers} PRIVATE
      ${CMAKE_SOURCE_DIR}/cmake/test_headers.h)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
endfunction()

add_custom_target(unit_tests)  # all that ctest -L unit needs

# Unit tests of folders that compute no attention, or whose numbers the tests of rooms and commands
# see as well: ctest knows them as "logic". Without ATTEST_LOGIC_TESTS nothing builds them.
function(attest_note_logic target labels)
  if(folder MATCHES "^(spec|harness|reports|documents|impl/vendor)")
    set(${labels} unit logic PARENT_SCOPE)
    if(NOT ATTEST_LOGIC_TESTS)
      set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
  endif()
endfunction()

# The --gtest_filter for the test suites of a file. A suite lies in one file, else two entries of
# ctest would run it.
function(attest_test_filter file target filter)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  string(REGEX MATCHALL "(^|\n)(RC_GTEST_(FIXTURE_)?PROP|TEST(_[FP])?|TYPED_TEST(_P)?)\\([ \n]*[A-Za-z0-9]+"
    tests "${text}")
  set(patterns)
  foreach(test ${tests})
    string(REGEX MATCH "([A-Z_]+)\\([ \n]*(.*)" test "${test}")
    set(macro ${CMAKE_MATCH_1})
    set(suite ${CMAKE_MATCH_2})
    get_target_property(owner ${target} ATTEST_FILE_OF_${suite})
    if(owner AND NOT owner STREQUAL file)
      message(FATAL_ERROR "The test suite ${suite} is both in ${owner} and in ${file}")
    endif()
    set_target_properties(${target} PROPERTIES ATTEST_FILE_OF_${suite} ${file})
    # As GoogleTest names them: instantiation/suite.test/parameter, suite/type.test.
    if(macro MATCHES "_P$")
      string(PREPEND suite "*/")
    endif()
    if(macro MATCHES "^TYPED")
      list(APPEND patterns "${suite}/*")
    else()
      list(APPEND patterns "${suite}.*")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES patterns)
  list(JOIN patterns ":" patterns)
  set(${filter} "${patterns}" PARENT_SCOPE)
endfunction()

# The unit tests of a folder are one program, folder_tests, and those that are OPTIMISED another.
# What no entry of ctest asks for is run as folder/others, so that no test is lost.
function(attest_unit_tests target others optimised)
  add_executable(${target})
  target_link_libraries(${target} PRIVATE
    attest_options rapidcheck rapidcheck_gtest GTest::gmock GTest::gtest_main)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  attest_compile_test(${target} "${optimised}")
  attest_unity(${target} 8)  # all of harness/ would take twice as long, and again after each edit
  if(ATTEST_LINT)  # Clang compiles them for the sanitizers, with the same warnings
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  add_dependencies(unit_tests ${target})
  set(labels unit)
  attest_note_logic(${target} labels)
  add_test(NAME ${others}
    COMMAND ${target} --gtest_filter=-$<JOIN:$<TARGET_PROPERTY:${target},ATTEST_FILTERS>,:>)
  set_tests_properties(${others} PROPERTIES LABELS "${labels}" TIMEOUT 60)
endfunction()

# attest_test(NAME_test LABELS ... [DEPS ...] [SOURCES ...] [TIMEOUT s] [OPTIMISED]): NAME_test.cpp,
# run by ctest as folder/NAME_test. It is a part of its folder's program if it is a unit test, or of
# the one of those in which threads meet, and a program of its own, folder_NAME_test, if it is not or
# has other SOURCES besides.
function(attest_test name)
  cmake_parse_arguments(ARG "OPTIMISED" "TIMEOUT" "LABELS;DEPS;SOURCES" ${ARGN})
  attest_test_name(${name})
  if(unit IN_LIST ARG_LABELS AND NOT ARG_SOURCES)
    if(ARG_OPTIMISED)
      string(APPEND folder /optimised)
    endif()
    if(threads IN_LIST ARG_LABELS)  # alone, for the thread sanitizer
      string(APPEND folder /threads)
    endif()
    string(REPLACE "/" "_" target ${folder}_tests)
    if(NOT TARGET ${target})
      attest_unit_tests(${target} ${folder}/others "${ARG_OPTIMISED}")
    endif()
    attest_test_filter(${CMAKE_CURRENT_SOURCE_DIR}/${name}.cpp ${target} filter)
    set_property(TARGET ${target} APPEND PROPERTY ATTEST_FILTERS ${filter})
    target_sources(${target} PRIVATE ${name}.cpp)
    target_link_libraries(${target} PRIVATE ${ARG_DEPS})
    set(arguments --gtest_filter=${filter})
  else()
    add_executable(${target} ${name}.cpp ${ARG_SOURCES})
    target_link_libraries(${target} PRIVATE
      attest_options ${ARG_DEPS} rapidcheck rapidcheck_gtest GTest::gmock GTest::gtest_main)
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    attest_compile_test(${target} "${ARG_OPTIMISED}")
    if(unit IN_LIST ARG_LABELS)
      add_dependencies(unit_tests ${target})
    endif()
    set(arguments)
  endif()
  if(unit IN_LIST ARG_LABELS)
    attest_note_logic(${target} more)
    list(APPEND ARG_LABELS ${more})
    list(REMOVE_DUPLICATES ARG_LABELS)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(CMAKE_CROSSCOMPILING_EMULATOR)  # ten times as slow
    math(EXPR ARG_TIMEOUT "10 * ${ARG_TIMEOUT}")
  endif()
  add_test(NAME ${path} COMMAND ${target} ${arguments})
  set_tests_properties(${path} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()

# attest_bench(NAME_bench [DEPS ...] [SOURCES ...]): a Google Benchmark program; never part of the tests.
function(attest_bench name)
  cmake_parse_arguments(ARG "" "" "DEPS;SOURCES" ${ARGN})
  attest_test_name(${name})
  add_executable(${target} ${name}.cpp ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE attest_options ${ARG_DEPS} benchmark::benchmark_main)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endfunction()
