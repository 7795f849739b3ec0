#include "runtime/data/arrays/npy.h"

#include <fmt/ranges.h>

#include <charconv>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/core/formats/shown_text.h"

namespace dstrain {
namespace {

constexpr std::string_view kMark = "\x93NUMPY";
constexpr size_t kMostDimensions = 32;  // of NumPy before version 2
constexpr int64_t kLongestHeader = 1 << 20;

constexpr std::pair<std::string_view, ElementType> kDescrs[] = {
    {"b1", ElementType::boolean}, {"u1", ElementType::u8},  {"i1", ElementType::i8},
    {"u2", ElementType::u16},     {"i2", ElementType::i16}, {"u4", ElementType::u32},
    {"i4", ElementType::i32},     {"u8", ElementType::u64}, {"i8", ElementType::i64},
    {"f2", ElementType::f16},     {"f4", ElementType::f32}, {"f8", ElementType::f64}};

std::optional<ElementType> type_of_descr(std::string_view descr) {
  if (descr.size() != 3) return std::nullopt;
  const bool one_byte = descr[2] == '1';
  if (descr[0] != '<' && descr[0] != '=' && !(one_byte && descr[0] == '|')) return std::nullopt;
  for (const auto& [name, type] : kDescrs)
    if (descr.substr(1) == name) return type;
  return std::nullopt;
}

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i)
    value = value << 8 | static_cast<unsigned char>(bytes[i - 1]);
  return value;
}

// Reads the dictionary of a header: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class DictionaryReader {
 public:
  DictionaryReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  NpyHeader read() {
    NpyHeader header;
    bool order = false, shape = false;
    expect('{');
    while (!take('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && header.descr.empty()) {
        header.descr = descr();
      } else if (key == "fortran_order" && !order) {
        header.fortran_order = truth();
        order = true;
      } else if (key == "shape" && !shape) {
        header.shape = numbers();
        shape = true;
      } else {
        fail("the key '{}' comes twice or is none of the format's", shown_text(key));
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip_blanks();
    if (at_ < text_.size()) fail("text follows the dictionary at byte {}", at_);
    if (header.descr.empty() || !order || !shape)
      fail("it lacks {}", header.descr.empty() ? "descr" : !order ? "fortran_order" : "shape");
    return header;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_user("{} is damaged or no .npy file: in its header {}", name_,
              fmt::format(format, std::forward<Args>(args)...));
  }

  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  bool take(char c) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!take(c)) fail("byte {} is not '{}'", at_, c);
  }

  std::string_view quoted() {
    skip_blanks();
    const char mark = at_ < text_.size() ? text_[at_] : '\0';
    if (mark != '\'' && mark != '"') fail("no text in quotes begins at byte {}", at_);
    const size_t end = text_.find(mark, at_ + 1);
    if (end == std::string_view::npos) fail("the text at byte {} has no end", at_);
    const std::string_view text = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return text;
  }

  // Returns the name of a type. Of one with fields, which is a list of them, returns the list.
  std::string descr() {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != '[') return std::string(quoted());
    const size_t begin = at_;
    int64_t open = 0;
    do {
      if (at_ == text_.size()) fail("the list at byte {} has no end", begin);
      const char c = text_[at_];
      if (c == '\'' || c == '"') {
        quoted();
        continue;
      }
      if (c == '[') ++open;
      if (c == ']') --open;
      ++at_;
    } while (open > 0);
    return std::string(text_.substr(begin, at_ - begin));
  }

  bool truth() {
    skip_blanks();
    for (const auto& [word, value] : {std::pair{std::string_view("True"), true}, {"False", false}})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    fail("byte {} is neither True nor False", at_);
  }

  std::vector<int64_t> numbers() {
    std::vector<int64_t> list;
    expect('(');
    while (!take(')')) {
      skip_blanks();
      int64_t number = -1;
      const auto [end, error] =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
      if (error != std::errc() || number < 0) fail("no size is at byte {}", at_);
      if (list.size() == kMostDimensions) fail("there are more than {} sizes", kMostDimensions);
      list.push_back(number);
      at_ = static_cast<size_t>(end - text_.data());
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    return list;
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
};

}  // namespace

bool is_npy(std::string_view bytes) {
  return bytes.starts_with(kMark);
}

NpyHeader parse_npy(std::string_view bytes, const std::string& name) {
  if (!is_npy(bytes)) fail_user("{} is no .npy file: it does not begin with NumPy's mark", name);
  if (bytes.size() < kMark.size() + 4) fail_user("{} is cut short in its header", name);
  const int version = static_cast<unsigned char>(bytes[kMark.size()]);
  if (version < 1 || version > 3)
    fail_user("{} has version {} of the .npy format, expected 1 to 3", name, version);
  const size_t width = version == 1 ? 2 : 4, begin = kMark.size() + 2 + width;
  if (bytes.size() < begin) fail_user("{} is cut short in its header", name);
  const uint64_t length = little_endian(bytes.substr(kMark.size() + 2, width));
  if (length > static_cast<uint64_t>(kLongestHeader))
    fail_user("{} states a header of {} bytes, expected at most {}", name, length, kLongestHeader);
  if (length > bytes.size() - begin)
    fail_user("{} is cut short: it states a header of {} bytes, and {} follow", name, length,
              bytes.size() - begin);
  NpyHeader header = DictionaryReader(bytes.substr(begin, length), name).read();
  header.type = type_of_descr(header.descr);
  header.begin = static_cast<int64_t>(begin + length);
  if (header.shape.size() < 2) header.fortran_order = false;
  if (!header.type) return header;
  int64_t needed = size_of(*header.type);
  for (const int64_t size : header.shape)
    if (__builtin_mul_overflow(needed, size, &needed))
      fail_user("{} states the shape ({}), which overflows", name, fmt::join(header.shape, ", "));
  const int64_t there = static_cast<int64_t>(bytes.size()) - header.begin;
  if (needed != there)
    fail_user(
        "{} is damaged or cut short: its {} of shape ({}) takes {} bytes, and {} follow the "
        "header",
        name, name_of(*header.type), fmt::join(header.shape, ", "), needed, there);
  return header;
}

std::string descr_advice(std::string_view descr) {
  if (descr.starts_with('>')) return "it is big-endian: save a.astype(a.dtype.newbyteorder('='))";
  if (descr == "<V2" || descr == "|V2")
    return "where it is bfloat16, which .npy files do not name, save it as float32 or in a "
           ".safetensors file";
  return "save integers, bool, float16, float32 or float64";
}

}  // namespace dstrain
