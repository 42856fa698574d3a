// What this program was built of; made by cmake/identity.cmake at every build.
#pragma once

namespace attest {

const char* suite_commit();             // with "+changes" behind it if there were; or "unknown"
const char* digest_of_bundled_cases();  // as harness/run/sha256.h makes it

}  // namespace attest
