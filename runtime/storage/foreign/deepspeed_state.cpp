#include "runtime/storage/foreign/deepspeed_state.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>

#include "runtime/core/error.h"
#include "runtime/storage/foreign/deepspeed_groups.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFileEnd = ".pt";

int64_t count_at(PickleValue root, std::string_view name) {
  const PickleValue value = deepspeed_member(root, name);
  if (!value.is(PickleKind::integer) || value.integer() < 0)
    value.fail("expected how far the run has come");
  return value.integer();
}

// Returns the names of the tensors that an optimizer keeps of a parameter or a group: those with as many elements. One with a
// single element is a counter, unless the parameter has one.
std::vector<std::string> slots_in(const TorchFile& file, PickleValue kept, int64_t elements) {
  std::vector<std::string> names;
  for (size_t i = 0; i < kept.pairs(); ++i) {
    const PickleValue name = kept.key(i);
    if (!name.is(PickleKind::text) || name.text() == "step" || !TorchFile::is_tensor(kept.value(i)))
      continue;
    if (file.tensor(kept.value(i)).elements() == elements) names.emplace_back(name.text());
  }
  return names;
}

[[noreturn]] void fail_stateless(const DeepSpeedFiles& files) {
  fail_user("{}: the checkpoint has no optimizer's state that goes with its parameters",
            files.folder);
}

class StateReader {
 public:
  explicit StateReader(const DeepSpeedFiles& files) : files_(files) {}

  DeepSpeedState read() {
    if (files_.models.empty()) fail_user("{}: there is no file *_model_states.pt", files_.folder);
    ForeignWeights models;
    const TorchFile model = models.open(files_.models.front());
    state_.steps = count_at(model.root(), "global_steps");
    state_.skipped = std::min(count_at(model.root(), "skipped_steps"), state_.steps);
    state_.samples = count_at(model.root(), "global_samples");
    if (!files_.parameters.empty())
      read_universal();
    else if (files_.optimizers.empty())
      read_module(model);
    else
      read_groups(model.root());
    if (state_.slots.empty()) fail_stateless(files_);
    return std::move(state_);
  }

 private:
  // Stages 1 to 3.
  void read_groups(PickleValue root) {
    ForeignWeights first;
    const TorchFile file = first.open(files_.optimizers.front());
    const PickleValue rank = deepspeed_member(file.root(), "optimizer_state_dict");
    const int64_t stage = deepspeed_stage(rank);
    const PickleValue kept = deepspeed_member(deepspeed_optimizer(rank, stage), "state");
    const PickleValue masters =
        deepspeed_member(rank, stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups");
    const std::vector<PickleValue> groups = deepspeed_numbered(kept);
    if (groups.empty() || masters.size() == 0) fail_stateless(files_);
    for (const std::string& slot :
         slots_in(file, groups.front(), file.tensor(masters[0]).elements())) {
      ForeignWeights weights;
      DeepSpeedGroups(files_, weights, slot).add(deepspeed_member(root, "param_shapes"));
      state_.slots.emplace_back(slot, std::move(weights));
    }
  }

  // Reads a universal checkpoint, in which each parameter has a folder with a file for each slot.
  void read_universal() {
    std::set<std::string> slots;
    for (const auto& entry :
         fs::directory_iterator(fs::path(files_.parameters.front().second).parent_path())) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(kFileEnd) && name != "fp32.pt" && name != "step.pt")
        slots.insert(name.substr(0, name.size() - kFileEnd.size()));
    }
    for (const std::string& slot : slots) {
      ForeignWeights weights;
      for (const auto& [name, path] : files_.parameters) {
        const fs::path folder = fs::path(path).parent_path();
        const TorchFile file = weights.open((folder / (slot + std::string(kFileEnd))).string());
        const std::optional<PickleValue> inner = file.root().find("param");
        weights.add(name, file.tensor(inner ? *inner : file.root()));
      }
      state_.slots.emplace_back(slot, std::move(weights));
    }
  }

  // Stage 0: the optimizer numbers its parameters. With one group they are the module's in their order.
  void read_module(const TorchFile& model) {
    const PickleValue optimizer = deepspeed_member(model.root(), "optimizer");
    const std::vector<PickleValue> kept = deepspeed_numbered(deepspeed_member(optimizer, "state"));
    if (kept.empty()) fail_stateless(files_);
    if (const PickleValue groups = deepspeed_member(optimizer, "param_groups"); groups.size() != 1)
      groups.fail(
          "the optimizer has {} groups of numbered parameters, and nothing says which is which: "
          "save the checkpoint at stage 1, which names them",
          groups.size());
    const std::vector<ForeignTensor> parameters = parameters_of(model);
    if (parameters.size() != kept.size())
      optimizer.fail(
          "the optimizer has the state of {} parameters, and the module has {}: save the "
          "checkpoint at stage 1, which names them",
          kept.size(), parameters.size());
    const int64_t elements = parameters.front().pieces.front().count;
    for (const std::string& slot : slots_in(model, kept.front(), elements)) {
      ForeignWeights weights;
      weights.open(files_.models.front());
      for (size_t i = 0; i < kept.size(); ++i) {
        const PickleValue value = deepspeed_member(kept[i], slot);
        const TorchTensor tensor = model.tensor(value);
        if (tensor.sizes != parameters[i].sizes)
          value.fail("the state of parameter {} has other sizes than {}", i, parameters[i].name);
        weights.add(parameters[i].name, tensor);
      }
      state_.slots.emplace_back(slot, std::move(weights));
    }
  }

  // Returns the module's parameters, without second names.
  std::vector<ForeignTensor> parameters_of(const TorchFile& model) const {
    std::set<std::string, std::less<>> buffers;
    const PickleValue names = deepspeed_member(model.root(), "buffer_names");
    for (size_t i = 0; i < names.size(); ++i)
      if (names[i].is(PickleKind::text)) buffers.emplace(names[i].text());
    ForeignWeights weights;
    weights.open(files_.models.front());
    const PickleValue module = deepspeed_member(model.root(), "module");
    for (size_t i = 0; i < module.pairs(); ++i)
      if (module.key(i).is(PickleKind::text) && TorchFile::is_tensor(module.value(i)) &&
          !buffers.contains(module.key(i).text()))
        weights.add(std::string(module.key(i).text()), model.tensor(module.value(i)));
    leave_out_second_names(weights);
    return weights.tensors;
  }

  const DeepSpeedFiles& files_;
  DeepSpeedState state_;
};

}  // namespace

DeepSpeedState state_of_deepspeed(const DeepSpeedFiles& files) {
  return StateReader(files).read();
}

}  // namespace dstrain
