// Editing a nest: the moves that algebra rules are made of. None of them judges whether the move is right.
#pragma once

#include <string>
#include <vector>

#include "poly/nest/nest.h"

namespace nestor {

std::vector<const Statement*> writers_of(const Nest& nest, const std::string& tensor);
std::vector<const Statement*> readers_of(const Nest& nest, const std::string& tensor);
/// The only statement that writes `tensor`, if it is no reduction and its write is one to one; else nullptr.
const Statement* sole_definition(const Nest& nest, const std::string& tensor);
/// True when `tensor` is a temporary with a sole definition that is not made of its own elements, directly or by other such temporaries.
bool is_elementwise_temporary(const Nest& nest, const std::string& tensor);
/// The statements that initialise the accumulator of `update` (they write its tensor and are no reductions), provided that
/// all of them come before it and that it is the only reduction that writes the tensor; empty otherwise.
std::vector<const Statement*> initialisers_of(const Nest& nest, const Statement& update);
/// Position before the statement and, where it is a reduction, before its initialisers that stand directly before it.
std::size_t begin_with_initialisers(const Nest& nest, const Statement& statement);
/// True when every initialiser of `update` writes the constant `value`.
bool starts_from(const Nest& nest, const Statement& update, double value);

/// True when every element that an initialiser of `update` starts gets a point of it.
bool always_has_points(const Nest& nest, const Statement& update);

std::size_t position_of(const Nest& nest, const std::string& statement);
/// Position after the last (before the first) statement of the group of `statement`.
std::size_t group_end(const Nest& nest, const std::string& statement);
std::size_t group_begin(const Nest& nest, const std::string& statement);
/// Are there no other statements in its group, with which it could share loops?
bool alone_in_group(const Nest& nest, const std::string& statement);

/// `base`, or `base` with the smallest number appended that makes it new in the nest.
std::string fresh_name(const Nest& nest, const std::string& base);
/// The same for a dim beside `dims`.
std::string fresh_dim(const Nest& nest, const std::vector<std::string>& dims, const std::string& base);
/// The set, which it takes, with its dims named so.
isl_set* with_dim_names(isl_set* set, const std::vector<std::string>& names);
/// Inserts as a group of its own.
void insert_statement(Nest& nest, std::size_t position, const Statement& statement);
void erase_statement(Nest& nest, const std::string& name);
void replace_statement(Nest& nest, const Statement& statement);
/// Drops temporaries that no statement touches, and definitions of temporaries that nobody reads, until none is left.
void drop_unused(Nest& nest);

/// The statement under another name: domain, accesses and indices.
Statement renamed(const Statement& statement, const std::string& name);
/// { name[dims] -> name'[dims] } changed to start at another tuple.
isl::map with_domain_tuple(const isl::map& map, const std::string& name);

/// Adds the access unless the statement has it already; returns its ordinal.
int add_read(Statement& statement, const Access& access);
int add_index(Statement& statement, const isl::pw_aff& index);
/// Drops reads and indices that the value does not use.
void compact(Statement& statement);

/// `value` of `producer`, as seen from `consumer`: `relation` is { Consumer -> Producer }, single valued. Adds the accesses
/// and indices that it needs to `consumer`.
ScalarExpr import_value(Statement& consumer, const Statement& producer, const isl::map& relation, const ScalarExpr& value);
/// { Consumer -> Producer } for read `ordinal` of the consumer and the sole definition of what it reads.
isl::map producer_relation(const Statement& consumer, int ordinal, const Statement& producer);
/// True when what `producer` reads is not written again between it and `consumer`, so that it may be computed there.
bool may_recompute(const Nest& nest, const Statement& producer, const Statement& consumer);
/// Replaces read `ordinal` of the consumer by the value of its sole definition.
void inline_read(const Nest& nest, Statement& consumer, int ordinal);

/// Dims of the statement that its write does not use: the reduced ones.
std::vector<int> reduced_dims(const Statement& statement);
bool depends_on_dim(const isl::map& relation, int dim);
/// { Statement[dims] -> name[those of `dims`] } on the statement's domain.
isl::map onto_dims(const Statement& statement, const std::vector<int>& dims, const std::string& name);
/// Does one of the dims have values below 0, so that it is no index of a tensor?
bool has_negative_values(const Nest& nest, const Statement& statement, const std::vector<int>& dims);
/// True when what `value` reads changes along dim `dim` of the statement.
bool varies_along(const Statement& statement, const ScalarExpr& value, int dim);
/// True when `map` (from the statement's dims, restricted to its domain) is a function of the written element.
bool determined_by_write(const Nest& nest, const Statement& statement, const isl::map& map);

/// Number of values of dim `dim` counted from 0: 1 + its maximum, a function of the parameters; 0 where there is none.
isl::pw_aff extent_of(const Nest& nest, const isl::set& domain, int dim);

/// A statement with one dim for each index of the tensor that `like` writes, over the elements that `like` writes; dims
/// are named as in `like` where they correspond. `to_like` receives { New -> Like }, which is not single valued when
/// `like` reduces.
Statement element_statement(const Nest& nest, const Statement& like, const std::string& name, isl::map& to_like);

/// The domain of a statement with the nest's context.
isl::set domain_in(const Nest& nest, const Statement& statement);

}  // namespace nestor
