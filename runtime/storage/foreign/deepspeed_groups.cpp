#include "runtime/storage/foreign/deepspeed_groups.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/core/formats/shown_text.h"

namespace dstrain {
namespace {

// Returns the sizes of a parameter; `elements` becomes their product.
std::vector<int64_t> sizes_of(PickleValue shape, int64_t& elements) {
  std::vector<int64_t> sizes;
  elements = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!shape[i].is(PickleKind::integer) || shape[i].integer() < 0 ||
        __builtin_mul_overflow(elements, std::max<int64_t>(shape[i].integer(), 1), &elements))
      shape.fail("expected the sizes of a parameter");
    sizes.push_back(shape[i].integer());
  }
  if (!shape.is(PickleKind::tuple) && !shape.is(PickleKind::list))
    shape.fail("expected the sizes of a parameter, got {}", name_of(shape.kind()));
  if (std::ranges::find(sizes, 0) != sizes.end()) elements = 0;
  return sizes;
}

[[noreturn]] void lacks(PickleValue name, int64_t elements, int64_t lacking) {
  name.fail("\"{}\" has {} elements, of which the optimizers lack {}", shown_text(name.text()),
            elements, lacking);
}

}  // namespace

PickleValue deepspeed_member(PickleValue of, std::string_view name) {
  const std::optional<PickleValue> found = of.find(name);
  if (!found) of.fail("expected the key \"{}\", as DeepSpeed writes it", name);
  return *found;
}

bool is_deepspeed_float(const SafetensorsType& type) {
  return type.name == "F32" || type.name == "BF16" || type.name == "F16" || type.name == "F64";
}

int64_t deepspeed_stage(PickleValue rank) {
  PickleValue stage = deepspeed_member(rank, "zero_stage");
  if (stage.is(PickleKind::object) && stage.arguments().size() == 1)
    stage = stage.arguments()[0];  // a member of an enumeration
  if (!stage.is(PickleKind::integer) || stage.integer() < 0 || stage.integer() > 3)
    stage.fail("expected a stage of ZeRO from 0 to 3");
  return stage.integer();
}

PickleValue deepspeed_optimizer(PickleValue rank, int64_t stage) {
  return deepspeed_member(rank, stage == 3 ? "optimizer_state_dict" : "base_optimizer_state");
}

std::vector<PickleValue> deepspeed_numbered(PickleValue dict) {
  std::vector<std::pair<int64_t, size_t>> order;
  for (size_t i = 0; i < dict.pairs(); ++i) {
    if (!dict.key(i).is(PickleKind::integer))
      dict.key(i).fail("expected the number of a parameter or a group");
    order.emplace_back(dict.key(i).integer(), i);
  }
  std::ranges::sort(order);
  std::vector<PickleValue> values;
  for (const auto& [number, pair] : order) values.push_back(dict.value(pair));
  return values;
}

ForeignTensor deepspeed_tensor(PickleValue group, size_t pair, int64_t& elements) {
  if (!group.key(pair).is(PickleKind::text))
    group.key(pair).fail("expected the name of a parameter");
  ForeignTensor tensor{std::string(group.key(pair).text()), safetensors_type("F32"), {}, {}};
  tensor.sizes = sizes_of(group.value(pair), elements);
  return tensor;
}

DeepSpeedGroups::DeepSpeedGroups(const DeepSpeedFiles& files, ForeignWeights& weights,
                                 std::string_view slot)
    : files_(files), weights_(weights) {
  for (const std::string& path : files_.optimizers) {
    const TorchFile file = weights_.open(path);
    const PickleValue state = deepspeed_member(file.root(), "optimizer_state_dict");
    if (ranks_.empty()) {
      stage_ = deepspeed_stage(state);
      read_paddings(state);
    }
    check_rank_count(deepspeed_member(state, "partition_count"));
    read_rank(file, state, slot);
  }
}

void DeepSpeedGroups::read_rank(const TorchFile& file, PickleValue state, std::string_view slot) {
  const PickleValue groups =
      deepspeed_member(state, stage_ == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups");
  std::vector<PickleValue> values;
  for (size_t i = 0; i < groups.size(); ++i) values.push_back(groups[i]);
  if (!slot.empty()) {
    const PickleValue kept = deepspeed_member(deepspeed_optimizer(state, stage_), "state");
    values = deepspeed_numbered(kept);
    if (values.size() != groups.size())
      kept.fail("the optimizer has the state of {} groups, and there are {} of parameters",
                values.size(), groups.size());
    for (PickleValue& value : values) value = deepspeed_member(value, slot);
  }
  Flat parts;
  for (size_t i = 0; i < values.size(); ++i) {
    const TorchTensor tensor = file.tensor(values[i]);
    if (!is_deepspeed_float(tensor.type))
      values[i].fail("expected floats, got {}", tensor.type.name);
    if (const int64_t masters = file.tensor(groups[i]).elements(); tensor.elements() != masters)
      values[i].fail("the optimizer has the state of {} elements of a group that has {}",
                     tensor.elements(), masters);
    parts.push_back({weights_.files.size() - 1, tensor, 0, tensor.elements()});
  }
  ranks_.push_back(std::move(parts));
  if (ranks_.back().size() != ranks_.front().size())
    groups.fail("rank {} has {} groups of parameters, and rank 0 has {}", ranks_.size() - 1,
                ranks_.back().size(), ranks_.front().size());
}

void DeepSpeedGroups::check_rank_count(PickleValue count) const {
  int64_t most = count.is(PickleKind::integer) ? count.integer() : 0;
  for (size_t i = 0; i < count.size(); ++i)  // of each group
    if (count[i].is(PickleKind::integer)) most = std::max(most, count[i].integer());
  if (most != std::ssize(files_.optimizers))
    fail_user(
        "{}: {} ranks have saved it, and there are {} files *_optim_states.pt: copy the files "
        "of all hosts together, or remove those of another run",
        files_.folder, most, files_.optimizers.size());
}

// Reads how many elements lie behind each parameter, of each group.
void DeepSpeedGroups::read_paddings(PickleValue state) {
  const std::optional<PickleValue> groups = state.find("param_alignment_paddings");
  if (!groups) return;
  for (size_t g = 0; g < groups->size(); ++g) {
    std::vector<int64_t>& paddings = paddings_.emplace_back();
    for (size_t i = 0; i < (*groups)[g].size(); ++i) {
      const PickleValue value = (*groups)[g][i];
      if (!value.is(PickleKind::integer) || value.integer() < 0)
        value.fail("expected the elements behind a parameter");
      paddings.push_back(value.integer());
    }
  }
}

int64_t DeepSpeedGroups::elements_of(const Flat& flat) {
  int64_t n = 0;
  for (const ForeignPiece& piece : flat) n += piece.count;
  return n;
}

int64_t DeepSpeedGroups::append_part(const Flat& flat, int64_t begin, int64_t count, Flat& to) {
  for (const ForeignPiece& piece : flat) {
    if (count == 0) break;
    if (begin >= piece.count) {
      begin -= piece.count;
      continue;
    }
    ForeignPiece part = piece;
    part.begin += begin;
    part.count = std::min(count, piece.count - begin);
    begin = 0;
    count -= part.count;
    to.push_back(std::move(part));
  }
  return count;
}

void DeepSpeedGroups::add(PickleValue shapes) {
  if (stage_ == 3)
    add_stage_3(shapes);
  else
    add_groups(shapes);
}

// Stages 1 and 2: all ranks' parts of a group are one range, in which its parameters follow each other.
void DeepSpeedGroups::add_groups(PickleValue shapes) {
  if (shapes.size() != ranks_.front().size())
    shapes.fail("there are {} groups of parameters, and the optimizers have {}", shapes.size(),
                ranks_.front().size());
  for (size_t g = 0; g < shapes.size(); ++g) {
    Flat flat;
    for (const Flat& parts : ranks_) flat.push_back(parts[g]);
    const PickleValue group = shapes[g];
    if (!paddings_.empty() && (g >= paddings_.size() || paddings_[g].size() != group.pairs()))
      group.fail("a group has {} parameters, and other paddings", group.pairs());
    const auto ranks = static_cast<int64_t>(ranks_.size());
    const int64_t all = elements_of(flat), to = 2 * ranks;
    int64_t at = 0;
    for (size_t i = 0; i < group.pairs(); ++i) {
      int64_t elements = 0;
      ForeignTensor tensor = deepspeed_tensor(group, i, elements);
      const int64_t lacking = append_part(flat, at, elements, tensor.pieces);
      if (lacking > 0) lacks(group.key(i), elements, lacking);
      weights_.tensors.push_back(std::move(tensor));
      const int64_t padding = paddings_.empty() ? 0 : paddings_[g][i];
      if (padding > all) group.fail("{} elements behind a parameter are stated", padding);
      at += elements + padding;
    }
    // What is left fills the parts of ranks.
    if ((at + to - 1) / to != (all + to - 1) / to)
      group.fail("a group has {} elements, and its parameters need {}", all, at);
  }
}

// Stage 3: every rank has an equal part of each parameter, the last ones filled up.
void DeepSpeedGroups::add_stage_3(PickleValue shapes) {
  const auto ranks = static_cast<int64_t>(ranks_.size());
  int64_t at = 0;
  for (size_t g = 0; g < shapes.size(); ++g)
    for (size_t i = 0; i < shapes[g].pairs(); ++i) {
      int64_t elements = 0;
      ForeignTensor tensor = deepspeed_tensor(shapes[g], i, elements);
      const int64_t part = elements / ranks + (elements % ranks != 0 ? 1 : 0);
      int64_t left = elements;
      for (const Flat& parts : ranks_) {
        const int64_t count = std::min(part, left);
        const int64_t lacking = append_part(parts, at, count, tensor.pieces);
        if (lacking > 0) lacks(shapes[g].key(i), elements, lacking);
        left -= count;
      }
      weights_.tensors.push_back(std::move(tensor));
      at += part;
    }
  for (const Flat& parts : ranks_)
    if (elements_of(parts) != at)
      shapes.fail("a rank has {} elements, and its parts of the parameters are {}",
                  elements_of(parts), at);
}

}  // namespace dstrain
