// FlashAttention as it was in 2022 (T. Dao, D. Y. Fu, S. Ermon, A. Rudra, C. Re, arXiv 2205.14135,
// Algorithms 1 and 4; "line n" below counts their lines), and keys that are split over workers.
//
// Key blocks are outside and query blocks inside: K and V are loaded once, but O, l and m of all
// rows come from memory and go back to it in every step, and whenever O lies there it is
// normalised. That is what FlashAttention-2 did away with by turning the loops around. Backward, D
// is made anew in every step.
//
// Where heads are too few for the threads, the keys of a head are split into parts. Each part runs
// the algorithm on its own keys, and leaves attention over them, (O_n, LSE_n). They are merged by
//
//   LSE = log sum_n e^LSE_n      O = sum_n e^(LSE_n - LSE) O_n
//
// Backward, a part has all of dK and dV of its keys, and dQ is the sum of what the parts leave.
//
// Reads top down: the declarations, the splits, the memory, the steps of a part, the merge, and the
// backward pass. Softcap, bias, mask, dropout and sinks have their places as in flash/forward.h.
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "impl/flash.h"
#include "impl/flash/backward.h"
#include "impl/flash/pieces.h"
#include "impl/flash/tiles.h"
#include "impl/parallel.h"
#include "impl/schedule.h"
#include "impl/score.h"
#include "impl/sequence.h"
#include "impl/sink.h"

namespace attest::impl {
namespace {

// Parts are made of whole chunks, and are never more than in FlashAttention's first code.
constexpr std::int64_t kChunk = 64;
constexpr std::int64_t kMostSplits = 30;

// Into how many parts keys are split depends on the threads, and on how many heads and batch
// elements there are to keep them busy.
ArithmeticDeclaration arithmetic(const std::string& dtype) {
  ArithmeticDeclaration declared = unrounded_arithmetic(dtype);
  declared["p_normalised"] = "last";
  declared["tanh_ulp"] = 3;  // functions.inl
  declared["rescales_output"] = true;
  declared["key_block"] = kKeyBlock;
  declared["kv_splits"] = kMostSplits;
  declared["thread_invariant"] = declared["batch_invariant"] = false;
  return declared;
}

// The workspace: a worker takes no more than in FlashAttention-2's backward pass, the part included
// that it has in memory where keys are not split. Where they are, there are parts of all rows, each
// in the widest type (f64), with padding and the ends of three arrays; backward, a part of dQ.
MemoryDeclaration memory() {
  MemoryDeclaration declared = flash_memory<kUpwards>();
  declared.workspace["per_query"] = kMostSplits * (256 + 2 * 8 + 3 * 64);
  declared.workspace["per_query_channel"] = kMostSplits * 8;
  return declared;
}

// ---- Splits ------------------------------------------------------------------------------------

// Each part of each key head is a task: number n is part n % splits of head n / splits.
//
// The number of splits is that of the heuristic in version 1 of FlashAttention's code
// (num_splits_heuristic_fwd; schedule.h says how it chooses), with key heads for its heads and
// threads for its multiprocessors. The threads are those that are offered, even where a problem is
// too small to start them all.
struct Tasks {
  explicit Tasks(const Call& call)
      : heads(call.problem.batch * call.problem.key_heads),
        splits(split_count(
            heads, std::max(call.context.threads, 1),
            std::clamp(blocks_of(call.problem.key_len, kChunk), std::int64_t{1}, kMostSplits))) {}

  std::int64_t count() const { return heads * splits; }

  std::int64_t heads, splits;
};

// ---- Memory ------------------------------------------------------------------------------------

// O, l and m of one part, of all rows that read its key head: row g Sq + i is query i of the g-th
// query head. After any number of keys, max is the largest score of a row, sum the sum of
// exp(score - max), and o is attention over these keys. Before the first visible key they are
// -inf, 0 and 0.
template <class R>
struct Part {
  Part(const Call& call, Arena arena)
      : rows(group_of(call.problem) * call.problem.query_len),
        width(engine_of<R>(call).padded(call.problem.value_dim)),
        o(arena.take<R>(rows, width)),
        max(arena.take<R>(rows)),
        sum(arena.take<R>(rows)),
        bytes(arena.used()) {}

  RowState<R> from_row(std::int64_t row, std::int64_t count, std::int64_t channels) const {
    return {max + row, sum + row, {o + row * width, count, channels, width}};
  }

  std::int64_t rows, width;
  R *o, *max, *sum;
  std::uint64_t bytes;
};

// What else a worker needs: one block of keys, one of queries, and their scores.
template <class R>
struct SplitTiles {
  SplitTiles(const Call& call, Arena arena)
      : SplitTiles(call.problem, engine_of<R>(call),
                   std::min(call.problem.key_len, forward_key_block(call.problem)),
                   std::min(call.problem.query_len, kQueryBlock), arena) {}

  std::int64_t stride;          // of scores
  R *k_transposed, *v, *q, *s;  // K' and V as panels
  R* page;                      // a block of K or V, gathered; null unless that is needed
  std::uint8_t* visible;
  std::uint64_t bytes;

 private:
  SplitTiles(const attest_problem& p, const Engine<R>& engine, std::int64_t keys,
             std::int64_t queries, Arena arena)
      : stride(score_stride(engine, keys)),
        k_transposed(arena.take<R>(engine.padded(keys), p.head_dim)),
        v(arena.take<R>(keys, engine.padded(p.value_dim))),
        q(arena.take<R>(queries, p.head_dim)),
        s(arena.take<R>(queries, stride)),
        page(gathers_keys(p) ? arena.take<R>(keys, std::max(p.head_dim, p.value_dim)) : nullptr),
        visible(arena.take<std::uint8_t>(queries, keys)),
        bytes(arena.used()) {}
};

template <class R>
using SplitWorker = Worker<R, SplitTiles<R>>;

std::uint64_t workspace(const Call& call, bool backward) {
  if (backward) return flash_workspace(call, true, kUpwards);
  return with_element_type(call.problem.dtype, [&](auto element) {
    return SplitTiles<Real<decltype(element)>>(call, Arena()).bytes;
  });
}

// The n-th of the parts that are in memory at the same time, which all workers share: one for each
// task, if they are to be merged, else one for each worker.
template <class R>
Part<R> part_of(const Call& call, std::int64_t n) {
  const std::uint64_t bytes = Part<R>(call, Arena()).bytes;
  auto* const first = static_cast<char*>(shared_workspace_of(call, workspace(call, false)));
  return Part<R>(call, Arena(first + static_cast<std::uint64_t>(n) * bytes));
}

// dQ, as far as the keys of one part give it, of all rows that read its key head.
template <class R>
struct QueryGradient {
  QueryGradient(const Call& call, Arena arena)
      : rows(group_of(call.problem) * call.problem.query_len),
        width(engine_of<R>(call).padded(call.problem.head_dim)),
        dq(arena.take<R>(rows, width)),
        bytes(arena.used()) {}

  std::int64_t rows, width;
  R* dq;
  std::uint64_t bytes;
};

// The n-th of those of all tasks.
template <class R>
QueryGradient<R> query_gradient_of(const Call& call, std::int64_t n) {
  const std::uint64_t bytes = QueryGradient<R>(call, Arena()).bytes;
  auto* const first = static_cast<char*>(shared_workspace_of(call, workspace(call, true)));
  return QueryGradient<R>(call, Arena(first + static_cast<std::uint64_t>(n) * bytes));
}

std::uint64_t shared_workspace(const Call& call, bool backward) {
  const Tasks tasks(call);
  return with_element_type(call.problem.dtype, [&](auto element) {
    using R = Real<decltype(element)>;
    const std::uint64_t part =
        backward ? QueryGradient<R>(call, Arena()).bytes : Part<R>(call, Arena()).bytes;
    Arena arena;
    arena.take<char>(backward || tasks.splits > 1 ? tasks.count() : call.workers,
                     static_cast<std::int64_t>(part));
    return arena.used();
  });
}

// ---- One part: Algorithm 1 ---------------------------------------------------------------------

// Line 6. Answers whether all of V is finite.
template <class T, class R = Real<T>>
bool load_keys_and_values(const SplitWorker<R>& w, std::int64_t b, std::int64_t key_head,
                          const Range& keys) {
  const attest_inputs& in = w.call.inputs;
  w.engine.pack_transposed(
      gather_keys<T>(w.call, in.k, b, key_head, keys.begin, keys.size(), w.tile.page), 1,
      w.tile.k_transposed);
  return w.engine.pack(
      gather_keys<T>(w.call, in.v, b, key_head, keys.begin, keys.size(), w.tile.page), w.tile.v);
}

template <class T, class R = Real<T>>
Tile<R> query_tile(const SplitWorker<R>& w, std::int64_t b, std::int64_t h, std::int64_t begin,
                   std::int64_t rows) {
  const Call& call = w.call;
  const std::int64_t channels = call.problem.head_dim;
  if (is_stored(call.problem.q_dtype)) {
    load_queries<T>(call, b, h, begin, rows, w.tile.q);
    return {w.tile.q, rows, channels, channels};
  }
  const auto q = query_plane<const T>(call, call.inputs.q, b, h).from(begin);
  return as_tile(w.engine, q, rows, channels, w.tile.q);
}

// Lines 9 to 13 for one piece: its queries take its keys in.
template <class T, class R = Real<T>>
void take_in(const SplitWorker<R>& w, std::int64_t b, std::int64_t h, const Tile<R>& q,
             const Piece& piece, std::int64_t keys, bool values_finite, const RowState<R>& rows) {
  const attest_problem& p = w.call.problem;
  const Block& block = piece.block;
  const Tile<R> s = {w.tile.s, block.queries(), block.keys(), w.tile.stride};
  const Panels<R> v = {w.tile.v, keys};
  w.engine.multiply(q, {w.tile.k_transposed + piece.key * p.head_dim, p.head_dim},
                    static_cast<R>(p.scale), s);  // line 9
  HeadScores<T>(w.call, b, h, &w.engine).finish(block, s.stride, s.data);
  if (piece.visible) hide(block, piece.visible, keys, s.stride, s.data);

  const auto for_each_output = [&](const auto& change) {
    for (std::int64_t i = 0; i < rows.o.rows; ++i) {
      const R sum = rows.sum[i];
      R* const o = rows.o.row(i);
      for (std::int64_t c = 0; c < rows.o.columns; ++c) o[c] = change(o[c], sum);
    }
  };
  // Line 12, O = (l e^(m - m_new) O + P V) / l_new, in three steps: times the old l; lines 10 and
  // 11, the rescaling and P V; over the new l. A row that saw nothing has l = 0 and O = 0.
  for_each_output([](R o, R old_sum) { return o * old_sum; });
  w.engine.absorb(s, rows);
  w.dropout.apply(b, h, block, R(1), s.stride, s.data);
  w.engine.add_product(s, v.from_row(piece.key, w.engine.panel), !values_finite, rows.o);
  for_each_output([](R o, R new_sum) { return new_sum == 0 ? o : o / new_sum; });
}

// Attention of all rows of a key head over some of its keys. In the end max is LSE.
template <class T, class R = Real<T>>
void attend(SplitWorker<R>& w, std::int64_t b, std::int64_t key_head, const Range& keys,
            bool with_sink, const Part<R>& part) {
  const Call& call = w.call;
  const attest_problem& p = call.problem;
  const std::int64_t queries = call.lengths_of(b).query, group = call.group_size();
  std::fill_n(part.o, part.rows * part.width, R(0));  // line 2
  for (std::int64_t row = 0; row < part.rows; ++row) {
    // A sink is a key that its row has seen from the start, with the value 0; one part counts it.
    const std::int64_t h = key_head * group + row / p.query_len;
    part.max[row] = with_sink ? sink_of<R>(call, h) : -std::numeric_limits<R>::infinity();
    part.sum[row] = with_sink && p.has_sink ? R(1) : R(0);
  }
  const std::int64_t key_block = forward_key_block(p);
  for (std::int64_t key = keys.begin; key < keys.end; key += key_block) {  // line 5
    const Range these = {key, std::min(key + key_block, keys.end)};
    bool loaded = false, values_finite = true;
    for (std::int64_t g = 0; g < group; ++g) {
      const std::int64_t h = key_head * group + g;
      for (std::int64_t begin = 0; begin < queries; begin += kQueryBlock) {  // line 7
        const Block block = {begin, std::min(begin + kQueryBlock, queries), these.begin, these.end};
        const Coverage coverage = w.mask.cover(b, h, block, w.tile.visible);
        if (coverage == Coverage::empty) continue;
        if (!loaded) values_finite = load_keys_and_values<T>(w, b, key_head, these);
        loaded = true;
        const Tile<R> q_tile = query_tile<T>(w, b, h, begin, block.queries());  // line 8
        for_each_piece(block, coverage, w.tile.visible, w.engine.panel, [&](const Piece& piece) {
          call.report(w.number, b, h, piece.block, piece.visible, kForwardPass);
          const std::int64_t rows = piece.block.queries();
          take_in<T>(w, b, h, rows_of(q_tile, piece.row, rows), piece, these.size(), values_finite,
                     part.from_row(g * p.query_len + piece.block.query_begin, rows, p.value_dim));
        });
      }
    }
  }
  for (std::int64_t row = 0; row < part.rows; ++row) part.max[row] += std::log(part.sum[row]);
}

// ---- The merge ---------------------------------------------------------------------------------

// Merges some rows of all parts of a head into those of the first. A part that saw nothing of a row
// (no key at all, or masked ones only) has LSE = -inf there, and the weight 0; where that holds for
// all of them it is the result too (EMPTY-1, EMPTY-2).
template <class R>
void merge(std::span<const Part<R>> parts, std::int64_t begin, std::int64_t end) {
  const Part<R>& result = parts.front();
  for (std::int64_t row = begin; row < end; ++row) {
    R top = -std::numeric_limits<R>::infinity();
    for (const Part<R>& part : parts) top = std::max(top, part.max[row]);
    if (top == -std::numeric_limits<R>::infinity()) top = 0;
    R sum = 0;
    for (const Part<R>& part : parts) sum += std::exp(part.max[row] - top);
    for (const Part<R>& part : parts) {
      const R weight = std::exp(part.max[row] - top);
      const R share = weight == 0 ? R(0) : weight / sum;
      const R* const from = part.o + row * part.width;
      R* const to = result.o + row * result.width;
      for (std::int64_t c = 0; c < result.width; ++c) {
        to[c] = (&part == &result ? R(0) : to[c]) + share * from[c];
      }
    }
    result.max[row] = top + std::log(sum);
  }
}

// O and LSE of a query head (line 16), from one part; and what stands beyond the lengths.
template <class T, class R = Real<T>>
void store_head(const SplitWorker<R>& w, std::int64_t b, std::int64_t h, const Part<R>& part) {
  const Call& call = w.call;
  const attest_problem& p = call.problem;
  const std::int64_t queries = call.lengths_of(b).query, stored_queries = call.stored_queries(b);
  const auto out = query_plane<T>(call, call.outputs.o, b, h);
  const auto lse = query_plane<R>(call, call.outputs.lse, b, h);
  const RowState<R> rows = part.from_row(h % call.group_size() * p.query_len, queries, p.value_dim);
  w.engine.store(rows.o, static_cast<R>(w.dropout.rescale()), nullptr,
                 result(out, queries, p.value_dim));
  for (std::int64_t i = 0; i < queries; ++i) lse.at(i, 0) = rows.max[i];
  fill(out, queries, stored_queries, p.value_dim, R(0));
  fill(lse, queries, stored_queries, 1, -std::numeric_limits<R>::infinity());
  w.dropout.publish(b, h, 0, p.query_len);
}

// The same, from all parts.
template <class T, class R = Real<T>>
void merge_head(const SplitWorker<R>& w, std::int64_t b, std::int64_t h, const Tasks& tasks) {
  const Call& call = w.call;
  const std::int64_t group = call.group_size(), row = h % group * call.problem.query_len;
  std::vector<Part<R>> parts;
  for (std::int64_t split = 0; split < tasks.splits; ++split) {
    const std::int64_t head = b * call.problem.key_heads + h / group;
    parts.push_back(part_of<R>(call, head * tasks.splits + split));
  }
  merge<R>(parts, row, row + call.lengths_of(b).query);
  store_head<T>(w, b, h, parts.front());
}

template <class T>
void forward_as(const Call& call) {
  using R = Real<T>;
  const attest_problem& p = call.problem;
  const Tasks tasks(call);
  const auto worker = [&](int number) {
    return SplitWorker<R>(
        call, number,
        SplitTiles<R>(call, Arena(workspace_of(call, number, workspace(call, false)))));
  };
  share_out(tasks.count(), call.workers, [&](int number, std::int64_t begin, std::int64_t end) {
    SplitWorker<R> w = worker(number);
    for (std::int64_t n = begin; n < end; ++n) {
      const std::int64_t head = n / tasks.splits, split = n % tasks.splits;
      const std::int64_t b = head / p.key_heads, key_head = head % p.key_heads;
      const Part<R> part = part_of<R>(call, tasks.splits > 1 ? n : number);
      attend<T>(w, b, key_head, split_of_keys(call.lengths_of(b).key, kChunk, tasks.splits, split),
                split == 0, part);
      if (tasks.splits > 1) continue;
      for (std::int64_t g = 0; g < call.group_size(); ++g) {
        store_head<T>(w, b, key_head * call.group_size() + g, part);
      }
    }
  });
  if (tasks.splits == 1) return;
  const std::int64_t query_heads = p.batch * p.query_heads;
  share_out(query_heads, call.workers, [&](int number, std::int64_t begin, std::int64_t end) {
    const SplitWorker<R> w = worker(number);
    for (std::int64_t n = begin; n < end; ++n) {
      merge_head<T>(w, n / p.query_heads, n % p.query_heads, tasks);
    }
  });
}

void forward(const Call& call) {
  with_element_type(call.problem.dtype, [&](auto e) { forward_as<decltype(e)>(call); });
}

// ---- Backward ----------------------------------------------------------------------------------

// Algorithm 4 for a key head and some of its keys. LSE, which the contract hands over, stands for l
// and m, and dropout's bits are drawn again, as in the paper (line 14). Scale is applied once, to
// the sums.
template <class T, class R = Real<T>>
void attend_backward(BackwardWorker<R>& w, std::int64_t b, std::int64_t key_head, const Range& keys,
                     const QueryGradient<R>& part) {
  const Call& call = w.call;
  const BackwardTiles<R>& tile = w.tile;
  const std::int64_t queries = call.lengths_of(b).query, group = call.group_size();
  std::fill_n(part.dq, part.rows * part.width, R(0));                            // line 5
  for (std::int64_t begin = keys.begin; begin < keys.end; begin += kKeyBlock) {  // line 6
    const KeyBlock key =
        load_key_block<T>(w, b, key_head, begin, std::min(begin + kKeyBlock, keys.end));  // line 7
    std::fill_n(tile.dk, key.keys() * tile.width, R(0));                                  // line 8
    std::fill_n(tile.dv, key.keys() * tile.value_width, R(0));
    for (std::int64_t g = 0; g < group; ++g) {
      const std::int64_t h = key_head * group + g;
      for (std::int64_t first = 0; first < queries; first += kQueryBlock) {  // line 9
        const Block block = {first, std::min(first + kQueryBlock, queries), key.begin, key.end};
        const Coverage coverage = w.mask.cover(b, h, block, tile.visible);
        if (coverage == Coverage::empty) continue;
        form_delta<T>(w, b, h, first, block.queries(), tile.lse, tile.delta);  // line 19
        const QueryBlock<R> query = load_query_block<T>(w, b, h, first, block.queries(), tile.lse,
                                                        tile.delta);  // line 10
        add_block<T>(                                                 // lines 11 to 22
            w, b, h, key, block, coverage, query, [] {},
            part.dq + (g * call.problem.query_len + first) * part.width, tile.dk, tile.dv);
      }
    }
    if (group > 0) {
      store_keys<T>(w, b, key_head, key.begin, key.keys(), tile.dk, tile.dv);  // line 24
    }
  }
}

// dQ of a key head's rows, from all parts.
template <class T, class R = Real<T>>
void add_query_gradients(BackwardWorker<R>& w, std::int64_t head, const Tasks& tasks) {
  const Call& call = w.call;
  const std::int64_t b = head / call.problem.key_heads, key_head = head % call.problem.key_heads;
  const QueryGradient<R> sum = query_gradient_of<R>(call, head * tasks.splits);
  for (std::int64_t split = 1; split < tasks.splits; ++split) {
    const QueryGradient<R> part = query_gradient_of<R>(call, head * tasks.splits + split);
    for (std::int64_t n = 0; n < sum.rows * sum.width; ++n) sum.dq[n] += part.dq[n];
  }
  for (std::int64_t g = 0; g < call.group_size(); ++g) {
    w.tile.dq = sum.dq + g * call.problem.query_len * sum.width;
    store_queries<T>(w, b, key_head * call.group_size() + g);
  }
  clear_unread_keys<T>(call, b, key_head);
}

template <class T>
void backward_as(const Call& call) {
  using R = Real<T>;
  const Tasks tasks(call);
  const auto worker = [&](int number) {
    return BackwardWorker<R>(
        call, number,
        backward_tiles<R>(call, kUpwards,
                          Arena(workspace_of(call, number, workspace(call, true)))));
  };
  Workers workers(call.workers);
  workers.share_out(tasks.count(), [&](int number, std::int64_t begin, std::int64_t end) {
    BackwardWorker<R> w = worker(number);
    for (std::int64_t n = begin; n < end; ++n) {
      const std::int64_t head = n / tasks.splits, b = head / call.problem.key_heads;
      attend_backward<T>(
          w, b, head % call.problem.key_heads,
          split_of_keys(call.lengths_of(b).key, kChunk, tasks.splits, n % tasks.splits),
          query_gradient_of<R>(call, n));
    }
  });
  workers.share_out(tasks.heads, [&](int number, std::int64_t begin, std::int64_t end) {
    BackwardWorker<R> w = worker(number);
    for (std::int64_t head = begin; head < end; ++head) add_query_gradients<T>(w, head, tasks);
  });
}

void backward(const Call& call) {
  with_element_type(call.problem.dtype, [&](auto e) { backward_as<decltype(e)>(call); });
  flash_further_gradients(call, kUpwards);
}

}  // namespace
}  // namespace attest::impl

extern "C" const attest_plugin* attest_plugin_get(void) {
  using namespace attest::impl;
  static const Plugin plugin(for_each_target({.name = "fa1_split_kv",
                                              .arithmetic = &arithmetic,
                                              .workspace = &workspace,
                                              .forward = &forward,
                                              .backward = &backward,
                                              .schedule = &flash_schedule<kUpwards>,
                                              .memory = &memory,
                                              .shared_workspace = &shared_workspace,
                                              .takes_stored = true},
                                             engines<float>()));
  return plugin.table();
}
