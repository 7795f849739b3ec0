// The value of dstrain.parameter_groups: a list of objects
//   {"match": ["*.bias"], "lr_scale": 1.0, "weight_decay": 0, "trainable": true}
#pragma once

#include <string>
#include <vector>

#include "runtime/config/json/tree.h"
#include "runtime/core/fine_tuning/fine_tuning.h"

namespace dstrain {

// Returns what is wrong with a value of the key; empty: nothing.
std::string parameter_groups_problem(const Node& list);

// Returns the groups of a value without a problem.
std::vector<ParameterGroup> parameter_groups(const Node& list);

}  // namespace dstrain
