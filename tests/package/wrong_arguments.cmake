# Each call, and what is said of it, with the place; of a right one nothing is.
cmake_minimum_required(VERSION 3.24)
set(calls
  "TARGT k"              "does not know what to do with TARGT"
  "TARGET none"          "there is no such target"
  "TARGET archive"       "it is a STATIC_LIBRARY. a plug-in is a MODULE or SHARED library"
  "TARGET k TIER fast"   "TIER is fast. there are smoke, standard, full"
  "TARGET k PROFILES masks training" "PROFILES has training. there are forward-core, training-core"
  "TARGET k TIMEOUT soon" "TIMEOUT is soon, which is no whole number"
  "TARGET k JOBS 0"      "JOBS is 0, which is no whole number of 1 or more"
  "TARGET k KNOWN no.json" "KNOWN is .*/no.json, which is not there"
  "TARGET k KERNEL"      "nothing stands behind KERNEL"
  "TIER smoke"           "TARGET names none"
  "TARGET program KERNEL a" "KERNEL chooses one of a library"
  "TARGET k PROFILES none masks+declared/limits TIER smoke LABELS a b TIMEOUT 5 JOBS 2" "")
while(calls)
  list(POP_FRONT calls call said)
  file(WRITE ${FOLDER}/CMakeLists.txt "cmake_minimum_required(VERSION 3.20)
project(wrong LANGUAGES NONE)
find_package(attest REQUIRED)
enable_testing()
add_library(k MODULE IMPORTED)
add_library(archive STATIC IMPORTED)
add_executable(program IMPORTED)
set_target_properties(k PROPERTIES IMPORTED_LOCATION k.so)
attest_add_conformance(${call})
")
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${FOLDER} -B ${FOLDER}/build
    -D CMAKE_PREFIX_PATH=${PREFIX} RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE told)
  string(REGEX REPLACE "[ \n]+" " " told "${told}")
  set(place "CMakeLists.txt:9 \\(attest_add_conformance\\)")
  if(said STREQUAL "")
    set(right ${failed} EQUAL 0)
  else()
    set(right NOT failed EQUAL 0 AND told MATCHES "${said}" AND told MATCHES "${place}")
  endif()
  if(NOT (${right}))
    message(SEND_ERROR "attest_add_conformance(${call}) says:${told}, and should: ${said}")
  endif()
endwhile()
