// The style sheet of index.html: light and dark, no script, nothing from outside.
#pragma once

#include "reports/markup.h"

namespace attest {

Markup style_sheet();

}  // namespace attest
