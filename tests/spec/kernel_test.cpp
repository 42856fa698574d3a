// kernel.h in a program of its own, as a vendor has it: what is not seen of it through whole calls,
// which harness/glue judges.
#include "spec/kernel.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace attest {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

TEST(KernelHeaderTest, DeclarationIsTheJsonOfItsWords) {
  EXPECT_EQ(declare().dtypes({"f32"}).features({"causal", "lse"}).text("mine"),
            R"({"dtypes":["f32"],"features":["causal","lse"],"name":"mine",)"
            R"("profiles":["forward-core/limits"],"vendor":"","version":"0"})");
  EXPECT_EQ(declare()
                .profiles({})
                .vendor("\"we\"")
                .limit("head_dim", {64, 128})
                .limit("masks", {"causal"})
                .limit("query_len", R"({"multiple": 16})")
                .arithmetic("f32", "exact-f32")
                .arithmetic("f16", R"({"exp_ulp": 1})")
                .set("alignment", "4")
                .text("m"),
            R"({"alignment":4,"arithmetic":{"f16":{"exp_ulp": 1},"f32":"exact-f32"},"dtypes":[],)"
            R"("features":[],"limits":{"head_dim":[64,128],"masks":["causal"],)"
            R"("query_len":{"multiple": 16}},"name":"m","profiles":[],"vendor":"\"we\"",)"
            R"("version":"0"})");
  EXPECT_THAT(declare().features({"backward"}).text("m"),
              testing::HasSubstr(R"(["forward-core/limits","training-core/limits"])"));
}

// A node as a newer host has it, with more behind what we know.
struct LargerMask {
  attest_mask known;
  std::array<std::int64_t, 3> more;
};

attest_problem small_problem() {
  attest_problem p{};
  p.struct_size = sizeof(p);
  p.batch = p.query_heads = p.key_heads = 1;
  p.query_len = p.key_len = 4;
  return p;
}

TEST(KernelHeaderTest, NodesOfAMaskAreAsLargeAsTheHostSays) {
  std::array<LargerMask, 3> nodes{};
  for (LargerMask& node : nodes) {
    node.known.struct_size = sizeof(node);
    node.more.fill(-1);
  }
  nodes[0].known.kind = ATTEST_MASK_BAND;
  nodes[0].known.left = ATTEST_UNBOUNDED;
  nodes[1].known.kind = ATTEST_MASK_DILATED;
  nodes[1].known.dilation = 2;
  nodes[2].known.kind = ATTEST_MASK_ALL_OF;
  nodes[2].known.second = 1;
  attest_problem host = small_problem();
  host.mask = &nodes[0].known;
  host.mask_count = 3;
  EXPECT_EQ(attest_mask_node(&host, 2), &nodes[2].known);
  const Problem p(&host);
  std::string row;
  for (int j = 0; j < 4; ++j) row += p.sees(0, 0, 2, j) ? 'x' : '.';
  EXPECT_EQ(row, "x.x.");
  EXPECT_FALSE(p.causal());
  EXPECT_THROW(p.keys(0, 0), std::logic_error);
}

TEST(KernelHeaderTest, WhatAnOlderHostDoesNotHaveIsAbsent) {
  attest_problem host = small_problem();
  host.struct_size = offsetof(attest_problem, page_size);
  host.page_size = 16;
  host.dropout_probability = 0.5;
  const Problem p(&host);
  EXPECT_EQ(p.query_len, 4);
  EXPECT_EQ(p.page_size, 0);
  EXPECT_EQ(p.dropout_probability, 0);
  EXPECT_TRUE(p.full());
}

TEST(KernelHeaderTest, KeysOfABandEndWhereTheKeysDo) {
  attest_mask mask{};
  mask.struct_size = sizeof(mask);
  mask.kind = ATTEST_MASK_BAND;
  mask.left = 1;
  mask.offset = 3;
  attest_problem host = small_problem();
  host.mask = &mask;
  host.mask_count = 1;
  const Problem p(&host);
  EXPECT_TRUE(p.window());
  std::vector<std::int64_t> ends;
  for (int i = 0; i < 4; ++i) {
    const Keys keys = p.keys(0, i);
    ends.insert(ends.end(), {keys.begin, keys.end});
    for (int j = 0; j < 4; ++j) EXPECT_EQ(p.sees(0, 0, i, j), j >= keys.begin && j < keys.end);
  }
  EXPECT_THAT(ends, ElementsAre(2, 4, 3, 4, 4, 4, 4, 4));
}

TEST(KernelHeaderTest, ViewsAreOfTheTypeThatIsThere) {
  float number = 1;
  attest_tensor tensor{};
  tensor.data = &number;
  tensor.dtype = ATTEST_F32;
  tensor.shape[0] = tensor.shape[1] = tensor.shape[2] = tensor.shape[3] = 1;
  tensor.stride[3] = -77;  // of an axis of size 1: means nothing
  EXPECT_EQ(Tensor(tensor).view<float>()(0, 0, 0, 0), 1);
  EXPECT_THROW(Tensor(tensor).view<bf16>(), std::logic_error);
  EXPECT_THROW(Tensor(tensor).view<double>(), std::logic_error);
  const Tensor absent;
  EXPECT_FALSE(absent.view<bf16>());
  EXPECT_EQ(gather<float>(absent, Order::bhsd).data(), nullptr);
  scatter(dense<float>(absent, Order::bhsd), absent);  // is nothing
}

TEST(KernelHeaderTest, DenseCopiesTakeAVendorsOwnTypeBitByBit) {
  struct Own {
    std::uint16_t bits;
  };
  std::array<std::uint16_t, 4> numbers = {1, 2, 3, 4};
  attest_tensor tensor{};
  tensor.data = numbers.data();
  tensor.dtype = ATTEST_BF16;
  tensor.shape[0] = tensor.shape[3] = 1;
  tensor.shape[1] = tensor.shape[2] = 2;
  tensor.stride[1] = 2;
  tensor.stride[2] = 1;
  auto copy = gather<Own>(tensor, Order::bshd);
  EXPECT_EQ(copy.data()[1].bits, 3) << "heads lie side by side";
  copy(0, 1, 1, 0).bits = 9;
  scatter(copy, tensor);
  EXPECT_THAT(numbers, ElementsAre(1, 2, 3, 9));
}

TEST(KernelHeaderTest, WhatIsThrownIsCutToTheHostsRoom) {
  const Kernel kernel("k", declare(),
                      [](const Call&) { throw std::runtime_error(std::string(100, 'x')); });
  const attest_problem problem = small_problem();
  attest_inputs in{};
  in.struct_size = sizeof(in);
  attest_outputs out{};
  out.struct_size = sizeof(out);
  std::array<char, 32> message;
  message.fill('~');
  attest_context context{};
  context.struct_size = sizeof(context);
  context.message = message.data();
  context.message_bytes = 24;
  const attest_kernel& table = *kernel.table();
  EXPECT_EQ(table.forward(&table, &problem, &in, &out, &context), ATTEST_ERROR);
  EXPECT_STREQ(message.data(), "the kernel threw: xxxxx");
  EXPECT_EQ(message[24], '~');
  context.message_bytes = 0;  // nowhere to say it
  EXPECT_EQ(table.forward(&table, &problem, &in, &out, &context), ATTEST_ERROR);
  EXPECT_EQ(table.backward, nullptr);
}

// Both have the functions of the header, and may not have one list between them.
TEST(KernelHeaderTest, LibrariesInOneProcessHaveKernelsOfTheirOwn) {
  const auto names_in = [](const char* path) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
    const auto get =
        reinterpret_cast<attest_plugin_get_function>(dlsym(library, ATTEST_PLUGIN_SYMBOL));
    std::vector<std::string> names;
    for (std::uint32_t n = 0; n < get()->kernel_count; ++n) {
      names.emplace_back(get()->kernels[n]->name);
    }
    return names;
  };
  EXPECT_THAT(names_in(DECLARES), ElementsAre("declares/lag", "declares/beyond_caps"));
  EXPECT_THAT(names_in(GLUE), testing::Each(StartsWith("glue/")));
}

}  // namespace
}  // namespace attest
