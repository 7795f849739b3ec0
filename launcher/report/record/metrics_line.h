// MetricsLine: a line of metrics.jsonl as numbers with names. Names repeat from line to line, so they are numbered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace dstrain::report {

// The names of a file's values. A member of an object has that object's name in front: "codec_error/weights".
class MetricNames {
 public:
  size_t index_of(const std::string& name);
  bool knows(const std::string& name) const { return indices_.contains(name); }
  const std::string& name(size_t index) const { return names_[index]; }
  size_t count() const { return names_.size(); }

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, size_t> indices_;
};

struct MetricsLine {
  int64_t step = 0;
  // Numbers by the index of their name, `step` left out; true is 1, false 0, and null NaN.
  std::vector<std::pair<size_t, double>> values;
  std::vector<size_t>
      before;  // the indices of the line that was read before: as a rule they are the same

  // Returns the value with an index; nothing if the line lacks it.
  std::optional<double> value(size_t index) const;
};

// Reads a line into `line`, whose memory is used again. Returns false if it is no object with a step from 0 on; whatever
// a file holds, nothing is thrown but for lack of memory.
bool read_metrics_line(std::string_view text, MetricNames& names, MetricsLine& line);

// Returns the step of a line as dstrain writes it, which begins with {"step":; nothing if the line begins otherwise.
std::optional<int64_t> step_at_begin(std::string_view text);

}  // namespace dstrain::report
