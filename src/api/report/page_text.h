// The page of reports, without data: HTML, style and script in one text, compiled in from src/api/report/page.
#pragma once

#include <string_view>

namespace nestor {

extern const std::string_view kReportPage;

}  // namespace nestor
