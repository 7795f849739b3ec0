#include "launcher/report/record/metrics_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "runtime/config/text.h"

namespace dstrain::report {
namespace {

using Json = nlohmann::json;

constexpr size_t kDeepest = 8;  // objects in objects; a deeper one is no line of a run
// A run has a few dozens of names. What is beyond is passed over, so that no file makes the reader grow.
constexpr size_t kMostNames = 256, kLongestName = 256;

// Adds a value to a line, unless it is beyond what a run has.
void add_value(MetricNames& names, MetricsLine& line, const std::string& name, double value) {
  if (name.size() > kLongestName) return;
  if (names.count() >= kMostNames && !names.knows(name)) return;
  line.values.emplace_back(names.index_of(name), value);
}

// Reads a line in the form in which a run writes it, without blanks, escapes, texts and lists, in a fraction of the time
// that JSON in general takes.
class PlainLine {
 public:
  PlainLine(std::string_view text, MetricNames& names, MetricsLine& line)
      : rest_(text), names_(names), line_(line) {}

  // Returns false if the line has another form; what has been added to it is then to be removed.
  bool read() { return members("") && rest_.empty() && has_step_; }

 private:
  bool skip(std::string_view part) {
    if (!rest_.starts_with(part)) return false;
    rest_.remove_prefix(part.size());
    return true;
  }

  // The members of an object; `prefix`: what its name puts before theirs.
  bool members(const std::string& prefix) {
    if (!skip("{")) return false;
    do {
      if (!skip("\"")) return false;
      const size_t end = rest_.find('"');
      if (end == std::string_view::npos) return false;
      const std::string_view key = rest_.substr(0, end);
      const bool plain =
          std::ranges::all_of(key, [](char c) { return c >= ' ' && c != '\\' && c < '\x7F'; });
      rest_.remove_prefix(end);
      if (!plain || !skip("\":") || !member(prefix, key)) return false;
    } while (skip(","));
    return skip("}");
  }

  bool member(const std::string& prefix, std::string_view key) {
    if (rest_.starts_with('{'))
      return prefix.empty() && key != "step" && members(std::string(key) + "/");
    if (prefix.empty() && key == "step") return step();
    if (skip("null")) return add(prefix, key, std::numeric_limits<double>::quiet_NaN());
    if (skip("true")) return add(prefix, key, 1);
    if (skip("false")) return add(prefix, key, 0);
    const std::string_view number = rest_.substr(0, rest_.find_first_of(",}"));
    double value = 0;
    const char* const end = number.data() + number.size();
    const auto [stop, status] = std::from_chars(number.data(), end, value);
    if (status != std::errc() || stop != end || !is_json_number(number)) return false;
    rest_.remove_prefix(number.size());
    return add(prefix, key, value);
  }

  bool step() {
    const std::string_view number = rest_.substr(0, rest_.find_first_of(",}"));
    const char* const end = number.data() + number.size();
    const auto [stop, status] = std::from_chars(number.data(), end, line_.step);
    if (status != std::errc() || stop != end || line_.step < 0 || !is_json_number(number))
      return false;
    rest_.remove_prefix(number.size());
    return has_step_ = true;
  }

  bool add(const std::string& prefix, std::string_view key, double value) {
    const size_t number = line_.values.size();
    if (prefix.empty() && number < line_.before.size() &&
        names_.name(line_.before[number]) == key) {
      line_.values.emplace_back(line_.before[number], value);
      return true;
    }
    add_value(names_, line_, prefix + std::string(key), value);
    return true;
  }

  std::string_view rest_;
  MetricNames& names_;
  MetricsLine& line_;
  bool has_step_ = false;
};

// Collects the numbers of a line in any form of JSON. A text or a list among the values is passed over.
class LineReader : public nlohmann::json_sax<Json> {
 public:
  LineReader(MetricNames& names, MetricsLine& line) : names_(names), line_(line) {}

  bool complete() const { return has_step_; }

  bool null() override { return add(std::numeric_limits<double>::quiet_NaN()); }
  bool boolean(bool value) override { return add(value ? 1 : 0); }
  // A negative one.
  bool number_integer(number_integer_t value) override { return add(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (is_step() && value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return false;
    if (!is_step()) return add(static_cast<double>(value));
    line_.step = static_cast<int64_t>(value);
    has_step_ = true;
    return true;
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value); }
  bool string(string_t& /*value*/) override { return depth_ > 0 && !is_step(); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(size_t /*elements*/) override {
    if (lists_ == 0 && depth_ > 0) prefixes_.push_back(std::exchange(name_, {}) + "/");
    return ++depth_ <= kDeepest;
  }
  bool end_object() override {
    --depth_;
    if (lists_ == 0 && !prefixes_.empty()) prefixes_.pop_back();
    return true;
  }
  bool start_array(size_t /*elements*/) override { return depth_ > 0 && ++lists_ <= kDeepest; }
  bool end_array() override {
    --lists_;
    return true;
  }
  bool key(string_t& name) override {
    name_ = prefixes_.empty() ? name : prefixes_.back() + name;
    return true;
  }
  bool parse_error(size_t /*at*/, const std::string& /*token*/,
                   const Json::exception& /*error*/) override {
    return false;
  }

 private:
  bool is_step() const { return depth_ == 1 && lists_ == 0 && name_ == "step"; }
  bool add(double value) {
    if (depth_ == 0 || is_step()) return false;
    if (lists_ == 0) add_value(names_, line_, name_, value);
    return true;
  }

  MetricNames& names_;
  MetricsLine& line_;
  std::vector<std::string> prefixes_;
  std::string name_;
  size_t depth_ = 0, lists_ = 0;
  bool has_step_ = false;
};

}  // namespace

size_t MetricNames::index_of(const std::string& name) {
  const auto [at, added] = indices_.try_emplace(name, names_.size());
  if (added) names_.push_back(name);
  return at->second;
}

std::optional<double> MetricsLine::value(size_t index) const {
  for (const auto& [of, value] : values)
    if (of == index) return value;
  return std::nullopt;
}

bool read_metrics_line(std::string_view text, MetricNames& names, MetricsLine& line) {
  line.before.clear();
  for (const auto& [index, value] : line.values) line.before.push_back(index);
  line.step = 0;
  line.values.clear();
  if (PlainLine(text, names, line).read()) return true;
  line.step = 0;
  line.values.clear();
  LineReader reader(names, line);
  return Json::sax_parse(text.begin(), text.end(), &reader) && reader.complete();
}

std::optional<int64_t> step_at_begin(std::string_view text) {
  constexpr std::string_view begin = R"({"step":)";
  if (!text.starts_with(begin) || !text.ends_with('}')) return std::nullopt;
  int64_t step = 0;
  const auto [stop, status] =
      std::from_chars(text.data() + begin.size(), text.data() + text.size(), step);
  if (status != std::errc() || step < 0 || *stop != ',') return std::nullopt;
  return step;
}

}  // namespace dstrain::report
