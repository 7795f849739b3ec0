#include "runtime/storage/foreign/state_dict.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/core/formats/shown_text.h"
#include "runtime/storage/mismatches.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {
namespace {

constexpr int64_t kLargestIndex = int64_t{64} << 20;

bool has_tensors(PickleValue dict) {
  for (size_t i = 0; i < dict.pairs(); ++i)
    if (TorchFile::is_tensor(dict.value(i))) return true;
  return false;
}

// Returns the names of a dict's keys for a message.
std::string keys_of(PickleValue dict) {
  std::vector<std::string> keys;
  for (size_t i = 0; i < dict.pairs(); ++i)
    keys.push_back(dict.key(i).is(PickleKind::text) ? shown_text(dict.key(i).text())
                                                    : std::string(name_of(dict.key(i).kind())));
  return keys.empty() ? "none" : listed(keys);
}

// Returns the dict of tensors in what has been saved.
PickleValue find_state(PickleValue root, const std::string& key) {
  if (!key.empty()) {
    const std::optional<PickleValue> found = root.find(key);
    if (!found)
      root.fail("--key {}: there is no such key; those there are:\n  {}", key, keys_of(root));
    if (!has_tensors(*found))
      found->fail("--key {}: expected a dict of tensors, got {}", key,
                  found->pairs() == 0 ? std::string(name_of(found->kind()))
                                      : fmt::format("one of\n  {}", keys_of(*found)));
    return *found;
  }
  if (has_tensors(root)) return root;
  for (const std::string_view usual : {"state_dict", "model_state_dict", "model", "module"})
    if (const std::optional<PickleValue> found = root.find(usual); found && has_tensors(*found))
      return *found;
  if (root.pairs() == 0 && root.is(PickleKind::object))
    root.fail(
        "it is an object of {}, whose code would be needed: save its weights alone, in Python: "
        "torch.save(model.state_dict(), FILE)",
        root.shown_name());
  root.fail(
      "expected a dict of tensors, or one under state_dict, model_state_dict, model or module: "
      "--key names another one of\n  {}",
      keys_of(root));
}

// Adds the tensors of a file's state, and says what is none.
void add_state(ForeignWeights& weights, const TorchFile& file, PickleValue state) {
  std::map<std::string_view, size_t> last;  // of keys that repeat, as in Python
  for (size_t i = 0; i < state.pairs(); ++i)
    if (state.key(i).is(PickleKind::text)) last[state.key(i).text()] = i;
  std::vector<std::string> others, rounded;
  for (size_t i = 0; i < state.pairs(); ++i) {
    const PickleValue key = state.key(i), value = state.value(i);
    if (!key.is(PickleKind::text) || last.at(key.text()) != i) continue;
    const std::string name(key.text());
    if (!TorchFile::is_tensor(value)) {
      others.push_back(fmt::format("{} ({})", shown_text(name), name_of(value.kind())));
      continue;
    }
    const TorchTensor tensor = file.tensor(value);
    if (tensor.type.name == "F64") rounded.push_back(shown_text(name));
    weights.add(name, tensor);
  }
  if (!others.empty())
    weights.notes.push_back(fmt::format("{}: left out, as they are no tensors ({}):\n  {}",
                                        file.path(), others.size(), listed(others)));
  if (!rounded.empty())
    weights.notes.push_back(fmt::format("{}: of fp64, written in fp32 ({}):\n  {}", file.path(),
                                        rounded.size(), listed(rounded)));
}

}  // namespace

ForeignWeights weights_of_file(const std::string& path, const std::string& key) {
  ForeignWeights weights;
  const TorchFile file = weights.open(path);
  add_state(weights, file, find_state(file.root(), key));
  return weights;
}

ForeignWeights weights_of_index(const std::string& path) {
  ForeignWeights weights;
  const std::string text = read_input_file(path, "the index of the weights", kLargestIndex);
  std::vector<std::string> missing;
  for (const auto& [name, tensors] : parse_weight_index(text, path)) {
    const size_t before = weights.tensors.size();
    const TorchFile file =
        weights.open((std::filesystem::path(path).parent_path() / name).string());
    add_state(weights, file, find_state(file.root(), {}));
    std::vector<std::string> found;
    for (size_t i = before; i < weights.tensors.size(); ++i)
      found.push_back(weights.tensors[i].name);
    std::ranges::sort(found);
    for (const std::string& tensor : tensors)
      if (!std::ranges::binary_search(found, tensor))
        missing.push_back(fmt::format("{} in {}", shown_name(tensor), name));
  }
  if (!missing.empty())
    fail_user("{}: it lists tensors that its files do not have ({}):\n  {}", path, missing.size(),
              listed(missing));
  return weights;
}

}  // namespace dstrain
