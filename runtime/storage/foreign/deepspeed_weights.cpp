#include "runtime/storage/foreign/deepspeed_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "runtime/core/error.h"
#include "runtime/core/formats/shown_text.h"

namespace dstrain {
namespace {

// Elements that lie one after the other.
using Flat = std::vector<ForeignPiece>;

bool is_float(const SafetensorsType& type) {
  return type.name == "F32" || type.name == "BF16" || type.name == "F16" || type.name == "F64";
}

int64_t elements_of(const Flat& flat) {
  int64_t n = 0;
  for (const ForeignPiece& piece : flat) n += piece.count;
  return n;
}

// Appends elements [begin, begin + count) of `flat` to `to`. Returns how many of them it lacks.
int64_t append_part(const Flat& flat, int64_t begin, int64_t count, Flat& to) {
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

PickleValue member(PickleValue of, std::string_view name) {
  const std::optional<PickleValue> found = of.find(name);
  if (!found) of.fail("expected the key \"{}\", as DeepSpeed writes it", name);
  return *found;
}

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

// Puts the weights of one checkpoint together.
class Joiner {
 public:
  explicit Joiner(const DeepSpeedFiles& files) : files_(files) {}

  ForeignWeights join() {
    if (!files_.parameters.empty()) {
      add_universal();
    } else if (files_.models.empty()) {
      fail_user("{}: there is no file *_model_states.pt", files_.folder);
    } else if (files_.optimizers.empty()) {
      add_module();
    } else {
      read_optimizers();
      read_models();
    }
    return std::move(weights_);
  }

 private:
  ForeignPiece piece_of(const TorchTensor& tensor) const {
    return {weights_.files.size() - 1, tensor, 0, tensor.elements()};
  }

  // Adds the parameters of a universal checkpoint, of which each has a file.
  void add_universal() {
    for (const auto& [name, path] : files_.parameters) {
      const TorchFile file = weights_.open(path);
      const std::optional<PickleValue> inner = file.root().find("param");
      add_f32(name, file.tensor(inner ? *inner : file.root()));
    }
    if (files_.models.empty()) return;
    const TorchFile model = weights_.open(files_.models.front());
    if (model.root().find("buffer_names")) add_of_model(model);
  }

  void add_f32(const std::string& name, const TorchTensor& tensor) {
    weights_.add(name, tensor);
    if (is_float(tensor.type)) weights_.tensors.back().type = safetensors_type("F32");
  }

  // Adds the module's own weights: no rank has masters.
  void add_module() {
    const TorchFile model = weights_.open(files_.models.front());
    const PickleValue module = member(model.root(), "module");
    bool rounded = false;
    for (size_t i = 0; i < module.pairs(); ++i) {
      if (!module.key(i).is(PickleKind::text) || !TorchFile::is_tensor(module.value(i))) continue;
      const TorchTensor tensor = model.tensor(module.value(i));
      rounded = rounded || tensor.type.bytes == 2;
      add_f32(std::string(module.key(i).text()), tensor);
    }
    if (weights_.tensors.empty())
      module.fail("expected the weights of a module, and there is no tensor");
    if (rounded)
      weights_.notes.push_back(
          fmt::format("{}: it has the weights of the module alone, rounded to 16 bits: they are "
                      "written in fp32 "
                      "as they are",
                      files_.folder));
  }

  // Reads where the masters of all ranks are.
  void read_optimizers() {
    for (const std::string& path : files_.optimizers) {
      const TorchFile file = weights_.open(path);
      const PickleValue state = member(file.root(), "optimizer_state_dict");
      PickleValue stage = member(state, "zero_stage");
      if (stage.is(PickleKind::object) && stage.arguments().size() == 1)
        stage = stage.arguments()[0];  // a member of an enumeration
      if (!stage.is(PickleKind::integer) || stage.integer() < 0 || stage.integer() > 3)
        stage.fail("expected a stage of ZeRO from 0 to 3");
      if (ranks_.empty()) {
        stage_ = stage.integer();
        read_paddings(state);
      }
      check_rank_count(member(state, "partition_count"));
      const PickleValue groups =
          member(state, stage_ == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups");
      std::vector<ForeignPiece> parts;
      for (size_t i = 0; i < groups.size(); ++i) {
        const TorchTensor tensor = file.tensor(groups[i]);
        if (!is_float(tensor.type)) groups[i].fail("expected floats, got {}", tensor.type.name);
        parts.push_back(piece_of(tensor));
      }
      ranks_.push_back(std::move(parts));
      if (ranks_.back().size() != ranks_.front().size())
        groups.fail("rank {} has {} groups of parameters, and rank 0 has {}", ranks_.size() - 1,
                    ranks_.back().size(), ranks_.front().size());
    }
  }

  void check_rank_count(PickleValue count) const {
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
  void read_paddings(PickleValue state) {
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

  void read_models() {
    const size_t ranks = ranks_.size();
    if (stage_ == 3 && files_.models.size() != ranks)
      fail_user(
          "{}: {} ranks have saved it, and there are {} files *_model_states.pt: copy the files "
          "of all hosts together",
          files_.folder, ranks, files_.models.size());
    const TorchFile model = weights_.open(files_.models.front());
    const PickleValue shapes = member(model.root(), "param_shapes");
    if (stage_ == 3)
      add_stage_3(shapes);
    else
      add_groups(shapes);
    add_of_model(model);
  }

  // Adds frozen parameters, buffers and shared parameters.
  void add_of_model(const TorchFile& model) {
    const PickleValue root = model.root();
    const size_t file = weights_.files.size() - 1;
    if (const auto shapes = root.find("frozen_param_shapes"); shapes && shapes->pairs() > 0)
      add_frozen(model, *shapes, file);
    const PickleValue names = member(root, "buffer_names");
    for (size_t i = 0; i < names.size(); ++i) {
      const std::string name(names[i].text());
      // One that is not persistent is not saved.
      if (const auto value = member(root, "module").find(name)) {
        const TorchTensor tensor = model.tensor(*value);
        add_as(name, tensor, is_float(tensor.type) ? safetensors_type("F32") : tensor.type, file);
      }
    }
    add_shared(root);
    if (stage_ != 3) add_left(model, file);  // at stage 3 the module has empty tensors
  }

  // Adds what the module has besides: frozen parameters, which stage 1 keeps nowhere else.
  void add_left(const TorchFile& model, size_t file) {
    std::set<std::string, std::less<>> names;
    for (const ForeignTensor& t : weights_.tensors) names.insert(t.name);
    const PickleValue module = member(model.root(), "module");
    for (size_t i = 0; i < module.pairs(); ++i) {
      const PickleValue name = module.key(i);
      if (!name.is(PickleKind::text) || !TorchFile::is_tensor(module.value(i)) ||
          !names.insert(std::string(name.text())).second)
        continue;
      const TorchTensor tensor = model.tensor(module.value(i));
      add_as(std::string(name.text()), tensor, tensor.type, file);
    }
  }

  void add_as(const std::string& name, const TorchTensor& tensor, const SafetensorsType& type,
              size_t file) {
    weights_.tensors.push_back({name,
                                type.name == "F64" ? safetensors_type("F32") : type,
                                tensor.sizes,
                                {{file, tensor, 0, tensor.elements()}}});
  }

  // Stages 1 and 2: all ranks' parts of a group are one range, in which its parameters follow each other.
  void add_groups(PickleValue shapes) {
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
        ForeignTensor tensor = new_tensor(group, i, elements);
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
  void add_stage_3(PickleValue shapes) {
    const auto ranks = static_cast<int64_t>(ranks_.size());
    int64_t at = 0;
    for (size_t g = 0; g < shapes.size(); ++g)
      for (size_t i = 0; i < shapes[g].pairs(); ++i) {
        int64_t elements = 0;
        ForeignTensor tensor = new_tensor(shapes[g], i, elements);
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

  // Frozen parameters have no masters: at stage 3 each rank has a part of them in its own file.
  void add_frozen(const TorchFile& model, PickleValue shapes, size_t file) {
    const size_t first = weights_.tensors.size();
    std::vector<int64_t> left;
    for (size_t i = 0; i < shapes.pairs(); ++i) {
      int64_t elements = 0;
      weights_.tensors.push_back(new_tensor(shapes, i, elements));
      left.push_back(elements);
    }
    add_frozen_parts(model, file, first, left);
    if (stage_ == 3)
      for (size_t rank = 1; rank < files_.models.size(); ++rank) {
        const TorchFile other = weights_.open(files_.models[rank]);
        add_frozen_parts(other, weights_.files.size() - 1, first, left);
      }
    for (size_t i = 0; i < left.size(); ++i)
      if (left[i] != 0) shapes.fail("a frozen parameter lacks {} elements", left[i]);
  }

  void add_frozen_parts(const TorchFile& model, size_t file, size_t first,
                        std::vector<int64_t>& left) {
    const PickleValue fragments = member(model.root(), "frozen_param_fragments");
    for (size_t i = 0; i < left.size(); ++i) {
      ForeignTensor& to = weights_.tensors[first + i];
      const TorchTensor part = model.tensor(member(fragments, to.name));
      if (!to.pieces.empty() && part.type.name != to.type.name)
        fragments.fail("the parts of a frozen parameter have the types {} and {}", to.type.name,
                       part.type.name);
      to.type = part.type;
      const int64_t count = std::min(part.elements(), left[i]);
      to.pieces.push_back({file, part, 0, count});
      left[i] -= count;
    }
  }

  void add_shared(PickleValue root) {
    const std::optional<PickleValue> shared = root.find("shared_params");
    if (!shared) return;
    for (size_t i = 0; i < shared->pairs(); ++i) {
      const PickleValue name = shared->key(i), other = shared->value(i);
      if (!name.is(PickleKind::text) || !other.is(PickleKind::text)) continue;
      const auto found = std::ranges::find(weights_.tensors, other.text(), &ForeignTensor::name);
      if (found == weights_.tensors.end() || name.text() == other.text()) continue;
      ForeignTensor copy = *found;
      copy.name = name.text();
      // ds_to_universal writes a file for the second name, too, of the module's rounded weights.
      std::erase_if(weights_.tensors,
                    [&copy](const ForeignTensor& t) { return t.name == copy.name; });
      weights_.tensors.push_back(std::move(copy));
    }
  }

  // Returns a parameter of a group without its elements, of which there are so many.
  static ForeignTensor new_tensor(PickleValue group, size_t pair, int64_t& elements) {
    if (!group.key(pair).is(PickleKind::text))
      group.key(pair).fail("expected the name of a parameter");
    ForeignTensor tensor{std::string(group.key(pair).text()), safetensors_type("F32"), {}, {}};
    tensor.sizes = sizes_of(group.value(pair), elements);
    return tensor;
  }

  [[noreturn]] static void lacks(PickleValue name, int64_t elements, int64_t lacking) {
    name.fail("\"{}\" has {} elements, of which the optimizers lack {}", shown_text(name.text()),
              elements, lacking);
  }

  const DeepSpeedFiles& files_;
  ForeignWeights weights_;
  int64_t stage_ = 0;
  std::vector<Flat> ranks_;  // the masters of each rank, by groups
  std::vector<std::vector<int64_t>> paddings_;
};

}  // namespace

ForeignWeights weights_of_deepspeed(const DeepSpeedFiles& files) {
  return Joiner(files).join();
}

}  // namespace dstrain
