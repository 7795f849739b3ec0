#include "runtime/engine/profile/module_tree.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "runtime/core/error.h"
#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

constexpr std::string_view kUnnamed = "Module";  // a kind that has no name of its own

// Returns the module with this path in the tree, and makes it where it is not there.
ModuleNode& node_at(ModuleNode& root, std::string_view path) {
  ModuleNode* node = &root;
  while (!path.empty()) {
    const size_t dot = path.find('.');
    const std::string_view name = path.substr(0, dot);
    auto found = std::ranges::find(node->children, name, &ModuleNode::name);
    if (found == node->children.end())
      found = node->children.insert(found, ModuleNode{.name = std::string(name)});
    node = &*found;
    path.remove_prefix(dot == std::string_view::npos ? path.size() : dot + 1);
  }
  return *node;
}

bool is_number(const ModuleNode& node) {
  return !node.name.empty() && node.name.find_first_not_of("0123456789") == std::string::npos;
}

// Adds to each module what those in it have, and names the kinds that no parameter has named.
void add_up(ModuleNode& node) {
  for (ModuleNode& child : node.children) {
    add_up(child);
    node.parameters += child.parameters;
    node.macs += child.macs;
    node.flops += child.flops;
    node.seconds += child.seconds;
  }
  if (!node.kind.empty()) return;
  const bool list = !node.children.empty() && std::ranges::all_of(node.children, is_number);
  node.kind = list ? "ModuleList" : kUnnamed;
}

// Names the kinds of the modules whose parameters an instruction reads, and counts tied ones.
void add_parameters(ModuleNode& root, const Program& program) {
  for (const Parameter& p : program.parameters)
    node_at(root, module_of(p.name)).parameters += own_elements(p.part, p.shape);
  const ParameterModules parameters(program);
  std::set<std::string>
      tied;  // weights that are counted; a loss in pieces reads them several times
  for (const Instruction& op : program.instructions) {
    if (!is_forward(op) || !is_of_model(op.op)) continue;
    for (const BufferId id : op.reads) {
      const ModuleParameter found = parameters.of(op, id);
      if (!found.parameter) continue;
      ModuleNode& node = node_at(root, found.module);
      const std::string_view kind = rule_of(op.op).module;
      node.kind = kind.empty() ? kUnnamed : kind;
      if (found.tied && tied.insert(found.module + ":" + found.parameter->name).second)
        node.tied += own_elements(found.parameter->part, found.parameter->shape);
    }
  }
}

}  // namespace

ModuleNode module_tree(const std::string& model, const Program& program,
                       std::span<const ForwardWork> work, std::span<const double> seconds,
                       double rest_seconds) {
  check(work.size() == program.instructions.size() && seconds.size() == work.size(),
        "{} instructions have the work of {} and the times of {}", program.instructions.size(),
        work.size(), seconds.size());
  ModuleNode root{.name = model, .kind = model, .seconds = rest_seconds};
  add_parameters(root, program);
  for (size_t i = 0; i < work.size(); ++i) {
    if (!is_forward(program.instructions[i])) continue;
    ModuleNode& node = node_at(root, work[i].module);
    node.macs += work[i].macs;
    node.flops += work[i].flops;
    node.seconds += seconds[i];
  }
  add_up(root);
  return root;
}

}  // namespace dstrain
