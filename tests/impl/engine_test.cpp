// Every step of every target that this processor has, against plain loops: for all sizes around
// those of a block of registers, so that every tail occurs.
#include "impl/engine/engine.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "spec/dtype.h"

namespace attest::impl {
namespace {

using Index = std::int64_t;

template <class R>
constexpr R kInfinity = std::numeric_limits<R>::infinity();
template <class R>
constexpr R kNaN = std::numeric_limits<R>::quiet_NaN();

// Memory whose end, or else whose start, touches a page that cannot be touched.
class Guarded {
 public:
  Guarded(std::size_t bytes, bool at_end) {
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t inner = (bytes + page - 1) / page * page;
    size_ = inner + 2 * page;
    base_ = static_cast<char*>(mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (inner > 0) mprotect(base_ + page, inner, PROT_READ | PROT_WRITE);
    data_ = base_ + page + (at_end ? inner - bytes : 0);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { munmap(base_, size_); }

  void* data() const { return data_; }

 private:
  char* base_;
  char* data_;
  std::size_t size_;
};

// A tile with memory of its own: `stride` and the rows are a little larger than needed, and what a
// step has no business with holds a value that no step writes.
template <class R>
struct OwnTile {
  static constexpr R kUntouched = R(-12345.678);

  OwnTile(const Engine<R>& engine, Index tile_rows, Index tile_columns)
      : rows(tile_rows),
        columns(tile_columns),
        used(engine.padded(tile_columns)),
        stride(used + 3),
        data(static_cast<std::size_t>((rows + 2) * stride), kUntouched) {}

  operator Tile<R>() { return {data.data() + stride, rows, columns, stride}; }
  R& at(Index i, Index j) { return data[static_cast<std::size_t>((i + 1) * stride + j)]; }
  R at(Index i, Index j) const { return data[static_cast<std::size_t>((i + 1) * stride + j)]; }

  // Whether no element was written that the step may not write.
  bool kept_the_rest() const {
    for (Index n = 0; n < (rows + 2) * stride; ++n) {
      const Index i = n / stride - 1, j = n % stride;
      if ((i < 0 || i >= rows || j >= used) && data[static_cast<std::size_t>(n)] != kUntouched) {
        return false;
      }
    }
    return true;
  }

  Index rows, columns, used, stride;
  std::vector<R> data;
};

// Panels with memory of their own, built element by element.
template <class R>
struct OwnPanels {
  OwnPanels(const Engine<R>& engine, Index panel_rows, Index columns)
      : panel(engine.panel),
        rows(panel_rows),
        data(static_cast<std::size_t>(rows * engine.padded(columns))) {}

  operator Panels<R>() const { return {data.data(), rows}; }
  R& at(Index i, Index j) {
    return data[static_cast<std::size_t>((j / panel * rows + i) * panel + j % panel)];
  }

  Index panel, rows;
  std::vector<R> data;
};

// Rows and columns of every kind of remainder, for any shape of block.
template <class R>
std::vector<Index> row_counts(const Engine<R>& engine) {
  std::vector<Index> counts;
  for (Index n = 0; n <= 2 * engine.strip + 1; ++n) counts.push_back(n);
  return counts;
}
template <class R>
std::vector<Index> column_counts(const Engine<R>& engine) {
  std::set<Index> counts = {0, 1, 2, 3, 5, 7, 8, 9};
  for (Index n : {engine.panel, 2 * engine.panel}) counts.insert({n - 1, n, n + 1});
  return {counts.begin(), counts.end()};
}

template <class R>
class EngineTest : public ::testing::Test {
 protected:
  // visit(engine), for each target.
  template <class Visit>
  void for_each_engine(const Visit& visit) {
    for (const Engine<R>& engine : engines<R>()) {
      SCOPED_TRACE(engine.target);
      visit(engine);
      if (this->HasFatalFailure()) return;
    }
  }

  // Integers so small that sums of their products are exact.
  R small_integer() { return static_cast<R>(static_cast<int>(random_() % 17) - 8); }
  R uniform(double low, double high) {
    return static_cast<R>(std::uniform_real_distribution<double>(low, high)(random_));
  }

  std::mt19937_64 random_{7};
};

using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(EngineTest, Reals);

// ---- Targets -----------------------------------------------------------------------------------

TYPED_TEST(EngineTest, EveryTargetHasANameAndCodeOfItsOwn) {
  std::set<std::string_view> names;
  std::set<const void*> code;
  for (const auto& engine : engines<TypeParam>()) {
    EXPECT_TRUE(names.insert(engine.target).second) << engine.target;
    EXPECT_TRUE(code.insert(reinterpret_cast<const void*>(engine.multiply)).second);
    EXPECT_TRUE(code.insert(reinterpret_cast<const void*>(engine.absorb)).second);
  }
  EXPECT_GE(names.size(), 1u);
}

TYPED_TEST(EngineTest, WiderVectorsComeFirst) {
  const auto all = engines<TypeParam>();
  for (std::size_t n = 1; n < all.size(); ++n) EXPECT_GE(all[n - 1].panel, all[n].panel);
}

// ---- Between tensors and tiles -----------------------------------------------------------------

template <class R>
std::vector<DType> dtypes_of() {
  std::vector<DType> dtypes;
  for (const DType dtype : kDTypes) {
    if ((dtype == DType::f64) == std::is_same_v<R, double>) dtypes.push_back(dtype);
  }
  return dtypes;
}

// A matrix in guarded memory, with strides that leave no gap at its ends.
struct Memory {
  Memory(DType type, Index matrix_rows, Index matrix_columns, Index r_stride, Index c_stride,
         bool at_end)
      : dtype(type),
        rows(matrix_rows),
        columns(matrix_columns),
        row_stride(r_stride),
        column_stride(c_stride),
        bytes(rows * columns == 0 ? 0
                                  : ((rows - 1) * row_stride + (columns - 1) * column_stride + 1) *
                                        format_of(dtype).bytes),
        memory(static_cast<std::size_t>(bytes), at_end) {}

  void* at(Index i, Index j) const {
    return static_cast<char*>(memory.data()) +
           (i * row_stride + j * column_stride) * format_of(dtype).bytes;
  }
  Stored stored() const {
    return {memory.data(), static_cast<attest_dtype>(dtype), rows, columns, row_stride,
            column_stride};
  }
  StoredResult result() const {
    return {memory.data(), static_cast<attest_dtype>(dtype), rows, columns, row_stride,
            column_stride};
  }

  DType dtype;
  Index rows, columns, row_stride, column_stride;
  Index bytes;
  Guarded memory;
};

// visit(memory), for every dtype of R, every layout and all small sizes.
template <class R, class Visit>
void for_each_matrix(const Engine<R>& engine, const Visit& visit) {
  for (const DType dtype : dtypes_of<R>()) {
    for (const Index rows : {Index{0}, Index{1}, Index{3}, engine.panel - 1, engine.panel,
                             engine.panel + 1, 2 * engine.panel + 3}) {
      for (const Index columns :
           {Index{0}, Index{1}, Index{15}, Index{16}, Index{17}, Index{35}, engine.panel + 1}) {
        for (const bool at_end : {false, true}) {
          visit(Memory(dtype, rows, columns, columns, 1, at_end));          // dense
          visit(Memory(dtype, rows, columns, columns + 5, 1, at_end));      // with gaps
          visit(Memory(dtype, rows, columns, 1, rows, at_end));             // transposed
          visit(Memory(dtype, rows, columns, 2 * columns + 1, 2, at_end));  // every other column
          visit(Memory(dtype, rows, columns, 0, 1, at_end));                // one row for all
        }
      }
    }
  }
}

void fill_with_integers(const Memory& memory, std::mt19937_64& random) {
  for (Index i = 0; i < memory.rows; ++i) {
    for (Index j = 0; j < memory.columns; ++j) {
      store(memory.dtype, static_cast<double>(static_cast<int>(random() % 201) - 100),
            memory.at(i, j));
    }
  }
}

TYPED_TEST(EngineTest, PanelsHoldTheMatrixFilledUpWithZeros) {
  using R = TypeParam;
  this->for_each_engine([&](const Engine<R>& engine) {
    for_each_matrix(engine, [&](const Memory& memory) {
      fill_with_integers(memory, this->random_);
      OwnPanels<R> panels(engine, memory.rows, memory.columns);
      std::fill(panels.data.begin(), panels.data.end(), kNaN<R>);
      EXPECT_TRUE(engine.pack(memory.stored(), panels.data.data()));
      for (Index i = 0; i < memory.rows; ++i) {
        for (Index j = 0; j < engine.padded(memory.columns); ++j) {
          const double expected = j < memory.columns ? load(memory.dtype, memory.at(i, j)) : 0;
          ASSERT_EQ(panels.at(i, j), expected) << i << " " << j << " " << name(memory.dtype);
        }
      }
    });
  });
}

TYPED_TEST(EngineTest, TransposedPanelsHoldTheTransposeFilledUpWithZeros) {
  using R = TypeParam;
  this->for_each_engine([&](const Engine<R>& engine) {
    for_each_matrix(engine, [&](const Memory& memory) {
      fill_with_integers(memory, this->random_);
      OwnPanels<R> panels(engine, memory.columns, memory.rows);
      std::fill(panels.data.begin(), panels.data.end(), kNaN<R>);
      const R factor = memory.rows % 2 == 0 ? R(1) : R(0.25);
      EXPECT_TRUE(engine.pack_transposed(memory.stored(), factor, panels.data.data()));
      for (Index i = 0; i < memory.columns; ++i) {
        for (Index j = 0; j < engine.padded(memory.rows); ++j) {
          const double expected =
              j < memory.rows ? factor * load(memory.dtype, memory.at(j, i)) : 0;
          ASSERT_EQ(panels.at(i, j), expected) << i << " " << j << " " << name(memory.dtype);
        }
      }
    });
  });
}

TYPED_TEST(EngineTest, LoadedTilesHoldTheMatrix) {
  using R = TypeParam;
  this->for_each_engine([&](const Engine<R>& engine) {
    for_each_matrix(engine, [&](const Memory& memory) {
      fill_with_integers(memory, this->random_);
      OwnTile<R> tile(engine, memory.rows, memory.columns);
      engine.load(memory.stored(), tile);
      for (Index i = 0; i < memory.rows; ++i) {
        for (Index j = 0; j < memory.columns; ++j) {
          ASSERT_EQ(tile.at(i, j), load(memory.dtype, memory.at(i, j)));
        }
      }
      ASSERT_TRUE(tile.kept_the_rest());
    });
  });
}

TYPED_TEST(EngineTest, EveryNumberOfAnInputFormatIsConvertedExactly) {
  using R = TypeParam;
  this->for_each_engine([&](const Engine<R>& engine) {
    for (const DType dtype : dtypes_of<R>()) {
      if (format_of(dtype).bytes != 2) continue;
      Memory memory(dtype, 256, 256, 256, 1, true);
      for (Index n = 0; n < 65536; ++n) {
        const auto bits = static_cast<std::uint16_t>(n);
        std::memcpy(memory.at(n / 256, n % 256), &bits, 2);
      }
      OwnPanels<R> panels(engine, 256, 256);
      OwnTile<R> tile(engine, 256, 256);
      EXPECT_FALSE(engine.pack_transposed(memory.stored(), R(1), panels.data.data()));
      engine.load(memory.stored(), tile);
      for (Index i = 0; i < 256; ++i) {
        for (Index j = 0; j < 256; ++j) {
          const double exact = load(dtype, memory.at(i, j));
          for (const R number : {panels.at(j, i), tile.at(i, j)}) {
            if (std::isnan(exact)) {
              ASSERT_TRUE(std::isnan(number));
            } else {
              ASSERT_EQ(number, exact);
              ASSERT_EQ(std::signbit(number), std::signbit(exact));
            }
          }
        }
      }
    }
  });
}

TYPED_TEST(EngineTest, PackingSeesEveryElementThatIsNotFinite) {
  using R = TypeParam;
  this->for_each_engine([&](const Engine<R>& engine) {
    const Index rows = engine.panel + 1, columns = engine.panel + 3;
    const DType dtype = dtypes_of<R>().front();
    Memory memory(dtype, rows, columns, columns, 1, true);
    OwnPanels<R> panels(engine, rows, columns), transposed(engine, columns, rows);
    for (Index i = 0; i < rows; ++i) {
      for (Index j = 0; j < columns; ++j) {
        store(dtype, (i + j) % 2 == 0 ? 3e38 : -3e38, memory.at(i, j));
      }
    }
    EXPECT_TRUE(engine.pack(memory.stored(), panels.data.data()));
    EXPECT_TRUE(engine.pack_transposed(memory.stored(), R(1), transposed.data.data()));
    for (Index n = 0; n < rows * columns; ++n) {
      void* const element = memory.at(n / columns, n % columns);
      store(dtype, n % 2 == 0 ? kNaN<double> : -kInfinity<double>, element);
      ASSERT_FALSE(engine.pack(memory.stored(), panels.data.data())) << n;
      ASSERT_FALSE(engine.pack_transposed(memory.stored(), R(1), transposed.data.data())) << n;
      store(dtype, 1, element);
    }
  });
}

TYPED_TEST(EngineTest, StoredResultsAreTheNearestNumbers) {
  using R = TypeParam;
  this->for_each_engine([&](const Engine<R>& engine) {
    for_each_matrix(engine, [&](const Memory& memory) {
      if (memory.row_stride == 0) return;
      OwnTile<R> tile(engine, memory.rows, memory.columns);
      std::vector<R> divisors;
      for (Index i = 0; i < memory.rows; ++i) {
        divisors.push_back(this->uniform(0.5, 3));
        for (Index j = 0; j < memory.columns; ++j) tile.at(i, j) = this->uniform(-1e-4, 1e-4);
      }
      for (const R factor : {R(1), R(0.125)}) {
        for (const R* divide : std::initializer_list<const R*>{nullptr, divisors.data()}) {
          engine.store(tile, factor, divide, memory.result());
          for (Index i = 0; i < memory.rows; ++i) {
            for (Index j = 0; j < memory.columns; ++j) {
              const R value = factor * tile.at(i, j);
              const R expected = divide ? value / divisors[static_cast<std::size_t>(i)] : value;
              ASSERT_EQ(load(memory.dtype, memory.at(i, j)),
                        round_to(memory.dtype, static_cast<double>(expected)));
            }
          }
        }
      }
    });
  });
}

TYPED_TEST(EngineTest, StoringLeavesWhatLiesBetweenTheElements) {
  using R = TypeParam;
  this->for_each_engine([&](const Engine<R>& engine) {
    for (const DType dtype : dtypes_of<R>()) {
      const Index rows = 5, columns = 2 * engine.panel + 3;
      for (const Index step : {1, 3}) {
        Memory memory(dtype, rows, columns, step * columns + 2, step, true);
        std::memset(memory.memory.data(), 0x5a, static_cast<std::size_t>(memory.bytes));
        OwnTile<R> tile(engine, rows, columns);
        for (Index n = 0; n < rows * columns; ++n) tile.at(n / columns, n % columns) = 1;
        engine.store(tile, 1, nullptr, memory.result());
        const Index width = format_of(dtype).bytes;
        Index kept = 0;
        for (Index n = 0; n < memory.bytes; ++n) {
          kept += static_cast<const unsigned char*>(memory.memory.data())[n] == 0x5a;
        }
        ASSERT_EQ(kept, memory.bytes - rows * columns * width) << name(dtype);
      }
    }
  });
}

// ---- Products ----------------------------------------------------------------------------------

TYPED_TEST(EngineTest, ProductsAreThoseOfPlainLoopsForAllTails) {
  using R = TypeParam;
  this->for_each_engine([&](const Engine<R>& engine) {
    for (const Index rows : row_counts(engine)) {
      for (const Index columns : column_counts(engine)) {
        for (const Index inner : {0, 1, 2, 3, 4, 5, 8, 33}) {
          OwnTile<R> a(engine, rows, inner), a_transposed(engine, inner, rows);
          // More rows in memory than the sums take.
          OwnPanels<R> b(engine, inner + 2, columns);
          for (R& element : b.data) element = this->small_integer();
          for (Index i = 0; i < rows; ++i) {
            for (Index k = 0; k < inner; ++k) {
              a.at(i, k) = a_transposed.at(k, i) = this->small_integer();
            }
          }
          OwnTile<R> product(engine, rows, columns), sum(product), transposed_sum(product);
          OwnTile<R> skipping(product), transposed_skipping(product);
          for (OwnTile<R>* c : {&sum, &transposed_sum, &skipping, &transposed_skipping}) {
            for (Index n = 0; n < rows * columns; ++n) c->at(n / columns, n % columns) = R(7);
          }
          const R factor = inner % 2 == 0 ? R(1) : R(0.5);
          engine.multiply(a, b, factor, product);
          engine.add_product(a, b, false, sum);
          engine.add_transposed_product(a_transposed, b, false, transposed_sum);
          engine.add_product(a, b, true, skipping);
          engine.add_transposed_product(a_transposed, b, true, transposed_skipping);
          for (Index i = 0; i < rows; ++i) {
            for (Index j = 0; j < columns; ++j) {
              double expected = 0;
              for (Index k = 0; k < inner; ++k) expected += double(a.at(i, k)) * b.at(k, j);
              ASSERT_EQ(product.at(i, j), factor * expected)
                  << rows << "x" << columns << "x" << inner << " at " << i << " " << j;
              for (OwnTile<R>* c : {&sum, &transposed_sum, &skipping, &transposed_skipping}) {
                ASSERT_EQ(c->at(i, j), 7 + expected)
                    << rows << "x" << columns << "x" << inner << " at " << i << " " << j;
              }
            }
          }
          for (const OwnTile<R>* c :
               {&product, &sum, &transposed_sum, &skipping, &transposed_skipping}) {
            ASSERT_TRUE(c->kept_the_rest());
          }
        }
      }
    }
  });
}

TYPED_TEST(EngineTest, ProductsMayBeginAtAnyRowOfPanels) {
  using R = TypeParam;
  this->for_each_engine([&](const Engine<R>& engine) {
    const Index rows = 7, columns = engine.panel + 2, inner = 5, first = 3;
    OwnTile<R> w(engine, rows, inner), c(engine, rows, columns);
    OwnPanels<R> b(engine, first + inner, columns);
    for (R& element : b.data) element = this->small_integer();
    for (Index n = 0; n < rows * inner; ++n) w.at(n / inner, n % inner) = this->small_integer();
    for (Index n = 0; n < rows * columns; ++n) c.at(n / columns, n % columns) = 0;
    engine.add_product(w, Panels<R>(b).from_row(first, engine.panel), false, c);
    for (Index i = 0; i < rows; ++i) {
      for (Index j = 0; j < columns; ++j) {
        double expected = 0;
        for (Index k = 0; k < inner; ++k) expected += double(w.at(i, k)) * b.at(first + k, j);
        ASSERT_EQ(c.at(i, j), expected);
      }
    }
  });
}

TYPED_TEST(EngineTest, ScoresMayPassThroughNumbersBeyondTheRange) {
  using R = TypeParam;
  this->for_each_engine([&](const Engine<R>& engine) {
    const R large = std::sqrt(std::numeric_limits<R>::max());
    const Index rows = 7, columns = engine.panel + 3, inner = 8;
    OwnTile<R> a(engine, rows, inner), c(engine, rows, columns);
    OwnPanels<R> b(engine, inner, columns);
    for (Index i = 0; i < rows; ++i) {
      for (Index k = 0; k < inner; ++k) a.at(i, k) = i == 5 ? large : R(1);
    }
    for (Index k = 0; k < inner; ++k) {
      for (Index j = 0; j < columns; ++j) b.at(k, j) = j == columns - 1 ? large : R(1);
    }
    engine.multiply(a, b, R(1) / 16, c);
    const R expected = static_cast<R>(std::ldexp(static_cast<long double>(large) * large, -1));
    EXPECT_EQ(c.at(5, columns - 1), expected);
    EXPECT_EQ(c.at(5, 0), large / 2);
    EXPECT_EQ(c.at(6, columns - 1), large / 2);
    EXPECT_EQ(c.at(6, 0), R(0.5));
  });
}

TYPED_TEST(EngineTest, ScoresThatAreNotFiniteStayInTheirPlacesAndChangeNoBitElsewhere) {
  using R = TypeParam;
  this->for_each_engine([&](const Engine<R>& engine) {
    const Index rows = 7, columns = engine.panel + 3, inner = 9;
    OwnTile<R> a(engine, rows, inner), c(engine, rows, columns), clean(c);
    OwnPanels<R> b(engine, inner, columns);
    for (R& element : b.data) element = this->uniform(0.5, 1);
    for (Index n = 0; n < rows * inner; ++n) a.at(n / inner, n % inner) = this->uniform(-1, 1);
    engine.multiply(a, b, R(0.3), clean);
    a.at(2, 1) = kNaN<R>;
    a.at(4, 3) = kInfinity<R>;
    engine.multiply(a, b, R(0.3), c);
    for (Index i = 0; i < rows; ++i) {
      for (Index j = 0; j < columns; ++j) {
        if (i == 2) {
          ASSERT_TRUE(std::isnan(c.at(i, j)));
        } else {
          ASSERT_EQ(c.at(i, j), i == 4 ? kInfinity<R> : clean.at(i, j));
        }
      }
    }
  });
}

TYPED_TEST(EngineTest, WeightsOfZeroKeepOutWhatIsNotFiniteAndChangeNoOtherBit) {
  using R = TypeParam;
  this->for_each_engine([&](const Engine<R>& engine) {
    const Index rows = 8, columns = engine.panel + 3, inner = 9;
    OwnTile<R> w(engine, rows, inner), w_transposed(engine, inner, rows);
    OwnPanels<R> b(engine, inner, columns);
    for (R& element : b.data) element = this->uniform(-1, 1);
    for (Index i = 0; i < rows; ++i) {
      for (Index k = 0; k < inner; ++k) {
        w.at(i, k) = w_transposed.at(k, i) =
            k == 4 || (i + k) % 3 == 0 ? R(0) : this->uniform(0, 1);
      }
    }
    OwnTile<R> plain(engine, rows, columns);
    for (Index n = 0; n < rows * columns; ++n) {
      plain.at(n / columns, n % columns) = this->uniform(-1, 1);
    }
    OwnTile<R> skipping(plain), transposed(plain);
    engine.add_product(w, b, false, plain);
    for (Index j = 0; j < columns; ++j) b.at(4, j) = j % 2 == 0 ? kNaN<R> : kInfinity<R>;
    engine.add_product(w, b, true, skipping);
    engine.add_transposed_product(w_transposed, b, true, transposed);
    for (Index i = 0; i < rows; ++i) {
      for (Index j = 0; j < columns; ++j) {
        ASSERT_EQ(skipping.at(i, j), plain.at(i, j));
        ASSERT_EQ(transposed.at(i, j), plain.at(i, j));
      }
    }
  });
}

// ---- Softmax -----------------------------------------------------------------------------------

template <class R>
double ulp_of(long double value) {
  const R size = static_cast<R>(std::abs(value));
  const R next = std::nextafter(size, kInfinity<R>);
  return static_cast<double>(next - size);
}

// Dyadic scores, so that differences are exact.
template <class R>
R dyadic(std::mt19937_64& random) {
  return static_cast<R>(static_cast<double>(static_cast<int>(random() % 2048) - 1024) / 64);
}

TYPED_TEST(EngineTest, AbsorbedBlocksKeepTheInvariantOfTheirRows) {
  using R = TypeParam;
  this->for_each_engine([&](const Engine<R>& engine) {
    for (const Index rows : row_counts(engine)) {
      for (const Index columns : column_counts(engine)) {
        const Index channels = 5, blocks = 3;
        std::vector<R> max(static_cast<std::size_t>(rows), -kInfinity<R>);
        std::vector<R> sum(static_cast<std::size_t>(rows), R(0));
        OwnTile<R> o(engine, rows, channels);
        for (Index n = 0; n < rows * o.used; ++n) o.at(n / o.used, n % o.used) = 0;
        std::vector<std::vector<R>> seen(static_cast<std::size_t>(rows));
        for (Index block = 0; block < blocks; ++block) {
          OwnTile<R> scores(engine, rows, columns);
          for (Index i = 0; i < rows; ++i) {
            for (Index j = 0; j < columns; ++j) {
              // Row 0 sees nothing, row 1 nothing at first, others a part.
              const bool hidden = i == 0 || (i == 1 && block == 0) || this->random_() % 4 == 0;
              scores.at(i, j) = hidden ? -kInfinity<R> : dyadic<R>(this->random_) + R(block);
              seen[static_cast<std::size_t>(i)].push_back(scores.at(i, j));
            }
          }
          const OwnTile<R> before = scores;
          // As if every channel of every value had been 1.
          engine.absorb(scores, RowState<R>{max.data(), sum.data(), o});
          for (Index i = 0; i < rows; ++i) {
            const auto row = static_cast<std::size_t>(i);
            const R top = seen[row].empty() ? -kInfinity<R>
                                            : *std::max_element(seen[row].begin(), seen[row].end());
            ASSERT_EQ(max[row], top) << "row " << i;
            R block_sum = 0;
            for (Index j = 0; j < columns; ++j) {
              const R score = before.at(i, j);
              const long double exact =
                  score == -kInfinity<R> ? 0 : std::exp(static_cast<long double>(score) - top);
              ASSERT_NEAR(scores.at(i, j), exact, ulp_of<R>(exact)) << "row " << i;
              block_sum += scores.at(i, j);
            }
            for (Index c = 0; c < channels; ++c) o.at(i, c) += block_sum;
            long double exact_sum = 0;
            for (const R score : seen[row]) {
              if (score != -kInfinity<R>) exact_sum += std::exp((long double)score - top);
            }
            const double slack = 8 * ulp_of<R>(exact_sum) + 4 * ulp_of<R>(1);
            ASSERT_NEAR(sum[row], exact_sum, slack) << "row " << i;
            for (Index c = 0; c < channels; ++c) ASSERT_NEAR(o.at(i, c), exact_sum, slack);
          }
          ASSERT_TRUE(scores.kept_the_rest());
        }
        ASSERT_TRUE(o.kept_the_rest());
      }
    }
  });
}

TYPED_TEST(EngineTest, AScoreThatIsNotANumberStaysInItsRowAndIsNotItsMaximum) {
  using R = TypeParam;
  this->for_each_engine([&](const Engine<R>& engine) {
    const Index rows = 8, columns = 3 * engine.panel + 1;
    for (Index place = 0; place < columns; ++place) {
      OwnTile<R> scores(engine, rows, columns), o(engine, rows, 1);
      for (Index n = 0; n < rows * columns; ++n)
        scores.at(n / columns, n % columns) = -(n % columns);
      for (Index n = 0; n < rows * o.used; ++n) o.at(n / o.used, n % o.used) = 0;
      scores.at(3, place) = kNaN<R>;
      std::vector<R> max(8, -kInfinity<R>), sum(8, R(0));
      engine.absorb(scores, RowState<R>{max.data(), sum.data(), o});
      for (std::size_t i = 0; i < 8; ++i) {
        ASSERT_EQ(max[i], i == 3 && place == 0 ? -1 : 0) << "row " << i;
        ASSERT_EQ(std::isnan(sum[i]), i == 3) << "row " << i;
      }
      ASSERT_TRUE(std::isnan(scores.at(3, place)));
    }
  });
}

TYPED_TEST(EngineTest, GradientsOfScoresAreThoseOfPlainLoops) {
  using R = TypeParam;
  this->for_each_engine([&](const Engine<R>& engine) {
    for (const Index rows : row_counts(engine)) {
      for (const Index columns : column_counts(engine)) {
        OwnTile<R> s(engine, rows, columns), dp(engine, rows, columns);
        std::vector<R> lse, delta;
        for (Index i = 0; i < rows; ++i) {
          lse.push_back(i == 0 ? -kInfinity<R> : R(17) + R(i));
          delta.push_back(dyadic<R>(this->random_));
          for (Index j = 0; j < columns; ++j) {
            const bool hidden = i == 0 || this->random_() % 4 == 0;
            s.at(i, j) = hidden ? -kInfinity<R> : dyadic<R>(this->random_);
            dp.at(i, j) = hidden ? kNaN<R> : dyadic<R>(this->random_);
          }
        }
        OwnTile<R> p(s), ds(dp);
        engine.differentiate(p, ds, lse.data(), delta.data());
        for (Index i = 0; i < rows; ++i) {
          const auto row = static_cast<std::size_t>(i);
          for (Index j = 0; j < columns; ++j) {
            if (s.at(i, j) == -kInfinity<R>) {
              ASSERT_EQ(p.at(i, j), R(0));
              ASSERT_EQ(ds.at(i, j), R(0));
              continue;
            }
            const long double exact = std::exp(static_cast<long double>(s.at(i, j)) - lse[row]);
            ASSERT_NEAR(p.at(i, j), exact, ulp_of<R>(exact));
            ASSERT_EQ(ds.at(i, j), p.at(i, j) * (dp.at(i, j) - delta[row]));
          }
        }
        ASSERT_TRUE(p.kept_the_rest());
        ASSERT_TRUE(ds.kept_the_rest());
      }
    }
  });
}

// ---- Functions ---------------------------------------------------------------------------------

// Numbers of all sizes: every `step`-th bit pattern from `low` to `high`, both positive.
template <class R>
std::vector<R> numbers_between(R low, R high, std::size_t count) {
  using Bits = std::conditional_t<std::is_same_v<R, double>, std::uint64_t, std::uint32_t>;
  const Bits first = std::bit_cast<Bits>(low), last = std::bit_cast<Bits>(high);
  const Bits step = std::max<Bits>(1, (last - first) / static_cast<Bits>(count));
  std::vector<R> numbers;
  for (Bits bits = first; bits < last - step; bits += step) {
    numbers.push_back(std::bit_cast<R>(bits));
  }
  numbers.push_back(high);
  return numbers;
}

using Wide = long double;

// The largest error of `actual`, in ulp of the exact value.
template <class R, class Exact>
double largest_error(const std::vector<R>& x, const std::vector<R>& actual, const Exact& exact) {
  double largest = 0;
  for (std::size_t n = 0; n < x.size(); ++n) {
    // For f32, double is exact enough, and far quicker.
    using Precise = std::conditional_t<std::is_same_v<R, double>, Wide, double>;
    const Precise right = exact(static_cast<Precise>(x[n]));
    const double error = static_cast<double>(std::abs(actual[n] - right)) / ulp_of<R>(right);
    if (!(error <= largest)) largest = error;
    if (std::isnan(largest)) return largest;
  }
  return largest;
}

TYPED_TEST(EngineTest, ExpIsWithinOneUlp) {
  using R = TypeParam;
  const R lowest = std::is_same_v<R, double> ? -745 : R(-103.9),
          highest = std::is_same_v<R, double> ? 709.7 : R(88.7);
  std::vector<R> x = numbers_between(std::numeric_limits<R>::denorm_min(), -lowest, 400000);
  for (R& number : x) number = -number;
  const std::vector<R> positive =
      numbers_between(std::numeric_limits<R>::denorm_min(), highest, 200000);
  x.insert(x.end(), positive.begin(), positive.end());
  // Dense where results are neither 1 nor subnormal.
  for (int n = 0; n < 400000; ++n) x.push_back(this->uniform(double(lowest), 2));
  this->for_each_engine([&](const Engine<R>& engine) {
    std::vector<R> y = x;
    engine.exp(y.data(), static_cast<Index>(y.size()));
    const double error = largest_error(x, y, [](auto v) { return std::exp(v); });
    EXPECT_LE(error, 1);
    EXPECT_GE(error, 0.5) << "or nothing was measured";
  });
}

TYPED_TEST(EngineTest, ExpIsExactAtTheEndsAndKeepsNaN) {
  using R = TypeParam;
  this->for_each_engine([&](const Engine<R>& engine) {
    const R below = std::is_same_v<R, double> ? R(-745.2) : R(-104);
    std::vector<R> x = {0,
                        -R(0),
                        -kInfinity<R>,
                        kInfinity<R>,
                        below,
                        kNaN<R>,
                        -R(1e30),
                        R(1e30),
                        R(1),
                        std::numeric_limits<R>::lowest(),
                        std::numeric_limits<R>::max()};
    engine.exp(x.data(), static_cast<Index>(x.size()));
    EXPECT_EQ(x[0], 1);
    EXPECT_EQ(x[1], 1);
    EXPECT_EQ(x[2], 0);
    EXPECT_EQ(x[3], kInfinity<R>);
    EXPECT_EQ(x[4], 0);
    EXPECT_TRUE(std::isnan(x[5]));
    EXPECT_EQ(x[6], 0);
    EXPECT_EQ(x[7], kInfinity<R>);
    EXPECT_NEAR(x[8], std::exp(1.0L), ulp_of<R>(R(2)));
    EXPECT_EQ(x[9], 0);
    EXPECT_EQ(x[10], kInfinity<R>);
  });
}

TYPED_TEST(EngineTest, ExpLeavesWhatFollowsTheRow) {
  using R = TypeParam;
  this->for_each_engine([&](const Engine<R>& engine) {
    for (Index n = 0; n <= 2 * engine.panel; ++n) {
      std::vector<R> x(static_cast<std::size_t>(n + 1), R(0));
      engine.exp(x.data(), n);
      for (Index i = 0; i < n; ++i) ASSERT_EQ(x[static_cast<std::size_t>(i)], 1);
      ASSERT_EQ(x.back(), 0);
    }
  });
}

TYPED_TEST(EngineTest, CapsAreWithinThreeUlpAndTheirSlopesWithinFive) {
  using R = TypeParam;
  const R largest = std::is_same_v<R, double> ? 300 : 40;
  std::vector<R> x = numbers_between(std::numeric_limits<R>::min(), largest, 300000);
  for (int n = 0; n < 300000; ++n) x.push_back(this->uniform(-10, 10));
  this->for_each_engine([&](const Engine<R>& engine) {
    const Index columns = static_cast<Index>(x.size());
    OwnTile<R> s(engine, 1, columns), slopes(engine, 1, columns);
    std::copy(x.begin(), x.end(), &s.at(0, 0));
    engine.cap(s, R(1), slopes);
    const std::vector<R> tanh(&s.at(0, 0), &s.at(0, 0) + columns);
    const std::vector<R> slope(&slopes.at(0, 0), &slopes.at(0, 0) + columns);
    EXPECT_LE(largest_error(x, tanh, [](auto v) { return std::tanh(v); }), 3);
    EXPECT_LE(largest_error(x, slope, [](auto v) { return 1 / (std::cosh(v) * std::cosh(v)); }), 5);
    EXPECT_TRUE(s.kept_the_rest());
    EXPECT_TRUE(slopes.kept_the_rest());
  });
}

TYPED_TEST(EngineTest, CapsAreOddBoundedAndScaled) {
  using R = TypeParam;
  this->for_each_engine([&](const Engine<R>& engine) {
    for (const Index columns : column_counts(engine)) {
      OwnTile<R> s(engine, 2, columns);
      for (Index j = 0; j < columns; ++j) {
        s.at(0, j) = j == 0 ? kInfinity<R> : R(j);
        s.at(1, j) = -s.at(0, j);
      }
      engine.cap(s, R(4), Tile<R>{nullptr, 2, columns, 0});
      for (Index j = 0; j < columns; ++j) {
        ASSERT_EQ(s.at(0, j), -s.at(1, j));
        const double exact = j == 0 ? 4 : 4 * std::tanh(double(j) / 4);
        ASSERT_NEAR(s.at(0, j), exact, 16 * ulp_of<R>(1));
      }
    }
    OwnTile<R> nan(engine, 1, 1);
    nan.at(0, 0) = kNaN<R>;
    engine.cap(nan, R(4), Tile<R>{nullptr, 1, 1, 0});
    EXPECT_TRUE(std::isnan(nan.at(0, 0)));
  });
}

}  // namespace
}  // namespace attest::impl
