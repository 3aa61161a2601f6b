// What a Schedule holds: facts about its nest, and the order itself.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "poly/schedule/order/facts.h"
#include "poly/schedule/order/loop_form.h"
#include "poly/schedule/order/stage_directive.h"
#include "poly/schedule/order/step.h"
#include "poly/schedule/order/tree_node.h"

namespace nestor {

struct ScheduleData {
  std::shared_ptr<const NestFacts> facts;
  Tree tree;  ///< the root is always a sequence
  StatementForms forms;
  std::vector<std::shared_ptr<const Step>> steps;
  std::vector<StageDirective> stages;
  std::vector<std::string> streaming;
  std::vector<std::size_t> active;  ///< composites whose relaxation this order needs
};

/// The original order of a nest.
ScheduleData original_order_of(std::shared_ptr<const NestFacts> facts);

}  // namespace nestor
