# What a build was made of, as C++: cmake -D SOURCE=... -D OUTPUT=... -P identity.cmake
# The digest of the bundled cases is that of harness/run/sha256.h.
file(GLOB_RECURSE files RELATIVE ${SOURCE}/cases ${SOURCE}/cases/*.json)
set(list "")
foreach(file ${files})
  file(SHA256 ${SOURCE}/cases/${file} sum)
  string(APPEND list "${sum}  ${file}\n")
endforeach()
string(SHA256 digest "${list}")

find_program(git git)
set(commit "")
if(git AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${git} -C ${SOURCE} describe --always --abbrev=40 --exclude=* --dirty=+changes
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(commit STREQUAL "")
  set(commit unknown)
endif()

# Written only where it changed, so that nothing is built in vain.
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#include "harness/command/identity.h"
namespace attest {
const char* suite_commit() { return "@commit@"; }
const char* digest_of_bundled_cases() { return "@digest@"; }
}  // namespace attest
]])
