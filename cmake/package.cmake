# What is installed, and what find_package(attest) finds: there, and in the build tree, which is laid
# out alike. Programs and cases lie as find_installation() in harness/process/installation.h looks
# for them.
include(CMakePackageConfigHelpers)

install(TARGETS attest attest-sandbox attest-worker EXPORT attest RUNTIME DESTINATION bin)
install(DIRECTORY ${ATTEST_PLUGIN_DIRECTORY}/ DESTINATION lib/attest FILES_MATCHING PATTERN *.so)
install(DIRECTORY cases/ DESTINATION share/attest/cases FILES_MATCHING PATTERN *.json)
install(FILES spec/SPEC.md spec/CLAUSES.md spec/NUMERICS.md spec/MEASURED.md
  spec/description.schema.json spec/diagnosis.schema.json spec/gate.schema.json
  spec/problem.schema.json spec/rank.schema.json
  spec/record.schema.json spec/report.schema.json README.md LICENSE DESTINATION share/doc/attest)

# Made with the command, by which bash finds it.
install(FILES ${CMAKE_BINARY_DIR}/share/bash-completion/completions/attest
  DESTINATION share/bash-completion/completions)

# Headers are included as <attest/kernel.h>.
set(headers attest_gmock.h attest_gtest.h attest_judge.h attest_plugin.h device.h device/cuda.h
  device/gate.h device/hip.h device/mirror.h device/rows.h device/tables.h
  kernel.h
  kernel/declaration.h kernel/formats.h kernel/problem.h kernel/tensor.h)
foreach(header ${headers})
  get_filename_component(folder attest/${header} DIRECTORY)
  install(FILES spec/${header} DESTINATION include/${folder})
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include/${folder})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/spec/${header} ${CMAKE_BINARY_DIR}/include/attest/${header}
    SYMBOLIC)
endforeach()

# attest::plugin, attest::gmock, attest::gtest: headers; attest::judge: libattest.
foreach(part plugin gmock gtest)
  add_library(attest_${part}_headers INTERFACE)
  set_target_properties(attest_${part}_headers PROPERTIES EXPORT_NAME ${part})
endforeach()
set_target_properties(attest_shared PROPERTIES EXPORT_NAME judge)
target_link_libraries(attest_gmock_headers INTERFACE attest_shared GTest::gmock)
target_link_libraries(attest_gtest_headers INTERFACE GTest::gtest)
target_compile_definitions(attest_gtest_headers INTERFACE
  ATTEST_COMMAND="$<TARGET_FILE:$<TARGET_NAME:attest>>")
foreach(target attest_plugin_headers attest_gmock_headers attest_gtest_headers attest_shared)
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/include> $<INSTALL_INTERFACE:include>)
  install(TARGETS ${target} EXPORT attest LIBRARY DESTINATION lib)
endforeach()

# The profiles, as the table in SPEC.md has them.
file(READ spec/SPEC.md text)
string(REGEX MATCH "<!-- profiles -->.*<!-- /profiles -->" text "${text}")
string(REGEX MATCHALL "\n\\| `[a-z-]+`" ATTEST_PROFILES "${text}")
list(TRANSFORM ATTEST_PROFILES REPLACE "[^a-z-]" "")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS spec/SPEC.md)

set(package ${CMAKE_BINARY_DIR}/lib/cmake/attest)
configure_package_config_file(cmake/package/attestConfig.cmake.in ${package}/attestConfig.cmake
  INSTALL_DESTINATION lib/cmake/attest)
configure_file(cmake/package/attestConformance.cmake.in ${package}/attestConformance.cmake @ONLY)
write_basic_package_version_file(${package}/attestConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
export(EXPORT attest NAMESPACE attest:: FILE ${package}/attestTargets.cmake)
install(EXPORT attest NAMESPACE attest:: FILE attestTargets.cmake DESTINATION lib/cmake/attest)
install(FILES ${package}/attestConfig.cmake ${package}/attestConfigVersion.cmake
  ${package}/attestConformance.cmake DESTINATION lib/cmake/attest)
