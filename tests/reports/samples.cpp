#include "tests/reports/samples.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "reports/page/files.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// SHA-256 of nothing in particular.
const std::string kSum = std::string(60, '0') + "cafe";

const CasesRecord kCases = {.digest = kSum, .bundled = true, .selected = 165, .complete = 165};

TesteeRecord testee(const std::string& name) {
  return {.name = name,
          .spec = "./" + name + ".so",
          .isolation = "other-user",
          .files = {{"/opt/" + name + ".so", kSum}},
          .version = "0.1.0",
          .vendor = "The Attest authors",
          .profiles = {"forward-core", "training-core", "masks"},
          .features = {"lse", "backward", "causal", "window"},
          .dtypes = {"f32", "f16", "bf16"},
          .arithmetic = {{"qk", {{"operands", "f32"}, {"accumulator", "f32"}}},
                         {"exp_error_ulp", 2},
                         {"deterministic", true}}};
}

struct Topic {
  const char* path;
  std::vector<std::string> clauses;
  bool backward;
};

const std::vector<Topic>& topics() {
  static const std::vector<Topic> all = {
      {"mask/causal/top_left", {"MASK-2", "NUM-1"}, false},
      {"mask/causal/bottom_right", {"MASK-3", "NUM-1"}, false},
      {"mask/window/left", {"MASK-4", "NUM-1"}, false},
      {"mask/lengths/residues", {"MASK-5", "HIDE-2"}, false},
      {"shape/tails", {"SHAPE-1", "SOFTMAX-1"}, false},
      {"shape/zero", {"SHAPE-2"}, false},
      {"heads/grouped", {"HEAD-1"}, false},
      {"layout/transposed", {"LAYOUT-1", "LAYOUT-3"}, false},
      {"value/ascending", {"SOFTMAX-2", "LSE-1"}, false},
      {"backward/causal", {"MASK-3", "GRAD-1", "GRAD-2", "GRAD-3"}, true},
      {"backward/grouped", {"HEAD-2", "GRAD-2", "GRAD-3"}, true},
  };
  return all;
}

TensorEvidence evidence(double ratio) {
  const double bound = 3.7e-6;
  return {.max_ratio = ratio,
          .worst = {0, 1, 17, 3},
          .actual = 0.158024 + ratio * bound,
          .exact = 0.158024,
          .bound = bound,
          .rms = ratio * bound / 9,
          .compared = 4096};
}

VerdictRecord ordinary(const std::string& name, const Topic& topic, int variant,
                       const std::string& dtype) {
  static constexpr int kLengths[] = {1, 15, 16, 17, 63, 64, 65, 127, 129};
  VerdictRecord record{
      .case_id = fmt::format("{}/sq={},sk={},d=64/dtype={}/data=ascending/s=1", topic.path,
                             kLengths[variant], 2 * kLengths[variant] + 1, dtype),
      .testee = name,
      .dtype = dtype,
      .because = "A mask that is anchored at the wrong corner shows only when the lengths differ.",
      .verdict = {}};
  Verdict& v = record.verdict;
  v.outcome = Outcome::pass;
  v.clauses = topic.clauses;
  const double ratio = 0.02 + 0.037 * variant + (dtype == "f32" ? 0.05 : 0.0);
  v.tensors = {{TensorName::o, evidence(ratio)}, {TensorName::lse, evidence(ratio / 2)}};
  if (topic.backward) {
    for (const TensorName gradient : {TensorName::dq, TensorName::dk, TensorName::dv}) {
      v.tensors[gradient] = evidence(ratio * 1.1);
      v.tensors[gradient].noise = {.max_ratio = ratio,
                                   .ratio = 0.5,
                                   .ratio_limit = 1.3,
                                   .bias = -0.01,
                                   .bias_limit = 0.6,
                                   .compared = 4096};
      v.slopes.push_back(
          {.tensor = gradient, .analytic = 2 + ratio * 1e-5, .difference = 2, .allowed = 1e-5});
    }
    v.features = {"backward", "causal"};
  }
  v.wall_s = 0.004 + 0.001 * variant;
  v.repro = fmt::format("attest repro '{}' --testee {} --seed 1", record.case_id, name);
  return record;
}

void fail(VerdictRecord& record, Outcome outcome, const std::string& reason,
          const std::string& clause, const std::string& message) {
  Verdict& v = record.verdict;
  v.outcome = outcome;
  v.reason = reason;
  v.message = message;
  v.clauses.insert(v.clauses.begin(), clause);
}

void spoil(std::vector<VerdictRecord>& all) {
  int mask = 0;
  for (VerdictRecord& record : all) {
    if (record.testee != "fa2" || record.case_id.find("mask/causal/bottom_right") != 0) continue;
    Verdict& v = record.verdict;
    switch (mask++) {
      case 2:
      case 5:
        fail(record, Outcome::fail, "bound", "MASK-3",
             "O[0,1,17,3] = 0.959, exact 0.158: the newest keys are hidden.");
        v.tensors[TensorName::o] = evidence(2.16e5);
        break;
      case 7:
        fail(record, Outcome::fail, "nonfinite", "EMPTY-1",
             "O[0,0,0,0] = nan in a row without keys.");
        v.tensors[TensorName::o] = {.max_ratio = kInfinity,
                                    .worst = {0, 0, 0, 0},
                                    .actual = kNan,
                                    .exact = 0,
                                    .bound = 0,
                                    .rms = kNan,
                                    .compared = 4096};
        break;
      case 9:
        fail(record, Outcome::crash, "", "SAFE-4", "The worker died of SIGSEGV.");
        v.tensors.clear();
        v.captured = "fa2: tile 3 of 5\nAddressSanitizer: heap-buffer-overflow on address 0x602\n";
        break;
      case 11:
        fail(record, Outcome::timeout, "", "SAFE-4", "No answer within 10 s.");
        v.tensors.clear();
        v.wall_s = 10;
        break;
      default:
        break;
    }
  }
}

}  // namespace

void count(Record& record) {
  record.footer->digests = {.verdicts = kSum, .record = kSum};
  record.footer->counts.clear();
  for (const VerdictRecord& v : record.verdicts) {
    ++record.footer->counts[std::string(name(v.verdict.outcome))];
  }
}

Record conformant_record() {
  Record record;
  record.header = {.suite_version = "0.1.0",
                   .suite_commit = "unknown",
                   .cases = kCases,
                   .testees = {testee("naive"), testee("fa2")},
                   .tier = "standard",
                   .seed = 1,
                   .isolation = "own process, own user, sealed shared memory, guard pages"};
  for (const TesteeRecord& t : record.header.testees) {
    for (const Topic& topic : topics()) {
      for (int variant = 0; variant < 5; ++variant) {
        for (const std::string& dtype : t.dtypes) {
          record.verdicts.push_back(ordinary(t.name, topic, variant, dtype));
        }
      }
    }
  }
  for (VerdictRecord& v : record.verdicts) {
    if (v.case_id.find("layout/") == 0 && v.dtype == "f16") {
      v.verdict.outcome = Outcome::unsupported;
      v.verdict.message = "strides that are no multiple of 16 bytes";
      v.verdict.tensors.clear();
    }
  }
  VerdictRecord& warned = record.verdicts[4];
  fail(warned, Outcome::warn, "property:hidden_nan", "HIDE-3", "NaN of a hidden key leaks.");
  record.footer = Footer{.counts = {},
                         .conclusion = "conformant",
                         .exit_code = 0,
                         .wall_s = 83.4,
                         .stages = {{"call", 40.25}}};
  for (const TesteeRecord& t : record.header.testees) {
    for (const char* profile : {"forward-core", "training-core", "masks"}) {
      for (const std::string& dtype : t.dtypes) {
        record.footer->profiles.push_back({.testee = t.name,
                                           .profile = profile,
                                           .dtype = dtype,
                                           .met = true,
                                           .complete = true,
                                           .demanded = 40,
                                           .passed = 40});
      }
    }
  }
  count(record);
  return record;
}

Record declared_record(bool claimed) {
  Record record = conformant_record();
  TesteeRecord& fa2 = record.header.testees[1];
  fa2.profiles[0] = claimed ? "forward-core+declared" : "forward-core";
  fa2.arithmetic = {{"bf16", {{"exp_ulp", 736}, {"key_block", 128}}}};
  for (ProfileRecord& p : record.footer->profiles) {
    if (p.testee != "fa2" || p.profile != "forward-core") continue;
    p.profile = fa2.profiles[0];
    if (p.dtype != "bf16") continue;
    p.with = {"exp of 736 units"};
    p.met = claimed;
  }
  if (!claimed) {
    record.footer->conclusion = "not conformant";
    record.footer->exit_code = 1;
  }
  return record;
}

Record narrow_record() {
  Record record = conformant_record();
  TesteeRecord& fa2 = record.header.testees[1];
  fa2.profiles[0] = "forward-core/limits";
  fa2.limits = nlohmann::json::parse(
      R"({"head_dim": [64, 128], "never": [{"features": ["window"], "batch": 1}]})");
  fa2.dialect = {{"lse", {{"base", 2}}}};
  fa2.arithmetic = {{"bf16", {{"max_lag", 8}}}};
  for (ProfileRecord& p : record.footer->profiles) {
    if (p.testee != "fa2" || p.profile != "forward-core") continue;
    p.profile = fa2.profiles[0];
    p.within_limits = true;
    p.left_out = 3;
    p.passed = 37;
  }
  return record;
}

Record realistic_record() {
  Record record = conformant_record();
  spoil(record.verdicts);
  for (ProfileRecord& p : record.footer->profiles) {
    if (p.testee == "fa2" && p.profile == "forward-core") {
      p.met = false;
      p.passed = 38;
    }
    if (p.testee == "fa2" && p.profile == "masks" && p.dtype == "f16") {
      p.met = p.complete = false;
      p.passed = 12;
    }
  }
  record.footer->conclusion = "not conformant";
  record.footer->exit_code = 1;
  count(record);
  return record;
}

Record hostile_record() {
  const std::string evil =
      "</code></pre><script>alert('x')</script>]]>\" onload=\"alert(1) & | `a` ``b`` *c* "
      "\x1b[31m\x01 \xff\xc3 \xe2\x80\xae"
      "end\nnext\r\nline ünïcödé \xF0\x9F\x94\xA5";
  Record record;
  record.header = {.suite_version = evil,
                   .suite_commit = evil,
                   .cases = kCases,
                   .testees = {testee(evil)},
                   .tier = evil,
                   .filters = {evil},
                   .isolation = evil,
                   .uncontained = {evil},
                   .profiles = {evil},
                   .known = {{.cases = "**",
                              .outcome = Outcome::fail,
                              .reason = "property:" + evil,
                              .link = evil}},
                   .options = {.env = {evil}}};
  record.header.testees[0].arithmetic = {{evil, evil}};
  record.header.testees[0].vendor = evil;
  record.header.testees[0].limits = {{evil, evil}, {"never", {evil, {{evil, evil}}}}};
  record.header.testees[0].dialect = {{"empty_rows", {{"o", evil}}}};
  for (int i = 0; i < 10; ++i) {
    VerdictRecord v{.case_id = evil + std::string(300, 'x') + std::to_string(i),
                    .testee = evil,
                    .dtype = evil,
                    .because = evil,
                    .verdict = {}};
    v.verdict = {.outcome = static_cast<Outcome>(i),
                 .reason = i == 2 ? "property:" + evil : "",
                 .message = evil,
                 .clauses = {evil, "MASK-2", "MASK-2"},
                 .tensors = {{TensorName::o,
                              {.max_ratio = kNan,
                               .worst = {0, 0, 0, 0},
                               .actual = -kInfinity,
                               .exact = kNan,
                               .bound = kInfinity,
                               .rms = -kNan,
                               .compared = 1}},
                             {TensorName::lse, {}}},
                 .wall_s = 1e-9,
                 .repro = evil,
                 .captured = evil + std::string(100000, '<')};
    record.verdicts.push_back(v);
  }
  record.footer = Footer{.counts = {}, .conclusion = "not conformant", .exit_code = 1};
  record.footer->profiles = {{.testee = evil, .profile = evil, .dtype = evil},
                             {.testee = "unheard of", .profile = "masks", .dtype = "f32"}};
  record.footer->profiles[0].with = {evil};
  record.header.testees[0].beyond_caps = {{evil, evil}};
  record.footer->known = 1;
  record.footer->known_amiss = {evil};
  record.footer->changed = {evil};
  record.diagnoses = {{.testee = evil,
                       .case_id = record.verdicts[2].case_id,
                       .headline = evil,
                       .passes_without = {evil}}};
  count(record);
  return record;
}

Record empty_record() {
  Record record;
  record.header = {.suite_version = "0.1.0", .cases = kCases, .testees = {}, .tier = "smoke"};
  record.footer = Footer{.counts = {}, .conclusion = "incomplete", .exit_code = 3};
  count(record);
  return record;
}

Record truncated_record() {
  Record record = realistic_record();
  record.footer.reset();
  return record;
}

Record record_of(std::vector<VerdictRecord> verdicts, const std::string& conclusion) {
  Record record;
  record.header = {
      .suite_version = "0.1.0", .cases = kCases, .testees = {testee("naive")}, .tier = "standard"};
  record.verdicts = std::move(verdicts);
  record.footer = Footer{.counts = {}, .conclusion = conclusion, .exit_code = 3};
  count(record);
  return record;
}

Record known_record() {
  Record record = realistic_record();
  for (const VerdictRecord& v : record.verdicts) {
    if (!is_fault(v.verdict.outcome)) continue;
    record.header.known.push_back({.cases = v.case_id,
                                   .testee = v.testee,
                                   .outcome = v.verdict.outcome,
                                   .reason = v.verdict.reason,
                                   .link = "https://example.org/5"});
  }
  record.footer->known = static_cast<Index>(record.header.known.size());
  record.footer->conclusion = kNoFailure;
  record.footer->exit_code = 0;
  record.footer->judged = 165;
  return record;
}

Record large_record() {
  constexpr int kMany = 20, kEach = 8500;
  Record record;
  record.header = {.suite_version = "0.1.0", .cases = kCases, .testees = {}, .tier = "standard"};
  for (int t = 0; t < kMany; ++t) {
    record.header.testees.push_back(testee(fmt::format("kernel_{:02}/avx2", t)));
  }
  std::uint64_t state = 1;
  const auto random = [&] {
    return (state = state * 6364136223846793005u + 1442695040888963407u) >> 40;
  };
  for (int c = 0; c < kEach; ++c) {
    const Topic& topic = topics()[static_cast<std::size_t>(c) % topics().size()];
    const auto heads = random() % 64;
    for (const TesteeRecord& t : record.header.testees) {
      VerdictRecord v = ordinary(t.name, topic, c % 9, t.dtypes[static_cast<std::size_t>(c) % 3]);
      v.case_id =
          fmt::format("{}/sq={},hk={}/dtype={}/data=normal/s=1", topic.path, c, heads, v.dtype);
      v.because = fmt::format("Hunts the fault number {}.", c / 20);
      v.verdict.repro = fmt::format("attest repro {} --testee {}", v.case_id, t.name);
      for (auto& [tensor, e] : v.verdict.tensors) {
        e.max_ratio = static_cast<double>(random()) / 0x1p24;
        e.actual = e.exact + e.max_ratio * e.bound;
      }
      v.verdict.wall_s = 0.001 + static_cast<double>(random()) / 0x1p26;
      if (&t - record.header.testees.data() < 3 && c % 17 < 2) {
        fail(v, Outcome::fail, "bound", topic.clauses[0],
             fmt::format("O[0,1,17,{}] = {}, and is wrong", c, random()));
        v.verdict.tensors[TensorName::o] = evidence(2.16e5 + c);
        v.verdict.pictures = {{.kind = "mask",
                               .of = "batch 0, head 0",
                               .rows = 32,
                               .columns = 32,
                               .letters = std::vector<std::string>(32, std::string(32, '#'))}};
      }
      record.verdicts.push_back(v);
    }
  }
  record.footer = Footer{.counts = {}, .conclusion = "not conformant", .exit_code = 1};
  count(record);
  return record;
}

std::string shown_of(std::string page) {
  const auto drop = [&](const std::string& begin, const std::string& end) {
    const std::size_t from = page.find(begin);
    if (from == page.npos) return;
    const std::size_t to = page.find(end, from + begin.size());
    if (to != page.npos) page.erase(from, to + end.size() - from);
  };
  const auto drop_script = [&](const Embedded& file) {
    if (!file.text.empty()) drop("<script>" + std::string(file.text), "</script>");
  };
  drop("<style>", "</style>");
  drop("<script type=\"application/base64\" id=\"data\">", "</script>");
  drop_script(page::chart_library());
  for (const Embedded& file : page::scripts()) drop_script(file);
  return page;
}

Record smoke_record() {
  Record record = conformant_record();
  record.header.tier = "smoke";
  record.header.cases.complete = 10403;
  record.header.testees[1].isolation = "none";
  record.header.uncontained = {"fa2 (accidental faults only) had all"};
  record.footer->conclusion = kNoFailure;
  record.footer->judged = 165;
  for (ProfileRecord& p : record.footer->profiles) p.met = p.complete = false;
  return record;
}

std::vector<Sample> samples() {
  Record inconsistent = realistic_record();
  inconsistent.verdicts.pop_back();
  Record stopped = realistic_record();
  stopped.footer->complete = false;
  stopped.footer->conclusion = "incomplete";
  stopped.footer->exit_code = 3;
  Record defective = conformant_record();
  defective.defects = {"verdicts are doubled: mask/a of naive"};
  return {{"realistic", realistic_record()},
          {"known", known_record()},
          {"smoke", smoke_record()},
          {"defective", defective},
          {"conformant", conformant_record()},
          {"narrow", narrow_record()},
          {"declared", declared_record(true)},
          {"refused", declared_record(false)},
          {"hostile", hostile_record()},
          {"empty", empty_record()},
          {"truncated", truncated_record()},
          {"inconsistent", inconsistent},
          {"stopped", stopped}};
}

}  // namespace attest
