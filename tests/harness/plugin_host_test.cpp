#include "harness/process/plugin_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <set>
#include <vector>

#include "harness/process/in_process.h"
#include "harness/process/tensors.h"
#include "harness/process/wire.h"
#include "spec/json_reader.h"
#include "tests/harness/mock_plugin.h"

namespace attest {
namespace {

using testing::_;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::NiceMock;
using testing::SizeIs;

// Asks the mock about a problem, and looks at what reaches it.
class PluginHostTest : public testing::Test {
 protected:
  void show(const Problem& problem, const std::function<void(const attest_problem&)>& look) {
    EXPECT_CALL(mock_, supports(_)).WillOnce([&](const attest_problem& p) {
      look(p);
      return "ok";
    });
    Exchange exchange(executor_.arena(arena_bytes(problem)), Placement::end_flush, 16);
    add_problem(exchange, problem);
    const Reply reply = executor_.execute({{"op", "supports"},
                                           {"kernel", "mock"},
                                           {"problem", problem_to_json(problem)},
                                           {"tensors", exchange.to_json()}});
    EXPECT_TRUE(reply.ok()) << reply.body;
  }

  NiceMock<MockPlugin> mock_;
  InProcessExecutor executor_{mock_.plugin()};
};

TEST_F(PluginHostTest, WhatNotAllParsersTakeForJsonIsNoDescription) {
  const auto said = [&](const std::string& description) {
    mock_.description = description;
    const Reply reply = executor_.execute({{"op", "describe"}});
    return reply.ok() ? "ok" : reply.body.at("message").get<std::string>();
  };
  EXPECT_EQ(said("{}"), "ok");
  EXPECT_EQ(said("{]"), "the description of mock is no JSON");
  EXPECT_EQ(said("{\"a\": 1, \"a\": 2}"), "the description of mock has the key \"a\" twice");
  EXPECT_EQ(said("\xEF\xBB\xBF{}"),
            "the description of mock begins with a byte order mark (EF BB BF), which is no part of "
            "JSON: write UTF-8 without it");
}

// A forward call on the mock, in that mode.
class CallTest : public PluginHostTest {
 protected:
  Reply call(const std::string& mode, const char* also = nullptr) {
    const Problem problem = {.dtype = DType::f32, .mask = Mask::any_of({})};
    Exchange exchange(executor_.arena(arena_bytes(problem)), Placement::end_flush, 16);
    add_problem(exchange, problem);
    for (const char* name : {"q", "k", "v"}) {
      exchange.add_input(name, DType::f32, zeros({1, 1, 1, 1}), Layout());
    }
    exchange.add_output("o", DType::f32, {1, 1, 1, 1}, Layout());
    exchange.seal();
    nlohmann::json request = {{"op", "forward"},
                              {"kernel", "mock"},
                              {"threads", 1},
                              {"problem", problem_to_json(problem)},
                              {"tensors", exchange.to_json()}};
    if (!mode.empty()) request["mode"] = mode;
    if (also) request[also] = true;
    return executor_.execute(request);
  }
};

TEST_F(CallTest, ModeArrivesAndThePagesOfEachTensor) {
  for (const auto& [mode, number] :
       {std::pair("", ATTEST_CALL_ORDINARY), std::pair("stream", ATTEST_CALL_STREAM),
        std::pair("two-streams", ATTEST_CALL_TWO_STREAMS), std::pair("graph", ATTEST_CALL_GRAPH)}) {
    attest_call_mode seen = -1;
    std::vector<std::string> names;
    ON_CALL(mock_, forward).WillByDefault([&](auto& p, auto& in, auto& out, auto& c) {
      seen = c.mode;
      names.clear();
      for (std::uint64_t i = 0; i < c.region_count; ++i) {
        const attest_region& region = *attest_context_region(&c, i);
        names.push_back(region.name);
        auto* const first = static_cast<std::byte*>(region.data) + region.tensor_offset;
        const attest_tensor& tensor = names.back() == "q"   ? in.q
                                      : names.back() == "k" ? in.k
                                      : names.back() == "v" ? in.v
                                      : names.back() == "o" ? out.o
                                                            : p.mask->table;
        EXPECT_EQ(first, tensor.data) << region.name;
        EXPECT_EQ(region.tensor_bytes, tensor.capacity_bytes);
        EXPECT_EQ(region.output, names.back() == "o");
      }
      return ATTEST_OK;
    });
    EXPECT_TRUE(call(mode).ok());
    EXPECT_EQ(seen, number);
    EXPECT_THAT(names, testing::UnorderedElementsAre("q", "k", "v", "o", "a union of nothing"));
  }
  EXPECT_THROW(call("sideways"), InputError);
}

TEST_F(CallTest, CallThatIsMeasuredGetsAWorkspaceOfItsOwn) {
  mock_.workspace_bytes = 4096;
  void* given = nullptr;
  ON_CALL(mock_, forward).WillByDefault([&](auto&, auto&, auto&, auto& c) {
    given = c.workspace;
    return ATTEST_OK;
  });
  std::set<void*> kept;
  for (int i = 0; i < 9; ++i) {
    ASSERT_TRUE(call("").ok());
    kept.insert(given);
  }
  EXPECT_EQ(kept.size(), 3u);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(call("", "measured").ok());
    EXPECT_FALSE(kept.contains(given));
  }
}

TEST_F(CallTest, CallThatIsTimedGetsTheWorkspaceThatItWantsWhateverItWantedBefore) {
  std::vector<std::uint8_t> seen;
  ON_CALL(mock_, forward).WillByDefault([&](auto&, auto&, auto&, auto& c) {
    EXPECT_EQ(c.workspace_bytes, mock_.workspace_bytes);
    auto* const bytes = static_cast<std::uint8_t*>(c.workspace);
    seen.assign(bytes, bytes + c.workspace_bytes);
    std::memset(bytes, 0, c.workspace_bytes);
    return ATTEST_OK;
  });
  for (const std::uint64_t wanted : {4096, 4096, 100, 0, 8192, 8192}) {
    mock_.workspace_bytes = wanted;
    ASSERT_TRUE(call("", "armed").ok());
    EXPECT_THAT(seen, AllOf(SizeIs(wanted), Each(0xff)));
  }
}

TEST_F(CallTest, StatusesOfADeviceAreFaultsAndEnds) {
  attest_status status = ATTEST_GUARD;
  ON_CALL(mock_, forward).WillByDefault([&](auto&, auto&, auto&, auto& c) {
    std::snprintf(c.message, c.message_bytes, "what it found");
    return status;
  });
  nlohmann::json body = call("").body;
  EXPECT_EQ(body.at("status"), "fault");
  EXPECT_EQ(body.at("reason"), "guard");
  EXPECT_EQ(body.at("message"), "what it found");
  status = ATTEST_INPUT_MUTATED;
  EXPECT_EQ(call("").body.at("reason"), "input_mutated");
  status = ATTEST_DEVICE_LOST;
  body = call("").body;
  EXPECT_EQ(body.at("status"), "error");
  EXPECT_EQ(body.at("message"), "the device is lost: what it found");
  EXPECT_EQ(body.at("ends"), true);
  status = ATTEST_ERROR;
  EXPECT_FALSE(call("").body.contains("ends"));
}

template <class T>
std::vector<T> elements(const attest_tensor& t) {
  const auto* data = static_cast<const T*>(t.data);
  return {data, data + t.capacity_bytes / sizeof(T)};
}

TEST_F(PluginHostTest, NumbersOfTheProblemArrive) {
  Problem p = {.scale = 0.1, .softcap = 30};
  p.backward = p.d_lse = true;
  p.dropout = {.mode = Dropout::Mode::generated,
               .probability = 0.1,
               .seed = 0xffffffffffffffffu,
               .offset = 0x8000000000000001u};
  p.bias_shape = Shape{1, 1, 1, 1};
  show(p, [](const attest_problem& seen) {
    EXPECT_EQ(seen.struct_size, sizeof(attest_problem));
    EXPECT_EQ(seen.scale, 0.1);
    EXPECT_EQ(seen.softcap, 30);
    EXPECT_EQ(seen.backward, 1);
    EXPECT_EQ(seen.dropout, ATTEST_DROPOUT_GENERATED);
    EXPECT_EQ(seen.dropout_probability, 0.1);
    EXPECT_EQ(seen.dropout_seed, 0xffffffffffffffffu);
    EXPECT_EQ(seen.dropout_offset, 0x8000000000000001u);
    EXPECT_EQ(seen.has_bias, 1);
    EXPECT_EQ(seen.has_alibi, 0);
    EXPECT_EQ(seen.has_sink, 0);
    EXPECT_EQ(seen.has_dlse, 1);
    EXPECT_EQ(seen.page_size, 0);
    EXPECT_EQ(seen.cu_query_lens.data, nullptr);
  });
}

TEST_F(PluginHostTest, OtherFlagsOfTheProblemArriveToo) {
  Problem p = {.sink = true};
  p.slopes_shape = Shape{1, 1, 1, 1};
  p.dropout.mode = Dropout::Mode::given;
  show(p, [](const attest_problem& seen) {
    EXPECT_EQ(seen.has_bias, 0);
    EXPECT_EQ(seen.has_alibi, 1);
    EXPECT_EQ(seen.has_sink, 1);
    EXPECT_EQ(seen.has_dlse, 0);
    EXPECT_EQ(seen.dropout, ATTEST_DROPOUT_GIVEN);
  });
}

TEST_F(PluginHostTest, PackedProblemHasSumsOfLengthsInPlaceOfLengths) {
  Problem p = {.batch = 3, .query_len = 4, .key_len = 5};
  p.query_lens = {1, 4, 0};
  p.key_lens = {5, 0, 2};
  p.packed = true;
  show(p, [](const attest_problem& seen) {
    EXPECT_THAT(elements<std::int64_t>(seen.cu_query_lens), ElementsAre(0, 1, 5, 5));
    EXPECT_THAT(elements<std::int64_t>(seen.cu_key_lens), ElementsAre(0, 5, 5, 7));
    EXPECT_EQ(seen.cu_key_lens.dtype, ATTEST_I64);
    EXPECT_EQ(seen.cu_key_lens.shape[0], 4);
    EXPECT_EQ(seen.query_lens.data, nullptr);
    EXPECT_EQ(seen.key_lens.data, nullptr);
  });
}

TEST_F(PluginHostTest, PagedKeysHaveATableWithoutHolesAndTheirLengths) {
  Problem p = {.batch = 2, .query_len = 2, .key_len = 5};
  p.query_lens = {1, 2};
  p.key_lens = {5, 2};
  p.packed = true;
  p.paging = {.page_size = 2, .pages = 9, .table = {{8, 0, 3}, {7}}};
  show(p, [](const attest_problem& seen) {
    EXPECT_EQ(seen.page_size, 2);
    EXPECT_THAT(elements<std::int32_t>(seen.page_table), ElementsAre(8, 0, 3, 7, -1, -1));
    EXPECT_EQ(seen.page_table.dtype, ATTEST_I32);
    EXPECT_EQ(seen.page_table.shape[0], 2);
    EXPECT_EQ(seen.page_table.shape[1], 3);
    EXPECT_THAT(elements<std::int64_t>(seen.key_lens), ElementsAre(5, 2));
    EXPECT_THAT(elements<std::int64_t>(seen.cu_query_lens), ElementsAre(0, 1, 3));
    EXPECT_EQ(seen.cu_key_lens.data, nullptr);
  });
}

TEST_F(PluginHostTest, MaskArrivesAsATreeOfPairsWithItsTables) {
  const Problem p = {
      .batch = 2,
      .query_len = 2,
      .key_len = 3,
      .mask = Mask::any_of(
          {Mask::prefix({1, 2}),
           Mask::documents({.query = {.batches = 2, .length = 2, .number = {0, 1, 2, -3}},
                            .key = {.batches = 1, .length = 3, .number = {5, 6, 7}}}),
           Mask::block_sparse(2, 3, {.shape = {1, 1, 1, 1}, .allowed = {1}}),
           Mask::dilated(4, Anchor::bottom_right, -9)})};
  show(p, [](const attest_problem& seen) {
    ASSERT_EQ(seen.mask_count, 7);
    const attest_mask& prefix = seen.mask[0];
    EXPECT_EQ(prefix.kind, ATTEST_MASK_PREFIX);
    EXPECT_THAT(elements<std::int64_t>(prefix.table), ElementsAre(1, 2));
    const attest_mask& segments = seen.mask[1];
    EXPECT_EQ(segments.kind, ATTEST_MASK_SEGMENTS);
    EXPECT_THAT(elements<std::int32_t>(segments.table), ElementsAre(0, 1, 2, -3));
    EXPECT_THAT(elements<std::int32_t>(segments.table2), ElementsAre(5, 6, 7));
    EXPECT_EQ(segments.table.shape[0], 2);
    EXPECT_EQ(segments.table.shape[2], 2);
    EXPECT_EQ(segments.table2.shape[0], 1);
    EXPECT_EQ(segments.table2.shape[2], 3);
    EXPECT_EQ(seen.mask[2].kind, ATTEST_MASK_ANY_OF);
    const attest_mask& blocks = seen.mask[3];
    EXPECT_EQ(blocks.kind, ATTEST_MASK_BLOCK_SPARSE);
    EXPECT_EQ(blocks.block_query, 2);
    EXPECT_EQ(blocks.block_key, 3);
    EXPECT_THAT(elements<std::uint8_t>(blocks.table), ElementsAre(1));
    const attest_mask& dilated = seen.mask[5];
    EXPECT_EQ(dilated.kind, ATTEST_MASK_DILATED);
    EXPECT_EQ(dilated.dilation, 4);
    EXPECT_EQ(dilated.offset, -9);
    EXPECT_EQ(dilated.anchored_bottom_right, 1);
    const attest_mask& root = seen.mask[6];
    EXPECT_EQ(root.kind, ATTEST_MASK_ANY_OF);
    EXPECT_EQ(root.first, 4);
    EXPECT_EQ(root.second, 5);
  });
}

TEST_F(PluginHostTest, EmptyIntersectionAllowsAllAndEmptyUnionNothing) {
  show({.mask = Mask::all_of({})}, [](const attest_problem& seen) {
    ASSERT_EQ(seen.mask_count, 1);
    EXPECT_EQ(seen.mask[0].kind, ATTEST_MASK_FULL);
  });
  show({.mask = Mask::any_of({})}, [](const attest_problem& seen) {
    ASSERT_EQ(seen.mask_count, 1);
    EXPECT_EQ(seen.mask[0].kind, ATTEST_MASK_DENSE);
    EXPECT_THAT(elements<std::uint8_t>(seen.mask[0].table), ElementsAre(0));
  });
}

}  // namespace
}  // namespace attest
