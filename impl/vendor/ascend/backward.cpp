#include "impl/vendor/ascend/backward.h"

#include <algorithm>
#include <cstring>

#include "impl/vendor/ascend/cube.h"
#include "impl/vendor/ascend/schedule.h"
#include "impl/vendor/ascend/vector.h"
#include "impl/vendor/device/queue.h"

namespace attest::vendor::ascend {

namespace {

std::byte* bytes(UbTile x) { return reinterpret_cast<std::byte*>(x.data); }

// One core.
class BackwardCore {
 public:
  BackwardCore(const Plan& plan, int number, const std::vector<BlockRow>& launches);
  Cycles run(Profile& profile);

 private:
  using Column = BlockRow::Column;
  // Of the vector core's loop: a block of a launch.
  struct Trip {
    int64_t launch;
    std::size_t index;
    bool last;  // of its launch
  };

  void cube_program();
  void mm1(int64_t n);
  void mm2(int64_t n);
  void products(int64_t n);

  void vector_program();
  void softmax_grad(const BlockRow& r);
  void sub(const Trip& t);
  void drop(const BlockRow& r, const Block& block, UbTile x);
  void softmax(const Trip& t);
  UbTile recompute_p(const BlockRow& r, const Column& c, Gm scores, Carver& carve);
  void ds_and_dropped_p(const Trip& t, UbTile p, Carver carve);
  void load_statistics(const BlockRow& r);
  void store_narrow(UbTile x, Gm to, std::byte* place);

  const BlockRow& launch(int64_t n) const { return launches_[static_cast<std::size_t>(n)]; }
  Gm place(const Workspace::Part& part, const Trip& t, int64_t element, int64_t slots) const {
    return plan_.workspace.of(part, number_, t.launch % slots) +
           static_cast<int64_t>(t.index) * block_ * element;
  }
  int64_t launches() const { return static_cast<int64_t>(launches_.size()); }
  int64_t d() const { return plan_.query.d; }
  Matrix queries(const Operand& x, const BlockRow& r) const {
    return x_matrix(x, plan_.row(x, r.sequence, r.head, r.i0), r.rows);
  }
  Matrix keys(const Operand& x, const BlockRow& r, const Column& c) const {
    return x_matrix(x, plan_.key_row(x, r.sequence, r.head / plan_.group, c.j0), c.columns);
  }
  Matrix x_matrix(const Operand& x, int64_t first, int64_t rows) const {
    return x.matrix(first, rows, d(), plan_.type);
  }

  const Plan& plan_;
  const int number_;
  const std::vector<BlockRow>& launches_;
  const int64_t slots_, size_, block_;
  std::vector<Trip> trips_;
  AiCore core_;
  CubeCore cube_;
  VectorCore vector_;
  UbBuffers buffers_;
  float *max_, *sum_, *row_dot_;  // of the row of blocks under way
  device::Stages stages_;
  device::Queue<int> mm1_, mm2_, ds_;
};

BackwardCore::BackwardCore(const Plan& plan, int number, const std::vector<BlockRow>& launches)
    : plan_(plan),
      number_(number),
      launches_(launches),
      slots_(plan.tiling.ahead ? 2 : 1),
      size_(bytes_of(plan.type)),
      block_(plan.tiling.base_m * plan.tiling.base_n),
      cube_(core_, plan.type, std::max(plan.tiling.base_m, plan.tiling.base_n), plan.tiling.base_n,
            std::max({plan.query.d, plan.tiling.base_m, plan.tiling.base_n})),
      vector_(core_, plan.numbers),
      buffers_(core_),
      mm1_(stages_, "mm1 workspace", static_cast<std::size_t>(slots_)),
      mm2_(stages_, "mm2 workspace", static_cast<std::size_t>(slots_)),
      ds_(stages_, "mul workspace", static_cast<std::size_t>(slots_)) {
  Carver statistics(buffers_.clc3);
  max_ = statistics.take<float>(plan.tiling.base_m * kStatistics);
  sum_ = statistics.take<float>(plan.tiling.base_m * kStatistics);
  row_dot_ = Carver(buffers_.tmp).take<float>(plan.tiling.base_m);
  for (int64_t n = 0; n < this->launches(); ++n) {
    const std::size_t blocks = launch(n).columns.size();
    for (std::size_t c = 0; c < blocks; ++c) trips_.push_back({n, c, c + 1 == blocks});
  }
}

Cycles BackwardCore::run(Profile& profile) {
  stages_.add([this] { cube_program(); });
  stages_.add([this] { vector_program(); });
  stages_.run();
  return profile.take(core_, static_cast<int64_t>(trips_.size()), 3 * launches(),
                      buffers_.ub.most_used());
}

// ---- The cube core

void BackwardCore::cube_program() {
  if (!plan_.tiling.ahead) {
    for (int64_t n = 0; n < launches(); ++n) mm1(n), mm2(n), products(n);
    return;
  }
  for (int64_t n = 0; n <= launches(); ++n) {
    if (n < launches()) mm1(n), mm2(n);
    if (n > 0) products(n - 1);
  }
}

void BackwardCore::mm1(int64_t n) {
  const BlockRow& r = launch(n);
  core_.cube.spend(kFlag);
  mm1_.reserve(core_.fixpipe.unit());
  cube_.left(queries(plan_.dy, r));
  for (std::size_t c = 0; c < r.columns.size(); ++c) {
    Matrix v = keys(plan_.v, r, r.columns[c]);
    v.transposed = true;
    cube_.times(v, place(plan_.workspace.mm1, {n, c, false}, kFloatBytes, slots_),
                r.columns[c].columns, false);
  }
  mm1_.push(core_.fixpipe.unit(), n, 0);
}

void BackwardCore::mm2(int64_t n) {
  const BlockRow& r = launch(n);
  core_.cube.spend(kFlag);
  mm2_.reserve(core_.fixpipe.unit());
  cube_.left(queries(plan_.q, r));
  for (std::size_t c = 0; c < r.columns.size(); ++c) {
    Matrix k = keys(plan_.k, r, r.columns[c]);
    k.transposed = true;
    cube_.times(k, place(plan_.workspace.mm2, {n, c, false}, kFloatBytes, slots_),
                r.columns[c].columns, false);
  }
  mm2_.push(core_.fixpipe.unit(), n, 0);
}

// Steps 4 to 6 without the scale, added to the sums of all cores.
void BackwardCore::products(int64_t n) {
  const BlockRow& r = launch(n);
  const Workspace& w = plan_.workspace;
  const Sequence& s = plan_.sequences[static_cast<std::size_t>(r.sequence)];
  // The sums lie as [B,N,S,D], or as [N,T,D].
  const auto sums = [&](int64_t start, const Sizes& of, int64_t head, int64_t position) {
    return w.base + start + (((s.batch * of.n + head) * of.s + position) * d()) * kFloatBytes;
  };
  const Gm dq = sums(w.dq, plan_.query, r.head, s.query_start + r.i0);
  core_.cube.spend(kFlag);
  ds_.front(core_.mte2.unit(), n);
  for (std::size_t c = 0; c < r.columns.size(); ++c) {
    const Column& column = r.columns[c];
    const int64_t at = s.key_start + column.j0, key_head = r.head / plan_.group;
    Matrix ds{place(w.mul, {n, c, false}, size_, slots_), r.rows, column.columns, column.columns};
    Matrix p{place(w.drop, {n, c, false}, size_, slots_), r.rows, column.columns, column.columns};
    cube_.left(ds);
    cube_.times(keys(plan_.k, r, column), dq, d(), true);
    ds.transposed = p.transposed = true;
    cube_.left(ds);
    cube_.times(queries(plan_.q, r), sums(w.dk, plan_.key, key_head, at), d(), true);
    cube_.left(p);
    cube_.times(queries(plan_.dy, r), sums(w.dv, plan_.key, key_head, at), d(), true);
  }
  ds_.pop(core_.mte2.unit());
}

// ---- The vector core

// Sub of the next block of a launch comes before Softmax of this one.
void BackwardCore::vector_program() {
  std::size_t subbed = 0;
  const auto sub_to = [&](std::size_t end) {
    for (; subbed < std::min(end, trips_.size()); ++subbed) sub(trips_[subbed]);
  };
  for (std::size_t n = 0; n < trips_.size(); ++n) {
    sub_to(n + (plan_.tiling.next_round && !trips_[n].last ? 2 : 1));
    softmax(trips_[n]);
  }
}

// FlashSoftmaxGrad: rowsum(dy * attention_in).
void BackwardCore::softmax_grad(const BlockRow& r) {
  const int64_t piece = std::clamp<int64_t>(40 * kKb / (d() * kFloatBytes), 1, r.rows);
  for (int64_t m = 0; m < r.rows; m += piece) {
    const int64_t rows = std::min(piece, r.rows - m);
    Carver carve(buffers_.ub);
    const UbTile dy{carve.take<float>(rows * d()), rows, d(), d()};
    const UbTile out{carve.take<float>(rows * d()), rows, d(), d()};
    auto* narrow = carve.take<std::byte>(rows * d() * size_);
    vector_.wait_for_stores();
    for (const auto& [operand, wide] : {std::pair{&plan_.dy, dy}, std::pair{&plan_.out, out}}) {
      const int64_t at = plan_.row(*operand, r.sequence, r.head, r.i0 + m);
      vector_.load(operand->at + at * size_, rows, d() * size_, operand->steps.position * size_,
                   narrow, d() * size_);
      vector_.cast_from(narrow, plan_.type, wide);
    }
    vector_.mul(dy, out);
    vector_.sum_of_row(dy, row_dot_ + m);
  }
}

// Step 2, and the difference of step 3.
void BackwardCore::sub(const Trip& t) {
  const BlockRow& r = launch(t.launch);
  const Column& column = r.columns[t.index];
  const int64_t row_bytes = column.columns * kFloatBytes;
  if (t.index == 0) {
    core_.vector.spend(kFlag);
    if (r.is_new) softmax_grad(r);
    mm1_.front(core_.vector_mte2.unit(), t.launch);
  }
  const UbTile dp{Carver(buffers_.ub).take<float>(r.rows * column.columns), r.rows, column.columns,
                  column.columns};
  vector_.wait_for_stores();
  vector_.load(place(plan_.workspace.mm1, t, kFloatBytes, slots_), r.rows, row_bytes, row_bytes,
               bytes(dp), row_bytes);
  if (plan_.has_drop_mask) drop(r, r.block(column), dp);
  vector_.sub_of_row(dp, row_dot_);
  vector_.store(bytes(dp), row_bytes, place(plan_.workspace.sub, t, kFloatBytes, 2), r.rows,
                row_bytes, row_bytes);
  if (t.last) mm1_.pop(core_.vector_mte2.unit());
}

void BackwardCore::drop(const BlockRow& r, const Block& block, UbTile x) {
  Carver tmp(buffers_.tmp);
  tmp.take<float>(plan_.tiling.base_m);  // row_dot_
  auto* bits = tmp.take<std::byte>(block.rows * ((block.columns + 7) / 8));
  vector_.dropout(x, load_drop_bits(vector_, plan_, r.sequence, r.head, block, bits),
                  plan_.keep_prob);
}

// Step 1, the product of step 3, and the dropout of step 6.
void BackwardCore::softmax(const Trip& t) {
  const BlockRow& r = launch(t.launch);
  const Workspace& w = plan_.workspace;
  if (t.index == 0) {
    core_.vector.spend(kFlag);
    if (r.is_new) load_statistics(r);
    mm2_.front(core_.vector_mte2.unit(), t.launch);
    ds_.reserve(core_.mte3.unit());
  }
  vector_.trip();
  vector_.wait_for_stores();
  Carver carve(buffers_.ub);
  const UbTile p = recompute_p(r, r.columns[t.index], place(w.mm2, t, kFloatBytes, slots_), carve);
  ds_and_dropped_p(t, p, carve);
  if (!t.last) return;
  mm2_.pop(core_.vector_mte2.unit());
  ds_.push(core_.mte3.unit(), t.launch, 0);
}

// P of a whole block, which stays in the unified buffer. The mask comes in pieces.
UbTile BackwardCore::recompute_p(const BlockRow& r, const Column& c, Gm scores, Carver& carve) {
  const int64_t row_bytes = c.columns * kFloatBytes;
  const UbTile s{carve.take<float>(r.rows * c.columns), r.rows, c.columns, c.columns};
  vector_.load(scores, r.rows, row_bytes, row_bytes, bytes(s), row_bytes);
  vector_.muls(s, plan_.scale);
  const int64_t piece = std::min<int64_t>(r.rows, 64);
  for (int64_t m = 0; c.masked && m < r.rows; m += piece) {
    const Block part{r.i0 + m, std::min(piece, r.rows - m), c.j0, c.columns};
    auto* hidden = Carver(carve).take<std::uint8_t>(part.rows * c.columns);
    plan_.masks().load_mask(vector_, r.sequence, r.head, part, hidden);
    vector_.select(s.rows_from(m, part.rows), hidden, c.columns);
  }
  vector_.sub_of_row(s, max_);  // SimpleSoftMax
  vector_.exp(s);
  vector_.div_of_row(s, sum_);
  return s;
}

void BackwardCore::ds_and_dropped_p(const Trip& t, UbTile p, Carver carve) {
  const BlockRow& r = launch(t.launch);
  const Column& c = r.columns[t.index];
  const Workspace& w = plan_.workspace;
  const Gm dp = place(w.sub, t, kFloatBytes, 2);
  const Gm ds_to = place(w.mul, t, size_, slots_), p_to = place(w.drop, t, size_, slots_);
  const int64_t row_bytes = c.columns * kFloatBytes;
  // As many rows of dP - D as leave room for their cast: 120 KB hold a block of (128,128) and 64
  // rows beside it.
  const int64_t piece = std::min<int64_t>(r.rows, 64);
  float* dp_place = carve.take<float>(piece * c.columns);
  auto* narrow =
      plan_.type == DataType::kFloat ? nullptr : carve.take<std::byte>(piece * c.columns * size_);
  for (int64_t m = 0; m < r.rows; m += piece) {
    const int64_t rows = std::min(piece, r.rows - m);
    const UbTile ds{dp_place, rows, c.columns, c.columns}, part = p.rows_from(m, rows);
    vector_.wait_for_stores();
    vector_.load(dp + m * row_bytes, rows, row_bytes, row_bytes, bytes(ds), row_bytes);
    vector_.mul(ds, part);
    store_narrow(ds, ds_to + m * c.columns * size_, narrow ? narrow : bytes(ds));
    if (plan_.has_drop_mask) drop(r, {r.i0 + m, rows, c.j0, c.columns}, part);
    if (narrow) vector_.wait_for_stores();
    store_narrow(part, p_to + m * c.columns * size_, narrow ? narrow : bytes(part));
  }
}

void BackwardCore::store_narrow(UbTile x, Gm to, std::byte* at) {
  const int64_t row = x.columns * size_;
  if (plan_.type != DataType::kFloat) vector_.cast(x, plan_.type, at);
  vector_.store(at, row, to, x.rows, row, row);
}

void BackwardCore::load_statistics(const BlockRow& r) {
  constexpr int64_t kRow = kStatistics * kFloatBytes;
  for (const auto& [operand, to] :
       {std::pair{&plan_.softmax_max, max_}, std::pair{&plan_.softmax_sum, sum_}}) {
    const int64_t at = plan_.row(*operand, r.sequence, r.head, r.i0);
    vector_.load(operand->at + at * kFloatBytes, r.rows, kRow,
                 operand->steps.position * kFloatBytes, reinterpret_cast<std::byte*>(to), kRow);
    // One of eight that are the same.
    for (int64_t m = 0; m < r.rows; ++m) to[m] = to[m * kStatistics];
  }
}

// ---- Before and after

// A core's share of the sums: cleared first, scaled and cast at last.
struct PostCore {
  const Plan& plan;
  int number;

  Cycles run(bool clear) const {
    AiCore core;
    VectorCore vector(core, plan.numbers);
    UbBuffers buffers(core);
    const Workspace& w = plan.workspace;
    post(vector, buffers, w.dq, plan.query, plan.dq, plan.scale, clear);
    post(vector, buffers, w.dk, plan.key, plan.dk, plan.scale, clear);
    post(vector, buffers, w.dv, plan.key, plan.dv, 1, clear);
    return core.now();
  }

  void post(VectorCore& vector, UbBuffers& buffers, int64_t start, const Sizes& of,
            const Operand& to, float factor, bool clear) const {
    const int64_t d = of.d, row_bytes = d * kFloatBytes, size = bytes_of(plan.type);
    const int64_t rows = of.b * of.n * of.s, cores = plan.tiling.cores;
    const int64_t end = rows * (number + 1) / cores;
    const int64_t piece = std::max<int64_t>(1, 119 * kKb / (row_bytes + d * size));
    for (int64_t first = rows * number / cores; first < end;) {
      // Within one head, whose rows are equally far apart.
      const int64_t head_end = (first / of.s + 1) * of.s;
      const int64_t count = std::min({piece, end - first, head_end - first});
      Carver carve(buffers.ub);
      const UbTile x{carve.take<float>(count * d), count, d, d};
      const Gm sums = plan.workspace.base + start + first * row_bytes;
      vector.wait_for_stores();
      if (clear) {
        vector.op(count * d);
        std::memset(x.data, 0, static_cast<std::size_t>(count * row_bytes));
        vector.store(bytes(x), row_bytes, sums, count, row_bytes, row_bytes);
      } else {
        auto* narrow = carve.take<std::byte>(count * d * size);
        vector.load(sums, count, row_bytes, row_bytes, bytes(x), row_bytes);
        if (factor != 1) vector.muls(x, factor);
        vector.cast(x, plan.type, narrow);
        const int64_t at = to.steps.row(first / of.s / of.n, first / of.s % of.n, first % of.s);
        vector.store(narrow, d * size, to.at + at * size, count, d * size,
                     to.steps.position * size);
      }
      first += count;
    }
  }
};

}  // namespace

Profile run_backward(const Plan& plan) {
  const auto shares = deal_blocks(block_rows(plan), plan.tiling);
  const device::Device device(atlas_a2());
  device.check_format(name_of(plan.type));
  device.check_layout(plan.layout);
  const auto post = [&](bool clear) {
    return device.run(plan.tiling.cores, [&](int core) { return PostCore{plan, core}.run(clear); });
  };
  Profile profile;
  const Cycles before = post(true).longest();
  profile.elapsed = device.run(plan.tiling.cores, [&](int core) {
    const auto& share = shares[static_cast<std::size_t>(core)];
    return share.empty() ? Cycles{0} : BackwardCore(plan, core, share).run(profile);
  });
  const Cycles around = before + post(false).longest();
  for (Cycles& of_core : profile.elapsed.of_core) of_core += around;
  return profile;
}

}  // namespace attest::vendor::ascend
