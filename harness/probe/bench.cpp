#include "harness/probe/bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "cases/entry.h"
#include "cases/stored_inputs.h"
#include "harness/judge/exemptions.h"
#include "reports/text.h"
#include "spec/contains.h"
#include "spec/feature.h"

namespace attest {
namespace {

Description everything(const Description& own) {
  Description terms = {.name = own.name,
                       .version = own.version,
                       .vendor = own.vendor,
                       .profiles = {},
                       .dtypes = {kDTypes.begin(), kDTypes.end()},
                       .features = known_features(),
                       .arithmetic = {}};
  terms.alignment = own.alignment;
  return terms;
}

Index rounded_up(Index n, Index step) { return (n + step - 1) / step * step; }

// Calls after which a testee that does not come back is called no more.
constexpr int kMostHung = 5;

// What it said itself stands behind the problem.
std::string own_words(const Finding& finding, const Problem& problem) {
  const std::string said = to_string(problem) + ": ";
  const auto at = finding.message.find(said);
  return at == std::string::npos ? finding.message : finding.message.substr(at + said.size());
}

std::string as_printed(const std::string& captured) {
  return captured.empty() ? "" : "; it printed: " + one_line(last_lines(captured, 3));
}

// The first element that nobody has written, of those that everybody has to; LSE has its own words.
std::optional<Finding> unwritten(const Problem& problem, const Inputs& inputs, const Trial& trial) {
  Description lenient;
  lenient.leaves_padding_unwritten = true;
  const Exemptions exemptions(problem, inputs, lenient);
  for (const Returned& tensor : trial.returned) {
    if (tensor.name == TensorName::lse) continue;
    for (std::size_t n = 0; n < tensor.bits.size(); ++n) {
      const bool is_left = tensor.bits[n] == tensor.poison &&
                           !exemptions.may_be_unwritten(tensor.name, tensor.shape, n);
      if (!is_left) continue;
      const auto at = coordinates(tensor.shape, static_cast<Index>(n));
      return failure("unwritten", fmt::format("{}[{}]", name(tensor.name), fmt::join(at, ",")));
    }
  }
  return std::nullopt;
}

}  // namespace

Lengths Plain::fitted(Index queries, Index keys) const {
  attest::Lengths fitted = {.query = rounded_up(queries, query_step),
                            .key = rounded_up(keys, key_step)};
  if (lengths != Lengths::any || is_square()) fitted.key = std::max(fitted.key, fitted.query);
  if (is_square()) fitted.query = fitted.key;
  return fitted;
}

const Returned* Reaction::find(TensorName tensor) const {
  for (const Returned& each : trial.returned) {
    if (each.name == tensor) return &each;
  }
  return nullptr;
}

double Reaction::at(TensorName tensor, Index b, Index h, Index s, Index c) const {
  const Returned* found = find(tensor);
  if (!found) return std::numeric_limits<double>::quiet_NaN();
  const auto element = static_cast<std::size_t>(dense_index(found->shape, b, h, s, c));
  return decode(found->dtype, found->bits[element]);
}

bool Reaction::is_written(TensorName tensor, Index b, Index h, Index s, Index c) const {
  const Returned* found = find(tensor);
  if (!found) return false;
  return found->bits[static_cast<std::size_t>(dense_index(found->shape, b, h, s, c))] !=
         found->poison;
}

Inputs zero_inputs(const Problem& p) {
  Inputs inputs = {.q = zeros(p.q_shape()), .k = zeros(p.k_shape()), .v = zeros(p.v_shape())};
  if (p.bias_shape) inputs.bias = zeros(*p.bias_shape);
  if (p.slopes_shape) inputs.slopes = zeros(*p.slopes_shape);
  if (p.sink) inputs.sink = zeros(p.sink_shape());
  const auto put_scales = [](const std::optional<Stored>& stored, const Values& of, double scale,
                             Values& scales) {
    if (!stored) return;
    scales = zeros(stored->scale_shape(of.shape));
    std::fill(scales.data.begin(), scales.data.end(), scale);
  };
  // Scores by hand are small, and some of them fractions; V is not.
  const bool whole = p.stored.k && p.stored.k->dtype == DType::int8;
  put_scales(p.stored.q, inputs.q, whole ? 0x1p-3 : 1, inputs.q_scale);
  put_scales(p.stored.k, inputs.k, whole ? 0x1p-3 : 1, inputs.k_scale);
  put_scales(p.stored.v, inputs.v, 1, inputs.v_scale);
  if (p.backward) inputs.d_o = zeros(p.o_shape());
  if (p.d_lse) inputs.d_lse = zeros(p.lse_shape());
  if (p.dropout.mode == Dropout::Mode::given) {
    inputs.keep.shape = p.keep_shape();
    inputs.keep.kept.assign(static_cast<std::size_t>(element_count(p.keep_shape())), 1);
  }
  return inputs;
}

Bench::Bench(const Testee& testee, Executor& executor, int threads,
             std::function<bool()> interrupted)
    : testee_(testee),
      executor_(executor),
      threads_(threads),
      interrupted_(std::move(interrupted)),
      terms_(everything(testee.description)) {}

void Bench::break_down(const Problem& problem, const Finding& finding, const std::string& captured,
                       Reaction& reaction) {
  if (finding.outcome == Outcome::unsupported || finding.reason == "wrong_refusal") {
    reaction.refused = own_words(finding, problem);
    reaction.printed = as_printed(captured);
    return;
  }
  if (finding.outcome == Outcome::not_run) throw Interrupted();
  using enum Breakdown::Kind;
  Breakdown broke = {.kind = finding.outcome == Outcome::crash     ? crashed
                             : finding.outcome == Outcome::timeout ? hung
                             : finding.reason == "unwritten"       ? unwritten
                                                                   : other,
                     .problem = to_string(problem)};
  const char* const how = broke.kind == crashed     ? "it crashed"
                          : broke.kind == hung      ? "it did not come back"
                          : broke.kind == unwritten ? "it left outputs as they were"
                                                    : "it did what no call may";
  broke.words =
      fmt::format("{} at {}: {}{}", how, broke.problem, finding.message, as_printed(captured));
  hung_ += broke.kind == hung;
  reaction.refused = broke.words;
  breakdowns_.push_back(broke);
  reaction.broke = std::move(broke);
}

void Bench::ask_support(const Problem& problem, std::string& captured, Reaction& reaction) {
  const Calling calling = {terms_, testee_.kernel, executor_, threads_, captured};
  if (const auto refused = attest::ask(calling, problem)) {
    break_down(problem, *refused, captured, reaction);
  }
}

Reaction Bench::ask(const Problem& problem, const Inputs& inputs, int threads) {
  if (interrupted_ && interrupted_()) throw Interrupted();
  Reaction reaction;
  if (hung_ >= kMostHung) {
    reaction.refused = fmt::format("it was called no more after {} calls did not come back", hung_);
    reaction.broke = {.kind = Breakdown::Kind::hung, .words = reaction.refused};
    return reaction;
  }
  std::string captured;
  ask_support(problem, captured, reaction);
  if (!reaction.taken()) return reaction;
  const Calling calling = {.testee = terms_,
                           .kernel = testee_.kernel,
                           .executor = executor_,
                           .threads = threads > 0 ? threads : threads_,
                           .captured = captured,
                           .trace = traces,
                           .measure = measures};
  if (problem.stored.any()) {
    Inputs rounded = inputs;
    round_to_scales(problem, rounded);
    reaction.trial = try_out(calling, problem, rounded, Placement::end_flush);
  } else {
    reaction.trial = try_out(calling, problem, inputs, Placement::end_flush);
  }
  auto stopped = reaction.trial.stopped;
  if (!stopped) stopped = unwritten(problem, inputs, reaction.trial);
  if (stopped) break_down(problem, *stopped, captured, reaction);
  return reaction;
}

std::vector<DType> Bench::formats() const {
  std::vector<DType> taken;
  for (const DType dtype : kDTypes) {
    if (plain_.contains(dtype)) taken.push_back(dtype);
  }
  return taken;
}

DType Bench::telling_format() const {
  return plain_.contains(DType::f32) ? DType::f32 : formats().front();
}

namespace {

// What may be plain, the plainest first: those that differ from it in one respect before those that
// differ in two.
std::vector<Plain> plainest_first() {
  struct Tried {
    Plain plain;
    std::size_t differs;  // in so many respects
  };
  const Mask masks[] = {Mask::full(), Mask::causal(Anchor::top_left),
                        Mask::causal(Anchor::bottom_right)};
  const char* const orders[] = {"bhsd", "bshd"};
  const std::pair<Index, Index> heads[] = {{1, 1}, {2, 1}, {4, 1}, {8, 1}, {8, 8}};
  const Index steps[] = {1, 16, 64, 128};
  using enum Plain::Lengths;
  const Plain::Lengths lengths[] = {any, keys_at_least_queries, square};
  const Index channels[] = {64, 128, 32, 16, 256, 8};
  std::vector<Tried> all;
  for (const Mask& mask : masks) {
    for (const char* const& order : orders) {
      for (const auto& [query_heads, key_heads] : heads) {
        for (const Index& step : steps) {
          for (const auto& length : lengths) {
            for (const Index& dim : channels) {
              const std::size_t differs = (mask.kind != Mask::Kind::full) + (&order != orders) +
                                          (query_heads != 1) + (step != 1) + (length != any) +
                                          (dim != channels[0]);
              all.push_back(
                  {{dim, dim, query_heads, key_heads, step, step, length, mask, order}, differs});
            }
          }
        }
      }
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Tried& a, const Tried& b) { return a.differs < b.differs; });
  std::vector<Plain> plain;
  for (const Tried& each : all) plain.push_back(each.plain);
  return plain;
}

StoredInputs stored_as(const std::string& words) {
  const nlohmann::json problem = {{"stored", words}, {"query_heads", 1}, {"key_heads", 1},
                                  {"query_len", 1},  {"key_len", 1},     {"head_dim", 1}};
  return read_entry({{"name", "probe"},
                     {"clauses", {"SOFTMAX-1"}},
                     {"because", "A probe."},
                     {"problem", problem},
                     {"dtypes", {"f32"}},
                     {"data", {"normal"}}},
                    "probe")
      .problem.stored;
}

// How a testee that declares so much may take Q, K and V in 8 bits.
std::vector<std::string> ways_to_store(const Description& testee) {
  std::vector<std::string> ways;
  for (const char* const tensors : {"qkv", "kv", "qk"}) {
    if (!testee.has(fmt::format("stored-{}", tensors))) continue;
    for (const DType dtype : kStoredDTypes) {
      const bool is_int8 = dtype == DType::int8;
      const bool plain = testee.has(name(dtype));
      const auto add = [&](bool may, const char* axes) {
        if (may) ways.push_back(fmt::format("{} {}{}", tensors, name(dtype), axes));
      };
      const bool heads = testee.has("scales-of-heads");
      const bool positions = testee.has("scales-of-positions");
      add(plain, "");
      add(plain && heads, " h");
      add(plain && positions, " s");
      add(plain && heads && positions, " hs");
      add(is_int8 ? testee.has("bfp8") : plain && testee.has("mxfp8"), " c");
    }
  }
  // Those first of which its own limits say that it takes nothing else.
  std::stable_partition(ways.begin(), ways.end(), [&](const std::string& way) {
    Problem plain;
    plain.stored = stored_as(way);
    const auto needed = features_of(plain);
    return std::none_of(
        testee.limits.never.begin(), testee.limits.never.end(), [&](const auto& never) {
          const auto& lacks = never.first.lacks;
          return lacks && std::none_of(lacks->begin(), lacks->end(), [&](const std::string& each) {
                   return contains(needed, each);
                 });
        });
  });
  return ways;
}

bool is_unwritten(const Reaction& reaction) {
  return reaction.broke && reaction.broke->kind == Breakdown::Kind::unwritten;
}

}  // namespace

std::optional<Plain> Bench::find_plain(DType dtype, const std::string& stored, std::string& why,
                                       bool& writes) {
  constexpr int kMostBroken = 32, kMostUnwritten = 64;
  int broken = 0, left = 0;
  std::optional<Plain> unwritten;  // the first that is taken, if only nothing were left unwritten
  writes = true;
  for (Plain plain : plainest_first()) {
    plain.stored = stored;
    plain_[dtype] = plain;
    bool all = true, but_for_writing = true;
    for (const auto& [rows, keys] : {std::pair<Index, Index>{3, 64}, {200, 64}, {3, 512}}) {
      const Reaction reaction = ask(stage(dtype, rows, 4, keys));
      all = all && reaction.taken();
      but_for_writing = but_for_writing && (reaction.taken() || is_unwritten(reaction));
      if (why.empty() && !reaction.taken()) why = reaction.refused + reaction.printed;
      broken += reaction.broke && !is_unwritten(reaction);
      if (!but_for_writing) break;
    }
    if (all) return plain;
    if (but_for_writing && !unwritten) unwritten = plain;
    left += but_for_writing;
    if (broken >= kMostBroken || left >= kMostUnwritten) break;
  }
  writes = false;
  if (unwritten) plain_[dtype] = *unwritten;
  return unwritten;
}

std::string Bench::set_up(const std::vector<DType>& formats) {
  std::string reasons;
  std::vector<DType> unwritten;
  const auto find_all = [&](const std::string& stored) {
    for (const DType dtype : kDTypes) {
      if (!formats.empty() && !contains(formats, dtype)) continue;
      std::string why;
      bool writes = true;
      if (!find_plain(dtype, stored, why, writes)) {
        plain_.erase(dtype);
        reasons += fmt::format("\n  {}: {}", name(dtype), why);
      } else if (!writes) {
        unwritten.push_back(dtype);
      }
    }
  };
  find_all("");
  const std::string without_any = reasons;
  for (const std::string& stored : ways_to_store(testee_.description)) {
    if (!plain_.empty()) break;
    find_all(stored);
  }
  reasons = without_any;
  if (plain_.empty()) {
    // With no LSE to return it may take what it does not take with one.
    std::erase(terms_.features, "lse");
    no_lse = "it takes no problem whose LSE is asked for";
    const std::string with_lse = reasons;
    find_all("");
    reasons = with_lse;
  }
  // Of what is never written nothing can be told, but that.
  if (unwritten.size() < plain_.size()) {
    for (const DType dtype : unwritten) plain_.erase(dtype);
  }
  return reasons;
}

Stage Bench::stage(DType dtype, Index rows, Index real, Index keys, bool backward) const {
  const Plain& plain = plain_.at(dtype);
  const bool causal = plain.mask.kind != Mask::Kind::full;
  Stage stage = {.problem = {.dtype = dtype,
                             .query_heads = plain.query_heads,
                             .key_heads = plain.key_heads,
                             .head_dim = plain.head_dim,
                             .value_dim = plain.value_dim,
                             .mask = plain.mask,
                             .backward = backward},
                 .inputs = {},
                 .first = causal ? real : 0};
  Problem& p = stage.problem;
  // A single row has no backward pass in some kernels; another one, of zeros, adds nothing.
  const Index least = backward ? 2 : 1;
  const Lengths lengths = plain.fitted(stage.first + std::max(rows, least), std::max(keys, real));
  p.query_len = lengths.query;
  p.key_len = lengths.key;
  const Layout layout = Layout::parse(plain.order);
  for (const TensorName tensor : kLaidOut) {
    if (tensor != TensorName::bias) p.layouts[tensor] = layout;
  }
  if (!plain.stored.empty() && !backward) p.stored = stored_as(plain.stored);
  stage.inputs = zero_inputs(p);
  for (Index i = 0; i < p.query_len; ++i) stage.inputs.q.at(0, 0, i, p.head_dim - 1) = 1;
  for (Index j = real; j < p.key_len; ++j) stage.inputs.k.at(0, 0, j, p.head_dim - 1) = kFar;
  return stage;
}

}  // namespace attest
