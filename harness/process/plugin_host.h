// The other side of attest_plugin.h: loads a plug-in, checks its table, answers the requests of
// wire.h by calling it. Used by attest-worker, and in the harness's own process only by
// `attest repro --in-process`.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "spec/attest_plugin.h"

namespace attest {

// Loads the library at `path`. Throws InputError with what is wrong: no such file, not loadable, no
// attest_plugin_get, another ABI version, a table or kernel that lacks what it must have.
const attest_plugin* load_plugin(const std::string& path);

// The same checks on a table that is already there.
void check_plugin(const attest_plugin* plugin);

// Where a tensor of a request lies: the address of its first element. `tensor` is its JSON.
using Locate = std::function<void*(const std::string& name, const nlohmann::json& tensor)>;

// Answers one request. Throws InputError for a request that is malformed. `ready` is called before
// a kernel sees any of a call, when all is located.
nlohmann::json answer(const attest_plugin& plugin, const nlohmann::json& request,
                      const Locate& locate, const std::function<void()>& ready = {});

}  // namespace attest
