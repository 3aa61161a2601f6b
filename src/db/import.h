// Storing one record that came from elsewhere.
#pragma once

#include "db/database.h"
#include "db/store.h"

#include <string>

namespace nestor {

/// Adds a normalised record, or what it says anew of a trial that is there, and counts that (within a transaction). Throws UserError that
/// begins with `where` when its signature is not one of the key that it names.
void store_record(Store& store, Record& record, const std::string& where, Database::Imported& imported);

/// Throws UserError, which begins with `where`, for a record whose signature is not one of what it says; none at all is allowed.
void require_own_signature(const Record& record, const std::string& where);

}  // namespace nestor
