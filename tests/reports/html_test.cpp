#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/catches.h"
#include "reports/markup.h"
#include "reports/page/files.h"
#include "reports/reports.h"
#include "reports/text.h"
#include "tests/reports/samples.h"

namespace attest {
namespace {

using testing::HasSubstr;
using testing::Not;

// What is shown of it: scripts and data aside, which have tests of their own (page_test.py).
std::string page_of(const Record& record) { return shown_of(to_html(record)); }

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(MarkupTest, TextIsEscapedInContentAndAttributes) {
  const std::string evil = "<b>\"&'";
  EXPECT_EQ(element("td", {{"title", evil}}, evil).str(),
            "<td title=\"&lt;b&gt;&quot;&amp;&#39;\">&lt;b&gt;&quot;&amp;&#39;</td>");
}

TEST(MarkupTest, MarkupNestsUnescaped) {
  EXPECT_EQ(element("td", {}, "a", element("b", {}, "<")).str(), "<td>a<b>&lt;</b></td>");
}

TEST(MarkupTest, AttributesStayOnOneLine) {
  EXPECT_EQ(element("td", {{"title", "a\nb"}}, "").str(), "<td title=\"a b\"></td>");
}

TEST(HtmlTest, NothingThatATesteeSaysBecomesMarkup) {
  const std::string page = page_of(hostile_record());
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_EQ(occurrences(to_html(hostile_record()), "<script"),
            occurrences(to_html(empty_record()), "<script"));
  EXPECT_THAT(page, Not(HasSubstr(" onload=\"")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"));
  EXPECT_EQ(clean(page), page);
}

TEST(HtmlTest, PageStandsAlone) {
  const std::string page = page_of(realistic_record());
  for (const char* outside : {"http://", "https://", "src=", "<link", "@import", "url("}) {
    // Behind it stands the licence of the library, which says where that is from.
    EXPECT_THAT(page.substr(0, page.find("<footer")), Not(HasSubstr(outside)));
  }
  const std::string policy =
      "content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'sha256-";
  EXPECT_THAT(page, HasSubstr(policy));
  EXPECT_EQ(occurrences(page, "script-src"), 1u);
  EXPECT_THAT(page.substr(0, page.find("<body")), Not(HasSubstr("unsafe-eval")));
}

TEST(HtmlTest, SameRecordMakesTheSameBytes) {
  EXPECT_EQ(to_html(realistic_record()), to_html(realistic_record()));
}

TEST(HtmlTest, LibraryStandsWithItsLicence) {
  const std::string page = to_html(empty_record());
  if (page::chart_library().text.empty()) GTEST_SKIP() << "libjs-chart.js is not installed";
  EXPECT_THAT(page_of(empty_record()), HasSubstr("Permission is hereby granted, free of charge"));
  EXPECT_THAT(page, HasSubstr("Released under the MIT License"));
}

TEST(HtmlTest, ConclusionStandsFirst) {
  const std::string page = page_of(realistic_record());
  EXPECT_THAT(page,
              HasSubstr("<p class=\"conclusion bad\">Not conformant: fa2 does not pass 5 of 165"));
  EXPECT_LT(page.find("Not conformant"), page.find("<table"));
  EXPECT_THAT(page_of(conformant_record()), HasSubstr("<p class=\"conclusion good\">Conformant"));
  EXPECT_THAT(page_of(truncated_record()),
              HasSubstr("<p class=\"conclusion warn\">Truncated: the run did not end"));
}

TEST(HtmlTest, EveryFailureIsListedWithItsReproAndWhatWasPrinted) {
  const Record record = realistic_record();
  const std::string page = page_of(record);
  EXPECT_EQ(occurrences(page, "<details class=\"failure\""), 5u);
  EXPECT_THAT(page, HasSubstr("AddressSanitizer: heap-buffer-overflow"));
  for (const VerdictRecord& v : record.verdicts) {
    if (v.verdict.outcome != Outcome::fail) continue;
    EXPECT_THAT(page, HasSubstr("<code class=\"repro\">" + Markup(v.verdict.repro).str()));
    EXPECT_THAT(page, HasSubstr(Markup(v.verdict.message).str()));
  }
}

TEST(HtmlTest, FailuresStandByKindWithWhatTheirClauseSays) {
  const std::string page = page_of(realistic_record());
  EXPECT_EQ(occurrences(page, "<section class=\"group\""), 4u);
  EXPECT_THAT(page, HasSubstr("2 cases of this kind, in bf16."));
  EXPECT_THAT(page, HasSubstr("<summary>What MASK-3 says</summary>"));
  EXPECT_THAT(page, HasSubstr("Decoding and chunked prefill need it"));
}

TEST(HtmlTest, OfManyLikeFailuresTheFirstStandAndTheRestIsLinked) {
  std::vector<VerdictRecord> verdicts;
  for (int i = 0; i < 3000; ++i) {
    VerdictRecord v = {
        .case_id = fmt::format("a/{:04}", i), .testee = "naive", .dtype = "f32", .verdict = {}};
    v.verdict = {.outcome = Outcome::fail,
                 .reason = "bound",
                 .message = fmt::format("{} is wrong", i * 7919),
                 .clauses = {"MASK-3"},
                 .repro = "attest repro " + v.case_id};
    verdicts.push_back(v);
  }
  const Record record = record_of(verdicts, "not conformant");
  const std::string page = page_of(record);
  EXPECT_EQ(occurrences(page, "<details class=\"failure\""), 100u);
  EXPECT_THAT(page, HasSubstr("<a href=\"#cases?group=1\">All 3000 in the table of cases</a>"));
  EXPECT_LT(occurrences(page, "<"), 6000u);
  EXPECT_LT(to_html(record).size(), 700000u);
}

TEST(HtmlTest, BrokenClauseLeadsToItsCases) {
  const std::string page = page_of(realistic_record());
  EXPECT_THAT(page, HasSubstr("<td class=\"bad\"><a href=\"#cases?clause=MASK-3&amp;testee=fa2\" "
                              "aria-label=\"MASK-3, fa2: broken by 2 of 30 cases\">✗ 2/30</a>"));
  EXPECT_THAT(page, HasSubstr("id=\"failure-1\" open"));
}

TEST(HtmlTest, LinksSurviveWhateverATesteeIsCalled) {
  Record record = realistic_record();
  for (VerdictRecord& v : record.verdicts) v.testee = "a&b=c #1%\u00e9";
  EXPECT_THAT(page_of(record), HasSubstr("testee=a%26b%3Dc%20%231%25%C3%A9\""));
}

TEST(HtmlTest, ClausesThatNoCaseCitedAreNamed) {
  EXPECT_THAT(page_of(realistic_record()), HasSubstr("Not tried in this run: LAYOUT-2, "));
}

TEST(HtmlTest, CasesOfOthersAreCalledThat) {
  Record record = realistic_record();
  EXPECT_THAT(page_of(record), Not(HasSubstr("own, but from")));
  record.header.from = "/home/me/mine.json";
  EXPECT_THAT(page_of(record), HasSubstr("<code>/home/me/mine.json</code>"));
}

TEST(HtmlTest, ProfilesAreTold) {
  const std::string page = page_of(realistic_record());
  EXPECT_THAT(page, HasSubstr(">met</td>"));
  EXPECT_THAT(page, HasSubstr(">not met: 38 of 40</td>"));
  EXPECT_THAT(page, HasSubstr(">incomplete: 12 of 40</td>"));
}

TEST(HtmlTest, ProfileMetWithArithmeticBeyondTheDefaultIsNoPlainMet) {
  EXPECT_THAT(page_of(declared_record(true)),
              HasSubstr("<td class=\"warn\" title=\"40 of 40 demanded cases passed\">met, with exp "
                        "of 736 units</td>"));
  EXPECT_THAT(page_of(declared_record(false)),
              HasSubstr("<td class=\"bad\" title=\"40 of 40 demanded cases passed\">not met: only "
                        "with exp of 736 units</td>"));
}

TEST(HtmlTest, ProfileMetWithinLimitsIsNoPlainMet) {
  EXPECT_THAT(page_of(narrow_record()),
              HasSubstr("<td class=\"warn\" title=\"37 of 40 demanded cases passed, 3 not asked\">"
                        "met within limits</td>"));
}

TEST(HtmlTest, WhatIsDeclaredStandsWithTheTestee) {
  const std::string page = page_of(narrow_record());
  for (const char* fact :
       {"<dt>Limits</dt><dd>head_dim 64 or 128</dd>", "<dt>Never</dt><dd>batch 1, window</dd>",
        "<dt>Otherwise than the standard</dt><dd>LSE in base 2</dd>",
        "<dt>Beyond the default</dt><dd>a maximum that lags by 8 in log2 in bf16</dd>",
        "<dt>Not declared</dt><dd>dense-mask, "}) {
    EXPECT_THAT(page, HasSubstr(fact));
  }
}

TEST(HtmlTest, WhatLiesBeyondTheCapsStandsWithTheTestee) {
  Record record = conformant_record();
  record.header.testees[0].beyond_caps = {{"f16", "accumulates PV in f16"}};
  EXPECT_THAT(page_of(record), HasSubstr("accumulates PV in f16"));
}

TEST(HtmlTest, DialectAndWarningStandWithTheirReasons) {
  Record record = conformant_record();
  Verdict& v = record.verdicts[0].verdict;
  v.outcome = Outcome::unsupported;
  v.reason = "dialect";
  v.message = "rows that see no key hold what the testee declares";
  const std::string page = page_of(record);
  EXPECT_THAT(page, HasSubstr("dialect: rows that see no key hold what the testee declares"));
  EXPECT_THAT(page, HasSubstr("property:hidden_nan: NaN of a hidden key leaks."));
}

TEST(HtmlTest, NamesOfCatchesStayInItsData) {
  const CatchTable table = {
      .title = "</script><b>", .rows = {"</script>"}, .columns = {"<i>"}, .letters = {"c"}};
  const std::string page = catches_page("Who & whom", place_of_catches(0), {table});
  EXPECT_EQ(occurrences(page, "</script>"), page::scripts_of_catches().size() + 1);
  EXPECT_THAT(page, Not(HasSubstr("<b>")));
  EXPECT_THAT(page, HasSubstr("<title>Who &amp; whom</title>"));
  EXPECT_THAT(page, HasSubstr("<div class=\"catches\" data-at=\"0\">"));
}

TEST(HtmlTest, EmptyRunSaysSo) {
  const std::string page = page_of(empty_record());
  EXPECT_THAT(page, HasSubstr("Incomplete: no case was run."));
  EXPECT_THAT(page, HasSubstr("Nothing was compared."));
  EXPECT_THAT(page, HasSubstr("No profile was judged."));
}

}  // namespace
}  // namespace attest
