#include "runtime/core/formats/torch/torch_file.h"

#include <algorithm>
#include <string_view>

#include "runtime/core/error.h"
#include "runtime/core/formats/shown_text.h"
#include "runtime/core/formats/strided.h"

namespace dstrain {
namespace {

constexpr size_t kMostDimensions = 32;
constexpr std::string_view kTensorV2 = "torch._utils._rebuild_tensor_v2",
                           kTensorV3 = "torch._utils._rebuild_tensor_v3",
                           kParameter = "torch._utils._rebuild_parameter",
                           kParameterWithState = "torch._utils._rebuild_parameter_with_state",
                           kOfClass = "torch._tensor._rebuild_from_type_v2";

struct TypeName {
  std::string_view torch, safetensors;
};

constexpr TypeName kTorchStorages[] = {
    {"FloatStorage", "F32"},  {"BFloat16Storage", "BF16"}, {"HalfStorage", "F16"},
    {"DoubleStorage", "F64"}, {"LongStorage", "I64"},      {"IntStorage", "I32"},
    {"ShortStorage", "I16"},  {"CharStorage", "I8"},       {"ByteStorage", "U8"},
    {"BoolStorage", "BOOL"},  {"UntypedStorage", "U8"}};
constexpr TypeName kTorchTypes[] = {{"float32", "F32"},        {"bfloat16", "BF16"},
                                    {"float16", "F16"},        {"float64", "F64"},
                                    {"int64", "I64"},          {"int32", "I32"},
                                    {"int16", "I16"},          {"int8", "I8"},
                                    {"uint8", "U8"},           {"bool", "BOOL"},
                                    {"uint16", "U16"},         {"uint32", "U32"},
                                    {"uint64", "U64"},         {"float8_e4m3fn", "F8_E4M3"},
                                    {"float8_e5m2", "F8_E5M2"}};

// Returns the type that a name of Python's stands for.
template <size_t n>
SafetensorsType type_of(PickleValue name, const TypeName (&types)[n]) {
  if (name.is(PickleKind::global))
    for (const TypeName& type : types)
      if (name.text() == type.torch) return safetensors_type(type.safetensors);
  name.fail(
      "expected a type of elements that safetensors files have, such as torch.FloatStorage, got {}",
      name.is(PickleKind::global) ? name.shown_name() : name_of(name.kind()));
}

int64_t not_negative(PickleValue value, std::string_view what) {
  if (!value.is(PickleKind::integer) || value.integer() < 0)
    value.fail("expected {}, an integer of at least 0", what);
  return value.integer();
}

std::vector<int64_t> numbers(PickleValue value, std::string_view what) {
  if (!value.is(PickleKind::tuple) || value.size() > kMostDimensions)
    value.fail("expected {}, a tuple of at most {} integers", what, kMostDimensions);
  std::vector<int64_t> found;
  for (size_t i = 0; i < value.size(); ++i) found.push_back(not_negative(value[i], what));
  return found;
}

// Opens an archive, once the file does not begin as one of another format.
ZipArchive open_archive(const std::string& path) {
  const InputFile file(path, "the file of PyTorch", "torch.save writes one");
  std::string beginning(static_cast<size_t>(std::min<int64_t>(14, file.size())), '\0');
  file.read_at(beginning.data(), std::ssize(beginning), 0);
  constexpr std::string_view magic("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 12);
  if (beginning.starts_with('\x80') && beginning.substr(2) == magic)
    fail_user(
        "{0}: it has the layout that PyTorch wrote before 1.6, and torch.save writes with "
        "_use_new_zipfile_serialization=False: write it anew, in Python: "
        "torch.save(torch.load(\"{0}\", map_location=\"cpu\", weights_only=True), \"{0}\")",
        path);
  if (beginning.starts_with('\x80'))
    fail_user("{}: it is a pickle by itself, expected a file that torch.save has written", path);
  return {path, {"the file of PyTorch", "torch.save", "unpack it, or save it anew"}};
}

std::string read_entry(const ZipArchive& archive, const std::string& name) {
  const ZipEntry* const entry = archive.find(name);
  return entry ? archive.read(*entry, kLargestPickle) : std::string();
}

}  // namespace

int64_t TorchTensor::elements() const {
  int64_t n = 1;
  for (const int64_t size : sizes) n *= size;
  return n;
}

bool TorchTensor::is_contiguous() const {
  return are_contiguous(sizes, strides);
}

TorchFile::TorchFile(const std::string& path)
    : archive_(open_archive(path)), folder_(find_folder()) {
  if (archive_.find(folder_ + "constants.pkl"))
    fail_user(
        "{}: it is a TorchScript program, expected weights: save its state, in Python: "
        "torch.save(torch.jit.load(FILE).state_dict(), NEW)",
        path);
  const std::string order = read_entry(archive_, folder_ + "byteorder");
  if (!order.empty() && order != "little")
    fail_user(
        "{}: its numbers have the byte order \"{}\", expected \"little\": save it anew on such a "
        "machine",
        path, shown_text(order));
  const std::string name = folder_ + "data.pkl";
  pickle_ = std::make_unique<Pickle>(read_entry(archive_, name), path + ": " + shown_text(name));
}

std::string TorchFile::find_folder() const {
  constexpr std::string_view last = "data.pkl";
  std::string folder;
  for (const ZipEntry& entry : archive_.entries()) {
    if (!entry.name.ends_with(last)) continue;
    const std::string before = entry.name.substr(0, entry.name.size() - last.size());
    if (before.find('/') + 1 != before.size() || before.empty()) continue;
    if (!folder.empty()) fail_user("{}: it has several pickles, expected one", path());
    folder = before;
  }
  if (folder.empty())
    fail_user(
        "{}: it is a zip archive without a pickle \"NAME/data.pkl\", expected a file that "
        "torch.save has written",
        path());
  return folder;
}

bool TorchFile::is_tensor(PickleValue value) {
  if (!value.is(PickleKind::object)) return false;
  const std::string name = value.shown_name();
  return name.starts_with("torch._utils._rebuild_") || name == kOfClass;
}

TorchTensor TorchFile::tensor(PickleValue value) const {
  // Parameters and tensors with attributes are tensors with something around them.
  for (int depth = 0; depth < 4 && value.is(PickleKind::object); ++depth) {
    const PickleValue given = value.arguments();
    if (value.is_named(kTensorV2)) return stored_tensor(value, given, false);
    if (value.is_named(kTensorV3)) return stored_tensor(value, given, true);
    if ((value.is_named(kParameter) || value.is_named(kParameterWithState)) && given.size() > 0) {
      value = given[0];
      continue;
    }
    if (!value.is_named(kOfClass) || given.size() < 3 || !given[2].is(PickleKind::tuple)) break;
    if (given[0].is_named(kTensorV2)) return stored_tensor(value, given[2], false);
    if (given[0].is_named(kTensorV3)) return stored_tensor(value, given[2], true);
    break;
  }
  value.fail("expected a tensor with its values, got {}",
             value.is(PickleKind::object) ? value.shown_name() : name_of(value.kind()));
}

TorchTensor TorchFile::stored_tensor(PickleValue value, PickleValue arguments,
                                     bool has_dtype) const {
  if (arguments.size() < (has_dtype ? 7U : 4U) || !arguments[0].is(PickleKind::persistent))
    value.fail("a tensor lacks its storage, place, sizes or strides");
  const PickleValue id = arguments[0].arguments();
  if (!id.is(PickleKind::tuple) || id.size() < 5 || !id[0].is(PickleKind::text) ||
      id[0].text() != "storage" || !id[2].is(PickleKind::text))
    value.fail("a storage lacks its type, name, device or size");
  const SafetensorsType in_storage = type_of(id[1], kTorchStorages);
  const int64_t stated = not_negative(id[4], "the size of a storage");
  const ZipEntry* const entry = archive_.find(fmt::format("{}data/{}", folder_, id[2].text()));
  if (!entry)
    id.fail(
        "the archive lacks the storage \"{}\" of a tensor: it was saved without values, or is "
        "damaged",
        shown_text(id[2].text()));
  int64_t bytes = 0;
  if (__builtin_mul_overflow(stated, in_storage.bytes, &bytes) || bytes > entry->bytes)
    id.fail("the storage \"{}\" is stated to have {} elements of {} bytes, and has {} bytes",
            shown_text(id[2].text()), stated, in_storage.bytes, entry->bytes);
  TorchTensor tensor;
  tensor.type = has_dtype ? type_of(arguments[6], kTorchTypes) : in_storage;
  tensor.offset = not_negative(arguments[1], "where a tensor begins");
  tensor.sizes = numbers(arguments[2], "the sizes of a tensor");
  tensor.strides = numbers(arguments[3], "the strides of a tensor");
  tensor.storage = entry->offset;
  if (tensor.sizes.size() != tensor.strides.size())
    value.fail("a tensor has {} sizes and {} strides", tensor.sizes.size(), tensor.strides.size());
  int64_t count = tensor.type.bytes;
  for (const int64_t size : tensor.sizes)
    if (__builtin_mul_overflow(count, std::max<int64_t>(size, 1), &count))
      value.fail("the sizes of a tensor overflow");
  const std::optional<int64_t> end =
      end_of_elements(tensor.sizes, tensor.strides, tensor.offset, tensor.type.bytes);
  if (!end || *end > bytes / tensor.type.bytes)
    value.fail("a tensor reaches out of its storage \"{}\", which has {} bytes",
               shown_text(id[2].text()), bytes);
  if (*end == 0)
    tensor.offset = 0;  // no element is there
  else if (count / tensor.type.bytes > *end - tensor.offset)
    value.fail(
        "a tensor has several elements at one place, expected an element for each: save a copy of "
        "it "
        "(.contiguous())");
  return tensor;
}

TorchTensorReader::TorchTensorReader(const InputFile& file, const TorchTensor& tensor)
    : file_(file), tensor_(tensor) {
  if (tensor.is_contiguous()) return;
  const int64_t size = tensor.type.bytes;
  const int64_t end =
      end_of_elements(tensor.sizes, tensor.strides, tensor.offset, size).value_or(tensor.offset);
  span_.resize(static_cast<size_t>((end - tensor.offset) * size));
  file.read_at(span_.data(), std::ssize(span_), tensor.storage + tensor.offset * size);
}

void TorchTensorReader::read(int64_t begin, int64_t count, char* to) const {
  const int64_t size = tensor_.type.bytes;
  if (span_.empty())
    file_.read_at(to, count * size, tensor_.storage + (tensor_.offset + begin) * size);
  else
    gather_elements(span_.data(), tensor_.sizes, tensor_.strides, size, begin, count, to);
}

}  // namespace dstrain
