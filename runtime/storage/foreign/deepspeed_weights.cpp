#include "runtime/storage/foreign/deepspeed_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "runtime/core/error.h"
#include "runtime/storage/foreign/deepspeed_groups.h"

namespace dstrain {
namespace {

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
      read_models();
    }
    return std::move(weights_);
  }

 private:
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
    if (is_deepspeed_float(tensor.type)) weights_.tensors.back().type = safetensors_type("F32");
  }

  // Adds the module's own weights: no rank has masters.
  void add_module() {
    const TorchFile model = weights_.open(files_.models.front());
    const PickleValue module = deepspeed_member(model.root(), "module");
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

  void read_models() {
    DeepSpeedGroups groups(files_, weights_);
    stage_ = groups.stage();
    if (stage_ == 3 && files_.models.size() != groups.ranks())
      fail_user(
          "{}: {} ranks have saved it, and there are {} files *_model_states.pt: copy the files "
          "of all hosts together",
          files_.folder, groups.ranks(), files_.models.size());
    const TorchFile model = weights_.open(files_.models.front());
    groups.add(deepspeed_member(model.root(), "param_shapes"));
    add_of_model(model);
  }

  // Adds frozen parameters, buffers and shared parameters.
  void add_of_model(const TorchFile& model) {
    const PickleValue root = model.root();
    const size_t file = weights_.files.size() - 1;
    if (const auto shapes = root.find("frozen_param_shapes"); shapes && shapes->pairs() > 0)
      add_frozen(model, *shapes, file);
    const PickleValue names = deepspeed_member(root, "buffer_names");
    for (size_t i = 0; i < names.size(); ++i) {
      const std::string name(names[i].text());
      // One that is not persistent is not saved.
      if (const auto value = deepspeed_member(root, "module").find(name)) {
        const TorchTensor tensor = model.tensor(*value);
        add_as(name, tensor,
               is_deepspeed_float(tensor.type) ? safetensors_type("F32") : tensor.type, file);
      }
    }
    add_shared(root);
    if (stage_ != 3) add_left(model, file);  // at stage 3 the module has empty tensors
  }

  // Adds what the module has besides: frozen parameters, which stage 1 keeps nowhere else.
  void add_left(const TorchFile& model, size_t file) {
    std::set<std::string, std::less<>> names;
    for (const ForeignTensor& t : weights_.tensors) names.insert(t.name);
    const PickleValue module = deepspeed_member(model.root(), "module");
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

  // Frozen parameters have no masters: at stage 3 each rank has a part of them in its own file.
  void add_frozen(const TorchFile& model, PickleValue shapes, size_t file) {
    const size_t first = weights_.tensors.size();
    std::vector<int64_t> left;
    for (size_t i = 0; i < shapes.pairs(); ++i) {
      int64_t elements = 0;
      weights_.tensors.push_back(deepspeed_tensor(shapes, i, elements));
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
    const PickleValue fragments = deepspeed_member(model.root(), "frozen_param_fragments");
    for (size_t i = 0; i < left.size(); ++i) {
      ForeignTensor& to = weights_.tensors[first + i];
      const TorchTensor part = model.tensor(deepspeed_member(fragments, to.name));
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

  const DeepSpeedFiles& files_;
  ForeignWeights weights_;
  int64_t stage_ = 0;
};

}  // namespace

ForeignWeights weights_of_deepspeed(const DeepSpeedFiles& files) {
  return Joiner(files).join();
}

}  // namespace dstrain
