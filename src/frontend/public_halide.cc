// nestor/halide.h over the front end. Nests go to the library of the handles as text: each has its own isl objects.
#include "frontend/halide_frontend.h"
#include "nestor/halide.h"
#include "poly/nest/nest_json.h"

namespace nestor_api {

Nest extract_nest(const nestor::HalideDefinition& definition) {
  return Nest::from_json(nestor::nest_to_json(nestor::extract_nest(definition)).dump());
}

}  // namespace nestor_api
