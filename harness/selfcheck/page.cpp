// selfcheck.html: which check catches which mutant, as a picture, with all that a terminal is told.
#include <fmt/format.h>

#include <map>
#include <set>

#include "harness/selfcheck/selfcheck.h"
#include "reports/html_parts.h"
#include "reports/text.h"

namespace attest {

CatchTable checks_and_mutants(const Selfcheck& check) {
  std::map<std::size_t, std::size_t> columns;  // of a mutant of the catalogue
  std::map<std::string, std::size_t> rows;
  std::set<std::string> formats, checks;
  for (const Hunted& hunted : check.hunt->hunted) {
    columns.emplace(hunted.mutant, 0);
    formats.insert(std::string(name(hunted.dtype)));
    if (hunted.caught) checks.insert(outcome_text(hunted.caught->verdict));
  }
  CatchTable table = {.title = "Checks and mutants", .rows = {}, .columns = {}, .letters = {}};
  for (auto& [mutant, column] : columns) {
    column = table.columns.size();
    table.columns.push_back(check.catalogue.mutants[mutant].name);
  }
  for (const auto& names : {formats, checks}) {
    for (const std::string& each : names) {
      rows[each] = table.rows.size();
      table.rows.push_back(each);
      table.letters.emplace_back(columns.size(), '.');
    }
  }
  for (const Hunted& hunted : check.hunt->hunted) {
    const std::size_t column = columns.at(hunted.mutant);
    const auto letter = [&](const std::string& row) -> char& {
      return table.letters[rows.at(row)][column];
    };
    if (hunted.tried == 0) continue;
    letter(std::string(name(hunted.dtype))) = hunted.caught ? 'c' : 'm';
    if (hunted.caught) letter(outcome_text(hunted.caught->verdict)) = 'c';
  }
  return table;
}

std::string to_html(const Selfcheck& check) {
  const int code = exit_code_of(check);
  Markup content =
      element("h1", {}, "Attest: its check of itself") +
      element("p", {{"class", code == 0 ? "conclusion good" : "conclusion bad"}},
              code == 0 ? "Every broken kernel is caught, and no correct one fails."
                        : "Not every broken kernel is caught, or a correct one fails, or that was "
                          "not tried.");
  std::vector<CatchTable> tables;
  if (check.hunt) {
    content += element("h2", {}, "What catches which mutant") +
               html::quiet(
                   "A column a mutant, a row a format: whether it is caught there. Below, a row "
                   "an outcome and reason: the mutants that it caught first.") +
               place_of_catches(0);
    tables.push_back(checks_and_mutants(check));
  }
  content += element("h2", {}, "In words") + html::block(to_text(check));
  return catches_page("Attest: its check of itself", content, tables);
}

}  // namespace attest
