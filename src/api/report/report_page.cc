// Puts the data into the page that is compiled in, and the page into its file.
#include "api/report/kernel_report.h"
#include "api/report/page_text.h"
#include "support/error.h"
#include "support/system/new_file.h"

namespace nestor {
namespace {

constexpr std::string_view kPlace = "\"REPORT-DATA\"";

/// Within <script> only "<" can end the element or begin a comment; as an escape it is the same JSON.
std::string script_safe(const std::string& json) {
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

std::string report_page(const nlohmann::json& data) {
  const std::size_t place = kReportPage.find(kPlace);
  if (place == std::string_view::npos) internal_error("the page of reports has no place for data");
  // Bytes that are no UTF-8 become U+FFFD.
  const std::string json = data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string page(kReportPage.substr(0, place));
  page += script_safe(json);
  page += kReportPage.substr(place + kPlace.size());
  return page;
}

void write_report(const std::string& path, const std::string& page) {
  NewFile file(path);
  file.out << page;
  file.close();
  file.rename();
}

}  // namespace nestor
