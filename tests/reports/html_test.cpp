#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/markup.h"
#include "reports/reports.h"
#include "reports/text.h"
#include "tests/reports/samples.h"

namespace attest {
namespace {

using testing::HasSubstr;
using testing::Not;

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
  const std::string page = to_html(hostile_record());
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr(" onload=\"")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"));
  EXPECT_EQ(clean(page), page);
}

TEST(HtmlTest, PageStandsAlone) {
  const std::string page = to_html(realistic_record());
  for (const char* outside : {"http://", "https://", "src=", "<link", "@import", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
}

TEST(HtmlTest, ConclusionStandsFirst) {
  const std::string page = to_html(realistic_record());
  EXPECT_THAT(page,
              HasSubstr("<p class=\"conclusion bad\">Not conformant: fa2 does not pass 5 of 165"));
  EXPECT_LT(page.find("Not conformant"), page.find("<table"));
  EXPECT_THAT(to_html(conformant_record()), HasSubstr("<p class=\"conclusion good\">Conformant"));
  EXPECT_THAT(to_html(truncated_record()),
              HasSubstr("<p class=\"conclusion warn\">Truncated: the run did not end"));
}

TEST(HtmlTest, EveryFailureIsListedWithItsReproAndWhatWasPrinted) {
  const Record record = realistic_record();
  const std::string page = to_html(record);
  EXPECT_EQ(occurrences(page, "<details class=\"failure\""), 5u);
  EXPECT_THAT(page, HasSubstr("AddressSanitizer: heap-buffer-overflow"));
  for (const VerdictRecord& v : record.verdicts) {
    if (v.verdict.outcome != Outcome::fail) continue;
    EXPECT_THAT(page, HasSubstr("<code class=\"repro\">" + Markup(v.verdict.repro).str()));
    EXPECT_THAT(page, HasSubstr(Markup(v.verdict.message).str()));
  }
}

TEST(HtmlTest, BrokenClauseLeadsToItsFailures) {
  const std::string page = to_html(realistic_record());
  EXPECT_THAT(page, HasSubstr("broken by 2 of 30 cases"));  // MASK-3
  EXPECT_THAT(page, HasSubstr("<a href=\"#failure-1\">1</a>"));
  EXPECT_THAT(page, HasSubstr("id=\"failure-1\""));
}

TEST(HtmlTest, ClausesThatNoCaseCitedAreNamed) {
  EXPECT_THAT(to_html(realistic_record()), HasSubstr("Not tried in this run: LAYOUT-2, "));
}

TEST(HtmlTest, CasesOfOthersAreCalledThat) {
  Record record = realistic_record();
  EXPECT_THAT(to_html(record), Not(HasSubstr("own, but from")));
  record.header.from = "/home/me/mine.json";
  EXPECT_THAT(to_html(record), HasSubstr("<code>/home/me/mine.json</code>"));
}

TEST(HtmlTest, ProfilesAreTold) {
  const std::string page = to_html(realistic_record());
  EXPECT_THAT(page, HasSubstr(">met</td>"));
  EXPECT_THAT(page, HasSubstr(">not met: 38 of 40</td>"));
  EXPECT_THAT(page, HasSubstr(">incomplete: 12 of 40</td>"));
}

TEST(HtmlTest, ProfileMetWithArithmeticBeyondTheDefaultIsNoPlainMet) {
  EXPECT_THAT(to_html(declared_record(true)),
              HasSubstr("<td class=\"warn\" title=\"40 of 40 demanded cases passed\">met, with exp "
                        "of 736 units</td>"));
  EXPECT_THAT(to_html(declared_record(false)),
              HasSubstr("<td class=\"bad\" title=\"40 of 40 demanded cases passed\">not met: only "
                        "with exp of 736 units</td>"));
}

TEST(HtmlTest, ProfileMetWithinLimitsIsNoPlainMet) {
  EXPECT_THAT(to_html(narrow_record()),
              HasSubstr("<td class=\"warn\" title=\"37 of 40 demanded cases passed, 3 not asked\">"
                        "met within limits</td>"));
}

TEST(HtmlTest, WhatIsDeclaredStandsWithTheTestee) {
  const std::string page = to_html(narrow_record());
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
  EXPECT_THAT(to_html(record), HasSubstr("accumulates PV in f16"));
}

TEST(HtmlTest, DialectAndWarningStandWithTheirReasons) {
  Record record = conformant_record();
  Verdict& v = record.verdicts[0].verdict;
  v.outcome = Outcome::unsupported;
  v.reason = "dialect";
  v.message = "rows that see no key hold what the testee declares";
  const std::string page = to_html(record);
  EXPECT_THAT(page, HasSubstr("dialect: rows that see no key hold what the testee declares"));
  EXPECT_THAT(page, HasSubstr("property:hidden_nan: NaN of a hidden key leaks."));
}

TEST(HtmlTest, EmptyRunSaysSo) {
  const std::string page = to_html(empty_record());
  EXPECT_THAT(page, HasSubstr("Incomplete: no case was run."));
  EXPECT_THAT(page, HasSubstr("Nothing was compared."));
  EXPECT_THAT(page, HasSubstr("No profile was judged."));
}

}  // namespace
}  // namespace attest
