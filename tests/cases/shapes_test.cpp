#include "cases/shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "cases/entry.h"
#include "spec/json_reader.h"
#include "tests/cases/case_folder.h"

namespace attest {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class ShapesTest : public testing::Test {
 protected:
  Shapes load(const std::string& name, const std::string& text) {
    folder_.write(name, text);
    return load_shapes({(folder_.path() / name).string()}, ATTEST_CASES_DIR);
  }
  std::string error(const std::string& name, const std::string& text) {
    try {
      load(name, text);
      return "";
    } catch (const InputError& error) {
      const std::string what = error.what(), prefix = folder_.path().generic_string() + "/";
      return what.starts_with(prefix) ? what.substr(prefix.size()) : what;
    }
  }

  CaseFolder folder_;
};

// ---- Lines --------------------------------------------------------------------------------------

TEST_F(ShapesTest, ALineIsAShapeInEachFormatAndInClassesThatTell) {
  const Shapes shapes = load("mine.csv", "1,32,8,1,640,128,64,causal bottom_right\n");
  ASSERT_THAT(shapes.cases, SizeIs(12));
  const Case& c = shapes.cases[0].test_case;
  EXPECT_EQ(c.id,
            "shapes/mine/b1_h32_8_q1_k640_d128_64_causal_bottom_right/dtype=f32/data=normal/s=1");
  EXPECT_EQ(to_string(c.problem),
            "f32 b1 h32/8 q1 k640 d128/64 scale=0.08838834764831843 causal bottom_right");
  EXPECT_TRUE(c.as_it_is);
  EXPECT_EQ(c.line, 1);
  std::set<std::string> data;
  for (const CaseWithEntry& each : shapes.cases) data.insert(each.test_case.data);
  EXPECT_EQ(data, (std::set<std::string>{"normal", "ascending", "one_hot", "key_names"}));
}

TEST_F(ShapesTest, AnObjectOnOneLineMayEndWithOne) {
  const std::string object = R"({"shapes": [{"name": "a", "problem": {"query_len": 8}}]})";
  for (const char* const end : {"", "\n", "\r\n\n"}) {
    EXPECT_THAT(load("a.json", object + end).cases, testing::Not(IsEmpty())) << end;
  }
}

TEST_F(ShapesTest, CommentsBlankLinesAHeaderAndAMaskLeftOut) {
  const Shapes plain = load("a.csv", "# what we serve\n\n1, 2, 1, 3, 4, 5, 6  # no mask\r\n");
  EXPECT_EQ(plain.cases[0].test_case.problem.mask.kind, Mask::Kind::full);
  EXPECT_EQ(plain.cases[0].test_case.problem.value_dim, 6);
  const Shapes named = load("b.csv",
                            "name,Sk,Sq,D,B,Hq,Hkv,backward,softcap,sink,page_size\n"
                            "Our Decode,33,1,16,2,4,2,,20.5,yes,16\n"
                            "train,33,33,16,2,4,2,true,,,\n");
  const Problem& decode = named.cases[0].test_case.problem;
  EXPECT_EQ(named.cases[0].test_case.id, "shapes/b/our_decode/dtype=f32/data=normal/s=1");
  EXPECT_EQ(decode.key_len, 33);
  EXPECT_EQ(decode.softcap, 20.5);
  EXPECT_TRUE(decode.sink);
  EXPECT_EQ(decode.paging.page_size, 16);
  EXPECT_EQ(decode.key_lens[1], 33);
  const Case& train = named.cases.back().test_case;
  EXPECT_TRUE(train.problem.backward);
  EXPECT_THAT(train.clauses, testing::Contains("GRAD-2"));
}

TEST_F(ShapesTest, ALineThatIsNotUnderstoodIsNamed) {
  const auto wrong = [&](const std::string& text) { return error("bad.csv", text); };
  EXPECT_EQ(wrong("1,2,2,3,4,5,5\n1,2,x,3,4,5,5\n"),
            "bad.csv:2: Hkv takes a number of at least 1, not x");
  EXPECT_EQ(wrong("1,2,2,3,0,5,5\n"), "bad.csv:1: Sk takes a number of at least 1, not 0");
  EXPECT_EQ(wrong("1,2,2,3\n"), "bad.csv:1: 4 columns where B,Hq,Hkv,Sq,Sk,D,Dv,mask have 8");
  EXPECT_EQ(wrong("1,2,2,3,4,5,5,full,9\n"),
            "bad.csv:1: 9 columns where B,Hq,Hkv,Sq,Sk,D,Dv,mask have 8");
  EXPECT_THAT(wrong("\n1,2,2,3,4,5,5,diagonal\n"),
              AllOf(HasSubstr("bad.csv:2: "), HasSubstr("mask")));
  EXPECT_THAT(wrong("1,4,3,3,4,5,5\n"), AllOf(HasSubstr("bad.csv:1: "), HasSubstr("HEAD-1")));
  EXPECT_EQ(wrong("1,2,2,3,4,5,5\n1,2,2,3,4,5,5,full\n"),
            "bad.csv:2: the shape of line 1 once more");
  EXPECT_THAT(wrong("B,Hq,Hkv,Sq,Sk,d\n"),
              HasSubstr("bad.csv:1: there is no column d; there are B,"));
  EXPECT_EQ(wrong("B,Hq,Hkv,Sq,Sk,Dv\n"), "bad.csv:1: the column D is missing");
  EXPECT_EQ(wrong("B,Hq,Hkv,Sq,Sk,D,D\n"), "bad.csv:1: the column D stands twice");
  EXPECT_EQ(wrong("B,Hq,Hkv,Sq,Sk,D,backward\n1,1,1,1,1,1,maybe\n"),
            "bad.csv:2: backward takes true or false, not maybe");
  EXPECT_EQ(wrong("B,Hq,Hkv,Sq,Sk,D,scale\n1,1,1,1,1,1,big\n"),
            "bad.csv:2: scale takes a number, not big");
  EXPECT_EQ(wrong("# nothing\n"), "bad.csv: holds no shape");
  for (const std::string value : {"null", "3", "\"a\""}) {
    EXPECT_EQ(wrong(value + "\n"),
              "bad.csv: holds no shape, but " + value +
                  ": shapes are a JSON object or list, or lines B,Hq,Hkv,Sq,Sk,D,Dv,mask");
  }
  EXPECT_EQ(wrong(""), "bad.csv: holds no shape");
}

// ---- JSON ---------------------------------------------------------------------------------------

TEST_F(ShapesTest, AListOfProblemsOrEntriesOrAWholeFile) {
  const Shapes list = load("list.json", R"([
    {"query_heads": 4, "key_heads": 2, "key_len": 70, "head_dim": 16},
    {"name": "mine", "key_len": 7},
    {"name": "other", "problem": {"key_len": 8}, "dtypes": ["bf16"], "data": ["std10"]}])");
  ASSERT_THAT(list.cases, SizeIs(25));
  EXPECT_EQ(list.cases[0].test_case.id, "shapes/list/shape_1/dtype=f32/data=normal/s=1");
  EXPECT_EQ(list.cases[12].test_case.id, "shapes/list/mine/dtype=f32/data=normal/s=1");
  EXPECT_EQ(list.cases[24].test_case.id, "shapes/list/other/dtype=bf16/data=std10/s=1");
  EXPECT_EQ(list.cases[12].test_case.line, 3);
  const Shapes file =
      load("file.json", R"({"about": "x", "defaults": {"query_heads": 4, "dtypes": ["f16"]},
    "shapes": [{"name": "a", "for": {"key_len": [5, 6]}, "problem": {"backward": true}}]})");
  ASSERT_THAT(file.cases, SizeIs(6));
  EXPECT_EQ(file.cases[0].test_case.id, "shapes/file/a/sk=5/dtype=f16/data=normal/s=1");
  EXPECT_EQ(file.cases[5].test_case.data, "key_names");
  const Shapes cases = load("cases.json", R"({"about": "x", "cases": [{"name": "a",
    "clauses": ["MASK-1"], "because": "y", "problem": {"key_len": 5}, "dtypes": ["f32"]}]})");
  EXPECT_THAT(cases.cases[0].test_case.clauses, testing::Contains("MASK-1"));
  EXPECT_EQ(cases.cases[0].test_case.because, "y");
}

TEST_F(ShapesTest, JsonThatIsNotUnderstoodIsNamedWithItsLine) {
  EXPECT_THAT(error("a.json", "[{\"key_len\": 5},\n {\"keylen\": 5}]"),
              AllOf(HasSubstr("a.json:2: "), HasSubstr("keylen")));
  EXPECT_THAT(error("a.json", "[{\"key_len\": 5},\n 7]"),
              HasSubstr("a.json:2: a shape is an object"));
  EXPECT_THAT(error("a.json", "{\"about\": \"x\"}"), HasSubstr("shapes"));
  EXPECT_THAT(error("a.json", "{\"shapes\": []}"), HasSubstr("at least one shape"));
  EXPECT_THAT(error("a.json", "[]"), HasSubstr("at least one shape"));
  EXPECT_THAT(error("a.json", "[{\"key_len\": 5}"), HasSubstr("a.json:1: "));
  EXPECT_THAT(error("a.json", "{\"shapes\": [{\"excerpt\": {\"groups\": 0}, \"problem\": {}}]}"),
              HasSubstr("\"groups\" is a number of groups, at least 1, not 0"));
  EXPECT_THAT(error("a.json", "{\"shapes\": [{\"excerpt\": {\"groups\": 4}, \"problem\": {}}]}"),
              HasSubstr("query_heads"));
}

TEST_F(ShapesTest, TheEntryOfAShapeIsTheShape) {
  const Shapes shapes = load("big.csv", "1,32,8,4096,4096,128,128,causal\n");
  for (const CaseWithEntry& each : shapes.cases) {
    const Case again = read_entry(each.entry, "x");
    EXPECT_EQ(to_string(again.problem), to_string(each.test_case.problem));
    EXPECT_EQ(again.excerpt, each.test_case.excerpt);
    EXPECT_EQ(again.excerpt_heads, each.test_case.excerpt_heads);
    EXPECT_GT(again.excerpt, 0);
  }
}

// ---- FlashInfer ---------------------------------------------------------------------------------

const std::string kDecode =
    R"({"name": "gqa_paged_decode_h32_kv4_d128_ps1", "op_type": "gqa_paged", "axes": {
        "batch_size": {"type": "var"}, "num_qo_heads": {"type": "const", "value": 32},
        "num_kv_heads": {"type": "const", "value": 4}, "head_dim": {"type": "const", "value": 128},
        "page_size": {"type": "const", "value": 16}, "num_pages": {"type": "var"},
        "len_indptr": {"type": "var"}, "num_kv_indices": {"type": "var"}},
        "inputs": {"q": {"shape": ["batch_size", "num_qo_heads", "head_dim"], "dtype": "bfloat16"},
        "sm_scale": {"shape": null, "dtype": "float32"}}, "outputs": {}})";

std::string one_line(std::string text) {
  std::erase(text, '\n');
  return text + "\n";
}

std::string workload(const std::string& axes,
                     const std::string& definition = "gqa_paged_decode_h32_kv4_d128_ps1") {
  return R"({"definition": ")" + definition +
         R"(", "solution": null, "workload": {"uuid": "0C2489b2-f8", "axes": )" + axes +
         R"(, "inputs": {"sm_scale": {"type": "scalar", "value": 0.125}}}, "evaluation": null})"
         "\n";
}

TEST_F(ShapesTest, AWorkloadOfFlashInferIsAShapeOfItsDefinition) {
  const Shapes shapes = load(
      "t.jsonl",
      one_line(kDecode) +
          workload(R"({"batch_size": 3, "num_pages": 12, "len_indptr": 4, "num_kv_indices": 10})"));
  ASSERT_THAT(shapes.cases, SizeIs(4));  // in its own format
  const Case& c = shapes.cases[0].test_case;
  EXPECT_EQ(c.id, "shapes/t/gqa_paged_decode_h32_kv4_d128_ps1_0c2489b2/dtype=bf16/data=normal/s=1");
  EXPECT_EQ(c.problem.batch, 3);
  EXPECT_EQ(c.problem.query_heads, 32);
  EXPECT_EQ(c.problem.key_heads, 4);
  EXPECT_EQ(c.problem.query_len, 1);
  EXPECT_EQ(c.problem.scale, 0.125);
  EXPECT_EQ(c.problem.paging.page_size, 16);
  EXPECT_EQ(c.problem.paging.pages, 12);
  // 10 pages for three sequences, whose last pages are unlike.
  EXPECT_EQ(c.problem.key_lens[0], 64);
  EXPECT_EQ(c.problem.key_lens[1], 47);
  EXPECT_EQ(c.problem.key_lens[2], 46);
  EXPECT_EQ(c.line, 2);
  ASSERT_THAT(shapes.notes, SizeIs(1));
  EXPECT_THAT(shapes.notes[0], HasSubstr("kv_last_page_len"));
}

TEST_F(ShapesTest, DefinitionsLieBesideOrInTheDataset) {
  folder_.write("set/definitions/gqa_paged/gqa_paged_decode_h32_kv4_d128_ps1.json", kDecode);
  const Shapes shapes =
      load("set/workloads/gqa_paged/w.jsonl",
           workload(R"({"batch_size": 1, "num_pages": 9, "len_indptr": 2, "num_kv_indices": 7})"));
  EXPECT_EQ(shapes.cases[0].test_case.problem.key_lens[0], 112);
  EXPECT_THAT(error("alone.jsonl", workload("{}", "unknown") + workload("{}", "unknown")),
              AllOf(HasSubstr("alone.jsonl:1: the definition unknown is neither"),
                    HasSubstr("unknown.json")));
}

TEST_F(ShapesTest, PackedPrefillAndLatentAttentionOfFlashInfer) {
  const Shapes ragged =
      load("r.json", R"([{"name": "gqa_ragged_prefill_causal", "op_type": "gqa_ragged",
    "axes": {"total_q": {"type": "var"}, "total_kv": {"type": "var"}, "len_indptr": {"type": "var"},
    "num_qo_heads": {"type": "const", "value": 8}, "num_kv_heads": {"type": "const", "value": 2},
    "head_dim": {"type": "const", "value": 64}}, "inputs": {"q": {"dtype": "float16"}, "qo_indptr": {}}},
    {"definition": "gqa_ragged_prefill_causal", "workload": {"uuid": "a", "axes":
    {"total_q": 7, "total_kv": 9, "len_indptr": 3}, "inputs": {}}}])");
  const Problem& p = ragged.cases[0].test_case.problem;
  EXPECT_TRUE(p.packed);
  EXPECT_EQ(p.query_lens[0], 4);
  EXPECT_EQ(p.key_lens[1], 4);
  EXPECT_EQ(p.mask.anchor, Anchor::bottom_right);
  EXPECT_EQ(p.dtype, DType::f16);
  const Shapes latent =
      load("m.json", R"({"name": "mla_paged_decode_h16_ckv512_kpe64_ps1", "op_type": "mla_paged",
    "axes": {"batch_size": {"type": "var"}, "num_pages": {"type": "var"}, "len_indptr": {"type": "var"},
    "num_kv_indices": {"type": "var"}, "num_qo_heads": {"type": "const", "value": 16},
    "head_dim_ckv": {"type": "const", "value": 512}, "head_dim_kpe": {"type": "const", "value": 64},
    "page_size": {"type": "const", "value": 1}}, "inputs": {"q_nope": {"dtype": "bfloat16"}, "sm_scale": {}}})");
  const Problem& m = latent.cases[0].test_case.problem;
  EXPECT_EQ(m.key_heads, 1);
  EXPECT_EQ(m.head_dim, 576);
  EXPECT_EQ(m.value_dim, 512);
  EXPECT_EQ(m.batch, 4);  // of ours
  EXPECT_DOUBLE_EQ(m.scale, 0.07216878364870322);
  EXPECT_THAT(latent.notes[0], HasSubstr("batch_size = 4"));
}

TEST_F(ShapesTest, WhatOfFlashInferIsNoAttentionIsLeftOutAndWhatIsAmissIsNamed) {
  const std::string gemm = R"({"name": "gemm_n1", "op_type": "gemm", "axes": {}, "inputs": {}})"
                           "\n";
  EXPECT_THAT(error("g.json", gemm),
              AllOf(HasSubstr("holds no shape"), HasSubstr("op_type gemm left out")));
  const Shapes shapes = load("both.jsonl", one_line(kDecode) + gemm);
  EXPECT_THAT(shapes.cases, SizeIs(4));
  EXPECT_THAT(shapes.notes, testing::Contains(HasSubstr("1 of op_type gemm left out")));
  EXPECT_THAT(error("x.jsonl", one_line(kDecode) + workload(R"({"batch_size": 3})")),
              HasSubstr("x.jsonl:2: the axis \"num_kv_indices\" has no value"));
  EXPECT_THAT(error("x.jsonl", one_line(kDecode) + workload(R"({"batch_size": "3"})")),
              HasSubstr("x.jsonl:2: the axis \"batch_size\" takes a number, not \"3\""));
  EXPECT_THAT(error("x.jsonl", one_line(kDecode) + "{\"a\": 1}\n"),
              HasSubstr("x.jsonl:2: is no workload"));
  EXPECT_THAT(error("x.jsonl", one_line(kDecode) + "{\n"), HasSubstr("x.jsonl:2"));
  std::string fp8 = kDecode;
  fp8.replace(fp8.find("bfloat16"), 8, "float8_e4m3fn");
  EXPECT_THAT(error("f.json", fp8), HasSubstr("dtype float8_e4m3fn, which is not judged yet"));
}

// ---- Presets ------------------------------------------------------------------------------------

TEST(ShapePresetsTest, EachIsPrefillChunkDecodeAndTrainingWithItsSource) {
  const auto presets = shape_presets(ATTEST_CASES_DIR);
  EXPECT_GE(presets.size(), 6u);
  for (const ShapePreset& preset : presets) {
    EXPECT_THAT(preset.about, testing::Not(IsEmpty())) << preset.name;
    EXPECT_THAT(preset.source, HasSubstr("config.json")) << preset.name;
    const Shapes shapes = load_shapes({preset.name}, ATTEST_CASES_DIR);
    for (const char* phase : {"prefill", "chunk", "decode", "training"}) {
      const auto of_phase = [&](const CaseWithEntry& each) {
        return each.test_case.id.starts_with("shapes/" + preset.name + "/" + phase);
      };
      EXPECT_GE(std::count_if(shapes.cases.begin(), shapes.cases.end(), of_phase), 6)
          << preset.name << " " << phase;
      for (const CaseWithEntry& each : shapes.cases) {
        if (!of_phase(each)) continue;
        const Problem& p = each.test_case.problem;
        EXPECT_EQ(p.backward, std::string(phase) == "training");
        EXPECT_EQ(p.query_len == 1, std::string(phase) == "decode");
        EXPECT_TRUE(std::string(phase) != "chunk" || p.query_len < p.key_len);
      }
    }
  }
}

TEST(ShapePresetsTest, AreNoCasesOfTheSuite) {
  for (const Case& c : load_cases(ATTEST_CASES_DIR)) EXPECT_FALSE(c.id.starts_with("shapes/"));
}

TEST(ShapePresetsTest, WhatIsNeitherAPresetNorAFileSaysWhichPresetsThereAre) {
  try {
    load_shapes({"llama4"}, ATTEST_CASES_DIR);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("--shapes llama4"), HasSubstr("llama3_8b")));
  }
}

// What "far_keys/lost" of the harness's tests loses, only shapes show.
TEST(ShapePresetsTest, TheStandardTierHasNo32HeadsOfMoreThan4096Keys) {
  const auto is_far = [](const Case& c) {
    return c.problem.query_heads == 32 && c.problem.key_len > 4096;
  };
  for (const Case& c : load_cases(ATTEST_CASES_DIR)) {
    EXPECT_FALSE(c.tier <= Tier::standard && is_far(c)) << c.id;
  }
  const auto shapes = cases_of(load_shapes({"llama3_8b"}, ATTEST_CASES_DIR));
  EXPECT_GT(std::count_if(shapes.begin(), shapes.end(), is_far), 0);
}

}  // namespace
}  // namespace attest
