#include "harness/selfcheck/catalogue.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "spec/clause.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/spelling.h"

namespace attest {
namespace {

// The objects in the list at `key`, each with its reader; an absent list is empty.
template <class Read>
void read_list(ObjectReader& reader, const std::string& key, const Read& read) {
  const nlohmann::json* list = reader.find(key);
  if (!list) return;
  if (!list->is_array()) throw InputError(reader.pointer(key), fmt::format("{} is a list", key));
  for (std::size_t i = 0; i < list->size(); ++i) {
    ObjectReader each((*list)[i], fmt::format("{}/{}", reader.pointer(key), i));
    read(each);
    each.finish();
  }
}

Mutant read_mutant(ObjectReader& reader) {
  Mutant mutant = {.name = reader.get<std::string>("name"),
                   .id = reader.get<std::string>("id"),
                   .defect_class = reader.get<std::string>("class"),
                   .reference = reader.get_or<std::string>("reference", ""),
                   .about = reader.get<std::string>("about"),
                   .clauses = reader.get<std::vector<std::string>>("clauses")};
  mutant.control = reader.get_or<std::string>("control", "");
  mutant.shown_by = reader.get_or<std::string>("shown_by", "");
  if (mutant.clauses.empty()) {
    throw InputError(reader.pointer("clauses"),
                     fmt::format("{} violates no clause, so nothing can catch it", mutant.name));
  }
  for (const std::string& clause : mutant.clauses) {
    if (!find_clause(clause)) {
      throw InputError(reader.pointer("clauses"), fmt::format("there is no clause {}", clause));
    }
  }
  for (const auto& text : reader.get_or<std::vector<std::string>>("dtypes", {})) {
    const auto dtype = dtype_named(text);
    if (!dtype) {
      throw InputError(reader.pointer("dtypes"), fmt::format("there is no dtype {}", text));
    }
    mutant.dtypes.push_back(*dtype);
  }
  return mutant;
}

}  // namespace

Catalogue parse_catalogue(const nlohmann::json& json) {
  ObjectReader reader(json, "");
  Catalogue catalogue;
  std::set<std::string> names;
  const auto once = [&](const std::string& name) {
    if (!names.insert(name).second) throw InputError("", fmt::format("{} is listed twice", name));
  };
  read_list(reader, "mutants", [&](ObjectReader& each) {
    catalogue.mutants.push_back(read_mutant(each));
    once(catalogue.mutants.back().name);
  });
  read_list(reader, "inexpressible", [&](ObjectReader& each) {
    catalogue.inexpressible.push_back(
        {.name = each.get<std::string>("id"), .why = each.get<std::string>("why")});
  });
  read_list(reader, "equivalent", [&](ObjectReader& each) {
    catalogue.equivalent.push_back(
        {.name = each.get<std::string>("name"), .why = each.get<std::string>("why")});
    once(catalogue.equivalent.back().name);
  });
  catalogue.controls = reader.get_or<std::vector<std::string>>("controls", {});
  for (const std::string& control : catalogue.controls) once(control);
  reader.finish();
  return catalogue;
}

Catalogue load_catalogue(const std::filesystem::path& plugin) {
  const auto complain = [&](const std::string& what) {
    throw InputError("", fmt::format("{}: {}", plugin.string(), what));
  };
  if (!std::filesystem::exists(plugin)) {
    complain("there is no such file; selfcheck needs the plug-ins that are built for tests");
  }
  const std::unique_ptr<void, int (*)(void*)> library(
      dlopen(std::filesystem::absolute(plugin).c_str(), RTLD_NOW | RTLD_LOCAL), dlclose);
  if (!library) complain(dlerror());
  const auto list = reinterpret_cast<const char* (*)()>(dlsym(library.get(), "attest_mutants"));
  if (!list) complain("it exports no attest_mutants");
  try {
    return parse_catalogue(parse_json(list()));
  } catch (const nlohmann::json::exception& error) {
    complain(error.what());
  } catch (const InputError& error) {
    complain(fmt::format("its list of mutants: {}: {}", error.pointer(), error.what()));
  }
  return {};
}

std::vector<std::string> with_mutants(const std::vector<std::string>& testees,
                                      const std::filesystem::path& plugin) {
  constexpr std::string_view kFamily = "mutant:", kOf = "mutant/";
  std::vector<std::string> all;
  std::optional<Catalogue> catalogue;
  for (const std::string& testee : testees) {
    if (!testee.starts_with(kFamily)) {
      all.push_back(testee);
      continue;
    }
    if (!catalogue) catalogue = load_catalogue(plugin);
    const std::string wanted = testee.substr(kFamily.size());
    const std::size_t before = all.size();
    for (const Mutant& mutant : catalogue->mutants) {
      std::istringstream ids(mutant.id);
      const std::set<std::string> restated{std::istream_iterator<std::string>(ids), {}};
      if (mutant.name != std::string(kOf) + wanted && !restated.contains(wanted)) continue;
      all.push_back(fmt::format("{}:{}", plugin.string(), mutant.name));
    }
    if (all.size() == before) {
      std::vector<std::string> names;
      for (const Mutant& mutant : catalogue->mutants)
        names.push_back(mutant.name.substr(kOf.size()));
      throw InputError("", fmt::format("--testee {}: no mutant has that name, and none restates a "
                                       "defect of that id; {}",
                                       testee, did_you_mean(wanted, names)));
    }
  }
  return all;
}

}  // namespace attest
