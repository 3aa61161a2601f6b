// Extracts every operator of this folder: writes <op>.<variant>.nest.json files and one C++ file that carries them all.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "operator.h"
#include "poly/nest/nest_json.h"
#include "support/error.h"

namespace {

/// C++ string literals for `text`, one a line, short enough for any compiler.
void write_literal(std::ostream& out, const std::string& text) {
  constexpr std::size_t kPiece = 100;
  for (std::size_t at = 0; at < text.size(); at += kPiece) {
    out << "\n    \"";
    for (const char c : text.substr(at, kPiece)) {
      if (c == '"' || c == '\\') out << '\\';
      out << c;
    }
    out << '"';
  }
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text << '\n';
  if (!file.flush()) nestor::user_error("cannot write {}", path.string());
}

void generate(const std::filesystem::path& folder, const std::filesystem::path& embedded) {
  std::filesystem::create_directories(folder);
  std::ofstream out(embedded);
  out << "// Written by kernels/generate.cc when Nestor is built.\n#include \"support/embedded_nests.h\"\n\nnamespace nestor "
         "{\n\n"
         "const std::vector<EmbeddedNest>& embedded_nests() {\n  static const std::vector<EmbeddedNest> all{\n";
  for (const nestor::kernels::Operator& op : nestor::kernels::operators()) {
    for (const std::string& variant : op.variants) {
      const nestor::Nest nest = nestor::extract_nest(nestor::kernels::define(op.name, variant));
      const nlohmann::json json = nestor::nest_to_json(nest);
      write_file(folder / (op.name + "." + variant + ".nest.json"), json.dump(2));
      out << "    {\"" << op.name << "\", \"" << variant << "\",";
      write_literal(out, json.dump());
      out << "},\n";
    }
  }
  out << "  };\n  return all;\n}\n\n}  // namespace nestor\n";
  if (!out.flush()) nestor::user_error("cannot write {}", embedded.string());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: nestor_generate FOLDER EMBEDDED.cc\n";
    return 2;
  }
  try {
    generate(argv[1], argv[2]);
  } catch (const std::exception& failure) {
    std::cerr << "nestor_generate: " << failure.what() << '\n';
    return 1;
  }
  return 0;
}
