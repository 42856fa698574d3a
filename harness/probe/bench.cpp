#include "harness/probe/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

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

Inputs zero_inputs(const Problem& p) {
  Inputs inputs = {.q = zeros(p.q_shape()), .k = zeros(p.k_shape()), .v = zeros(p.v_shape())};
  if (p.bias_shape) inputs.bias = zeros(*p.bias_shape);
  if (p.slopes_shape) inputs.slopes = zeros(*p.slopes_shape);
  if (p.sink) inputs.sink = zeros(p.sink_shape());
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

std::string Bench::refusal(const Problem& problem) {
  if (interrupted_ && interrupted_()) throw Interrupted();
  std::string captured;
  const Calling calling = {terms_, testee_.kernel, executor_, threads_, captured};
  const auto refused = attest::ask(calling, problem);
  if (!refused) return "";
  // What it said itself stands behind the problem.
  const std::string said = to_string(problem) + ": ";
  const auto at = refused->message.find(said);
  return at == std::string::npos ? refused->message : refused->message.substr(at + said.size());
}

Reaction Bench::ask(const Problem& problem, const Inputs& inputs, int threads) {
  Reaction reaction;
  reaction.refused = refusal(problem);
  if (!reaction.taken()) return reaction;
  std::string captured;
  const Calling calling = {.testee = terms_,
                           .kernel = testee_.kernel,
                           .executor = executor_,
                           .threads = threads > 0 ? threads : threads_,
                           .captured = captured,
                           .trace = traces,
                           .measure = measures};
  reaction.trial = try_out(calling, problem, inputs, Placement::end_flush);
  if (reaction.trial.stopped) reaction.refused = reaction.trial.stopped->message;
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

std::optional<Plain> Bench::find_plain(DType dtype) {
  const Mask masks[] = {Mask::full(), Mask::causal(Anchor::top_left),
                        Mask::causal(Anchor::bottom_right)};
  const std::pair<Index, Index> heads[] = {{1, 1}, {2, 1}, {4, 1}, {8, 1}, {8, 8}};
  std::vector<Plain> tried;
  for (const Mask& mask : masks) {
    for (const char* order : {"bhsd", "bshd"}) {
      for (const auto& [query_heads, key_heads] : heads) {
        for (const Index step : {1, 16, 64, 128}) {
          for (const auto lengths : {Plain::Lengths::any, Plain::Lengths::keys_at_least_queries,
                                     Plain::Lengths::square}) {
            for (const Index channels : {64, 128, 32, 16, 256, 8}) {
              tried.push_back(
                  {channels, channels, query_heads, key_heads, step, step, lengths, mask, order});
            }
          }
        }
      }
    }
  }
  constexpr int kMostBroken = 5;  // calls that end in anything but a refusal
  int broken = 0;
  for (const Plain& plain : tried) {
    plain_[dtype] = plain;
    const Reaction few = ask(stage(dtype, 3, 4));
    const bool takes_all =
        few.taken() && ask(stage(dtype, 200, 4)).taken() && ask(stage(dtype, 3, 4, 512)).taken();
    if (takes_all) return plain;
    if (few.trial.stopped && ++broken == kMostBroken) break;
  }
  return std::nullopt;
}

void Bench::set_up(const std::vector<DType>& formats) {
  for (const DType dtype : kDTypes) {
    const bool wanted = formats.empty() || contains(formats, dtype);
    if (!wanted || !find_plain(dtype)) plain_.erase(dtype);
  }
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
  stage.inputs = zero_inputs(p);
  for (Index i = 0; i < p.query_len; ++i) stage.inputs.q.at(0, 0, i, p.head_dim - 1) = 1;
  for (Index j = real; j < p.key_len; ++j) stage.inputs.k.at(0, 0, j, p.head_dim - 1) = kFar;
  return stage;
}

}  // namespace attest
