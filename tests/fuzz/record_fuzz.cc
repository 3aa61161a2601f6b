// Any bytes as lines of records: read and written again alike, or refused with a UserError.
#include "db/records/record.h"
#include "db/records/record_reader.h"
#include "support/error.h"

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nestor;
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  try {
    RecordReader reader(in);
    while (const auto record = reader.next()) {
      if (record->trial.kernel && record->trial.kernel->code.empty()) continue;  // it is in a pack
      const RecordLine again = record_line_from(record_to_line(*record));
      if (!again.record || seal_of(*again.record) != seal_of(*record)) std::abort();
    }
  } catch (const UserError&) {}
  return 0;
}
