#include "models/exported/read/stored_tensors.h"

#include <algorithm>
#include <map>
#include <utility>

#include "models/exported/read/read_values.h"
#include "models/exported/text/json_field.h"
#include "runtime/core/formats/shown_text.h"
#include "runtime/core/formats/strided.h"

namespace dstrain::exported {
namespace {

constexpr int64_t kLargestConfig = int64_t{1} << 28;

std::optional<int64_t> end_of(const StoredTensor& tensor) {
  return end_of_elements(tensor.sizes, tensor.strides, tensor.offset, size_of(tensor.type));
}

std::vector<int64_t> fixed_sizes(const JsonField& field, const std::vector<Size>& sizes) {
  std::vector<int64_t> values;
  for (const Size& size : sizes) {
    if (!size.is_fixed()) field.fail("has the size {}, expected a number", to_string(size));
    if (size.value() < 0) field.fail("has the size or stride {}", size.value());
    values.push_back(size.value());
  }
  return values;
}

// Reads the tensors of one configuration file.
class ConfigReader {
 public:
  // `kind` is "weights" or "constants".
  ConfigReader(const ZipArchive& archive, const std::string& folder, const std::string& model,
               const std::string& kind)
      : archive_(archive),
        directory_(folder + "/data/" + kind + "/"),
        entry_(directory_ + model + "_" + kind + "_config.json"),
        is_constant_(kind == "constants") {}

  void read(std::vector<StoredTensor>& tensors) const {
    const ZipEntry* entry = archive_.find(entry_);
    if (!entry)
      fail_user("{}: lacks \"{}\": it is not complete, or not an archive of torch.export.save",
                archive_.path(), shown_text(entry_));
    const JsonDocument document =
        read_json(archive_.read(*entry, kLargestConfig), archive_.path() + ": " + entry_);
    JsonField(document)["config"].for_each_member(
        [&](const std::string& name, const JsonField& field) {
          tensors.push_back(read_tensor_of(name, field));
        });
  }

 private:
  StoredTensor read_tensor_of(const std::string& name, const JsonField& field) const {
    const std::string& path = field["path_name"].name();
    if (field["use_pickle"].flag() || !field.find("tensor_meta"))
      field.fail("is an object that PyTorch has pickled, expected a tensor: nothing is unpickled");
    const JsonField meta = field["tensor_meta"];
    const TensorInfo info = read_tensor(meta, name);
    StoredTensor tensor;
    tensor.name = name;
    tensor.type = info.type;
    tensor.sizes = fixed_sizes(meta, info.sizes);
    tensor.strides = fixed_sizes(meta, info.strides);
    tensor.offset = fixed_sizes(meta, {info.offset})[0];
    tensor.is_parameter = field["is_param"].flag();
    tensor.is_constant = is_constant_;
    tensor.storage = archive_.find(directory_ + path);
    if (!tensor.storage)
      field.fail("is stored in \"{}\", which the archive does not have",
                 shown_text(directory_ + path));
    check_place(tensor, field);
    return tensor;
  }

  static void check_place(StoredTensor& tensor, const JsonField& field) {
    const std::optional<int64_t> end = end_of(tensor);
    if (!end) field.fail("has sizes and strides that overflow");
    const int64_t bytes = *end * size_of(tensor.type);
    if (*end == 0) tensor.offset = 0;  // no element is there
    tensor.is_absent = tensor.storage->bytes == 0 && bytes > 0;
    if (!tensor.is_absent && bytes > tensor.storage->bytes)
      field.fail("reaches to byte {} of \"{}\", which has {}: the archive is cut short or damaged",
                 bytes, shown_text(tensor.storage->name), tensor.storage->bytes);
    if (!tensor.is_constant && tensor.elements() > *end - tensor.offset)
      field.fail(
          "has several elements at one place, expected a tensor that can be changed: make it a "
          "copy "
          "of itself before the export");
  }

  const ZipArchive& archive_;
  std::string directory_, entry_;
  bool is_constant_;
};

bool same_elements(const StoredTensor& a, const StoredTensor& b) {
  return a.type == b.type && a.offset == b.offset && a.sizes == b.sizes && a.strides == b.strides;
}

// Numbers the tensors that are one: of one storage, with the same elements. What a run changes must share no element with
// anything else. Weights that the archive lacks all name one empty storage, and are not taken for one.
void find_groups(const ZipArchive& archive, std::vector<StoredTensor>& tensors) {
  std::map<const ZipEntry*, std::vector<size_t>> storages;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].storage->bytes > 0 && *end_of(tensors[i]) > 0)
      storages[tensors[i].storage].push_back(i);
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].group = static_cast<int>(i);
  for (auto& [storage, users] : storages) {
    std::ranges::stable_sort(users, {}, [&](size_t i) { return tensors[i].offset; });
    size_t largest = users[0];  // of those before, the one that reaches farthest
    for (size_t k = 1; k < users.size(); ++k) {
      StoredTensor &before = tensors[largest], &tensor = tensors[users[k]];
      if (same_elements(before, tensor))
        tensor.group = before.group;
      else if (tensor.offset * size_of(tensor.type) < *end_of(before) * size_of(before.type) &&
               !(before.is_constant && tensor.is_constant))
        fail_user(
            "{}: \"{}\" and \"{}\" share a part of \"{}\", expected tensors that are the same or "
            "apart: make one a copy of its elements before the export",
            archive.path(), shown_text(before.name), shown_text(tensor.name),
            shown_text(storage->name));
      if (*end_of(tensor) * size_of(tensor.type) > *end_of(before) * size_of(before.type))
        largest = users[k];
    }
  }
}

}  // namespace

int64_t StoredTensor::elements() const {
  int64_t n = 1;
  for (const int64_t size : sizes) n *= size;
  return n;
}

bool StoredTensor::is_contiguous() const {
  return are_contiguous(sizes, strides);
}

std::vector<StoredTensor> read_stored_tensors(const ZipArchive& archive, const std::string& folder,
                                              const std::string& model) {
  std::vector<StoredTensor> tensors;
  for (const char* kind : {"weights", "constants"})
    ConfigReader(archive, folder, model, kind).read(tensors);
  std::ranges::sort(tensors, {}, &StoredTensor::name);
  for (size_t i = 1; i < tensors.size(); ++i)
    if (tensors[i].name == tensors[i - 1].name)
      fail_user("{}: \"{}\" is among the weights and the constants", archive.path(),
                shown_text(tensors[i].name));
  find_groups(archive, tensors);
  return tensors;
}

std::string read_elements(const ZipArchive& archive, const StoredTensor& tensor) {
  check(!tensor.is_absent, "the archive has no values of \"{}\"", tensor.name);
  const int64_t size = size_of(tensor.type), count = tensor.elements();
  std::string elements(static_cast<size_t>(count * size), '\0');
  if (count == 0) return elements;
  if (tensor.is_contiguous()) {
    archive.read_at(*tensor.storage, elements.data(), count * size, tensor.offset * size);
    return elements;
  }
  const int64_t bytes = (*end_of(tensor) - tensor.offset) * size;
  std::string storage(static_cast<size_t>(bytes), '\0');
  archive.read_at(*tensor.storage, storage.data(), bytes, tensor.offset * size);
  gather_elements(storage.data(), tensor.sizes, tensor.strides, size, 0, count, elements.data());
  return elements;
}

}  // namespace dstrain::exported
