// Mutants in hosts: narrow kernels, as most are, each with the faults of the catalogue. HOST/NAME
// is the mutant NAME in a host. Whatever shows in a host must be caught in it, by the cases that it
// can be asked; and the host without a fault must fail none of them.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/selfcheck/hunt.h"
#include "harness/selfcheck/shows.h"

namespace attest {

// The kernels of a plug-in by what stands before the / of their names.
std::map<std::string, std::vector<Testee>> by_host(const std::vector<Testee>& testees);

// The catalogue by the names that its kernels have in a host, of the formats that this has. Without
// what violates nothing but clauses of features that it lacks, or nothing but recommendations, and
// without what is listed as equivalent in this host, as HOST/NAME.
Catalogue in_host(const Catalogue& catalogue, const std::string& host,
                  const Description& description);

// Of cases, the first of each entry and format that costs little; if these are many, some of them,
// from all over the list.
std::vector<Case> cheap_ones(const std::vector<Case>& cases);

// What of each mutant shows in the host, in the formats in which it does.
Catalogue of_shown(Catalogue catalogue, const Shows& shows);

// One host, checked.
struct HostCheck {
  std::string name;
  std::vector<Case> cases;  // that it is asked, some of them fitted
  Catalogue catalogue;      // of what shows
  std::size_t mutants = 0;  // that there are
  Hunt hunt = {};
  std::vector<VerdictRecord> failed = {};  // of the host without a fault, on all of its cases
};

struct HostsCheck {
  std::vector<HostCheck> hosts = {};
  bool interrupted = false;
  double wall_s = 0;
};

std::string to_text(const HostsCheck& check);
nlohmann::json to_json(const HostsCheck& check);

// Conformant if all that shows is caught in every host, and nothing fails without a fault.
int exit_code_of(const HostsCheck& check);

}  // namespace attest
