// Gradients, where the forward pass is right.
#include <cmath>
#include <utility>

#include "harness/diagnosis/setting.h"
#include "reference/working.h"

namespace attest {
namespace {

// A gradient multiplied by a number.
Mistake times(std::string name, std::string clause, std::vector<TensorName> only,
              std::function<double(const Problem&)> factor) {
  return {std::move(name),
          std::move(clause),
          {},
          [factor = std::move(factor)](const Setting& s, TensorName, Expected& e) {
            const double by = factor(s.problem);
            for (std::size_t i = 0; i < e.value.size(); ++i) {
              e.value[i] *= by;
              e.bound[i] *= std::abs(by);
            }
            e.rest.clear();
          },
          std::move(only)};
}

// The gradient of LSE by a formula of itself and D, the row sum of dO O.
Mistake through_lse(std::string name, std::string clause, bool needs_it,
                    std::function<double(const Problem&, double, double)> change) {
  return {std::move(name), std::move(clause), [needs_it, change = std::move(change)](Setting& s) {
            Problem& p = s.problem;
            if (!p.backward || (needs_it && !p.d_lse)) return false;
            const ForwardExpected forward = expect_forward(p, s.inputs, loosest(p.dtype));
            Values sums = zeros(p.lse_shape());
            for (std::size_t row = 0; row < sums.data.size(); ++row) {
              double sum = 0;
              const auto channels = static_cast<std::size_t>(p.value_dim);
              for (std::size_t at = row * channels; at < (row + 1) * channels; ++at) {
                sum += s.inputs.d_o.data[at] * forward.o.value[at];
              }
              sums.data[row] = change(p, p.d_lse ? s.inputs.d_lse.data[row] : 0, sum);
            }
            p.d_lse = true;
            s.inputs.d_lse = std::move(sums);
            return true;
          }};
}

// Some rows of queries alone add to a gradient that sums over them.
Mistake of_rows(std::string name, std::string clause, TensorName tensor,
                std::function<bool(const Problem&, Index b, Index i)> adds) {
  return {std::move(name),
          std::move(clause),
          [adds = std::move(adds)](Setting& s) {
            const Problem& p = s.problem;
            if (!p.backward) return false;
            bool all_add = true;
            for (Index b = 0; b < p.batch; ++b) {
              for (Index i = 0; i < p.stored_queries(b); ++i) {
                if (adds(p, b, i)) continue;
                all_add = false;
                const Place place = p.query_place(b, i);
                for (Index h = 0; h < p.query_heads; ++h) {
                  for (Index d = 0; d < p.value_dim; ++d) {
                    s.inputs.d_o.at(place.batch, h, place.position, d) = 0;
                  }
                  if (p.d_lse) s.inputs.d_lse.at(place.batch, h, place.position, 0) = 0;
                }
              }
            }
            return !all_add;
          },
          {},
          {tensor}};
}

std::vector<Mistake> parts_of_sums() {
  using enum TensorName;
  const auto last_element = [](const Problem& p, Index b, Index) { return b == p.batch - 1; };
  const auto first_element = [](const Problem&, Index b, Index) { return b == 0; };
  const auto first_rows = [](const Problem&, Index, Index i) { return i < 128; };
  const auto last_tile = [](const Problem& p, Index b, Index i) {
    return i >= (p.lengths(b).query - 1) / 64 * 64;
  };
  return {
      of_rows("dBias of the last batch element alone", "GRAD-4", dbias, last_element),
      of_rows("dBias of the first batch element alone", "GRAD-4", dbias, first_element),
      of_rows("dBias of the last tile of 64 queries alone", "GRAD-4", dbias, last_tile),
      of_rows("dSink of the last batch element alone", "SINK-2", dsink, last_element),
      of_rows("dSink of the first batch element alone", "SINK-2", dsink, first_element),
      of_rows("dSink of the first 128 queries alone", "SINK-2", dsink, first_rows),
  };
}

}  // namespace

std::vector<Mistake> gradient_mistakes() {
  using enum TensorName;
  const auto by_scale = [](const Problem& p) { return p.scale; };
  const auto over_scale = [](const Problem& p) { return 1 / p.scale; };
  const auto negated = [](const Problem&) { return -1.0; };
  std::vector<Mistake> all = {
      times("dQ without the scale", "GRAD-1", {dq}, over_scale),
      times("dK without the scale", "GRAD-2", {dk}, over_scale),
      times("dQ with the scale twice", "GRAD-1", {dq}, by_scale),
      times("dK with the scale twice", "GRAD-2", {dk}, by_scale),
      times("dBias times the scale", "GRAD-4", {dbias}, by_scale),
      times("dSink with the other sign", "SINK-2", {dsink}, negated),
      through_lse("no gradient through LSE", "GRAD-5", true,
                  [](const Problem&, double, double) { return 0.0; }),
      through_lse("the gradient through LSE with the other sign", "GRAD-5", true,
                  [](const Problem&, double dlse, double) { return -dlse; }),
      through_lse("dLSE times the scale", "GRAD-5", true,
                  [](const Problem& p, double dlse, double) { return p.scale * dlse; }),
      through_lse("dS without the row sum D", "GRAD-1", false,
                  [](const Problem&, double dlse, double d) { return dlse + d; }),
      through_lse("dS without the row sum D and without dLSE", "GRAD-1", true,
                  [](const Problem&, double, double d) { return d; }),
      through_lse(
          "the row sum D without 1/(1-p)", "DROP-2", false,
          [](const Problem& p, double dlse, double d) { return dlse + d * p.dropout.probability; }),
      {"dV of rows that see no key, from all keys alike",
       "GRAD-3",
       [](Setting& s) { return s.problem.backward && fill_empty_rows(s); },
       {},
       {dv}},
      {"dLSE of the first head", "GRAD-5",
       [](Setting& s) {
         if (!s.problem.d_lse) return false;
         s.inputs.d_lse = moved(s.inputs.d_lse, [](Index&, Index& h, Index&) { h = 0; });
         return true;
       }},
      {"no derivative of the softcap",
       "GRAD-6",
       [](Setting& s) {
         return s.problem.backward && s.problem.softcap > 0 &&
                set_scores(
                    s, [](const Position&, const Score& score) { return score.whole(); }, true);
       },
       {},
       {dq, dk}},
      {"dBias of all batch elements in each",
       "GRAD-4",
       {},
       [](const Setting& s, TensorName, Expected& e) {
         if (!s.problem.bias_shape || (*s.problem.bias_shape)[0] < 2) return;
         const auto count = static_cast<std::size_t>((*s.problem.bias_shape)[0]);
         const std::size_t plane = e.value.size() / count;
         for (std::size_t at = 0; at < plane; ++at) {
           double value = 0, bound = 0;
           for (std::size_t b = 0; b < count; ++b) {
             value += e.value[b * plane + at];
             bound += e.bound[b * plane + at];
           }
           for (std::size_t b = 0; b < count; ++b) {
             e.value[b * plane + at] = value;
             e.bound[b * plane + at] = bound;
           }
         }
         e.rest.clear();
       },
       {dbias}},
  };
  for (Mistake& each : parts_of_sums()) all.push_back(std::move(each));
  return all;
}

}  // namespace attest
