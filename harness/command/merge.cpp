#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "harness/command/commands.h"
#include "harness/command/option_groups.h"
#include "harness/command/session.h"
#include "harness/run/merge.h"
#include "harness/run/record_file.h"
#include "reports/files.h"
#include "spec/diagnosis.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/read_file.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

struct MergeArguments {
  std::vector<fs::path> folders;
  std::string shard = "1/1";
  RecordingOptions recording;
};

// Of failures in each of the folders, one after the other; null where none has any.
nlohmann::json diagnoses_in(const std::vector<fs::path>& folders) {
  nlohmann::json all;
  for (const fs::path& folder : folders) {
    if (!fs::exists(folder / kDiagnosis)) continue;
    nlohmann::json one;
    try {
      one = parse_json(read_file(folder / kDiagnosis));
      std::istringstream text(one.dump());
      read_diagnoses(text);
    } catch (const InputError& error) {
      throw InputError("", fmt::format("{}: {}", (folder / kDiagnosis).string(), error.what()));
    }
    if (all.is_null()) {
      all = std::move(one);
      continue;
    }
    for (const char* list : {"groups", "failures"}) {
      for (nlohmann::json& each : one.value(list, nlohmann::json::array())) {
        all[list].push_back(std::move(each));
      }
    }
  }
  return all;
}

void merge(const MergeArguments& asked) {
  const RecordFolder folder(asked.recording.out);
  const Suite suite = suite_of(find_installation());
  std::vector<Part> parts;
  for (const fs::path& each : asked.folders) {
    if (fs::exists(each) && fs::equivalent(each, folder.path())) {
      throw InputError(
          "", fmt::format("--out is {}, which is to be merged: it would be lost", each.string()));
    }
    parts.push_back({.name = each.string(), .record = read_and_audit(each / kResults, suite)});
  }
  const Record whole = merged(parts, asked.shard);
  const nlohmann::json diagnoses = diagnoses_in(asked.folders);
  RecordFile file(folder.path(), [](const std::string&) {});
  file.stream() << to_line(whole.header) << '\n';
  for (const VerdictRecord& verdict : whole.verdicts) file.stream() << to_line(verdict) << '\n';
  file.stream() << to_line(*whole.footer) << '\n';
  file.publish();
  if (!diagnoses.is_null()) {
    write_file(folder.path() / kDiagnosis, json_text(diagnoses, 2) + "\n");
  }
}

}  // namespace

Command add_merge(CLI::App& app) {
  const auto asked = std::make_shared<MergeArguments>();
  CLI::App& command =
      *app.add_subcommand("merge", "Put the records of all shards of a run together");
  command.add_option("folders", asked->folders, "The folders of their records, in any order")
      ->required();
  command
      .add_option("--shard", asked->shard,
                  "I/M: what they make is this part of the run, as 1/10 and 6/10 make 1/5")
      ->capture_default_str();
  add_out(command, asked->recording, "the whole record and its reports");
  const auto carry_out = [=] {
    merge(*asked);
    return report_on(asked->recording.out);
  };
  return {.parser = &command, .carry_out = carry_out, .starts_testees = false};
}

}  // namespace attest
