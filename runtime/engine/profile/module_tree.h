// The modules of a model as a tree, with the parameters, the work and the time of each. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine/profile/forward_work.h"

namespace dstrain {

// A module. What those in it have counts in its numbers too.
struct ModuleNode {
  std::string name{};  // the last part of its path; of the root: the model's
  std::string
      kind{};  // "Linear", "Embedding", "LayerNorm", "RMSNorm"; of one without parameters "Module", or
               // "ModuleList" where its modules have numbers for names
  int64_t parameters = 0;  // elements
  // Elements of parameters of other modules that it reads (a tied head): they count in no module around it.
  int64_t tied = 0;
  double macs = 0, flops = 0;  // of one micro-batch
  double seconds = 0;          // of one micro-batch
  std::vector<ModuleNode> children{};
};

// Returns the tree of the modules that a program has parts of, in the order of the model. `seconds`: of one micro-batch,
// for every instruction; `rest_seconds`: those that belong to the model itself.
ModuleNode module_tree(const std::string& model, const Program& program,
                       std::span<const ForwardWork> work, std::span<const double> seconds,
                       double rest_seconds);

}  // namespace dstrain
