#include "reports/catches.h"

#include <nlohmann/json.hpp>

#include "reports/html_parts.h"
#include "reports/page/files.h"
#include "reports/page/packed.h"
#include "reports/text.h"
#include "spec/json_text.h"

namespace attest {
namespace {

nlohmann::json lines_of(const std::vector<std::string>& texts) {
  nlohmann::json list = nlohmann::json::array();
  for (const std::string& text : texts) list.push_back(one_line(text));
  return list;
}

}  // namespace

Markup place_of_catches(std::size_t number) {
  return element("div", {{"class", "catches"}, {"data-at", std::to_string(number)}},
                 html::quiet("Drawn by the script of this page."));
}

std::string catches_page(std::string_view title, const Markup& content,
                         const std::vector<CatchTable>& tables) {
  nlohmann::json all = nlohmann::json::array();
  for (const CatchTable& each : tables) {
    all.push_back({{"title", one_line(each.title)},
                   {"rows", lines_of(each.rows)},
                   {"columns", lines_of(each.columns)},
                   {"letters", each.letters}});
  }
  const page::Scripts scripts = page::catches_scripts();
  return html::page(title,
                    element("body", {}, element("main", {}, content),
                            element("script", {{"type", "application/base64"}, {"id", "data"}},
                                    page::packed(json_text(all))),
                            scripts.elements),
                    scripts);
}

}  // namespace attest
