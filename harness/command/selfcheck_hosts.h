// `attest selfcheck --hosts`.
#pragma once

#include "harness/command/options.h"

namespace attest {

// Every mutant in every narrow host in which it shows; and the hosts without a fault, on all cases
// that they are asked.
int selfcheck_hosts(Options options);

}  // namespace attest
