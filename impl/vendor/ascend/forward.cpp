#include "impl/vendor/ascend/forward.h"

#include <algorithm>
#include <cstring>

#include "impl/vendor/ascend/cube.h"
#include "impl/vendor/ascend/schedule.h"
#include "impl/vendor/ascend/vector.h"
#include "impl/vendor/device/queue.h"

namespace attest::vendor::ascend {

namespace {

// One core.
class ForwardCore {
 public:
  ForwardCore(const Plan& plan, int number, const std::vector<BlockRow>& rows);
  Cycles run(Profile& profile);

 private:
  // The softmax of a row of blocks so far, one number for each query. Two rows are under way where
  // the softmax of the next begins before the output of the last has ended.
  struct RowState {
    float *max, *sum, *old_max;
  };
  // A block, and where in its row it stands.
  struct Trip {
    const BlockRow* row;
    const BlockRow::Column* column;
    int64_t number, row_number;
    bool last;
  };

  void cube_program();
  void scores(const Trip& t);
  void pv(const Trip& t);

  void vector_program();
  void softmax(const Trip& t);
  void online_softmax(const Trip& t, UbTile s);
  void drop_and_store(const Trip& t, UbTile p, Carver carve, Gm to);
  void output(const Trip& t);
  void adjust_sums(const BlockRow& row, const RowState& state);
  void write_row_without_blocks(const BlockRow& row);
  void write_statistics(const BlockRow& row, const RowState& state);

  int64_t slot(int64_t n) const { return n % slots_; }
  int64_t d() const { return plan_.query.d; }

  const Plan& plan_;
  const int number_;
  const std::vector<BlockRow>& rows_;
  const int64_t slots_, size_;
  std::vector<Trip> trips_;
  AiCore core_;
  CubeCore cube_;
  VectorCore vector_;
  UbBuffers buffers_;
  RowState states_[2];
  float* factors_[2];  // by which a block's output so far is to be multiplied
  device::Stages stages_;
  device::Queue<int> scores_, p_, pv_;
};

ForwardCore::ForwardCore(const Plan& plan, int number, const std::vector<BlockRow>& rows)
    : plan_(plan),
      number_(number),
      rows_(rows),
      slots_(plan.tiling.ahead ? 2 : 1),
      size_(bytes_of(plan.type)),
      cube_(core_, plan.type, plan.tiling.base_m, plan.tiling.base_n,
            std::max(plan.query.d, plan.tiling.base_n)),
      vector_(core_, plan.numbers),
      buffers_(core_),
      scores_(stages_, "mm1 workspace", static_cast<std::size_t>(slots_)),
      p_(stages_, "drop workspace", static_cast<std::size_t>(slots_)),
      pv_(stages_, "mm2 workspace", static_cast<std::size_t>(slots_)) {
  Carver carve(buffers_.clc3);
  for (int n = 0; n < 2; ++n) {
    states_[n] = {carve.take<float>(plan.tiling.base_m), carve.take<float>(plan.tiling.base_m),
                  carve.take<float>(plan.tiling.base_m)};
    factors_[n] = carve.take<float>(plan.tiling.base_m);
  }
  int64_t row_number = 0;
  for (const BlockRow& row : rows) {
    if (row.columns.empty()) continue;
    for (const BlockRow::Column& c : row.columns) {
      trips_.push_back(
          {&row, &c, static_cast<int64_t>(trips_.size()), row_number, &c == &row.columns.back()});
    }
    ++row_number;
  }
}

Cycles ForwardCore::run(Profile& profile) {
  for (const BlockRow& row : rows_)
    if (row.columns.empty()) write_row_without_blocks(row);
  if (!trips_.empty()) {
    stages_.add([this] { cube_program(); });
    stages_.add([this] { vector_program(); });
    stages_.run();
  }
  const auto trips = static_cast<int64_t>(trips_.size());
  return profile.take(core_, trips, 3 * trips, buffers_.ub.most_used());
}

// ---- The cube core

void ForwardCore::cube_program() {
  for (const Trip& t : trips_) {
    scores(t);
    if (!plan_.tiling.ahead) pv(t);
    if (plan_.tiling.ahead && t.number > 0) pv(trips_[static_cast<std::size_t>(t.number - 1)]);
  }
  if (plan_.tiling.ahead) pv(trips_.back());
}

void ForwardCore::scores(const Trip& t) {
  const BlockRow& r = *t.row;
  const int64_t key_head = r.head / plan_.group;
  core_.cube.spend(kFlag);
  scores_.reserve(core_.fixpipe.unit());
  cube_.left(plan_.q.matrix(plan_.row(plan_.q, r.sequence, r.head, r.i0), r.rows, d(), plan_.type));
  Matrix k = plan_.k.matrix(plan_.key_row(plan_.k, r.sequence, key_head, t.column->j0),
                            t.column->columns, d(), plan_.type);
  k.transposed = true;
  cube_.times(k, plan_.workspace.of(plan_.workspace.mm2, number_, slot(t.number)),
              t.column->columns, false);
  scores_.push(core_.fixpipe.unit(), t.number, 0);
}

void ForwardCore::pv(const Trip& t) {
  const BlockRow& r = *t.row;
  const int64_t key_head = r.head / plan_.group;
  p_.front(core_.mte2.unit(), t.number);
  pv_.reserve(core_.fixpipe.unit());
  cube_.left({plan_.workspace.of(plan_.workspace.drop, number_, slot(t.number)), r.rows,
              t.column->columns, t.column->columns});
  cube_.times(plan_.v.matrix(plan_.key_row(plan_.v, r.sequence, key_head, t.column->j0),
                             t.column->columns, d(), plan_.type),
              plan_.workspace.of(plan_.workspace.mm1, number_, slot(t.number)), d(), false);
  p_.pop(core_.mte2.unit());
  pv_.push(core_.fixpipe.unit(), t.number, 0);
}

// ---- The vector core

void ForwardCore::vector_program() {
  for (const Trip& t : trips_) {
    softmax(t);
    if (!plan_.tiling.ahead) output(t);
    if (plan_.tiling.ahead && t.number > 0) output(trips_[static_cast<std::size_t>(t.number - 1)]);
  }
  if (plan_.tiling.ahead) output(trips_.back());
}

void ForwardCore::softmax(const Trip& t) {
  const int64_t columns = t.column->columns;
  vector_.trip();
  core_.vector.spend(kFlag);
  scores_.front(core_.vector_mte2.unit(), t.number);
  Carver carve(buffers_.ub);
  const UbTile s{carve.take<float>(t.row->rows * columns), t.row->rows, columns, columns};
  vector_.wait_for_stores();
  vector_.load(plan_.workspace.of(plan_.workspace.mm2, number_, slot(t.number)), s.rows,
               columns * kFloatBytes, columns * kFloatBytes, reinterpret_cast<std::byte*>(s.data),
               columns * kFloatBytes);
  scores_.pop(core_.vector_mte2.unit());
  vector_.muls(s, plan_.scale);
  if (t.column->masked) {
    Carver mask_place = carve;
    auto* hidden = mask_place.take<std::uint8_t>(s.rows * columns);
    plan_.masks().load_mask(vector_, t.row->sequence, t.row->head, t.row->block(*t.column), hidden);
    vector_.select(s, hidden, columns);
  }
  online_softmax(t, s);
  p_.reserve(core_.mte3.unit());
  drop_and_store(t, s, carve, plan_.workspace.of(plan_.workspace.drop, number_, slot(t.number)));
  p_.push(core_.mte3.unit(), t.number, 0);
}

// max' = max(max, s), P = exp(s - max'), sum' = sum exp(max - max') + P's row sums.
void ForwardCore::online_softmax(const Trip& t, UbTile s) {
  const RowState& state = states_[t.row_number % 2];
  float* factor = factors_[t.number % 2];
  float* block_sum = Carver(buffers_.tmp).take<float>(s.rows);
  if (t.column == &t.row->columns.front()) {
    std::fill(state.max, state.max + s.rows, kHidden);
    std::fill(state.sum, state.sum + s.rows, 0.0F);
  }
  std::copy(state.max, state.max + s.rows, state.old_max);
  vector_.max_of_row(s, state.max);
  vector_.sub_of_row(s, state.max);
  vector_.exp(s);
  std::copy(state.old_max, state.old_max + s.rows, factor);
  UbTile of_rows{factor, s.rows, 1, 1};
  vector_.sub_of_row(of_rows, state.max);
  vector_.exp(of_rows);
  vector_.sum_of_row(s, block_sum);
  vector_.mul({state.sum, s.rows, 1, 1}, of_rows);
  vector_.add({state.sum, s.rows, 1, 1}, {block_sum, s.rows, 1, 1});
  if (!plan_.invalid_rows) return;
  vector_.op(s.rows * s.columns);  // AdjustSoftMaxRes: a row that has seen nothing yet has no P
  if (!plan_.numbers) return;
  for (int64_t m = 0; m < s.rows; ++m)
    if (state.max[m] == kHidden) std::fill(s.row(m), s.row(m) + s.columns, 0.0F);
}

// Dropout, a cast, and to the workspace.
void ForwardCore::drop_and_store(const Trip& t, UbTile p, Carver carve, Gm to) {
  if (plan_.has_drop_mask) {
    auto* bits = Carver(buffers_.tmp).take<std::byte>(p.rows * ((p.columns + 7) / 8));
    vector_.dropout(
        p,
        load_drop_bits(vector_, plan_, t.row->sequence, t.row->head, t.row->block(*t.column), bits),
        plan_.keep_prob);
  }
  auto* narrow = reinterpret_cast<std::byte*>(p.data);
  if (plan_.type != DataType::kFloat) {
    narrow = carve.take<std::byte>(p.rows * p.columns * size_);
    vector_.cast(p, plan_.type, narrow);
  }
  vector_.store(narrow, p.columns * size_, to, p.rows, p.columns * size_, p.columns * size_);
}

void ForwardCore::output(const Trip& t) {
  const BlockRow& r = *t.row;
  const RowState& state = states_[t.row_number % 2];
  const Gm sums = plan_.workspace.of(plan_.workspace.sub, number_, t.row_number % 2);
  const Gm product = plan_.workspace.of(plan_.workspace.mm1, number_, slot(t.number));
  const int64_t row_bytes = d() * kFloatBytes;
  const int64_t piece = std::clamp<int64_t>(60 * kKb / row_bytes, 1, r.rows);
  const auto bytes = [](UbTile x) { return reinterpret_cast<std::byte*>(x.data); };
  core_.vector.spend(kFlag);
  pv_.front(core_.vector_mte2.unit(), t.number);
  if (t.last) adjust_sums(r, state);
  for (int64_t m = 0; m < r.rows; m += piece) {
    const int64_t rows = std::min(piece, r.rows - m);
    Carver carve(buffers_.ub);
    const UbTile pv{carve.take<float>(rows * d()), rows, d(), d()};
    const UbTile o{carve.take<float>(rows * d()), rows, d(), d()};
    vector_.wait_for_stores();
    vector_.load(product + m * row_bytes, rows, row_bytes, row_bytes, bytes(pv), row_bytes);
    if (t.column != &r.columns.front()) {
      vector_.load(sums + m * row_bytes, rows, row_bytes, row_bytes, bytes(o), row_bytes);
      vector_.mul_of_row(o, factors_[t.number % 2] + m);
      vector_.add(pv, o);
    }
    if (!t.last) {
      vector_.store(bytes(pv), row_bytes, sums + m * row_bytes, rows, row_bytes, row_bytes);
      continue;
    }
    vector_.div_of_row(pv, state.sum + m);
    vector_.cast(pv, plan_.type, bytes(o));
    const int64_t at = plan_.row(plan_.out, r.sequence, r.head, r.i0 + m);
    vector_.store(bytes(o), d() * size_, plan_.out.at + at * size_, rows, d() * size_,
                  plan_.out.steps.position * size_);
  }
  pv_.pop(core_.vector_mte2.unit());
  if (t.last) write_statistics(r, state);
}

// AdjustSoftMaxRes again: a row that saw nothing at all gets the largest number for its sum.
void ForwardCore::adjust_sums(const BlockRow& row, const RowState& state) {
  if (!plan_.invalid_rows) return;
  vector_.op(row.rows);
  for (int64_t m = 0; m < row.rows; ++m)
    if (state.max[m] == kHidden) state.sum[m] = -kHidden;
}

// Rows whose every block is hidden: outputs as of any row that sees nothing, or, where such rows
// are not computed apart, zeros.
void ForwardCore::write_row_without_blocks(const BlockRow& row) {
  const RowState& state = states_[0];
  std::fill(state.max, state.max + row.rows, plan_.invalid_rows ? kHidden : 0.0F);
  std::fill(state.sum, state.sum + row.rows, plan_.invalid_rows ? -kHidden : 0.0F);
  auto* zeros = Carver(buffers_.ub).take<std::byte>(d() * size_);
  std::memset(zeros, 0, static_cast<std::size_t>(d() * size_));
  const int64_t at = plan_.row(plan_.out, row.sequence, row.head, row.i0);
  for (int64_t m = 0; m < row.rows; ++m) {
    vector_.store(zeros, d() * size_, plan_.out.at + (at + m * plan_.out.steps.position) * size_, 1,
                  d() * size_, d() * size_);
  }
  write_statistics(row, state);
}

void ForwardCore::write_statistics(const BlockRow& row, const RowState& state) {
  float* eight = Carver(buffers_.tmp).take<float>(row.rows * kStatistics);
  for (const auto& [values, operand] :
       {std::pair{state.max, &plan_.softmax_max}, std::pair{state.sum, &plan_.softmax_sum}}) {
    vector_.wait_for_stores();
    vector_.op(row.rows * kStatistics);
    for (int64_t n = 0; n < row.rows * kStatistics; ++n) eight[n] = values[n / kStatistics];
    const int64_t at = plan_.row(*operand, row.sequence, row.head, row.i0);
    vector_.store(reinterpret_cast<std::byte*>(eight), kStatistics * kFloatBytes,
                  operand->at + at * kFloatBytes, row.rows, kStatistics * kFloatBytes,
                  operand->steps.position * kFloatBytes);
  }
}

}  // namespace

Profile run_forward(const Plan& plan) {
  const auto shares = deal_rows(block_rows(plan), plan.tiling);
  const device::Device device(atlas_a2());
  device.check_format(name_of(plan.type));
  device.check_layout(plan.layout);
  Profile profile;
  profile.elapsed = device.run(plan.tiling.cores, [&](int core) {
    const auto& share = shares[static_cast<std::size_t>(core)];
    if (share.empty()) return Cycles{0};
    return ForwardCore(plan, core, share).run(profile);
  });
  return profile;
}

}  // namespace attest::vendor::ascend
