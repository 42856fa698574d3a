#include "reports/style.h"

#include "reports/page/files.h"

namespace attest {

Markup style_sheet() { return Markup::raw(page::style()); }

}  // namespace attest
