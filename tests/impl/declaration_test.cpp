// What the bundled kernels declare of their memory and their schedule, against what they ask for
// and how they deal, for sizes far beyond those of any case.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <sstream>

#include "impl/flash.h"
#include "impl/flash/backward_evenly.h"
#include "impl/flash/forward_evenly.h"
#include "impl/flash/pieces.h"
#include "impl/schedule.h"
#include "tests/impl/description_of.h"
#include "tests/impl/host.h"

namespace attest {
namespace {

std::vector<const attest_kernel*> bundled_kernels() {
  std::vector<const attest_kernel*> kernels;
  std::istringstream paths(ATTEST_PLUGINS);
  for (std::string path; std::getline(paths, path, ':');) {
    const attest_plugin& plugin = load_plugin(path);
    kernels.insert(kernels.end(), plugin.kernels, plugin.kernels + plugin.kernel_count);
  }
  return kernels;
}

Index below(Index end) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<Index>(0, end));
}

RC_GTEST_PROP(DeclarationTest, NoWorkspaceIsLargerThanDeclared, ()) {
  static const auto kKernels = bundled_kernels();
  Problem p = {.dtype = *rc::gen::element(DType::f64, DType::f32, DType::bf16),
               .batch = below(5),
               .query_len = below(*rc::gen::element<Index>(3, 100, 1000, 20000)),
               .key_len = below(*rc::gen::element<Index>(3, 100, 1000, 20000)),
               .head_dim = below(300),
               .value_dim = below(300),
               .mask = *rc::gen::element(Mask::full(), Mask::causal(Anchor::top_left)),
               .backward = *rc::gen::arbitrary<bool>()};
  p.key_heads = below(4);
  p.query_heads = p.key_heads * below(5);
  p.softcap = static_cast<double>(below(2));
  if (below(2) == 1) p.bias_shape = Shape{1, 1, p.query_len, p.key_len};
  p.sink = below(2) == 1;
  const int threads = static_cast<int>(1 + below(9));
  const HostProblem problem(p);
  for (const attest_kernel* kernel : kKernels) {
    const Description description = description_of(*kernel);
    const auto& declared = description.memory;
    RC_ASSERT(declared.has_value());
    if (exclusion(p, description)) continue;  // too long for it, or of another format
    for (const int backward : {0, int(p.backward)}) {
      const std::uint64_t asked = kernel->workspace(kernel, problem.get(), backward, threads);
      if (static_cast<double>(asked) > declared->workspace.bytes(p, threads)) {
        std::ostringstream text;
        text << kernel->name << " asks for " << asked << " of "
             << declared->workspace.bytes(p, threads) << ", backward " << backward << ", threads "
             << threads << ", f" << 8 * format_of(p.dtype).bytes << ", B " << p.batch << ", H "
             << p.query_heads << "/" << p.key_heads << ", S " << p.query_len << "x" << p.key_len
             << ", D " << p.head_dim << "/" << p.value_dim;
        RC_FAIL(text.str());
      }
    }
  }
}

TEST(DeclarationTest, EveryKernelDeclaresItsBlocksAndItsMemory) {
  for (const attest_kernel* kernel : bundled_kernels()) {
    const Description description = description_of(*kernel);
    EXPECT_TRUE(description.schedule) << kernel->name;
    EXPECT_TRUE(description.memory) << kernel->name;
  }
}

// ---- The imbalance of causal_balanced ----------------------------------------------------------

// Pairs of a block that is computed in slices, each up to its last visible key, of a causal square.
double pairs(Index query_begin, Index query_end, Index key_begin, Index key_end) {
  double sum = 0;
  if (key_end <= query_begin + 1) {
    return static_cast<double>(query_end - query_begin) * static_cast<double>(key_end - key_begin);
  }
  for (Index row = query_begin; row < query_end; row += impl::kSlice) {
    const Index end = std::min(row + impl::kSlice, query_end);
    sum += static_cast<double>(end - row) *
           static_cast<double>(std::max<Index>(0, std::min(end, key_end) - key_begin));
  }
  return sum;
}

double imbalance(const std::vector<double>& load) {
  double sum = 0;
  for (const double part : load) sum += part;
  return *std::max_element(load.begin(), load.end()) * static_cast<double>(load.size()) / sum;
}

impl::Call square(Index length, Index heads, bool causal) {
  impl::Call call;
  call.problem.batch = 1;
  call.problem.query_heads = call.problem.key_heads = heads;
  call.problem.query_len = call.problem.key_len = length;
  call.lengths = {{length, length}};
  attest_mask band = {};
  band.kind = ATTEST_MASK_BAND;
  band.left = Index(1) << 40;
  band.right = causal ? 0 : band.left;
  call.mask = {band};
  return call;
}

double imbalance_forward(Index length, Index heads, int workers, bool causal) {
  impl::Call call = square(length, heads, causal);
  call.workers = workers;
  const Index rows = impl::row_blocks(call.problem);
  std::vector<double> load;
  for (const auto& pieces : impl::EvenDeal(call).pieces) {
    load.push_back(0);
    for (const impl::EvenDeal::Piece& piece : pieces) {
      const Index begin = piece.row % rows * impl::kQueryBlock;
      const Index end = std::min(begin + impl::kQueryBlock, length);
      const Index key = piece.keys.begin * impl::kDealtKeys;
      const Index key_end = std::min(piece.keys.end * impl::kDealtKeys, length);
      load.back() += causal ? pairs(begin, end, key, key_end)
                            : static_cast<double>((end - begin) * (key_end - key));
    }
  }
  return imbalance(load);
}

double imbalance_backward(Index length, Index heads, Index workers, bool causal) {
  const auto band = impl::transposed(impl::band_of(square(length, 1, causal), 0));
  const auto shares =
      impl::even_shares(impl::needed_blocks(band, impl::kKeyBlock, impl::kQueryBlock), workers,
                        [&](const impl::BlockRow& row, Index n) {
                          return impl::scores_in(band, impl::kKeyBlock, impl::kQueryBlock, row, n);
                        });
  std::vector<double> of_share(shares.size()), load = of_share;
  for (std::size_t share = 0; share < shares.size(); ++share) {
    for (const impl::BlockRow& row : shares[share]) {
      const Index key = row.row * impl::kKeyBlock,
                  key_end = std::min(key + impl::kKeyBlock, length);
      for (Index block = row.keys.begin; block < row.keys.end; ++block) {
        const Index begin = block * impl::kQueryBlock;
        const Index end = std::min(begin + impl::kQueryBlock, length);
        of_share[share] += causal ? pairs(begin, end, key, key_end)
                                  : static_cast<double>((end - begin) * (key_end - key));
      }
    }
  }
  for (Index head = 0; head < heads; ++head) {
    for (Index worker = 0; worker < workers; ++worker) {
      load[static_cast<std::size_t>(worker)] +=
          of_share[static_cast<std::size_t>(impl::share_in_head(worker, head, workers))];
    }
  }
  return imbalance(load);
}

TEST(DeclarationTest, BalancedDealingKeepsWhatItDeclaresAtAllLengths) {
  const double declared = impl::flash_schedule<impl::kBalanced>().imbalance.value();
  double worst = 1;
  for (Index length = 2048; length < 12000; length += 29) {
    for (const int workers : {2, 3, 4, 8, 16}) {
      const Index heads = impl::blocks_of(workers, 3);
      for (const bool causal : {false, true}) {
        worst = std::max({worst, imbalance_forward(length, heads, workers, causal),
                          imbalance_backward(length, heads, workers, causal)});
      }
    }
  }
  EXPECT_LE(worst, declared);
  EXPECT_GT(worst, 1 + (declared - 1) / 2);  // and does not promise far too little
}

RC_GTEST_PROP(DeclarationTest, NoQueryBlockIsInMorePartsThanDeclared, ()) {
  impl::Call call = square(0, 1 + below(4), *rc::gen::arbitrary<bool>());
  attest_problem& p = call.problem;
  p.batch = 1 + below(16);
  p.query_len = 1 + below(300);
  p.key_len = 1 + below(10000);
  call.lengths.clear();
  for (Index b = 0; b < p.batch; ++b) {
    call.lengths.push_back({*rc::gen::element(p.query_len, Index(1), below(p.query_len + 1)),
                            *rc::gen::element(p.key_len, Index(1), below(p.key_len + 1))});
  }
  call.workers = static_cast<int>(1 + below(130));
  for (const impl::EvenDeal::Row& row : impl::EvenDeal(call).rows) {
    RC_ASSERT(row.pieces <= impl::kMostParts);
  }
}

// Eight rows on nine cores: by rows, the longest core has the last of them, 8 squares; dealt
// evenly, 4 squares of 36.
TEST(DeclarationTest, ATriangleOfEightRowsIsHalfAsLongForNineWorkersIfItIsDealtEvenly) {
  constexpr Index kLength = 8 * impl::kQueryBlock;
  constexpr double kSquare = impl::kQueryBlock * impl::kQueryBlock;
  EXPECT_LE(imbalance_forward(kLength, 1, 9, true) * pairs(0, kLength, 0, kLength) / 9 / kSquare,
            4);
}

}  // namespace
}  // namespace attest
