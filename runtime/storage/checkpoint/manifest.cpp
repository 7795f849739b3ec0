#include "runtime/storage/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "runtime/core/checksum.h"
#include "runtime/core/error.h"
#include "runtime/storage/checkpoint/lineage_json.h"

namespace dstrain {
namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "dstrain checkpoint";
constexpr int64_t kVersion = 1;
constexpr int64_t kVersionWithParts = 2;  // of a manifest with slices of parts
// The most elements of a tensor with parts: below it no count of elements and bytes overflows.
constexpr int64_t kMostElements = std::numeric_limits<int64_t>::max() / 64;
constexpr int64_t kMostParts = int64_t{1} << 16;
constexpr std::string_view kRows = "rows", kColumns = "columns";

std::string hex(uint64_t value) {
  return fmt::format("{:016x}", value);
}

std::string compact(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string checksum_text(const json& content) {
  const std::string text = compact(content);
  return hex(checksum_of(text.data(), static_cast<int64_t>(text.size())));
}

json to_json(const CheckpointSlice& slice) {
  json checksums = json::array();
  for (const uint64_t checksum : slice.checksums) checksums.push_back(hex(checksum));
  json object{{"begin", slice.begin},
              {"elements", slice.elements},
              {"file", slice.file},
              {"offset", slice.offset},
              {"checksums", std::move(checksums)}};
  const TensorPart& part = slice.part;
  if (part.by != TensorPart::By::nothing)
    object["part"] = {{"by", part.by == TensorPart::By::rows ? kRows : kColumns},
                      {"parts", part.parts},
                      {"part", part.part},
                      {"sections", part.sections}};
  return object;
}

bool has_parts(const Manifest& manifest) {
  return std::ranges::any_of(manifest.tensors, [](const CheckpointTensor& tensor) {
    return std::ranges::any_of(tensor.slices, [](const CheckpointSlice& slice) {
      return slice.part.by != TensorPart::By::nothing;
    });
  });
}

json to_json(const CheckpointTensor& tensor) {
  json shape = json::array(), slices = json::array();
  for (int i = 0; i < tensor.shape.rank; ++i) shape.push_back(tensor.shape[i]);
  for (const CheckpointSlice& slice : tensor.slices) slices.push_back(to_json(slice));
  return {{"name", tensor.name},
          {"slot", tensor.slot},
          {"dtype", name_of(tensor.dtype)},
          {"shape", std::move(shape)},
          {"slices", std::move(slices)}};
}

// Reads one manifest and checks every member.
class ManifestReader {
 public:
  ManifestReader(const json& content, const std::string& path) : content_(content), path_(path) {}

  Manifest read() {
    if (content_.at("format").get<std::string>() != kFormat)
      fail_user("{} is not the manifest of a checkpoint", path_);
    if (const auto version = content_.at("version").get<int64_t>();
        version != kVersion && version != kVersionWithParts)
      fail_user(
          "{} is a checkpoint of format version {}, and this dstrain reads versions {} and {}",
          path_, version, kVersion, kVersionWithParts);
    CheckpointLabel& label = manifest_.label;
    label.step = number(content_, "step");
    // The first version did not write these.
    if (content_.contains("samples")) label.samples = number(content_, "samples");
    if (content_.contains("line")) label.lineage = lineage_from(content_.at("line"));
    if (content_.contains("facts"))
      label.facts = content_.at("facts").get<std::map<std::string, std::string>>();
    if (content_.contains("end")) label.end = content_.at("end").get<bool>();
    if (content_.contains("best")) label.best = best_from(content_.at("best"));
    for (const json& file : content_.at("files"))
      manifest_.files.push_back({file.at("name").get<std::string>(), number(file, "bytes")});
    for (const CheckpointFile& file : manifest_.files)
      if (file.name.empty() || file.name.find('/') != std::string::npos)
        fail_user("{}: \"{}\" is not the name of a file in its directory", path_, file.name);
    for (const json& tensor : content_.at("tensors"))
      manifest_.tensors.push_back(read_tensor(tensor));
    return std::move(manifest_);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(const CheckpointTensor& tensor, fmt::format_string<Args...> format,
                         Args&&... args) const {
    fail_user("{}: tensor {}/{}: {}", path_, tensor.name, tensor.slot,
              fmt::format(format, std::forward<Args>(args)...));
  }

  int64_t number(const json& object, const char* key) const {
    const json& value = object.at(key);
    if (!value.is_number_unsigned() ||
        value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max() / 16))
      fail_user("{}: {} is {}, expected a number of bytes, elements or steps", path_, key,
                compact(value));
    return value.get<int64_t>();
  }

  BestValidation best_from(const json& object) const {
    return {.metric = object.at("metric").get<std::string>(),
            .step = number(object, "step"),
            .value = object.at("value").get<double>(),
            .without_better = number(object, "without_better")};
  }

  uint64_t checksum(const CheckpointTensor& tensor, const std::string& text) const {
    uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value, 16);
    if (error != std::errc() || rest != end) fail(tensor, "\"{}\" is not a checksum", text);
    return value;
  }

  CheckpointTensor read_tensor(const json& object) {
    CheckpointTensor tensor;
    tensor.name = object.at("name").get<std::string>();
    tensor.slot = object.at("slot").get<std::string>();
    const auto dtype = object.at("dtype").get<std::string>();
    std::optional<DType> known;
    for (const DType d : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::u8})
      if (name_of(d) == dtype) known = d;
    if (!known) fail(tensor, "unknown dtype \"{}\"", dtype);
    tensor.dtype = *known;
    int64_t bytes = size_of(tensor.dtype);
    for (const json& dim : object.at("shape")) {
      if (tensor.shape.rank == Shape::kMaxRank)
        fail(tensor, "more than {} dimensions", Shape::kMaxRank);
      const auto size = dim.get<int64_t>();
      if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) fail(tensor, "impossible shape");
      tensor.shape.append(size);
    }
    for (const json& slice : object.at("slices"))
      tensor.slices.push_back(read_slice(tensor, slice));
    return tensor;
  }

  // Returns the part that a slice is of.
  TensorPart read_part(const CheckpointTensor& tensor, const json& slice) const {
    const auto found = slice.find("part");
    if (found == slice.end()) return {};
    const auto by = found->at("by").get<std::string>();
    if (by != kRows && by != kColumns)
      fail(tensor, "a part by \"{}\", expected \"{}\" or \"{}\"", by, kRows, kColumns);
    const int64_t parts = number(*found, "parts"), part = number(*found, "part");
    if (parts > kMostParts || part >= parts) fail(tensor, "there is no part {} of {}", part, parts);
    const TensorPart read{.by = by == kRows ? TensorPart::By::rows : TensorPart::By::columns,
                          .parts = static_cast<int>(parts),
                          .part = static_cast<int>(part),
                          .sections = number(*found, "sections")};
    if (const std::string error = division_error(read, tensor.shape); !error.empty())
      fail(tensor, "{}", error);
    if (tensor.shape.elements() > kMostElements) fail(tensor, "impossible shape");
    return read;
  }

  CheckpointSlice read_slice(const CheckpointTensor& tensor, const json& object) const {
    CheckpointSlice slice{.begin = number(object, "begin"),
                          .elements = number(object, "elements"),
                          .file = 0,
                          .offset = number(object, "offset"),
                          .checksums = {},
                          .part = read_part(tensor, object)};
    const int64_t file = number(object, "file"), total = held_elements(slice.part, tensor.shape);
    if (file >= static_cast<int64_t>(manifest_.files.size())) fail(tensor, "no file {}", file);
    slice.file = static_cast<int>(file);
    if (slice.begin > total || slice.elements > total - slice.begin)
      fail(tensor, "slice [{}, {}) is outside of its {} elements", slice.begin,
           slice.begin + slice.elements, total);
    const int64_t bytes = slice.elements * size_of(tensor.dtype);
    const CheckpointFile& in = manifest_.files[static_cast<size_t>(file)];
    if (slice.offset > in.bytes || bytes > in.bytes - slice.offset)
      fail(tensor, "slice at byte {} passes the end of {}", slice.offset, in.name);
    for (const json& text : object.at("checksums"))
      slice.checksums.push_back(checksum(tensor, text.get<std::string>()));
    if (static_cast<int64_t>(slice.checksums.size()) !=
        (bytes + kChecksumBlock - 1) / kChecksumBlock)
      fail(tensor, "{} checksums for {} bytes", slice.checksums.size(), bytes);
    return slice;
  }

  const json& content_;
  const std::string& path_;
  Manifest manifest_;
};

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  json files = json::array(), tensors = json::array();
  for (const CheckpointFile& file : manifest.files)
    files.push_back({{"name", file.name}, {"bytes", file.bytes}});
  for (const CheckpointTensor& tensor : manifest.tensors) tensors.push_back(to_json(tensor));
  const CheckpointLabel& label = manifest.label;
  json content = {{"format", kFormat},
                  {"version", has_parts(manifest) ? kVersionWithParts : kVersion},
                  {"step", label.step},
                  {"files", std::move(files)},
                  {"tensors", std::move(tensors)},
                  {"line", to_json(label.lineage)}};
  if (label.samples >= 0) content["samples"] = label.samples;
  if (!label.facts.empty()) content["facts"] = label.facts;
  if (label.end) content["end"] = true;
  if (label.best)
    content["best"] = {{"metric", label.best->metric},
                       {"step", label.best->step},
                       {"value", label.best->value},
                       {"without_better", label.best->without_better}};
  return fmt::format("{{\"checksum\":\"{}\",\"content\":{}}}\n", checksum_text(content),
                     compact(content));
}

Manifest parse_manifest(std::string_view text, const std::string& path) try {
  const json root = json::parse(text);
  const json& content = root.at("content");
  if (checksum_text(content) != root.at("checksum").get<std::string>())
    fail_user("{} is damaged: its checksum is not that of its content", path);
  return ManifestReader(content, path).read();
} catch (const json::exception& error) {
  fail_user("{} is damaged or not the manifest of a checkpoint: {}", path, error.what());
}

void merge_manifest(Manifest& whole, const Manifest& part) {
  whole.tensors.reserve(whole.tensors.size() +
                        part.tensors.size());  // the index holds views of names
  std::map<std::pair<std::string_view, std::string_view>, CheckpointTensor*> index;
  for (CheckpointTensor& tensor : whole.tensors) index[{tensor.name, tensor.slot}] = &tensor;
  const int first_file = static_cast<int>(whole.files.size());
  whole.files.insert(whole.files.end(), part.files.begin(), part.files.end());
  for (const CheckpointTensor& tensor : part.tensors) {
    CheckpointTensor*& into = index[{tensor.name, tensor.slot}];
    if (!into) {
      whole.tensors.push_back({tensor.name, tensor.slot, tensor.dtype, tensor.shape, {}});
      into = &whole.tensors.back();
    }
    check(into->dtype == tensor.dtype && into->shape == tensor.shape,
          "ranks register {}/{} as {} {} and as {} {}", tensor.name, tensor.slot,
          name_of(into->dtype), to_string(into->shape), name_of(tensor.dtype),
          to_string(tensor.shape));
    for (CheckpointSlice slice : tensor.slices) {
      const bool known = std::any_of(into->slices.begin(), into->slices.end(), [&](const auto& s) {
        return s.begin == slice.begin && s.elements == slice.elements && s.part == slice.part;
      });
      if (known) continue;
      slice.file += first_file;
      into->slices.push_back(std::move(slice));
    }
  }
}

void sort_slices(CheckpointTensor& tensor) {
  std::ranges::sort(tensor.slices, {}, [](const CheckpointSlice& slice) {
    return std::pair(slice.part.part, slice.begin);
  });
}

std::string coverage_error(const Manifest& manifest, const CheckpointTensor& tensor) {
  const std::vector<CheckpointSlice>& slices = tensor.slices;
  TensorPart part = slices.empty() ? TensorPart{} : slices.front().part;
  size_t next = 0;
  const auto file_of_next = [&]() -> const std::string& {
    return manifest.files[static_cast<size_t>(slices[next].file)].name;
  };
  for (part.part = 0; part.part < part.parts; ++part.part) {
    const std::string where =
        part.by == TensorPart::By::nothing
            ? fmt::format("{}/{}", tensor.name, tensor.slot)
            : fmt::format("{}/{}: part {} of {}", tensor.name, tensor.slot, part.part, part.parts);
    int64_t at = 0;
    for (; next < slices.size() && slices[next].part == part; ++next) {
      const int64_t begin = slices[next].begin;
      if (begin != at)
        return fmt::format("{}: elements [{}, {}) are {}, before the slice in {}", where,
                           std::min(at, begin), std::max(at, begin),
                           begin < at ? "saved twice" : "missing", file_of_next());
      at += slices[next].elements;
    }
    if (const int64_t all = held_elements(part, tensor.shape); at != all)
      return fmt::format("{}: elements [{}, {}) are missing", where, at, all);
  }
  if (next == slices.size()) return "";
  return fmt::format("{}/{}: the slice in {} is of another division, or out of order", tensor.name,
                     tensor.slot, file_of_next());
}

}  // namespace dstrain
