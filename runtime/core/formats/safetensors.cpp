#include "runtime/core/formats/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "runtime/core/error.h"
#include "runtime/core/files/lfs_pointer.h"
#include "runtime/core/formats/shown_text.h"

namespace dstrain {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr size_t kMaxRank = 32;

constexpr SafetensorsType kTypes[] = {{"BOOL", 1},    {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1},
                                      {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
                                      {"BF16", 2},    {"I32", 4}, {"U32", 4}, {"F32", 4},
                                      {"F64", 8},     {"I64", 8}, {"U64", 8}};

// Parses the header as a stream, without a tree, so that duplicate keys are found and memory stays linear.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(SafetensorsHeader& header, const std::string& path) : header_(header), path_(path) {}

  bool start_object(size_t) override {
    switch (state_) {
      case State::start:
        return to(State::names);
      case State::value:
        type_.reset();
        shape_.reset();
        offsets_.reset();
        return to(is_metadata() ? State::metadata : State::fields);
      default:
        return unexpected("an object");
    }
  }

  bool key(std::string& text) override {
    switch (state_) {
      case State::names:
        name_ = text;
        return to(State::value);
      case State::metadata:
        field_ = text;
        return to(State::metadata_value);
      default:
        field_ = text;
        if (field_ == "dtype" && !type_) return to(State::dtype);
        if (field_ == "shape" && !shape_) return to(State::shape);
        if (field_ == "data_offsets" && !offsets_) return to(State::offsets);
        fail("has the key \"{}\" twice, or one that the format does not know", shown_text(field_));
    }
  }

  bool end_object() override {
    if (state_ == State::names) return to(State::end);
    if (state_ == State::fields) add_tensor();
    if (state_ == State::metadata && has_metadata_) fail("occurs twice");
    if (state_ == State::metadata) has_metadata_ = true;
    return to(State::names);
  }

  bool string(std::string& text) override {
    if (state_ == State::metadata_value) {
      if (!header_.metadata.emplace(field_, text).second)
        fail("has the key \"{}\" twice", shown_text(field_));
      return to(State::metadata);
    }
    if (state_ != State::dtype) return unexpected("text");
    for (const SafetensorsType& type : kTypes)
      if (type.name == text) type_ = type;
    if (!type_) fail("has the unknown dtype \"{}\"", shown_text(text));
    return to(State::fields);
  }

  bool start_array(size_t) override {
    if (state_ == State::shape) {
      shape_.emplace();
      return to(State::dimensions);
    }
    if (state_ != State::offsets) return unexpected("a list");
    offsets_.emplace();
    return to(State::offset_values);
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::dimensions && state_ != State::offset_values)
      return unexpected("a number");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      fail("has the number {} in its {}, too large", value, field_);
    auto& list = state_ == State::dimensions ? *shape_ : *offsets_;
    if (list.size() == kMaxRank) fail("has more than {} numbers in its {}", kMaxRank, field_);
    list.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool end_array() override { return to(State::fields); }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("true or false"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return unexpected("a fraction"); }
  bool binary(binary_t&) override { return unexpected("binary"); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    fail_user("{} is not a safetensors file: its header is not JSON, at byte {}: {}", path_,
              static_cast<int64_t>(position) + kLengthBytes, error.what());
  }

 private:
  enum class State {
    start,
    names,
    value,
    fields,
    dtype,
    shape,
    dimensions,
    offsets,
    offset_values,
    metadata,
    metadata_value,
    end
  };

  bool to(State next) {
    state_ = next;
    return true;
  }

  bool is_metadata() const { return name_ == "__metadata__"; }

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_user("{}: {} \"{}\" {}", path_, is_metadata() ? "section" : "tensor", shown_text(name_),
              fmt::format(format, std::forward<Args>(args)...));
  }

  bool unexpected(std::string_view what) const {
    if (state_ == State::start)
      fail_user("{} is not a safetensors file: its header is {}, not an object", path_, what);
    if (is_metadata()) fail("holds {}, expected a table of texts", what);
    fail("holds {} where the format has none: expected dtype, shape and data_offsets", what);
  }

  void add_tensor() {
    if (!type_ || !shape_ || !offsets_)
      fail("lacks its {}", !type_ ? "dtype" : !shape_ ? "shape" : "data_offsets");
    if (offsets_->size() != 2) fail("has {} data_offsets, expected 2", offsets_->size());
    const int64_t begin = (*offsets_)[0], end = (*offsets_)[1];
    int64_t bytes = type_->bytes;
    for (const int64_t dim : *shape_)
      if (__builtin_mul_overflow(bytes, dim, &bytes)) fail("has a shape that overflows");
    if (end < begin || end - begin != bytes)
      fail("has data_offsets [{}, {}], and its {} of shape ({}) takes {} bytes", begin, end,
           type_->name, fmt::join(*shape_, ", "), bytes);
    header_.tensors.push_back({name_, *type_, std::move(*shape_), begin, end});
  }

  SafetensorsHeader& header_;
  const std::string& path_;
  State state_ = State::start;
  std::string name_, field_;
  std::optional<SafetensorsType> type_;
  std::optional<std::vector<int64_t>> shape_, offsets_;
  bool has_metadata_ = false;
};

// Sorts the tensors by offset and checks that they cover the data exactly.
void check_layout(SafetensorsHeader& header, int64_t data_bytes, const std::string& path) {
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  int64_t at = 0;
  for (const SafetensorsTensor& t : header.tensors) {
    if (t.begin < at)
      fail_user("{}: tensor \"{}\" at bytes [{}, {}) overlaps the one before it, which ends at {}",
                path, shown_text(t.name), t.begin, t.end, at);
    if (t.begin > at)
      fail_user("{}: before tensor \"{}\" lie {} bytes that belong to no tensor", path,
                shown_text(t.name), t.begin - at);
    if (t.end > data_bytes)
      fail_user(
          "{}: tensor \"{}\" ends at byte {} of the data, and the file has {}: it is cut short "
          "or damaged",
          path, shown_text(t.name), t.end, data_bytes);
    at = t.end;
  }
  if (at != data_bytes)
    fail_user("{}: the last {} bytes belong to no tensor: the file is damaged", path,
              data_bytes - at);
}

}  // namespace

void SafetensorsHeader::index() {
  by_name_.resize(tensors.size());
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [this](size_t a, size_t b) { return tensors[a].name < tensors[b].name; });
}

SafetensorsType safetensors_type(std::string_view name) {
  const auto* const type = std::ranges::find(kTypes, name, &SafetensorsType::name);
  check(type != std::end(kTypes), "safetensors files have no type {}", name);
  return *type;
}

const SafetensorsTensor* SafetensorsHeader::find(std::string_view name) const {
  const auto it =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [this](size_t i, std::string_view n) { return tensors[i].name < n; });
  return it != by_name_.end() && tensors[*it].name == name ? &tensors[*it] : nullptr;
}

int64_t safetensors_header_bytes(std::string_view head, int64_t file_bytes,
                                 const std::string& path) {
  if (static_cast<int64_t>(head.size()) < kLengthBytes)
    fail_user("{} is not a safetensors file: it has {} bytes, expected at least {}", path,
              file_bytes, kLengthBytes);
  uint64_t bytes = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i)
    bytes = bytes << 8 | static_cast<unsigned char>(head[static_cast<size_t>(i)]);
  if (bytes > static_cast<uint64_t>(kMaxSafetensorsHeader))
    fail_user("{} is not a safetensors file: it states a header of {} bytes, expected at most {}",
              path, bytes, kMaxSafetensorsHeader);
  if (static_cast<int64_t>(bytes) > file_bytes - kLengthBytes)
    fail_user(
        "{} is cut short or not a safetensors file: it states a header of {} bytes, and {} bytes "
        "follow",
        path, bytes, file_bytes - kLengthBytes);
  return static_cast<int64_t>(bytes);
}

SafetensorsHeader parse_safetensors(std::string_view json, int64_t file_bytes,
                                    const std::string& path) {
  // The JSON parser would stop at a zero byte and ignore the rest.
  if (const size_t zero = json.find('\0'); zero != std::string_view::npos)
    fail_user("{} is not a safetensors file: its header is not JSON, it has a zero at byte {}",
              path, static_cast<int64_t>(zero) + kLengthBytes);
  SafetensorsHeader header;
  HeaderReader reader(header, path);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(json.size());
  check_layout(header, file_bytes - data_begin, path);
  for (SafetensorsTensor& t : header.tensors) {
    t.begin += data_begin;
    t.end += data_begin;
  }
  header.index();
  for (const SafetensorsTensor& t : header.tensors)
    if (header.find(t.name) != &t)
      fail_user("{}: tensor \"{}\" occurs twice", path, shown_text(t.name));
  return header;
}

SafetensorsHeader read_safetensors_header(const InputFile& file) {
  const int64_t file_bytes = file.size();
  std::string beginning(static_cast<size_t>(std::min<int64_t>(64, file_bytes)), '\0');
  file.read_at(beginning.data(), std::ssize(beginning), 0);
  refuse_lfs_pointer(beginning, file.path());
  std::string head(static_cast<size_t>(std::min(kLengthBytes, file_bytes)), '\0');
  file.read_at(head.data(), static_cast<int64_t>(head.size()), 0);
  const int64_t bytes = safetensors_header_bytes(head, file_bytes, file.path());
  std::string json(static_cast<size_t>(bytes), '\0');
  file.read_at(json.data(), bytes, kLengthBytes);
  return parse_safetensors(json, file_bytes, file.path());
}

std::string make_safetensors_header(std::vector<SafetensorsTensor>& tensors) {
  nlohmann::ordered_json json;
  json["__metadata__"] = {{"format", "pt"}};
  int64_t at = 0;
  for (SafetensorsTensor& t : tensors) {
    t.begin = at;
    for (at = t.type.bytes; const int64_t dim : t.shape) at *= dim;
    t.end = at += t.begin;
    json[t.name] = {{"dtype", t.type.name}, {"shape", t.shape}, {"data_offsets", {t.begin, t.end}}};
  }
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data starts aligned
  std::string head(kLengthBytes, '\0');
  for (size_t i = 0; i < head.size(); ++i) head[i] = static_cast<char>(text.size() >> (8 * i));
  for (SafetensorsTensor& t : tensors) {
    t.begin += static_cast<int64_t>(head.size() + text.size());
    t.end += static_cast<int64_t>(head.size() + text.size());
  }
  return head + text;
}

}  // namespace dstrain
