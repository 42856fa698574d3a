// What `attest repro --dump DIR` leaves: everything about one case with one testee, for any tool.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "harness/run/examine.h"

namespace attest {

// Writes problem.json, inputs as q.npy, k.npy, ..., the testee's results as O.npy, LSE.npy, ...,
// and beside each the exact values (O.exact.npy) and bounds (O.bound.npy). All are float64 in the
// order batch, head, position, channel. `entry` is the one that the case is. Throws InputError if a
// file cannot be written.
void dump(const std::filesystem::path& folder, PreparedCase& prepared, const nlohmann::json& entry,
          const Arithmetic& arithmetic, const Examination& examination);

}  // namespace attest
