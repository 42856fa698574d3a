#include "spec/record.h"

#include <fmt/format.h>

#include <cmath>
#include <istream>
#include <limits>

#include "spec/json_reader.h"
#include "spec/json_text.h"

namespace attest {
namespace {

using nlohmann::json;

json to_json(const NoiseEvidence& n) {
  return {{"max_ratio", number_to_json(n.max_ratio)},
          {"worst", n.worst},
          {"ratio", number_to_json(n.ratio)},
          {"ratio_limit", number_to_json(n.ratio_limit)},
          {"bias", number_to_json(n.bias)},
          {"growth", number_to_json(n.growth)},
          {"bias_limit", number_to_json(n.bias_limit)},
          {"compared", n.compared}};
}

NoiseEvidence noise_from(const json& j) {
  return {.max_ratio = number_from_json(j.at("max_ratio")),
          .worst = j.at("worst").get<Index>(),
          .ratio = number_from_json(j.at("ratio")),
          .ratio_limit = number_from_json(j.at("ratio_limit")),
          .bias = number_from_json(j.at("bias")),
          .growth = number_from_json(j.at("growth")),
          .bias_limit = number_from_json(j.at("bias_limit")),
          .compared = j.at("compared").get<Index>()};
}

json to_json(const TensorEvidence& e) {
  json j = {{"max_ratio", number_to_json(e.max_ratio)},
            {"worst", e.worst},
            {"actual", number_to_json(e.actual)},
            {"exact", number_to_json(e.exact)},
            {"bound", number_to_json(e.bound)},
            {"rms", number_to_json(e.rms)},
            {"mean", number_to_json(e.mean)},
            {"compared", e.compared},
            {"unspecified", e.unspecified},
            {"elements", e.elements}};
  if (e.noise) j["noise"] = to_json(*e.noise);
  return j;
}

TensorEvidence evidence_from(const json& j) {
  std::optional<NoiseEvidence> noise;
  if (j.contains("noise")) noise = noise_from(j.at("noise"));
  return {.max_ratio = number_from_json(j.at("max_ratio")),
          .worst = j.at("worst").get<std::vector<Index>>(),
          .actual = number_from_json(j.at("actual")),
          .exact = number_from_json(j.at("exact")),
          .bound = number_from_json(j.at("bound")),
          .rms = number_from_json(j.at("rms")),
          // Records of earlier versions lack it.
          .mean = j.contains("mean") ? number_from_json(j.at("mean")) : 0,
          .compared = j.at("compared").get<Index>(),
          .unspecified = j.value("unspecified", Index(0)),
          .elements = j.value("elements", Index(0)),
          .noise = noise};
}

TensorName tensor_from(const std::string& text) {
  const auto tensor = tensor_named(text);
  if (!tensor) throw InputError("/tensors", fmt::format("no tensor is called {}", text));
  return *tensor;
}

Outcome outcome_from(const json& j) {
  const auto outcome = outcome_named(j.get<std::string>());
  if (!outcome) {
    throw InputError("/outcome", fmt::format("no outcome is called {}", json_text(j)));
  }
  return *outcome;
}

json to_json(const KnownFailure& known) {
  return {{"case", known.cases},
          {"testee", known.testee},
          {"outcome", name(known.outcome)},
          {"reason", known.reason},
          {"link", known.link}};
}

KnownFailure known_from(const json& j) {
  return {.cases = j.at("case").get<std::string>(),
          .testee = j.at("testee").get<std::string>(),
          .outcome = outcome_from(j.at("outcome")),
          .reason = j.at("reason").get<std::string>(),
          .link = j.at("link").get<std::string>()};
}

json to_json(const CasesRecord& cases) {
  return {{"digest", cases.digest},
          {"bundled", cases.bundled},
          {"selected", cases.selected},
          {"complete", cases.complete}};
}

CasesRecord cases_from(const json& j) {
  return {.digest = j.at("digest").get<std::string>(),
          .bundled = j.at("bundled").get<bool>(),
          .selected = j.at("selected").get<Index>(),
          .complete = j.at("complete").get<Index>()};
}

json to_json(const OptionsRecord& options) {
  json j = {{"threads", options.threads},
            {"start_limit", options.start_limit},
            {"call_limit", options.call_limit},
            {"memory_limit", options.memory_limit},
            {"env", options.env},
            {"allow_network", options.allow_network},
            {"require_isolation", options.require_isolation}};
  if (!options.sanitizer.empty()) j["sanitizer"] = options.sanitizer;
  return j;
}

OptionsRecord options_from(const json& j) {
  return {.threads = j.at("threads").get<int>(),
          .start_limit = j.at("start_limit").get<double>(),
          .call_limit = j.at("call_limit").get<double>(),
          .memory_limit = j.at("memory_limit").get<Index>(),
          .env = j.at("env").get<std::vector<std::string>>(),
          .allow_network = j.at("allow_network").get<bool>(),
          .require_isolation = j.at("require_isolation").get<std::string>(),
          .sanitizer = j.value("sanitizer", "")};
}

Header header_from(const json& j) {
  Header header;
  header.schema = j.at("schema").get<int>();
  if (header.schema != kRecordSchema) {
    throw InputError("/schema", fmt::format("the record has schema {}, this program reads {}",
                                            header.schema, kRecordSchema));
  }
  header.suite_version = j.at("suite_version").get<std::string>();
  header.suite_commit = j.at("suite_commit").get<std::string>();
  header.cases = cases_from(j.at("cases"));
  for (const json& t : j.at("testees")) {
    TesteeRecord& testee = header.testees.emplace_back(
        TesteeRecord{.name = t.at("name").get<std::string>(),
                     .spec = t.at("spec").get<std::string>(),
                     .isolation = t.at("isolation").get<std::string>(),
                     .files = t.at("files").get<std::map<std::string, std::string>>(),
                     .version = t.at("version").get<std::string>(),
                     .vendor = t.at("vendor").get<std::string>(),
                     .profiles = t.at("profiles").get<std::vector<std::string>>(),
                     .features = t.at("features").get<std::vector<std::string>>(),
                     .dtypes = t.at("dtypes").get<std::vector<std::string>>(),
                     .arithmetic = t.at("arithmetic"),
                     .beyond_caps = t.value("beyond_caps", TesteeRecord().beyond_caps),
                     .limits = t.value("limits", json::object()),
                     .dialect = t.value("dialect", json::object()),
                     .probed = t.value("probed", false)});
    for (const json& each : t.value("dispatch", json::array())) {
      testee.dispatch.push_back({.table = each.at("table").get<std::string>(),
                                 .instances = each.at("instances").get<Index>(),
                                 .met = each.at("met").get<Index>(),
                                 .fewest = each.at("fewest").get<Index>()});
    }
    testee.besides = t.value("besides", Index(0));
  }
  header.tier = j.at("tier").get<std::string>();
  header.seed = j.at("seed").get<std::uint64_t>();
  header.shard = j.at("shard").get<std::string>();
  header.filters = j.at("filters").get<std::vector<std::string>>();
  header.from = j.value("from", "");
  if (j.contains("shapes")) header.shapes = j.at("shapes").get<std::vector<std::string>>();
  header.vectors = j.value("vectors", "");
  header.isolation = j.at("isolation").get<std::string>();
  header.uncontained = j.at("uncontained").get<std::vector<std::string>>();
  header.profiles = j.at("profiles").get<std::vector<std::string>>();
  for (const json& known : j.at("known")) header.known.push_back(known_from(known));
  if (j.contains("options")) header.options = options_from(j.at("options"));
  return header;
}

VerdictRecord verdict_from(const json& j) {
  VerdictRecord record{.case_id = j.at("case").get<std::string>(),
                       .testee = j.at("testee").get<std::string>(),
                       .dtype = j.at("dtype").get<std::string>(),
                       .because = j.at("because").get<std::string>(),
                       .problem = j.value("problem", ""),
                       .verdict = {}};
  Verdict& v = record.verdict;
  v.outcome = outcome_from(j.at("outcome"));
  v.reason = j.at("reason").get<std::string>();
  v.message = j.at("message").get<std::string>();
  v.clauses = j.at("clauses").get<std::vector<std::string>>();
  v.blamed = j.value("blamed", "");
  for (const auto& [tensor, evidence] : j.at("tensors").items()) {
    v.tensors[tensor_from(tensor)] = evidence_from(evidence);
  }
  for (const json& slope : j.value("slopes", json::array())) {
    v.slopes.push_back({.tensor = tensor_from(slope.at("tensor").get<std::string>()),
                        .analytic = number_from_json(slope.at("analytic")),
                        .difference = number_from_json(slope.at("difference")),
                        .allowed = number_from_json(slope.at("allowed"))});
  }
  v.features = j.value("features", v.features);
  for (const json& s : j.value("schedule", json::array())) {
    v.schedule.push_back({.pass = s.at("pass").get<std::string>(),
                          .threads = s.at("threads").get<Index>(),
                          .blocks = s.at("blocks").get<Index>(),
                          .masked = s.at("masked").get<Index>(),
                          .imbalance = s.at("imbalance").get<double>(),
                          .seen = s.at("seen").get<bool>()});
  }
  for (const json& p : j.value("pictures", json::array())) {
    v.pictures.push_back({.kind = p.at("kind").get<std::string>(),
                          .of = p.at("of").get<std::string>(),
                          .rows = p.at("rows").get<Index>(),
                          .columns = p.at("columns").get<Index>(),
                          .letters = p.at("letters").get<std::vector<std::string>>()});
  }
  for (const json& t : j.value("time", json::array())) {
    v.time.push_back({.wall_s = t.at("wall_s").get<double>(),
                      .cpu_s = t.at("cpu_s").get<double>(),
                      .idle_s = t.at("idle_s").get<double>(),
                      .busy = t.at("busy").get<bool>()});
  }
  v.wall_s = j.at("wall_s").get<double>();
  v.repro = j.at("repro").get<std::string>();
  v.captured = j.value("captured", "");
  return record;
}

SearchRecord search_from(const json& j) {
  return {.testee = j.at("testee").get<std::string>(),
          .seed = j.at("seed").get<std::uint64_t>(),
          .first = j.at("first").get<std::uint64_t>(),
          .next = j.at("next").get<std::uint64_t>(),
          .tried = j.at("tried").get<std::map<std::string, Index>>(),
          .inconclusive = j.at("inconclusive").get<std::map<std::string, Index>>()};
}

Footer footer_from(const json& j) {
  Footer footer;
  footer.counts = j.at("counts").get<std::map<std::string, Index>>();
  for (const json& p : j.at("profiles")) {
    footer.profiles.push_back({.testee = p.at("testee").get<std::string>(),
                               .profile = p.at("profile").get<std::string>(),
                               .dtype = p.at("dtype").get<std::string>(),
                               .met = p.at("met").get<bool>(),
                               .complete = p.at("complete").get<bool>(),
                               .demanded = p.at("demanded").get<Index>(),
                               .left_out = p.value("left_out", Index{0}),
                               .passed = p.at("passed").get<Index>(),
                               .with = p.value("with", std::vector<std::string>()),
                               .needs = p.value("needs", std::map<std::string, Index>()),
                               .within_limits = p.value("within_limits", false),
                               .thin = p.value("thin", std::map<std::string, Index>())});
  }
  footer.conclusion = j.at("conclusion").get<std::string>();
  footer.exit_code = j.at("exit_code").get<int>();
  footer.wall_s = j.at("wall_s").get<double>();
  footer.stages = j.value("stages", footer.stages);
  footer.complete = j.at("complete").get<bool>();
  footer.tried = j.value("tried", footer.tried);
  footer.judged = j.at("judged").get<Index>();
  footer.known = j.at("known").get<Index>();
  footer.known_amiss = j.at("known_amiss").get<std::vector<std::string>>();
  footer.changed = j.value("changed", footer.changed);
  const json& digests = j.at("digests");
  footer.digests = {.verdicts = digests.at("verdicts").get<std::string>(),
                    .record = digests.at("record").get<std::string>()};
  return footer;
}

bool is_blank(const std::string& line) {
  return line.find_first_not_of(std::string(" \t\r\0", 4)) == std::string::npos;
}

// What no writer of records leaves in a line, and a reader of JSON would pass over; empty: nothing.
std::string blot_of(const std::string& line) {
  if (line.find('\0') != std::string::npos) return "holds NUL bytes";
  return is_blank(line) ? "is blank" : "";
}

}  // namespace

bool is_contained(const TesteeRecord& testee) {
  return testee.isolation == "other-user" || testee.isolation == "namespaces" ||
         testee.isolation == "user" || testee.isolation == kNotStarted;
}

json number_to_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

double number_from_json(const json& j) {
  if (j.is_number()) return j.get<double>();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (j == "inf") return infinity;
  if (j == "-inf") return -infinity;
  if (j == "nan") return std::numeric_limits<double>::quiet_NaN();
  throw InputError("", fmt::format("expected a number, found {}", json_text(j)));
}

std::string to_line(const Header& header) {
  json testees = json::array();
  for (const TesteeRecord& t : header.testees) {
    testees.push_back({{"name", t.name},
                       {"spec", t.spec},
                       {"isolation", t.isolation},
                       {"files", t.files},
                       {"version", t.version},
                       {"vendor", t.vendor},
                       {"profiles", t.profiles},
                       {"features", t.features},
                       {"dtypes", t.dtypes},
                       {"arithmetic", t.arithmetic}});
    if (!t.beyond_caps.empty()) testees.back()["beyond_caps"] = t.beyond_caps;
    if (!t.limits.empty()) testees.back()["limits"] = t.limits;
    if (!t.dialect.empty()) testees.back()["dialect"] = t.dialect;
    if (t.probed) testees.back()["probed"] = true;
    for (const DispatchRecord& each : t.dispatch) {
      testees.back()["dispatch"].push_back({{"table", each.table},
                                            {"instances", each.instances},
                                            {"met", each.met},
                                            {"fewest", each.fewest}});
    }
    if (t.besides > 0) testees.back()["besides"] = t.besides;
  }
  json known = json::array();
  for (const KnownFailure& each : header.known) known.push_back(to_json(each));
  json line = {{"kind", "header"},
               {"schema", header.schema},
               {"suite_version", header.suite_version},
               {"suite_commit", header.suite_commit},
               {"cases", to_json(header.cases)},
               {"testees", testees},
               {"tier", header.tier},
               {"seed", header.seed},
               {"shard", header.shard},
               {"filters", header.filters},
               {"from", header.from},
               {"isolation", header.isolation},
               {"uncontained", header.uncontained},
               {"profiles", header.profiles},
               {"known", known},
               {"options", to_json(header.options)}};
  if (!header.shapes.empty()) line["shapes"] = header.shapes;
  if (!header.vectors.empty()) line["vectors"] = header.vectors;
  return json_text(line);
}

json to_json(const VerdictRecord& record) {
  const Verdict& v = record.verdict;
  json tensors = json::object();
  for (const auto& [tensor, evidence] : v.tensors) {
    tensors[std::string(name(tensor))] = to_json(evidence);
  }
  json j = {{"kind", "verdict"},     {"case", record.case_id},    {"testee", record.testee},
            {"dtype", record.dtype}, {"because", record.because}, {"outcome", name(v.outcome)},
            {"reason", v.reason},    {"message", v.message},      {"clauses", v.clauses},
            {"tensors", tensors},    {"wall_s", v.wall_s},        {"repro", v.repro}};
  for (const SlopeEvidence& slope : v.slopes) {
    j["slopes"].push_back({{"tensor", name(slope.tensor)},
                           {"analytic", number_to_json(slope.analytic)},
                           {"difference", number_to_json(slope.difference)},
                           {"allowed", number_to_json(slope.allowed)}});
  }
  if (!v.blamed.empty()) j["blamed"] = v.blamed;
  if (!record.problem.empty()) j["problem"] = record.problem;
  if (!v.features.empty()) j["features"] = v.features;
  for (const ScheduleEvidence& s : v.schedule) {
    j["schedule"].push_back({{"pass", s.pass},
                             {"threads", s.threads},
                             {"blocks", s.blocks},
                             {"masked", s.masked},
                             {"imbalance", s.imbalance},
                             {"seen", s.seen}});
  }
  for (const Picture& p : v.pictures) {
    j["pictures"].push_back({{"kind", p.kind},
                             {"of", p.of},
                             {"rows", p.rows},
                             {"columns", p.columns},
                             {"letters", p.letters}});
  }
  for (const TimeEvidence& t : v.time) {
    j["time"].push_back(
        {{"wall_s", t.wall_s}, {"cpu_s", t.cpu_s}, {"idle_s", t.idle_s}, {"busy", t.busy}});
  }
  if (!v.captured.empty()) j["captured"] = v.captured;
  return j;
}

std::string to_line(const VerdictRecord& verdict) { return json_text(to_json(verdict)); }

std::string to_line(const SearchRecord& search) {
  return json_text({{"kind", "search"},
                    {"testee", search.testee},
                    {"seed", search.seed},
                    {"first", search.first},
                    {"next", search.next},
                    {"tried", search.tried},
                    {"inconclusive", search.inconclusive}});
}

std::string to_line(const Footer& footer) {
  json profiles = json::array();
  for (const ProfileRecord& p : footer.profiles) {
    profiles.push_back({{"testee", p.testee},
                        {"profile", p.profile},
                        {"dtype", p.dtype},
                        {"met", p.met},
                        {"complete", p.complete},
                        {"demanded", p.demanded},
                        {"passed", p.passed},
                        {"with", p.with}});
    if (p.left_out > 0) profiles.back()["left_out"] = p.left_out;
    if (!p.needs.empty()) profiles.back()["needs"] = p.needs;
    if (p.within_limits) profiles.back()["within_limits"] = true;
    if (!p.thin.empty()) profiles.back()["thin"] = p.thin;
  }
  json j = {
      {"kind", "footer"},
      {"counts", footer.counts},
      {"profiles", profiles},
      {"conclusion", footer.conclusion},
      {"exit_code", footer.exit_code},
      {"wall_s", footer.wall_s},
      {"complete", footer.complete},
      {"judged", footer.judged},
      {"known", footer.known},
      {"known_amiss", footer.known_amiss},
      {"digests", {{"verdicts", footer.digests.verdicts}, {"record", footer.digests.record}}}};
  if (!footer.stages.empty()) j["stages"] = footer.stages;
  if (!footer.tried.empty()) j["tried"] = footer.tried;
  if (!footer.changed.empty()) j["changed"] = footer.changed;
  return json_text(j);
}

Record read_record(std::istream& in,
                   const std::function<void(std::string_view, const json&)>& seen) {
  Record record;
  bool has_header = false;
  std::string text;
  for (int number = 1; std::getline(in, text); ++number) {
    const bool cut_off = in.eof();  // no newline: the writer was stopped within this line
    if (const std::string blot = blot_of(text); !blot.empty()) {
      record.defects.push_back(fmt::format("line {} {}", number, blot));
    }
    if (is_blank(text)) continue;
    try {
      if (record.footer) throw InputError("", "there is a line behind the footer");
      if (too_deep_at(text, kDeepestJson)) {
        throw InputError("", fmt::format("lists and objects nest deeper than {}", kDeepestJson));
      }
      const json j = parse_json(text);
      const auto kind = j.at("kind").get<std::string>();
      if (kind == "header") {
        if (has_header) throw InputError("", "there is a second header");
        record.header = header_from(j);
        has_header = true;
      } else if (!has_header) {
        throw InputError("", "a record begins with its header");
      } else if (kind == "verdict") {
        record.verdicts.push_back(verdict_from(j));
      } else if (kind == "search") {
        record.searches.push_back(search_from(j));
      } else if (kind == "footer") {
        record.footer = footer_from(j);
      } else {
        throw InputError("", fmt::format("no line is of kind \"{}\"", kind));
      }
      // A digest is of what the footer says, and takes no notice of how.
      if (record.footer && text != json_text(j)) {
        record.defects.push_back(fmt::format("line {} is not as a footer is written", number));
      }
      if (seen) seen(text, j);
    } catch (const std::exception& error) {
      if (cut_off && !record.footer) break;
      throw InputError("", fmt::format("line {}: {}", number, error.what()));
    }
  }
  if (!has_header) throw InputError("", "the record is empty");
  return record;
}

}  // namespace attest
