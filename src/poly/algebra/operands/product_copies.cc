// Tensors under new names, written by statements under new names.
#include "poly/algebra/operands/product_copies.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "poly/algebra/operands/half_products.h"
#include "poly/algebra/values/nest_edit.h"

namespace nestor {

bool is_product_sum(const Nest& nest, const std::string& tensor) {
  const std::vector<const Statement*> writers = writers_of(nest, tensor);
  const auto sum =
      std::find_if(writers.begin(), writers.end(), [](const Statement* writer) { return writer->reduction.has_value(); });
  return sum != writers.end() && half_products(**sum) && initialisers_of(nest, **sum).size() + 1 == writers.size();
}

Nest with_copies(const Nest& nest, const std::set<std::string>& tensors, const std::function<bool(const Statement&)>& takes,
                 std::size_t position) {
  // Statements and tensors may have the same names, as those that they are copies of.
  Nest result = nest, named = nest;
  std::map<std::string, std::string> copies;
  for (const std::string& tensor : tensors) {
    Tensor copy = nest.tensor(tensor);
    copy.name = copies[tensor] = fresh_name(result, tensor + "_again");
    result.tensors.push_back(std::move(copy));
  }
  const auto read_copies = [&](Statement& statement) {
    for (Access& read : statement.reads) {
      if (const auto copy = copies.find(read.tensor); copy != copies.end())
        read = {copy->second, read.relation.set_range_tuple(copy->second)};
    }
  };
  for (const Statement& statement : nest.statements) {
    if (takes(statement)) {
      Statement changed = result.statement(statement.name);
      read_copies(changed);
      replace_statement(result, changed);
    }
    if (!copies.contains(statement.write.tensor)) continue;
    Statement copy = renamed(statement, fresh_name(named, statement.name + "_again"));
    named.statements.push_back(copy);
    copy.write = {copies.at(statement.write.tensor), copy.write.relation.set_range_tuple(copies.at(statement.write.tensor))};
    read_copies(copy);
    insert_statement(result, position++, copy);
  }
  return result;
}

}  // namespace nestor
