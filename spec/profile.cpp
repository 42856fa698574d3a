#include "spec/profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "spec/assert.h"
#include "spec/contains.h"
#include "spec/feature.h"
#include "spec/spelling.h"

namespace attest {
namespace {

// What a profile demands beside the clauses of features, which spec/feature.cpp gives to it.
std::vector<Profile> own_clauses() {
  return {
      {kForwardCore,
       "the forward pass: full and causal, any heads and sizes",
       {"SCORE-1", "SOFTMAX-1", "SOFTMAX-2", "MASK-1", "EMPTY-1", "FINITE-1", "NUM-1",
        "NUM-2",   "NUM-3",     "DET-1",     "DET-3",  "SAFE-1",  "SAFE-2",   "SAFE-3",
        "SAFE-4",  "CALL-1",    "CALL-2",    "LAW-1",  "LAW-2",   "LAW-3",    "LAW-4",
        "LAW-5",   "LAW-6",     "LAW-7",     "LAW-10"}},
      {"training-core", "the gradients dQ, dK and dV", {"EMPTY-3", "LAW-14", "LAW-15", "LAW-16"}},
      {"training-full", "all gradients, of bias, sink, LSE and under dropout"},
      {"masks", "windows, dense masks, their intersections", {"HIDE-1", "LAW-8"}},
      {"sparse-masks", "prefixes, segments, blocks, dilation, unions"},
      {"scores", "softcap, bias, ALiBi, sinks", {"EMPTY-4", "LAW-11", "LAW-12", "LAW-13"}},
      {"dropout", "dropout with a keep-mask that is given"},
      {"dropout-generated", "dropout that returns the keep-mask it drew"},
      {"varlen", "per-batch lengths, and what lies beyond them", {"HIDE-2"}},
      {"packed", "batch elements one after the other, without padding"},
      {"paged", "keys behind a page table"},
      {"layouts", "expanded and transposed tensors, the order SBH"},
      {"double", "f64"},
      {"stored", "Q, K and V in formats of 8 bits, with scales"},
      {"stored-int8", "the same in int8"},
      {"stored-bfp8", "the same, of which 16 channels share an exponent"},
      {"stored-mxfp8", "Q, K and V in fp8, of which 32 channels share an exponent"},
      {"schedule",
       "the blocks that are computed, and who computes them",
       {"SCHED-1", "SCHED-2", "SCHED-3"}},
      {"memory", "what a call takes beyond its tensors", {"MEM-1", "MEM-2"}},
      {"invariant",
       "the same bits in a batch and alone, packed, padded, in pages, in chunks, decoded",
       {"DET-2", "DET-4", "DET-5", "DET-6", "DET-7"},
       {"batch_invariant", "form_invariant"}},
      {"device", "streams, graphs and changing shapes of a device"},
  };
}

std::vector<Profile> with_features(std::vector<Profile> profiles) {
  for (const Feature& feature : features()) {
    for (const auto& demand : feature.demands()) {
      const auto profile = std::find_if(profiles.begin(), profiles.end(), [&](const Profile& each) {
        return each.name == demand.profile;
      });
      ATTEST_ASSERT(profile != profiles.end());
      if (!contains(profile->clauses, demand.clause)) profile->clauses.push_back(demand.clause);
    }
  }
  return profiles;
}

}  // namespace

std::span<const Profile> profiles() {
  static const std::vector<Profile> kProfiles = with_features(own_clauses());
  return kProfiles;
}

namespace {
// A name without what follows it.
std::string_view bare(std::string_view name) {
  if (name.ends_with(kTakesLimits)) name.remove_suffix(kTakesLimits.size());
  if (name.ends_with(kTakesDeclared)) name.remove_suffix(kTakesDeclared.size());
  return name;
}
}  // namespace

bool takes_limits(std::string_view name) { return name.ends_with(kTakesLimits); }
bool takes_declared(std::string_view name) {
  if (takes_limits(name)) name.remove_suffix(kTakesLimits.size());
  return name.ends_with(kTakesDeclared);
}

const Profile* find_profile(std::string_view name) {
  name = bare(name);
  for (const Profile& profile : profiles()) {
    if (profile.name == name) return &profile;
  }
  return nullptr;
}

std::string no_profile(std::string_view name) {
  const std::string none = fmt::format("there is no profile \"{}\"", name);
  const std::string_view before = name.substr(0, name.find_first_of("+/"));
  if (find_profile(before)) {
    const auto says = [&](std::string_view word) { return name.find(word) != name.npos; };
    return fmt::format("{}; was {}{}{} meant? Behind a name stands {}, or {}, or {}{}", none,
                       before, says(kTakesDeclared) ? kTakesDeclared : "",
                       says(kTakesLimits) ? kTakesLimits : "", kTakesDeclared, kTakesLimits,
                       kTakesDeclared, kTakesLimits);
  }
  std::vector<std::string> names;
  for (const Profile& each : profiles()) names.emplace_back(each.name);
  return fmt::format("{}; {} ({}, {} or {}{} may stand behind each)", none,
                     did_you_mean(name, names), kTakesDeclared, kTakesLimits, kTakesDeclared,
                     kTakesLimits);
}

bool demands(const Profile& profile, std::span<const std::string> declared,
             std::span<const std::string> cited) {
  const auto claimed = [&](const std::string& id) {
    return std::any_of(declared.begin(), declared.end(), [&](const std::string& name) {
      const Profile* other = find_profile(name);
      return other && contains(other->clauses, id);
    });
  };
  const auto ours = [&](const std::string& id) { return contains(profile.clauses, id); };
  return std::any_of(cited.begin(), cited.end(), ours) &&
         std::all_of(cited.begin(), cited.end(), claimed);
}

}  // namespace attest
