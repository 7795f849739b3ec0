#include "runtime/engine/profile/forward_work.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace dstrain {
namespace {

// Returns the innermost path that contains both.
std::string common_path(const std::string& a, const std::string& b) {
  size_t end = 0;
  for (size_t i = 0;; ++i) {
    const bool a_ends = i == a.size() || a[i] == '.', b_ends = i == b.size() || b[i] == '.';
    if (a_ends && b_ends) end = i;
    if (i == a.size() || i == b.size() || a[i] != b[i]) break;
  }
  return a.substr(0, end);
}

// A path, or nothing where none is known yet.
using Path = std::optional<std::string>;

void narrow(Path& path, const Path& more) {
  if (!more) return;
  path = path ? common_path(*path, *more) : *more;
}

// Finds the modules of the instructions of a forward pass.
class ModuleSearch {
 public:
  explicit ModuleSearch(const Program& program)
      : program_(program),
        parameters_(program),
        modules_(program.instructions.size()),
        before_(program.instructions.size()) {}

  std::vector<std::string> run() {
    for (size_t i = 0; i < modules_.size(); ++i)
      if (counts(i) || (is_forward(at(i)) && rule_of(at(i).op).prepares_weight)) find_own(i);
    for (size_t i = 0; i < modules_.size(); ++i)
      if (counts(i)) look_back(i);
    for (size_t i = modules_.size(); i-- > 0;)
      if (counts(i)) look_ahead(i);
    std::vector<std::string> result;
    for (const Path& module : modules_) result.push_back(module.value_or(""));
    return result;
  }

 private:
  // An activation as one layer sees it.
  using Key = std::pair<BufferId, int64_t>;

  const Instruction& at(size_t i) const { return program_.instructions[i]; }
  bool counts(size_t i) const { return is_forward(at(i)) && is_of_model(at(i).op); }
  Key key_of(const Instruction& op, BufferId id) const {
    return {program_.root(id), program_.sublayers[static_cast<size_t>(op.sublayer)].layer};
  }

  // Sets the module of an instruction that reads a parameter.
  void find_own(size_t i) {
    for (const BufferId id : at(i).reads) {
      const ModuleParameter found = parameters_.of(at(i), id);
      if (!found.parameter) continue;
      modules_[i] = found.module;
      if (!found.tied) owners_.insert(found.module);
      return;
    }
  }

  // Finds the innermost module that contains those of the layer whose results instruction `i` reads.
  void look_back(size_t i) {
    if (modules_[i]) {
      before_[i] = modules_[i];
    } else {
      for (const BufferId id : at(i).reads)
        if (id != kNone)
          if (const auto found = written_.find(key_of(at(i), id)); found != written_.end())
            narrow(before_[i], found->second);
    }
    for (const BufferId id : at(i).writes)
      if (id != kNone) written_[key_of(at(i), id)] = before_[i];
  }

  // The same of those that read its results; then both decide.
  void look_ahead(size_t i) {
    Path after = modules_[i];
    if (!after)
      for (const BufferId id : at(i).writes)
        if (id != kNone)
          if (const auto found = read_.find(key_of(at(i), id)); found != read_.end())
            narrow(after, found->second);
    for (const BufferId id : at(i).reads)
      if (id != kNone && after) narrow(read_[key_of(at(i), id)], after);
    if (modules_[i]) return;
    Path module = before_[i];
    narrow(module, after);
    // It is beside a module that has parameters of its own, not in it.
    if (module && owners_.contains(*module)) module = module_of(*module);
    modules_[i] = makes_loss(at(i).op) ? "" : module.value_or("");
  }

  const Program& program_;
  ParameterModules parameters_;
  std::vector<Path> modules_;     // by instruction
  std::vector<Path> before_;      // by instruction: what it follows from
  std::set<std::string> owners_;  // modules that have parameters
  std::map<Key, Path> written_, read_;
};

// Returns the share of a parameter's rows that a weight is: all, or those of a view.
double share_of_value(const Program& program, BufferId weight) {
  const Buffer& b = program.at(weight);
  if (b.parent == kNone || program.at(b.parent).model_parameter < 0) return 1;
  return static_cast<double>(b.shape.elements()) /
         static_cast<double>(program.at(b.parent).shape.elements());
}

// Returns the sizes of the operand that an op has its weight in.
WeightSizes weight_sizes(const Program& program, const Instruction& op,
                         const ParameterModules& parameters) {
  if (op.reads.size() < 2 || op.reads[1] == kNone) return {};
  const Parameter* const weight = parameters.of(op, op.reads[1]).parameter;
  if (!weight) {
    const Shape& shape = program.at(op.reads[1]).shape;
    return {static_cast<double>(shape.elements()), static_cast<double>(shape[0])};
  }
  const auto elements = static_cast<double>(own_elements(weight->part, weight->shape));
  const auto whole = static_cast<double>(weight->shape.elements());
  const auto rows = static_cast<double>(weight->shape[0]);
  const double share = share_of_value(program, op.reads[1]);
  return {share * elements,
          share * (weight->part.by == TensorPart::By::rows ? rows * elements / whole : rows)};
}

}  // namespace

std::string module_of(std::string_view parameter) {
  const size_t dot = parameter.rfind('.');
  return std::string(parameter.substr(0, dot == std::string_view::npos ? 0 : dot));
}

bool is_forward(const Instruction& op) {
  return op.when == When::every_micro && op.phase == Phase::forward;
}

ParameterModules::ParameterModules(const Program& program)
    : program_(program), packed_(program.buffers.size(), kNone) {
  for (const Instruction& op : program.instructions)
    if (rule_of(op.op).prepares_weight) packed_[static_cast<size_t>(op.writes[0])] = op.reads[0];
}

ModuleParameter ParameterModules::of(const Instruction& op, BufferId id) const {
  if (id == kNone) return {};
  if (const BufferId packed = packed_[static_cast<size_t>(id)]; packed != kNone) id = packed;
  const Buffer& buffer = program_.at(id);
  const std::vector<Parameter>& all = program_.model_parameters();
  const auto found = std::ranges::find(all, buffer.model_parameter, &Parameter::index);
  if (found == all.end()) return {};
  const auto layer = [this](int32_t sublayer) {
    return program_.sublayers[static_cast<size_t>(sublayer)].layer;
  };
  // What brings a weight into another form belongs to no layer.
  const bool tied = is_of_model(op.op) && layer(op.sublayer) != layer(found->sublayer);
  return {
      &*found,
      tied ? program_.layers[static_cast<size_t>(layer(op.sublayer))].name : module_of(found->name),
      tied};
}

std::vector<ForwardWork> forward_work(const Program& program) {
  const ParameterModules parameters(program);
  std::vector<std::string> modules = ModuleSearch(program).run();
  std::vector<ForwardWork> work(modules.size());
  for (size_t i = 0; i < work.size(); ++i) {
    const Instruction& op = program.instructions[i];
    if (!is_forward(op)) continue;
    work[i].module = std::move(modules[i]);
    const auto profiled = rule_of(op.op).profiled;
    if (!profiled) continue;
    const CountedWork counted = profiled(program, op, weight_sizes(program, op, parameters));
    work[i].macs = counted.macs;
    work[i].flops = counted.flops;
  }
  return work;
}

}  // namespace dstrain
